// Tables, and other pieces that sections share.

import { element } from "./elements.js";
import { Language } from "./language.js";

/** @typedef {Record<string, any>} Analysis what `prefold report --json` prints */

export const MOST_ROWS = 12;

/** @param {...(Node | string | number | null | false)} cells @returns {HTMLElement} */
export const row = (...cells) => element("tr", {}, ...cells);
/** @param {string | number} value */
export const number = (value) => element("td", { class: "number" }, value);

/** @param {string[]} headings a trailing # sets one to the right @param {Node[]} rows @param {string} caption */
export function tableOf(headings, rows, caption) {
  const heads = headings.map((heading) => {
    const isNumber = heading.endsWith("#");
    return element(
      "th",
      { scope: "col", class: isNumber ? "number" : null },
      isNumber ? heading.slice(0, -1) : heading,
    );
  });
  return element(
    "div",
    { class: "table", role: "region", "aria-label": caption, tabindex: "0" },
    element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, row(...heads)),
      element("tbody", {}, ...rows),
    ),
  );
}

/** Items of which only the first are shown until a button is pressed. @param {Language} language @param {HTMLElement[]} items @param {number} most */
export function shortened(language, items, most) {
  const rest = items.slice(most);
  if (!rest.length) return null;
  for (const item of rest) item.classList.add("beyond");
  const button = element(
    "button",
    { type: "button", class: "more" },
    language.text("page.all", { count: language.count(items.length) }),
  );
  button.addEventListener("click", () => {
    for (const item of rest) item.classList.remove("beyond");
    button.remove();
  });
  return button;
}

/**
 * Names and how often each was met.
 * @param {Language} language @param {Record<string, number> | undefined} counts @param {(name: string) => string} nameOf
 */
export function counted(language, counts, nameOf = (name) => name) {
  return Object.entries(counts ?? {})
    .map(([name, count]) => `${nameOf(name) || language.text("over_time.unnamed")} ${language.count(count)}`)
    .join(", ");
}
