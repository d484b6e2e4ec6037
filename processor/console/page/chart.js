// Draw lines over time as SVG: several series, one axis each way.
import { h, s, show } from "./dom.js";

const WIDTH = 440;
const HEIGHT = 150;
const LEFT = 54;
const BOTTOM = 22;
const TOP = 8;
const COLOURS = 6;

/** Make a chart; `update` draws series [{name, points: [[ms, value or null]]}]. */
export function chart(title, write) {
  const picture = h("div", { class: "picture" });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title), picture, legend);
  const update = (series) => {
    show(picture, drawn(title, series, write));
    show(legend, series.map(({ name, points }, at) => entry(name, points, at, write)));
  };
  return { element, update };
}

function entry(name, points, at, write) {
  const key = h("span", { class: `key line-${at % COLOURS}` });
  return h("li", {}, key, h("span", {}, name), h("b", {}, write(points.at(-1)?.[1] ?? null)));
}

function drawn(title, series, write) {
  const all = series.flatMap((each) => each.points).filter(([, value]) => value !== null);
  const first = Math.min(...all.map(([at]) => at));
  const last = Math.max(...all.map(([at]) => at), first + 1);
  const most = niceTop(Math.max(0, ...all.map(([, value]) => value)));
  const x = (at) => LEFT + ((WIDTH - LEFT - 6) * (at - first)) / (last - first);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const lines = [0, 0.5, 1].map((part) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(most * part), y2: y(most * part) }),
    s("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, write(most * part)),
  ]);
  const clock = (at) => new Date(at).toISOString().slice(11, 19);
  const times = all.length
    ? [
        s("text", { x: LEFT, y: HEIGHT - 5 }, clock(first)),
        s("text", { x: WIDTH - 6, y: HEIGHT - 5, "text-anchor": "end" }, `${clock(last)} UTC`),
      ]
    : [s("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing yet")];
  const paths = series.map(({ points }, at) =>
    s("path", { class: `line line-${at % COLOURS}`, d: pathOf(points, x, y) }),
  );
  const attributes = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title };
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
    found += `${pen}${x(at).toFixed(1)},${y(value).toFixed(1)}`;
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
