// The small charts of the page, as SVG.

import { drawing, element } from "./elements.js";

/**
 * @typedef {{name: string, kind: string, points: {x: number, y: number}[]}} Line y from 0 to 1; `kind` is its class
 * @typedef {{lines: Line[], label: string, isLog: boolean, formatX: (x: number) => string, formatY: (y: number) => string,
 *   formatTick: (y: number) => string,
 *   axis?: string}} LineChart
 */

const HEIGHT = 280;
const MARGIN = { top: 12, right: 16, bottom: 44, left: 48 };

/** A line chart as wide as its place. @param {LineChart} chart @returns {HTMLElement} */
export function lineChart(chart) {
  const frame = element("div", { class: "chart" });
  const legend = element(
    "ul",
    { class: "legend" },
    ...chart.lines.map((line) => element("li", {}, sample(line.kind), line.name)),
  );
  const holder = element("figure", { class: "chart-figure" }, legend, frame);
  let width = 0;
  const draw = () => {
    const now = Math.round(frame.clientWidth);
    if (now && now !== width) {
      width = now;
      frame.replaceChildren(plot(chart, width));
    }
  };
  frame.addEventListener("fit", draw);
  new ResizeObserver(draw).observe(frame);
  return holder;
}

/** @param {string} kind */
function sample(kind) {
  return drawing(
    "svg",
    { width: "26", height: "10", "aria-hidden": "true" },
    drawing("line", { x1: "1", x2: "25", y1: "5", y2: "5", class: `line ${kind}` }),
  );
}

/** @param {LineChart} chart @param {number} width */
function plot(chart, width) {
  const points = chart.lines.flatMap((line) => line.points);
  /** @param {number} x */
  const scaled = (x) => (chart.isLog ? Math.log(Math.max(x, 1)) : x);
  const xs = points.map(({ x }) => x);
  const low = Math.min(...xs);
  const high = Math.max(...xs);
  const top = niceTop(Math.max(...points.map(({ y }) => Math.min(1, y)), 0.01));
  /** @param {number} x */
  const left = (x) => {
    const span = scaled(high) - scaled(low);
    return MARGIN.left + (span > 0 ? (scaled(x) - scaled(low)) / span : 0.5) * (width - MARGIN.left - MARGIN.right);
  };
  /** @param {number} y */
  const down = (y) => MARGIN.top + (1 - Math.min(1, Math.max(0, y)) / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);

  const svg = drawing("svg", { width: String(width), height: String(HEIGHT), role: "img", "aria-label": chart.label });
  for (let step = 0; step <= 4; step++) {
    const y = (top * step) / 4;
    svg.append(
      drawing("line", {
        class: "grid",
        x1: String(MARGIN.left),
        x2: String(width - MARGIN.right),
        y1: String(down(y)),
        y2: String(down(y)),
      }),
      drawing(
        "text",
        { x: String(MARGIN.left - 8), y: String(down(y)), "text-anchor": "end", "dominant-baseline": "middle" },
        chart.formatTick(y),
      ),
    );
  }
  const labels = Math.max(2, Math.min(6, Math.floor(width / 130)));
  for (const x of ticks(low, high, labels, chart.isLog)) {
    const anchor = left(x) < MARGIN.left + 20 ? "start" : left(x) > width - 60 ? "end" : "middle";
    svg.append(
      drawing("line", {
        class: "tick",
        x1: String(left(x)),
        x2: String(left(x)),
        y1: String(down(0)),
        y2: String(down(0) + 5),
      }),
      drawing("text", { x: String(left(x)), y: String(down(0) + 18), "text-anchor": anchor }, chart.formatX(x)),
    );
  }
  if (chart.axis) {
    svg.append(
      drawing(
        "text",
        { x: String(width - MARGIN.right), y: String(HEIGHT - 6), "text-anchor": "end", class: "axis" },
        chart.axis,
      ),
    );
  }
  for (const line of chart.lines) {
    const places = line.points.map(({ x, y }) => `${left(x).toFixed(1)},${down(y).toFixed(1)}`).join(" ");
    svg.append(drawing("polyline", { class: `line ${line.kind}`, points: places }));
    if (line.points.length > 60) continue;
    for (const { x, y } of line.points) {
      svg.append(
        drawing(
          "circle",
          { class: `dot ${line.kind}`, cx: String(left(x)), cy: String(down(y)), r: "3" },
          drawing("title", {}, `${line.name}, ${chart.formatX(x)}: ${chart.formatY(y)}`),
        ),
      );
    }
  }
  return svg;
}

/** @param {number} value from 0 to 1 @returns {number} a round number that is not below */
function niceTop(value) {
  return [0.02, 0.04, 0.08, 0.2, 0.4, 0.6, 0.8, 1].find((top) => top >= value) ?? 1;
}

/** @param {number} low @param {number} high @param {number} count @param {boolean} isLog @returns {number[]} */
function ticks(low, high, count, isLog) {
  if (!(high > low)) return [low];
  if (isLog) {
    const first = Math.ceil(Math.log10(Math.max(low, 1)));
    const powers = Array.from(
      { length: Math.max(0, Math.floor(Math.log10(high)) - first + 1) },
      (_, index) => 10 ** (first + index),
    );
    return powers.length > 1 ? powers : [low, high];
  }
  return Array.from({ length: count }, (_, index) => {
    return low + ((high - low) * index) / (count - 1);
  });
}

/** A bar behind or beside a number. @param {number} share from 0 to 1 @param {string} kind its class @returns {HTMLElement} */
export function bar(share, kind) {
  const fill = element("span", { class: `bar-fill ${kind}` });
  fill.style.inlineSize = `${Math.min(1, Math.max(0, share)) * 100}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, fill);
}
