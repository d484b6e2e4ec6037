// Draw lines over time as SVG: several series, one axis each way.
import { h, s, show } from "./dom.js";

// The width of a chart that is not shown yet, and the least width.
const USUAL = 440;
const LEAST = 240;
const HEIGHT = 150;
// The width of a character of a label, at most.
const LETTER = 7;
const BOTTOM = 22;
const TOP = 8;
const COLOURS = 6;

/**
 * Make a chart; `update` draws series [{name, points: [[ms, value or null]]}].  The top of its
 * axis is the first of `tops` that is enough, or else the next 1, 2 or 5 times a power of ten.
 */
export function chart(title, write, tops = []) {
  const picture = h("div", { class: "picture" });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title), picture, legend);
  const update = (series) => {
    const width = Math.max(LEAST, picture.clientWidth || USUAL);
    show(picture, drawn(title, series, write, width, tops));
    show(legend, series.map(({ name, points }, at) => (has(points) ? entry(name, points, at, write) : null)));
  };
  return { element, update };
}

/** Whether a series has anything to show; inputs and outputs may have no lag of their own. */
const has = (points) => points.some(([, value]) => value !== null);

function entry(name, points, at, write) {
  const key = h("span", { class: `key ${lineOf(at)}` });
  return h("li", {}, key, h("span", {}, name), h("b", {}, write(points.at(-1)?.[1] ?? null)));
}

/** The colour of a series; beyond the colours lines are dashed. */
const lineOf = (at) => `line-${at % COLOURS}${at < COLOURS ? "" : " more"}`;

/** Say what a chart shows last, for those who do not see it. */
const said = (title, series, write) =>
  `${title}: ${series.filter(({ points }) => has(points)).map(({ name, points }) => `${name} ${write(points.at(-1)?.[1] ?? null)}`).join(", ")}`;

function drawn(title, series, write, width, tops) {
  const all = series.flatMap((each) => each.points).filter(([, value]) => value !== null);
  const first = Math.min(...all.map(([at]) => at));
  const last = Math.max(...all.map(([at]) => at), first + 1);
  const greatest = Math.max(0, ...all.map(([, value]) => value));
  const most = tops.find((top) => top >= greatest && greatest > tops[0] / 2) ?? niceTop(greatest);
  const labels = [0, 0.5, 1].map((part) => write(most * part));
  const left = 10 + LETTER * Math.max(...labels.map((label) => label.length));
  const x = (at) => left + ((width - left - 6) * (at - first)) / (last - first);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const lines = labels.map((label, at) => {
    const height = y((most * at) / 2);
    return [
      s("line", { class: "grid", x1: left, x2: width - 6, y1: height, y2: height }),
      s("text", { x: left - 6, y: height + 4, "text-anchor": "end" }, label),
    ];
  });
  const clock = (at) => new Date(at).toISOString().slice(11, 19);
  const times = all.length
    ? [
        s("text", { x: left, y: HEIGHT - 5 }, clock(first)),
        s("text", { x: width - 6, y: HEIGHT - 5, "text-anchor": "end" }, `${clock(last)} UTC`),
      ]
    : [s("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing yet")];
  const paths = series.map(({ points }, at) =>
    s("path", { class: `line ${lineOf(at)}`, d: pathOf(points, x, y) }),
  );
  const label = said(title, series, write);
  const attributes = { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label };
  return s("svg", attributes, lines.flat(), times, paths);
}

/** Write the path of points; where a value is null the line has a gap. */
function pathOf(points, x, y) {
  let pen = "M";
  let found = "";
  for (const [at, value] of points) {
    if (value === null) {
      pen = "M";
      continue;
    }
    // A line to itself shows a point that has no neighbours.
    found += `${pen}${x(at).toFixed(1)},${y(value).toFixed(1)}${pen === "M" ? "h0" : ""}`;
    pen = "L";
  }
  return found;
}

/** Return the next 1, 2 or 5 times a power of ten. */
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((each) => each * power >= value) * power;
}
