// The flame graph with its search, its table, its files, and its state in the address.

import { element } from "./elements.js";
import { FlameCanvas } from "./flame.js";
import { FlameModel } from "./flame-model.js";
import { FlameTable } from "./flame-table.js";
import { Language } from "./language.js";

const SEARCH_PAUSE = 120; // milliseconds without a key before it searches

/**
 * @typedef {import("./flame-model.js").Flame} Flame
 * @typedef {{get: () => URLSearchParams, set: (values: Record<string, string>) => void}} Address
 * @typedef {{element: HTMLElement, recolor: () => void}} FlameSection
 */

/**
 * @param {Flame} flame @param {Language} language @param {string} title of exported files
 * @param {Address} address where zoom and search are kept
 * @param {(text: string) => void} copy @returns {FlameSection}
 */
export function flameSection(flame, language, title, address, copy) {
  const text = language.text.bind(language);
  const model = new FlameModel(flame, {
    root: text("flame.root"),
    merged: text("flame.merged"),
    unnamed: text("flame.unnamed"),
    block: text("flame.block", { ids: "{ids}" }),
    blocks: text("flame.blocks", { ids: "{ids}" }),
  });
  const all = model.tokens[0] || 1;

  const crumbs = element("nav", { class: "crumbs", "aria-label": text("flame.lineage") });
  const found = element("output", { class: "found", "aria-live": "polite" });
  const detail = element("dl", { class: "frame-detail", "aria-live": "polite" });
  const field = /** @type {HTMLInputElement} */ (
    element("input", {
      type: "search",
      id: "flame-search",
      placeholder: text("flame.search"),
      "aria-label": text("flame.search"),
      autocomplete: "off",
      spellcheck: "false",
    })
  );

  /** @param {number} tokens @param {number | null} rate */
  const withRate = (tokens, rate) =>
    rate === null
      ? language.count(tokens)
      : text("flame.tokens_hit", { tokens: language.count(tokens), rate: language.rate(rate) });

  /** @param {number} node @returns {[string, string][]} */
  const describe = (node) => {
    /** @type {[string, string][]} */
    const lines = [
      [text("flame.own"), withRate(model.own[node], model.own[node] > 0 ? model.shareHit(node) : null)],
      [text("flame.through"), withRate(model.tokens[node], model.hitRate(node))],
      [text("flame.share"), language.rate(model.tokens[node] / all)],
    ];
    const path = model.pathOf(node);
    return path ? [[text("flame.path"), path], ...lines] : lines;
  };

  const showDetail = (/** @type {number} */ node) => {
    const path = model.pathOf(node);
    detail.replaceChildren(
      element(
        "div",
        { class: "wide" },
        element("dt", {}, text("flame.name")),
        element("dd", { class: "frame-text", translate: "no" }, model.nameOf(node)),
      ),
      ...describe(node).map(([name, value]) =>
        element(
          "div",
          {},
          element("dt", {}, name),
          element(
            "dd",
            { translate: path && value === path ? "no" : null },
            value,
            path &&
              value === path &&
              element("button", { type: "button", class: "small", onclick: () => copy(path) }, text("page.copy")),
          ),
        ),
      ),
    );
  };

  const canvas = new FlameCanvas(model, {
    label: text("flame.label"),
    describedBy: "flame-keys",
    describe,
    onView: (view, wasClick) => {
      showCrumbs(view.node);
      const isWhole = view.high - view.low === model.tokens[view.node];
      address.set({ zoom: view.node ? String(view.node) : "", range: isWhole ? "" : `${view.low}-${view.high}` });
      const path = wasClick ? model.pathOf(view.node) : "";
      if (path) copy(path);
    },
    onSelect: (node) => {
      showDetail(node);
      table.reveal(node);
    },
  });

  const table = new FlameTable(model, {
    label: text("flame.table"),
    headings: [text("flame.name"), text("flame.path"), text("flame.tokens"), text("flame.hit"), text("flame.share")],
    cells: (node) => [
      model.pathOf(node),
      language.count(model.tokens[node]),
      language.rate(model.shareHit(node)),
      language.rate(model.tokens[node] / all),
    ],
    onOpen: (node) => canvas.zoom(node, true),
    onSelect: (node) => {
      showDetail(node);
      canvas.selected = node;
      canvas.draw();
    },
  });

  /** @param {number} node */
  const showCrumbs = (node) => {
    const line = model.lineage(node);
    const shown = line.length > 5 ? [line[0], ...line.slice(-4)] : line;
    crumbs.replaceChildren(
      ...shown.flatMap((at, index) =>
        [
          index > 0 &&
            element("span", { "aria-hidden": "true" }, index === 1 && shown.length < line.length ? "› … ›" : "›"),
          element(
            "button",
            {
              type: "button",
              class: "crumb",
              translate: "no",
              "aria-current": at === node ? "true" : null,
              onclick: () => canvas.zoom(at),
            },
            model.nameOf(at).slice(0, 60),
          ),
        ].filter((made) => made !== false),
      ),
    );
  };

  const search = () => {
    const result = model.search(field.value);
    found.textContent = result.text
      ? text("flame.found", { frames: language.count(result.frames), share: language.rate(result.tokens / all) })
      : "";
    canvas.highlight(result.text !== "");
    address.set({ find: field.value.trim() });
  };
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, SEARCH_PAUSE);
  });

  const restore = () => {
    const kept = address.get();
    const node = Number(kept.get("zoom") ?? 0);
    const known = Number.isInteger(node) && node > 0 && node < model.count ? node : 0;
    const [low, high] = (kept.get("range") ?? "").split("-").map(Number);
    const start = model.start[known] ?? 0;
    const end = start + (model.tokens[known] ?? 1);
    const isRange = low >= start && high <= end && low < high;
    canvas.restore({ node: known, low: isRange ? low : start, high: isRange ? high : end });
    showCrumbs(known);
    showDetail(known);
    table.reveal(known);
    field.value = kept.get("find") ?? "";
    search();
  };

  const legend = element(
    "div",
    { class: "flame-legend" },
    element("span", {}, text("flame.legend.cold")),
    element("span", { class: "ramp", "aria-hidden": "true" }),
    element("span", {}, text("flame.legend.hit")),
  );
  const made = element(
    "div",
    {},
    element("div", { class: "flame-bar" }, field, found, legend),
    crumbs,
    canvas.element,
    element("p", { class: "hint keys", id: "flame-keys" }, text("flame.keys")),
    model.maxDepth >= canvas.rows &&
      element(
        "p",
        { class: "hint" },
        text("flame.levels", { shown: language.count(canvas.rows), all: language.count(model.maxDepth + 1) }),
      ),
    detail,
    element(
      "details",
      { class: "flame-table", open: "" },
      element("summary", {}, text("flame.table")),
      element("p", { class: "hint" }, text("flame.table.hint")),
      table.element,
    ),
    element(
      "div",
      { class: "buttons" },
      element("button", { type: "button", onclick: () => canvas.zoom(0) }, text("flame.reset")),
      element(
        "button",
        {
          type: "button",
          id: "save-speedscope",
          onclick: () => save("prefold.speedscope.json", JSON.stringify(model.speedscope(title))),
        },
        text("flame.speedscope"),
      ),
      element(
        "button",
        { type: "button", id: "save-collapsed", onclick: () => save("prefold.collapsed.txt", model.collapsed()) },
        text("flame.collapsed"),
      ),
    ),
    flame.merged > 0 &&
      element("p", { class: "hint" }, text("flame.merged.note", { count: language.count(flame.merged) })),
  );
  restore();
  return { element: made, recolor: () => canvas.recolor() };
}

/** @param {string} name @param {string} content */
function save(name, content) {
  const link = /** @type {HTMLAnchorElement} */ (element("a", { download: name }));
  link.href = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
