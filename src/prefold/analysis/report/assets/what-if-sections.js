// The sections that say what could be: other orders, capacities and caches, what to do first, and other routes.

import { bar, lineChart } from "./charts.js";
import { element } from "./elements.js";
import { Language } from "./language.js";
import { MOST_ROWS, number, row, shortened, tableOf } from "./tables.js";
import { readable } from "./visible.js";

/** @typedef {import("./tables.js").Analysis} Analysis */

const MOST_LINES = 5;
/** As in `prefold.analysis.timeline`. */
const OTHERS = "(others)";

/** @param {Analysis} data @param {Language} language */
export function order(data, language) {
  const text = language.text.bind(language);
  if (!data.order) return null;
  /** @param {string} name @param {number} share @param {string} kind */
  const line = (name, share, kind) =>
    element(
      "div",
      { class: "compare" },
      element("span", {}, name),
      bar(share ?? 0, kind),
      element("span", { class: "number" }, language.rate(share)),
    );
  return [
    line(text("order.before"), data.order.share_before, "muted"),
    line(text("order.after"), data.order.share_after, "cool"),
    data.order.moves.length > 0 &&
      element(
        "ol",
        { class: "moves" },
        ...data.order.moves.map((/** @type {any} */ move) =>
          element(
            "li",
            {},
            `${text("order.move")} `,
            element("code", { translate: "no" }, move.path),
            " ",
            element("b", {}, language.sentence(move.to)),
            move.text && element("q", { class: "excerpt", translate: "no" }, readable(move.text)),
          ),
        ),
      ),
    typeof data.order.requests === "number" &&
      element("p", { class: "hint" }, text("order.requests", { requests: language.count(data.order.requests) })),
  ];
}

/** @param {Analysis} data @param {Language} language */
export function capacity(data, language) {
  const text = language.text.bind(language);
  if (!data.capacity) return null;
  const { points, infinite, unit_bytes: unitBytes, block_tokens: block, exact } = data.capacity;
  const basis =
    typeof block === "number" &&
    element(
      "p",
      { class: "hint" },
      text(exact === false ? "capacity.basis.sampled" : "capacity.basis", { block: language.count(block) }),
    );
  if (points.length < 2) {
    const key = infinite > 0 ? "capacity.fits" : "capacity.nothing";
    return [element("p", {}, text(key, { rate: language.rate(infinite) })), basis];
  }
  const names = ["optimum", "default", "lru"].filter((name) =>
    points.some((/** @type {any} */ point) => point[name] !== null && point[name] !== undefined),
  );
  const lines = names.map((name) => ({
    name: text(`capacity.${name}`),
    kind: `capacity-${name}`,
    points: points
      .filter((/** @type {any} */ point) => typeof point[name] === "number")
      .map((/** @type {any} */ point) => ({ x: point.tokens, y: point[name] })),
  }));
  if (typeof infinite === "number") {
    const xs = points.map((/** @type {any} */ point) => point.tokens);
    lines.push({
      name: text("capacity.infinite"),
      kind: "capacity-infinite",
      points: [
        { x: Math.min(...xs), y: infinite },
        { x: Math.max(...xs), y: infinite },
      ],
    });
  }
  const headings = [
    `${text("capacity.tokens")}#`,
    unitBytes ? `${text("capacity.bytes")}#` : "",
    ...names.map((name) => `${text(`capacity.${name}`)}#`),
  ].filter(Boolean);
  const rows = points.map((/** @type {any} */ point) =>
    row(
      number(language.count(point.tokens)),
      unitBytes && number(language.bytes(point.tokens * unitBytes)),
      ...names.map((name) => number(language.rate(point[name]))),
    ),
  );
  return [
    lineChart({
      lines,
      label: text("capacity"),
      isLog: true,
      formatX: (x) => language.axis.format(x),
      formatY: (y) => language.rate(y),
      formatTick: (y) => language.tick.format(y),
      axis: text("capacity.axis"),
    }),
    basis,
    element("details", {}, element("summary", {}, text("page.table")), tableOf(headings, rows, text("capacity"))),
  ];
}

/** @param {Analysis} data @param {Language} language */
export function overTime(data, language) {
  const text = language.text.bind(language);
  if (!data.over_time.length) return null;
  const holder = element("div", {});
  const choices = ["overall", "tenant", "model"].filter(
    (field) => field === "overall" || new Set(data.over_time.map((/** @type {any} */ entry) => entry[field])).size > 1,
  );
  const select = /** @type {HTMLSelectElement} */ (
    element(
      "select",
      { "aria-label": text("over_time.by") },
      ...choices.map((field) => element("option", { value: field }, text(`over_time.${field}`))),
    )
  );
  const show = () => {
    const lines = linesOverTime(
      data.over_time,
      select.value,
      text("over_time.others"),
      text("over_time.overall"),
      text("over_time.unnamed"),
    );
    const rates = lines.map((line) => new Map(line.points.map(({ x, y }) => [x, y])));
    const times = [...new Set(rates.flatMap((rate) => [...rate.keys()]))].sort((one, other) => one - other);
    const rows = times.map((time) =>
      row(
        element("th", { scope: "row" }, language.time(time)),
        ...rates.map((rate) => number(language.rate(rate.get(time)))),
      ),
    );
    holder.replaceChildren(
      lineChart({
        lines,
        label: text("over_time"),
        isLog: false,
        formatX: (x) => language.time(x, true),
        formatY: (y) => language.rate(y),
        formatTick: (y) => language.tick.format(y),
      }),
      element(
        "details",
        {},
        element("summary", {}, text("page.table")),
        tableOf([text("over_time.time"), ...lines.map((line) => `${line.name}#`)], rows, text("over_time")),
      ),
    );
  };
  select.addEventListener("change", show);
  show();
  return [
    choices.length > 1 && element("p", { class: "chooser" }, element("label", {}, text("over_time.by"), " ", select)),
    holder,
  ];
}

/**
 * The busiest names as lines of their own, all others as one.
 * @param {any[]} entries @param {string} field @param {string} others @param {string} overall @param {string} unnamed
 */
function linesOverTime(entries, field, others, overall, unnamed) {
  /** @param {any} entry @returns {string} */
  const nameOf = (entry) =>
    field === "overall" ? overall : entry[field] === OTHERS ? others : entry[field] || unnamed;
  /** @type {Map<string, number>} */
  const weights = new Map();
  for (const entry of entries) weights.set(nameOf(entry), (weights.get(nameOf(entry)) ?? 0) + entry.input_tokens);
  const ranked = [...weights.keys()].sort(
    (one, other) => /** @type {number} */ (weights.get(other)) - /** @type {number} */ (weights.get(one)),
  );
  const own = new Set(ranked.filter((name) => name !== others).slice(0, MOST_LINES));
  /** @type {Map<string, Map<number, {input: number, hit: number}>>} */
  const series = new Map();
  for (const entry of entries) {
    const name = own.has(nameOf(entry)) ? nameOf(entry) : others;
    const times = series.get(name) ?? new Map();
    series.set(name, times);
    const sum = times.get(entry.time) ?? { input: 0, hit: 0 };
    times.set(entry.time, { input: sum.input + entry.input_tokens, hit: sum.hit + entry.hit_tokens });
  }
  const names = [...own, ...(ranked.length > own.size ? [others] : [])];
  return names.map((name, index) => ({
    name,
    kind: `series-${index}`,
    points: [...(series.get(name) ?? [])]
      .sort(([one], [other]) => one - other)
      .filter(([, sum]) => sum.input > 0)
      .map(([time, sum]) => ({ x: time, y: Math.min(1, sum.hit / sum.input) })),
  }));
}

/** @param {Analysis} data @param {Language} language */
export function caches(data, language) {
  const text = language.text.bind(language);
  if (!data.caches.length) return null;
  const rows = [...data.caches].sort((one, other) => (other.hit_rate ?? -1) - (one.hit_rate ?? -1));
  /** @type {Map<string, number>} */
  const dearest = new Map();
  for (const { currency, cost } of rows) dearest.set(currency, Math.max(dearest.get(currency) ?? 0, cost ?? 0));
  const lines = rows.map((entry) => {
    const most = dearest.get(entry.currency) || 1;
    return row(
      element("th", { scope: "row", translate: "no" }, entry.cache),
      element("td", { translate: "no" }, entry.policy),
      number(
        entry.capacity_tokens === null || entry.capacity_tokens === undefined
          ? text("caches.capacity.none")
          : language.compact(entry.capacity_tokens),
      ),
      element("td", { class: "number with-bar" }, bar(entry.hit_rate ?? 0, "cool"), language.rate(entry.hit_rate)),
      number(language.compact(entry.recomputed_tokens)),
      element(
        "td",
        { class: "number with-bar" },
        entry.cost !== null && entry.cost !== undefined && bar(entry.cost / most, "warm"),
        language.money(entry.cost, entry.currency ?? ""),
      ),
    );
  });
  const headings = ["cache", "policy", "capacity#", "hit_rate#", "recomputed#", "cost#"].map((name) =>
    name.endsWith("#") ? `${text(`caches.${name.slice(0, -1)}`)}#` : text(`caches.${name}`),
  );
  return [tableOf(headings, lines, text("caches")), shortened(language, lines, MOST_ROWS)];
}

/** @param {Analysis} data @param {Language} language @param {(text: string) => void} copy */
export function advice(data, language, copy) {
  const text = language.text.bind(language);
  if (!data.situation && !data.advice.length) return null;
  return [
    data.situation && element("p", { class: "situation" }, language.named("situation", data.situation)),
    element(
      "ol",
      { class: "advice" },
      ...data.advice.map((/** @type {any} */ item) =>
        element(
          "li",
          {},
          element("h3", {}, language.sentence(item.title)),
          element("p", {}, language.sentence(item.text)),
          item.command &&
            element(
              "div",
              { class: "command" },
              element("pre", { translate: "no" }, item.command),
              element(
                "button",
                {
                  type: "button",
                  class: "small",
                  "aria-label": `${text("page.copy")}: ${item.command}`,
                  onclick: () => copy(item.command),
                },
                text("page.copy"),
              ),
            ),
        ),
      ),
    ),
  ];
}

/** @param {Analysis} data @param {Language} language */
export function routes(data, language) {
  const text = language.text.bind(language);
  if (!data.routes.length) return null;
  const currency = data.cost?.currency ?? "";
  const ordered = [...data.routes].sort((one, other) => Number(other.lossless) - Number(one.lossless));
  return [
    element(
      "ul",
      { class: "routes" },
      ...ordered.map((route) =>
        element(
          "li",
          {},
          element(
            "h3",
            {},
            language.named("route", route.route),
            element(
              "span",
              { class: `badge ${route.lossless ? "good" : "careful"}` },
              text(route.lossless ? "routes.lossless" : "routes.lossy"),
            ),
          ),
          element("p", { class: "saved" }, saved(route, currency, language)),
          element("p", {}, language.sentence(route.text)),
        ),
      ),
    ),
    data.cost && element("p", { class: "hint" }, text("routes.cost.note")),
  ];
}

/** What a route would save, as far as it can be said. @param {any} route @param {string} currency @param {Language} language */
function saved(route, currency, language) {
  const tokens = route.saved_tokens > 0 || (route.saved_tokens === 0 && !route.saved_cost);
  const parts = [
    tokens && language.text("routes.saved", { tokens: language.compact(route.saved_tokens) }),
    typeof route.saved_cost === "number" &&
      (tokens ? route.saved_cost > 0 : true) &&
      language.money(route.saved_cost, currency),
  ].filter(Boolean);
  return parts.length ? parts.join(" · ") : language.text("routes.unknown");
}
