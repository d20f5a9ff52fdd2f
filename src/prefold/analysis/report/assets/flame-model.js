// The tree behind the flame graph, without a page: places, sums, search, and formats of other tools.

/**
 * @typedef {{depth: number[], tokens: number[], hit: number[], label: number[], path: number[]}} FlameNodes
 * @typedef {{nodes: FlameNodes, labels: string[], paths: string[], merged: number}} Flame preorder; tokens and hits of a
 *   node include those of its children
 * @typedef {{nodes: Int32Array, start: Float64Array, own: Float64Array, ownHit: Float64Array, matched: Float64Array}}
 *   Level the nodes of one depth from left to right, and sums over those before each
 * @typedef {{text: string, frames: number, tokens: number}} Found
 */

/** What a frame of a trace of blocks is called. */
const BLOCKS = /^block(s?) ([\d, …]+)$/u;

/** @param {Float64Array} sorted @param {number} value @param {number} from @returns {number} the first index above */
export function upperBound(sorted, value, from = 0) {
  let low = from;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class FlameModel {
  /**
   * @param {Flame} flame
   * @param {{root: string, merged: string, unnamed: string, block: string, blocks: string}} names of frames without a
   *   text, and of blocks with `{ids}`
   */
  constructor(flame, names) {
    const { depth, tokens, hit, label, path } = flame.nodes;
    const count = depth.length;
    this.count = count;
    this.names = names;
    this.labels = flame.labels;
    this.paths = flame.paths;
    this.depth = Uint32Array.from(depth);
    this.tokens = Float64Array.from(tokens);
    this.hit = Float64Array.from(hit);
    this.label = Int32Array.from(label);
    this.path = Int32Array.from(path);
    this.start = new Float64Array(count);
    this.parent = new Int32Array(count).fill(-1);
    /** Behind the last node of each subtree. */
    this.stop = new Int32Array(count);
    this.own = Float64Array.from(tokens);
    this.ownHit = Float64Array.from(hit);
    this.mask = new Uint8Array(count);
    this.maxDepth = 0;

    /** @type {number[]} */
    const open = [];
    const filled = new Float64Array(count);
    for (let node = 0; node < count; node++) {
      while (open.length > this.depth[node]) this.stop[/** @type {number} */ (open.pop())] = node;
      const parent = open.length ? open[open.length - 1] : -1;
      this.parent[node] = parent;
      if (parent >= 0) {
        this.start[node] = filled[parent];
        filled[parent] += this.tokens[node];
        this.own[parent] -= this.tokens[node];
        this.ownHit[parent] -= this.hit[node];
      }
      filled[node] = this.start[node];
      open.push(node);
      this.maxDepth = Math.max(this.maxDepth, this.depth[node]);
    }
    for (const node of open) this.stop[node] = count;
    this.levels = this.#levels();
  }

  /** @returns {Level[]} */
  #levels() {
    const sizes = new Uint32Array(this.maxDepth + 1);
    for (let node = 0; node < this.count; node++) sizes[this.depth[node]]++;
    const levels = Array.from(sizes, (size) => ({
      nodes: new Int32Array(size),
      start: new Float64Array(size),
      own: new Float64Array(size + 1),
      ownHit: new Float64Array(size + 1),
      matched: new Float64Array(size + 1),
    }));
    const filled = new Uint32Array(this.maxDepth + 1);
    for (let node = 0; node < this.count; node++) {
      const level = levels[this.depth[node]];
      const at = filled[this.depth[node]]++;
      level.nodes[at] = node;
      level.start[at] = this.start[node];
      level.own[at + 1] = level.own[at] + this.own[node];
      level.ownHit[at + 1] = level.ownHit[at] + this.ownHit[node];
    }
    return levels;
  }

  /** @param {number} node */
  nameOf(node) {
    if (this.label[node] < 0) return this.names.merged;
    const label = this.labels[this.label[node]];
    if (!label) return node ? this.names.unnamed : this.names.root;
    const blocks = this.path[node] < 0 && BLOCKS.exec(label);
    return blocks ? this.names[blocks[1] ? "blocks" : "block"].replace("{ids}", blocks[2]) : label;
  }

  /** @param {number} node @returns {string} the path of its text in the request, empty where there is none */
  pathOf(node) {
    return this.path[node] < 0 ? "" : this.paths[this.path[node]];
  }

  /** @param {number} node @returns {number} from 0 to 1: how much of what was sent in it and below it was a hit */
  hitRate(node) {
    return this.tokens[node] > 0 ? Math.min(1, Math.max(0, this.hit[node] / this.tokens[node])) : 0;
  }

  /** @param {number} node @returns {number} the same for the text of the node itself, where it has one */
  shareHit(node) {
    return this.own[node] > 0 ? Math.min(1, Math.max(0, this.ownHit[node] / this.own[node])) : this.hitRate(node);
  }

  /** @param {number} node @returns {number[]} from the root down to it */
  lineage(node) {
    const line = [];
    for (let at = node; at >= 0; at = this.parent[at]) line.push(at);
    return line.reverse();
  }

  /** @param {number} node @returns {number[]} */
  children(node) {
    const children = [];
    for (let at = node + 1; at < this.stop[node]; at = this.stop[at]) children.push(at);
    return children;
  }

  /**
   * Marks the frames whose text or path holds a text, whatever its case. Their share counts what lies in the frames
   * themselves, so nothing twice.
   * @param {string} text @returns {Found}
   */
  search(text) {
    const wanted = text.trim().toLowerCase();
    /** @param {string} name */
    const holds = (name) => wanted !== "" && name.toLowerCase().includes(wanted);
    const labels = this.labels.map(holds);
    const paths = this.paths.map(holds);
    const found = { text: wanted, frames: 0, tokens: 0 };
    for (let node = 0; node < this.count; node++) {
      const match = labels[this.label[node]] === true || paths[this.path[node]] === true;
      this.mask[node] = match ? 1 : 0;
      if (match) {
        found.frames++;
        found.tokens += this.own[node];
      }
    }
    for (const level of this.levels) {
      for (let at = 0; at < level.nodes.length; at++) {
        level.matched[at + 1] = level.matched[at] + this.mask[level.nodes[at]];
      }
    }
    return found;
  }

  /** @param {string} name @returns {object} a file for https://www.speedscope.app: what was sent, what was recomputed */
  speedscope(name) {
    /** @type {Map<string, number>} */
    const ids = new Map();
    const frames = [];
    const frameOf = new Int32Array(this.count);
    for (let node = 0; node < this.count; node++) {
      const key = JSON.stringify([this.nameOf(node), this.pathOf(node)]);
      let id = ids.get(key);
      if (id === undefined) {
        id = frames.length;
        ids.set(key, id);
        frames.push({ name: this.nameOf(node), ...(this.pathOf(node) && { file: this.pathOf(node) }) });
      }
      frameOf[node] = id;
    }
    /** @param {string} title @param {(node: number) => number} weight */
    const profile = (title, weight) => {
      const events = [];
      /** @type {{node: number, end: number, filled: number}[]} */
      const open = [];
      for (let node = 0; node < this.count; node++) {
        while (open.length > this.depth[node]) {
          const closed = /** @type {typeof open[0]} */ (open.pop());
          events.push({ type: "C", frame: frameOf[closed.node], at: closed.end });
        }
        const above = open[open.length - 1];
        const at = above ? above.filled : 0;
        if (above) above.filled += weight(node);
        events.push({ type: "O", frame: frameOf[node], at });
        open.push({ node, end: at + weight(node), filled: at });
      }
      for (const { node, end } of open.reverse()) events.push({ type: "C", frame: frameOf[node], at: end });
      return {
        type: "evented",
        name: title,
        unit: "none",
        startValue: 0,
        endValue: this.count ? weight(0) : 0,
        events,
      };
    };
    return {
      $schema: "https://www.speedscope.app/file-format-schema.json",
      name,
      exporter: "prefold",
      activeProfileIndex: 0,
      shared: { frames },
      profiles: [
        profile("tokens sent", (node) => this.tokens[node]),
        profile("tokens recomputed", (node) => this.tokens[node] - this.hit[node]),
      ],
    };
  }

  /** @returns {string} a line for each frame with text of its own: its stack and the tokens sent in it */
  collapsed() {
    const lines = [];
    /** @type {string[]} */
    const stack = [];
    for (let node = 0; node < this.count; node++) {
      stack.length = this.depth[node];
      stack.push(
        this.nameOf(node)
          .replace(/[;\s]+/gu, " ")
          .trim() || this.names.unnamed,
      );
      if (this.own[node] > 0) lines.push(`${stack.join(";")} ${this.own[node]}\n`);
    }
    return lines.join("");
  }
}
