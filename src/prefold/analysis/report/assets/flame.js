// The flame graph: an icicle on a canvas, as wide as the tokens sent through each frame. It needs nothing but a model.

import { FlameModel, upperBound } from "./flame-model.js";
import { element } from "./elements.js";

const ROW = 24; // pixels
const MOST_ROWS = 22;
const ZOOM_STEP = 1.25;
const MOVE = 160; // milliseconds

/**
 * @typedef {{node: number, low: number, high: number}} View the frame on top, and the tokens from left to right
 * @typedef {object} FlameOptions
 * @property {string} label what a screen reader says
 * @property {string} describedBy id of the element that says which keys do what
 * @property {(node: number) => [string, string][]} describe lines for a frame: a name and a value
 * @property {(view: View, wasClick: boolean) => void} onView
 * @property {(node: number) => void} onSelect
 */

export class FlameCanvas {
  /** @param {FlameModel} model @param {FlameOptions} options */
  constructor(model, options) {
    this.model = model;
    this.options = options;
    /** @type {View} */
    this.view = this.#whole(0);
    this.selected = 0;
    this.searching = false;
    /** @type {View} what is drawn, on its way to the view */
    this.drawn = this.view;
    this.frame = 0;
    this.rows = Math.min(Math.max(model.maxDepth + 1, 3), MOST_ROWS);
    this.canvas = /** @type {HTMLCanvasElement} */ (
      element("canvas", {
        class: "flame-canvas",
        tabindex: "0",
        role: "img",
        "aria-label": options.label,
        "aria-describedby": options.describedBy,
      })
    );
    this.tip = element("div", { class: "tip", "aria-hidden": "true" });
    this.tip.hidden = true;
    this.element = element("div", { class: "flame" }, this.canvas, this.tip);
    this.#listen();
    this.colors = this.#readColors();
    this.element.addEventListener("fit", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** @param {number} node @returns {View} */
  #whole(node) {
    return {
      node,
      low: this.model.start[node] ?? 0,
      high: (this.model.start[node] ?? 0) + (this.model.tokens[node] ?? 1),
    };
  }

  /** Shows a frame over the full width. @param {number} node @param {boolean} wasClick */
  zoom(node, wasClick = false) {
    this.#show(this.#whole(node), wasClick);
  }

  /** @param {View} view */
  restore(view) {
    this.view = this.drawn = view;
    this.selected = view.node;
    this.draw();
  }

  /** @param {boolean} searching whether frames that the model has not marked are pale */
  highlight(searching) {
    this.searching = searching;
    this.tip.hidden = true;
    this.draw();
  }

  /** Reads the colours again, after the theme was changed. */
  recolor() {
    this.colors = this.#readColors();
    this.draw();
  }

  /** @param {View} view @param {boolean} wasClick */
  #show(view, wasClick = false) {
    const from = this.drawn;
    this.view = view;
    this.tip.hidden = true; // it speaks of what was there
    this.options.onView(view, wasClick);
    cancelAnimationFrame(this.frame);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || from.node !== view.node) {
      this.drawn = view;
      this.draw();
      return;
    }
    const begin = performance.now();
    /** @param {number} now */
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - begin) / MOVE));
      const eased = 1 - (1 - part) ** 3;
      this.drawn = {
        node: view.node,
        low: from.low + (view.low - from.low) * eased,
        high: from.high + (view.high - from.high) * eased,
      };
      this.draw();
      if (part < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  /** Zooms in or out around a place. @param {number} factor @param {number} share from 0, left, to 1, right */
  scale(factor, share = 0.5) {
    const { low, high, node } = this.view;
    const whole = this.#whole(node);
    // Whole tokens, so that the address holds exactly what is shown.
    const wanted = factor > 1 ? Math.floor((high - low) / factor) : Math.ceil((high - low) / factor);
    const most = whole.high - whole.low;
    const width = wanted > 0.99 * most ? most : Math.max(1, wanted);
    const at = Math.min(Math.max(Math.round(low + (high - low - width) * share), whole.low), whole.high - width);
    if (width === most && high - low === most && factor < 1 && node > 0) {
      this.zoom(this.model.parent[node]);
    } else {
      this.#show({ node, low: at, high: at + width });
    }
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("click", (event) => {
      const node = this.#nodeAt(event);
      if (node >= 0) {
        this.select(node);
        this.zoom(node, true);
      }
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        // Without focus the wheel goes on scrolling the page.
        if (document.activeElement !== canvas && !event.ctrlKey) return;
        event.preventDefault();
        const share = event.offsetX / canvas.clientWidth;
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.#pan(event.deltaX / canvas.clientWidth);
        else this.scale(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP, share);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (this.#key(event.key)) event.preventDefault();
    });
  }

  /** @param {number} share of the width */
  #pan(share) {
    const { node, low, high } = this.view;
    const whole = this.#whole(node);
    const at = Math.min(Math.max(Math.round(low + (high - low) * share), whole.low), whole.high - (high - low));
    this.#show({ node, low: at, high: at + high - low });
  }

  /** @param {string} key @returns {boolean} whether it means something here */
  #key(key) {
    const { model, selected } = this;
    const parent = model.parent[selected];
    const siblings = parent < 0 ? [selected] : model.children(parent);
    const place = siblings.indexOf(selected);
    switch (key) {
      case "ArrowUp":
        if (parent >= 0) this.select(parent);
        break;
      case "ArrowDown":
        if (model.stop[selected] > selected + 1) this.select(selected + 1);
        break;
      case "ArrowLeft":
        if (place > 0) this.select(siblings[place - 1]);
        break;
      case "ArrowRight":
        if (place + 1 < siblings.length) this.select(siblings[place + 1]);
        break;
      case "Enter":
      case " ":
        this.zoom(selected, true);
        break;
      case "Escape":
      case "Backspace":
        if (this.view.node > 0) {
          this.select(model.parent[this.view.node]);
          this.zoom(this.selected);
        } else this.zoom(0);
        break;
      case "Home":
      case "0":
        this.select(0);
        this.zoom(0);
        break;
      case "+":
      case "=":
        this.scale(ZOOM_STEP);
        break;
      case "-":
        this.scale(1 / ZOOM_STEP);
        break;
      default:
        return false;
    }
    return true;
  }

  /** @param {number} node */
  select(node) {
    this.selected = node;
    const { model, view } = this;
    const outside = node < view.node || node >= model.stop[view.node];
    const unseen = model.depth[node] - model.depth[view.node] >= this.rows;
    if (outside || unseen) this.zoom(outside ? node : model.parent[node]);
    this.options.onSelect(node);
    this.draw();
  }

  /** @param {MouseEvent} event @returns {number} the frame under the pointer, -1 for none */
  #nodeAt(event) {
    const { model, view } = this;
    const level = model.levels[model.depth[view.node] + Math.floor(event.offsetY / ROW)];
    if (!level) return -1;
    const tokens = view.low + (event.offsetX / this.canvas.clientWidth) * (view.high - view.low);
    const at = upperBound(level.start, tokens) - 1;
    const node = at < 0 ? -1 : level.nodes[at];
    const inside = node >= view.node && node < model.stop[view.node] && tokens < model.start[node] + model.tokens[node];
    return inside ? node : -1;
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const node = this.#nodeAt(event);
    this.canvas.style.cursor = node < 0 ? "default" : "pointer";
    this.tip.hidden = node < 0;
    if (node < 0) return;
    this.tip.replaceChildren(
      element("strong", { translate: "no" }, this.model.nameOf(node)),
      element(
        "dl",
        {},
        ...this.options
          .describe(node)
          .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
      ),
    );
    const width = this.element.clientWidth;
    const left = Math.min(Math.max(0, event.offsetX + 14), Math.max(0, width - this.tip.offsetWidth));
    this.tip.style.transform = `translate(${left}px, ${event.offsetY + 18}px)`;
  }

  #readColors() {
    const style = getComputedStyle(document.documentElement);
    /** @param {string} name */
    const read = (name) => style.getPropertyValue(name).trim();
    const [warm, middle, cool] = ["--warm-fill", "--middle-fill", "--cool-fill"].map((name) => rgbOf(read(name)));
    const scale = Array.from({ length: 11 }, (_, step) =>
      step < 5 ? mix(warm, middle, step / 5) : mix(middle, cool, (step - 5) / 5),
    );
    return {
      fills: scale.map((rgb) => `rgb(${rgb.join(" ")})`),
      inks: scale.map((rgb) => (luminance(rgb) > 0.21 ? "#14171a" : "#ffffff")),
      empty: read("--surface"),
      pale: read("--pale-fill"),
      paleInk: read("--muted"),
      mark: read("--mark"),
      ink: read("--ink"),
      font: `12px ${read("--sans") || "sans-serif"}`,
    };
  }

  draw() {
    const { canvas, model, drawn: view, colors } = this;
    // Paper has more dots than a screen says.
    const ratio = Math.max(window.devicePixelRatio || 1, "paper" in document.documentElement.dataset ? 3 : 1);
    const width = canvas.clientWidth;
    const height = this.rows * ROW;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = colors.font;
    pen.textBaseline = "middle";
    if (!model.count) return;
    const top = model.depth[view.node];
    for (let row = 0; row < this.rows && top + row <= model.maxDepth; row++) this.#drawRow(pen, row, top + row, width);
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} row @param {number} depth @param {number} width */
  #drawRow(pen, row, depth, width) {
    const { model, drawn: view, colors } = this;
    const level = model.levels[depth];
    const scale = width / (view.high - view.low);
    const last = model.stop[view.node];
    for (let at = Math.max(0, upperBound(level.start, view.low) - 1); at < level.nodes.length;) {
      const node = level.nodes[at];
      const left = (model.start[node] - view.low) * scale;
      const right = left + model.tokens[node] * scale;
      if (left >= width || node >= last) break;
      if (right <= 0 || node < view.node) {
        at++;
        continue;
      }
      if (right - left >= 1) {
        this.#drawFrame(pen, node, row, Math.max(0, left), Math.min(width, right), right - left);
        at++;
        continue;
      }
      // All frames that begin within this pixel are one bar of their common colour.
      const pixel = Math.floor(left);
      const next = Math.max(at + 1, upperBound(level.start, view.low + (pixel + 1) / scale, at));
      const own = level.own[next] - level.own[at];
      const share = own > 0 ? (level.ownHit[next] - level.ownHit[at]) / own : 0;
      const found = level.matched[next] > level.matched[at];
      pen.fillStyle = this.searching ? (found ? colors.mark : colors.pale) : colors.fills[stepOf(share)];
      pen.fillRect(pixel, row * ROW, 1, ROW - 1);
      at = next;
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen @param {number} node @param {number} row
   * @param {number} left @param {number} right @param {number} size its whole width in pixels, seen or not
   */
  #drawFrame(pen, node, row, left, right, size) {
    const { model, colors } = this;
    const step = stepOf(model.shareHit(node));
    const pale = this.searching && !model.mask[node];
    const gap = size > 3 ? 1 : 0;
    pen.fillStyle = pale ? colors.pale : colors.fills[step];
    pen.fillRect(left, row * ROW, right - left - gap, ROW - 1);
    if (this.searching && !pale) {
      pen.fillStyle = colors.mark;
      pen.fillRect(left, row * ROW + ROW - 4, right - left - gap, 3);
    }
    if (node === this.selected && size > 4) {
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, row * ROW + 1, right - left - gap - 2, ROW - 3);
    }
    const room = right - left - 12;
    if (room < 24) return;
    pen.fillStyle = pale ? colors.paleInk : colors.inks[step];
    pen.fillText(fitted(pen, model.nameOf(node), room), left + 6, row * ROW + ROW / 2);
  }
}

/** @param {number} share */
const stepOf = (share) => Math.round(Math.min(1, Math.max(0, share)) * 10);

/** @param {CanvasRenderingContext2D} pen @param {string} name @param {number} room in pixels */
function fitted(pen, name, room) {
  const text = name.slice(0, Math.ceil(room / 3)).replace(/\s+/gu, " ");
  if (pen.measureText(text).width <= room) return text;
  let low = 0;
  let high = text.length;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}

/** @typedef {[number, number, number]} Rgb */

/** @param {string} hex @returns {Rgb} */
function rgbOf(hex) {
  const value = Number.parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** @param {Rgb} one @param {Rgb} other @param {number} part @returns {Rgb} */
function mix(one, other, part) {
  return /** @type {Rgb} */ (one.map((value, index) => Math.round(value + (other[index] - value) * part)));
}

/** @param {Rgb} rgb @returns {number} relative luminance as WCAG defines it */
function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
