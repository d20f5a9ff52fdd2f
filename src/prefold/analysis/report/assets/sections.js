// The sections that say what happened: each takes the analysis and gives what to show, or null for nothing.

import { bar } from "./charts.js";
import { element } from "./elements.js";
import { Language } from "./language.js";
import { MOST_ROWS, counted, number, row, shortened, tableOf } from "./tables.js";
import { difference, readable, visible } from "./visible.js";

/** @typedef {import("./tables.js").Analysis} Analysis */

const MOST_BREAKS = 10;

/** From what is as it should be, over what nobody can help, to what can be helped. */
const REASONS = [
  "hit",
  "cold",
  "block_tail",
  "below_minimum",
  "changed_prefix",
  "breakpoint",
  "lookback",
  "expired",
  "evicted",
  "not_kept",
  "other_replica",
  "other_model",
  "other_tenant",
  "unexplained",
];

/** @param {string} reason @returns {string} the class that colours it */
const kindOf = (reason) => `reason-${REASONS.includes(reason) ? reason : "unexplained"}`;

/** @param {Analysis} data @param {Language} language */
export function overview(data, language) {
  const text = language.text.bind(language);
  const { cost, reported, log } = data;
  /** @param {string} key @param {number | null} rate */
  const ofInput = (key, rate) => (typeof rate === "number" ? text(key, { rate: language.rate(rate) }) : "");
  /** @param {string} name @param {string} value @param {string} exact @param {string} note @param {string} kind */
  const figure = (name, value, exact, note, kind = "") =>
    element(
      "div",
      { class: `figure ${kind}` },
      element("dt", {}, name),
      element("dd", { title: exact }, value),
      element("dd", { class: "note" }, note),
    );
  const figures = [
    figure(
      text("overview.sent"),
      language.compact(data.input_tokens),
      language.count(data.input_tokens),
      text("overview.sent.note"),
    ),
    figure(
      text("overview.hit"),
      language.compact(data.hit_tokens),
      language.count(data.hit_tokens),
      ofInput("overview.hit.note", data.hit_rate),
      "good",
    ),
    figure(
      text("overview.recomputed"),
      language.compact(data.recomputed_tokens),
      language.count(data.recomputed_tokens),
      ofInput("overview.recomputed.note", data.input_tokens ? data.recomputed_tokens / data.input_tokens : null),
    ),
    figure(
      text("overview.avoidable"),
      language.compact(data.avoidable_tokens),
      language.count(data.avoidable_tokens),
      typeof data.possible_hit_rate === "number"
        ? text("overview.avoidable.note", { rate: language.rate(data.possible_hit_rate) })
        : text("overview.avoidable.plain"),
      "bad",
    ),
  ];
  if (cost) {
    const less = cost.now === null || cost.possible === null ? null : Math.max(0, cost.now - cost.possible);
    figures.push(
      figure(
        text("overview.cost"),
        language.money(cost.now, cost.currency),
        String(cost.now),
        [
          reported
            ? text(reported.requests < log.requests ? "overview.cost.mixed" : "overview.cost.reported", {
                requests: language.count(reported.requests),
              })
            : text("overview.cost.simulated"),
          text("overview.cost.note", { cost: language.money(cost.without_cache, cost.currency) }),
        ].join(language.code === "zh" ? "；" : "; "),
      ),
      figure(
        text("overview.possible"),
        language.money(cost.possible, cost.currency),
        String(cost.possible),
        text("overview.possible.note", {
          cost: language.money(less, cost.currency),
          rate: language.rate(cost.now > 0 && less !== null ? less / cost.now : null),
        }),
        "good",
      ),
    );
  }
  return [
    element("dl", { class: "figures" }, ...figures),
    !cost && element("p", { class: "hint" }, text("overview.no_cost")),
    cost?.unpriced_requests > 0 &&
      element("p", { class: "hint" }, text("overview.unpriced", { count: language.count(cost.unpriced_requests) })),
    reported &&
      element(
        "p",
        { class: "hint" },
        text("overview.reported", {
          requests: language.count(reported.requests),
          reported: language.count(reported.hit_tokens),
          rate: language.rate(reported.hit_rate),
          simulated: language.count(reported.simulated_hit_tokens),
          difference: language.difference(reported.difference_tokens),
        }),
      ),
  ];
}

/** @param {Analysis} data @param {Language} language */
export function attribution(data, language) {
  const text = language.text.bind(language);
  if (!data.attribution.length) return null;
  /** @param {string} reason */
  const rank = (reason) => (REASONS.includes(reason) ? REASONS.indexOf(reason) : REASONS.length);
  const rows = [...data.attribution].sort(
    (one, other) => rank(one.reason) - rank(other.reason) || other.tokens - one.tokens,
  );
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const { reason, tokens } of rows) sums.set(reason, (sums.get(reason) ?? 0) + tokens);
  const all = data.input_tokens || 1;
  const parts = [...sums].filter(([, tokens]) => tokens > 0);
  const currency = data.cost?.currency ?? "";
  const stack = element(
    "div",
    {
      class: "stack",
      role: "img",
      "aria-label": parts
        .map(([reason, tokens]) => `${language.named("reason", reason)} ${language.rate(tokens / all)}`)
        .join(", "),
    },
    ...parts.map(([reason, tokens]) => {
      const name = language.named("reason", reason);
      const part = element("span", {
        class: `part ${kindOf(reason)}`,
        title: `${name}: ${language.count(tokens)} (${language.rate(tokens / all)})`,
      });
      part.style.flexGrow = String(tokens / all);
      if (tokens / all > 0.08) part.append(element("span", {}, language.rate(tokens / all)));
      return part;
    }),
  );
  const legend = element(
    "ul",
    { class: "legend" },
    ...parts.map(([reason, tokens]) =>
      element(
        "li",
        {},
        element("span", { class: `swatch ${kindOf(reason)}`, "aria-hidden": "true" }),
        language.named("reason", reason),
        element("b", {}, language.rate(tokens / all)),
      ),
    ),
  );
  const hasCost = rows.some((entry) => entry.cost !== null && entry.cost !== undefined);
  const lines = rows.map((entry) =>
    row(
      element(
        "th",
        { scope: "row" },
        element("span", { class: `swatch ${kindOf(entry.reason)}`, "aria-hidden": "true" }),
        language.named("reason", entry.reason),
      ),
      element(
        "td",
        {},
        entry.cause && language.named("cause", entry.cause),
        !entry.cause && entry.reason === "changed_prefix" && text("attribution.repeated"),
        entry.cause && entry.path && " · ",
        entry.path && element("code", { translate: "no" }, entry.path),
      ),
      number(language.count(entry.tokens)),
      number(language.rate(entry.tokens / all)),
      number(language.count(entry.requests)),
      hasCost && number(language.money(entry.cost, currency)),
    ),
  );
  const headings = [
    text("attribution.reason"),
    text("attribution.where"),
    `${text("attribution.tokens")}#`,
    `${text("attribution.share")}#`,
    `${text("attribution.requests")}#`,
  ];
  if (hasCost) headings.push(`${text("attribution.cost")}#`);
  return [
    stack,
    legend,
    tableOf(headings, lines, text("attribution")),
    shortened(language, lines, MOST_ROWS),
    hasCost && element("p", { class: "hint" }, text("attribution.cost.note")),
  ];
}

/** @param {Analysis} data @param {Language} language */
export function breaks(data, language) {
  const text = language.text.bind(language);
  if (!data.breaks.length) return null;
  const currency = data.cost?.currency ?? "";
  const most = Math.max(...data.breaks.map((/** @type {any} */ entry) => entry.tokens), 1);
  const items = data.breaks.map((/** @type {any} */ entry) => {
    const parts = difference(entry.before ?? "", entry.after ?? "");
    /** @param {string} name @param {string} changed @param {string} tag */
    const side = (name, changed, tag) =>
      element(
        "figure",
        { class: "side" },
        element("figcaption", {}, name),
        element("pre", { translate: "no" }, readable(parts.start), changed && element(tag, {}, visible(changed)), readable(parts.end)),
      );
    const reasons = counted(language, entry.miss_reasons);
    return element(
      "li",
      { class: "break" },
      element(
        "h3",
        {},
        language.named("cause", entry.cause ?? "another_history"),
        entry.path && element("code", { translate: "no" }, entry.path),
      ),
      bar(entry.tokens / most, "warm"),
      element(
        "p",
        { class: "lost" },
        text("breaks.lost", { tokens: language.count(entry.tokens), requests: language.count(entry.requests) }),
        entry.cost !== null &&
          entry.cost !== undefined &&
          `, ${text("breaks.cost", { cost: language.money(entry.cost, currency) })}`,
      ),
      entry.explanation && element("p", {}, language.sentence(entry.explanation)),
      (entry.before || entry.after) &&
        element(
          "div",
          { class: "sides" },
          side(text("breaks.before"), parts.before, "del"),
          side(text("breaks.after"), parts.after, "ins"),
        ),
      entry.fix &&
        element(
          "p",
          { class: "fix" },
          element("b", {}, text("breaks.fix")),
          " ",
          language.sentence(entry.fix),
          entry.gain_tokens > 0 && ` ${text("breaks.gain", { tokens: language.count(entry.gain_tokens) })}`,
        ),
      reasons && element("p", { class: "hint" }, text("breaks.provider", { reasons })),
      entry.example?.length > 0 &&
        element(
          "p",
          { class: "hint" },
          text("breaks.example"),
          " ",
          element("span", { translate: "no" }, entry.example.join(", ")),
        ),
    );
  });
  const reasons = counted(language, data.reported?.miss_reasons);
  return [
    element("ol", { class: "breaks" }, ...items),
    shortened(language, items, MOST_BREAKS),
    data.cost && element("p", { class: "hint" }, text("breaks.cost.note")),
    reasons && element("p", { class: "hint" }, text("breaks.provider.all", { reasons })),
  ];
}

/** @param {Analysis} data @param {Language} language @param {string} version */
export function about(data, language, version) {
  const text = language.text.bind(language);
  const { log, cost } = data;
  const unexplained = data.attribution
    .filter((/** @type {any} */ entry) => entry.reason === "unexplained")
    .reduce((/** @type {number} */ sum, /** @type {any} */ entry) => sum + entry.tokens, 0);
  const rate = language.rate(data.input_tokens ? unexplained / data.input_tokens : 0);
  /** @param {Record<string, number>} counts */
  const listed = (counts) => counted(language, counts);
  const skipped = language.count(log.skipped);
  const prices = !cost
    ? text("about.prices.none")
    : typeof cost.prices_age_days === "number"
      ? text("about.prices.age", { source: cost.prices, days: language.count(cost.prices_age_days) })
      : cost.prices;
  const lines = [
    ["about.unexplained", text("about.unexplained.value", { tokens: language.count(unexplained), rate })],
    [
      "about.skipped",
      log.skipped_lines?.length
        ? text("about.skipped.places", { count: skipped, places: log.skipped_lines.slice(0, 20).join(", ") })
        : skipped,
    ],
    ["about.problems", counted(language, log.problems, (name) => language.named("problem", name))],
    ["about.prices", prices],
    [
      "about.tokens",
      text(log.tokens?.exact ? "about.tokens.exact" : "about.tokens.estimated", {
        counters: counted(language, log.tokens?.counters, (name) => language.sentence(name)) || "–",
      }),
    ],
    ["about.models", listed(log.models)],
    [
      "about.sources",
      [...(log.sources ?? []).map((/** @type {string} */ source) => language.sentence(source)), listed(log.formats)]
        .filter(Boolean)
        .join(", "),
    ],
    ["about.forgotten", log.history_was_forgotten ? text("about.forgotten.value") : ""],
    ["about.version", `prefold ${version}`],
  ];
  return [
    element(
      "dl",
      { class: "about" },
      ...lines
        .filter(([, value]) => value)
        .map(([name, value]) => element("div", {}, element("dt", {}, text(name)), element("dd", {}, value))),
    ),
  ];
}
