// The tree of the flame graph as a table for keyboard and screen reader. Only the rows in sight exist.

import { element } from "./elements.js";
import { FlameModel } from "./flame-model.js";

const ROW = 32; // pixels
const SPARE = 6; // rows beyond either edge

/**
 * @typedef {object} FlameTableOptions
 * @property {string} label
 * @property {string[]} headings of text, path, tokens, share hit, share of all
 * @property {(node: number) => string[]} cells behind the name
 * @property {(node: number) => void} onOpen for Enter or a double click
 * @property {(node: number) => void} onSelect
 */

export class FlameTable {
  /** @param {FlameModel} model @param {FlameTableOptions} options */
  constructor(model, options) {
    this.model = model;
    this.options = options;
    this.expanded = new Uint8Array(model.count);
    this.expanded[0] = 1;
    this.selected = 0;
    /** @type {Int32Array | number[]} */
    this.visible = [];
    this.body = element("div", { class: "tree-body", role: "rowgroup" });
    const head = element(
      "div",
      { class: "tree-row tree-head", role: "row", "aria-rowindex": "1" },
      ...options.headings.map((heading) => element("span", { role: "columnheader" }, heading)),
    );
    this.scroller = element(
      "div",
      { class: "tree-scroller", role: "presentation", onscroll: () => this.#render() },
      element("div", { class: "tree-top", role: "rowgroup" }, head),
      this.body,
    );
    this.element = element(
      "div",
      {
        class: "tree",
        role: "treegrid",
        tabindex: "0",
        "aria-label": options.label,
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      },
      this.scroller,
    );
    this.#refresh();
    new ResizeObserver(() => this.#render()).observe(this.scroller);
  }

  /** Opens what lies above a node and moves to it. @param {number} node */
  reveal(node) {
    for (let at = this.model.parent[node]; at >= 0; at = this.model.parent[at]) this.expanded[at] = 1;
    this.selected = node;
    this.#refresh();
    this.#scrollTo(node);
  }

  #refresh() {
    const { model } = this;
    const visible = [];
    for (let node = 0; node < model.count; node = this.expanded[node] ? node + 1 : model.stop[node]) visible.push(node);
    this.visible = visible;
    this.body.style.height = `${visible.length * ROW}px`;
    this.element.setAttribute("aria-rowcount", String(visible.length + 1));
    this.#render();
  }

  /** @param {number} node @returns {number} its place among the visible rows, -1 for none */
  #placeOf(node) {
    let low = 0;
    let high = this.visible.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.visible[middle] === node) return middle;
      if (this.visible[middle] < node) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  /** @param {number} node */
  #scrollTo(node) {
    const top = this.#placeOf(node) * ROW;
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + 2 * ROW > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = top + 2 * ROW - scroller.clientHeight; // the head covers one
    this.#render();
  }

  #render() {
    const { scroller, visible } = this;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - SPARE);
    const last = Math.min(
      visible.length,
      Math.ceil((scroller.scrollTop + (scroller.clientHeight || 400)) / ROW) + SPARE,
    );
    const rows = [];
    for (let at = first; at < last; at++) rows.push(this.#row(visible[at], at));
    this.body.replaceChildren(...rows);
    if (this.#placeOf(this.selected) >= first && this.#placeOf(this.selected) < last) {
      this.element.setAttribute("aria-activedescendant", `tree-row-${this.selected}`);
    } else this.element.removeAttribute("aria-activedescendant");
  }

  /** @param {number} node @param {number} at */
  #row(node, at) {
    const { model } = this;
    const hasChildren = model.stop[node] > node + 1;
    const toggle = element(
      "span",
      { class: "tree-toggle", "aria-hidden": "true" },
      hasChildren ? (this.expanded[node] ? "▾" : "▸") : "",
    );
    if (hasChildren) {
      toggle.addEventListener("click", (event) => {
        event.stopPropagation();
        this.#expand(node, !this.expanded[node]);
      });
    }
    const name = element(
      "span",
      { role: "gridcell", class: "tree-name" },
      toggle,
      element("span", { translate: "no" }, model.nameOf(node)),
    );
    name.style.paddingInlineStart = `${Math.min(model.depth[node], 12) * 14}px`;
    const row = element(
      "div",
      {
        class: "tree-row",
        role: "row",
        id: `tree-row-${node}`,
        "aria-level": String(model.depth[node] + 1),
        "aria-rowindex": String(at + 2),
        "aria-expanded": hasChildren ? String(Boolean(this.expanded[node])) : null,
        "aria-selected": String(node === this.selected),
        onclick: () => this.#select(node),
        ondblclick: () => this.options.onOpen(node),
      },
      name,
      ...this.options.cells(node).map((cell) => element("span", { role: "gridcell" }, cell)),
    );
    row.style.transform = `translateY(${at * ROW}px)`;
    return row;
  }

  /** @param {number} node @param {boolean} open */
  #expand(node, open) {
    this.expanded[node] = open ? 1 : 0;
    if (!open && this.selected > node && this.selected < this.model.stop[node]) this.selected = node;
    this.#refresh();
  }

  /** @param {number} node */
  #select(node) {
    this.selected = node;
    this.#scrollTo(node);
    this.options.onSelect(node);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.visible.length) return;
    const { model, selected, visible } = this;
    const place = Math.max(0, this.#placeOf(selected));
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 1);
    /** @param {number} to */
    const go = (to) => this.#select(visible[Math.min(Math.max(0, to), visible.length - 1)]);
    const hasChildren = model.stop[selected] > selected + 1;
    switch (event.key) {
      case "ArrowDown":
        go(place + 1);
        break;
      case "ArrowUp":
        go(place - 1);
        break;
      case "PageDown":
        go(place + page);
        break;
      case "PageUp":
        go(place - page);
        break;
      case "Home":
        go(0);
        break;
      case "End":
        go(visible.length - 1);
        break;
      case "ArrowRight":
        if (hasChildren && !this.expanded[selected]) this.#expand(selected, true);
        else if (hasChildren) go(place + 1);
        break;
      case "ArrowLeft":
        if (hasChildren && this.expanded[selected]) this.#expand(selected, false);
        else if (model.parent[selected] >= 0) this.#select(model.parent[selected]);
        break;
      case "Enter":
        this.options.onOpen(selected);
        break;
      default:
        return;
    }
    event.preventDefault();
  }
}
