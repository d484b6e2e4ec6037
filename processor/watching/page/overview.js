// What is served: a row for each collection, and charts over time.
import { chart } from "./chart.js";
import { h, show, table } from "./dom.js";
import { bytes, number, rate, seconds, time } from "./format.js";

// From a minute to two days; shorter and longer ones are powers of ten.
const DURATIONS_S = [60, 120, 240, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 172800];
const HEADS = [
  "Collection",
  "Since",
  "Upper",
  { text: "Lag", class: "number" },
  { text: "Keys", class: "number" },
  { text: "Bytes", class: "number" },
  { text: "On disk", class: "number" },
  { text: "Updates/s", class: "number" },
];

/** The figures of a collection for the poller; without a wall clock, lag is since the last read. */
export const sampled = ({ collections }) =>
  collections.map(({ collection, lag_s, caught_up_s, updates }) => ({
    name: collection.name,
    lag: lag_s ?? caught_up_s,
    updates,
  }));

export function overview(place, { poller }) {
  const list = h("div");
  const newest = h("p", { class: "faint" });
  const charts = lagAndRates(poller);
  show(place, h("h2", {}, "Collections"), newest, list, charts.element);
  return poller.listen((answer) => {
    newest.textContent = answer.why ?? `Newest time of all: ${time(answer.newest)}`;
    keepFocus(list, table(HEADS, answer.collections.map((each) => rowOf(each, poller)), { class: "cards" }));
    charts.update(answer.collections.map((each) => each.collection.name));
  });
}

/** Make the charts of lag and of updates a second; a name may have another one for its lag. */
export function lagAndRates(poller, ofLag = {}) {
  const lag = chart("Lag", seconds, DURATIONS_S);
  const rates = chart("Updates a second", rate);
  const element = h("div", { class: "charts" }, lag.element, rates.element);
  const update = (names) => {
    const of = (figure) =>
      names.map((name) => ({
        name: (figure === "lag" && ofLag[name]) || name,
        points: poller.samples(name).map((sample) => [sample.at, sample[figure]]),
      }));
    lag.update(of("lag"));
    rates.update(of("rate"));
  };
  return { element, update };
}

function rowOf({ collection, lag_s, caught_up_s, disk_bytes }, poller) {
  const { name, since, upper } = collection;
  return [
    h("a", { href: `#/collections/${encodeURIComponent(name)}` }, name),
    time(since),
    time(upper),
    caught_up_s === null ? "catching up" : seconds(lag_s ?? caught_up_s),
    number(collection.keys),
    bytes(collection.bytes),
    bytes(disk_bytes),
    rate(poller.rate(name)),
  ];
}

/** Show an element in place of another, with the focus on the same link as before. */
function keepFocus(place, element) {
  const focused = place.contains(document.activeElement) && document.activeElement.getAttribute("href");
  show(place, element);
  if (focused) [...place.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
}
