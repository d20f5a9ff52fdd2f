// Making elements. Texts become text nodes and nothing else: what a log holds is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @param {Element} made @param {Record<string, string | EventListener | null>} attributes `on...` takes a listener, null
 *   leaves an attribute out @param {Child[]} children
 */
function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== null) made.setAttribute(name, value);
  }
  for (const child of children) {
    if (child instanceof Node) made.append(child);
    else if (child !== null && child !== undefined && child !== false)
      made.append(document.createTextNode(String(child)));
  }
  return made;
}

/** @param {string} tag @param {Record<string, any>} attributes @param {...Child} children @returns {HTMLElement} */
export function element(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/** @param {string} tag @param {Record<string, any>} attributes @param {...Child} children @returns {SVGElement} */
export function drawing(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}
