// A run of a pipeline: whether it keeps up, its outputs, and what it has counted.
import { h, show, table } from "./dom.js";
import { bytes, number, rate, seconds, time } from "./format.js";
import { lagAndRates } from "./overview.js";

const NUMBERS = { class: "number" };
const OUTPUTS = ["Output", "Frontier", { text: "Lag", ...NUMBERS }, { text: "Updates", ...NUMBERS }, { text: "Updates/s", ...NUMBERS }];
const SINKS = ["Sink", "Frontier", { text: "Lag", ...NUMBERS }, { text: "Updates", ...NUMBERS }, { text: "Offsets behind", ...NUMBERS }, { text: "Restarts", ...NUMBERS }, "State"];
// As many characters of a sink's state have room in its box.
const STATE = 32;
export const WHOLE = "records read";

/** The figures of each output for the poller, and those of the whole. */
export const sampled = ({ outputs, records, lag_s }) => [
  { name: WHOLE, lag: lag_s, updates: records },
  ...Object.entries(outputs).map(([name, each]) => ({ name, lag: each.lag_s, updates: each.updates })),
];

export function run(place, { poller }) {
  const facts = h("dl", { class: "tiles" });
  const notices = h("div", { role: "status" });
  const outputs = h("div");
  const sinks = h("div");
  const counted = h("div");
  const charts = lagAndRates(poller, { [WHOLE]: "pipeline" });
  show(
    place,
    h("h2", {}, "Run"),
    facts,
    notices,
    h("h3", {}, "Outputs"),
    outputs,
    sinks,
    charts.element,
    h("h3", {}, "Counted: errors, late records, drift"),
    counted,
  );
  return poller.listen((answer) => {
    show(facts, tiles(answer));
    // Not again as long as they are the same: readers of screens would say them each time.
    if (notices.dataset.of !== (notices.dataset.of = JSON.stringify(answer.notices))) {
      show(notices, answer.notices.length ? noticed(answer.notices) : null);
    }
    const rows = Object.entries(answer.outputs).map(([name, each]) => [
      name,
      time(each.frontier),
      seconds(each.lag_s),
      number(each.updates),
      rate(poller.rate(name)),
    ]);
    show(outputs, table(OUTPUTS, rows, { class: "cards" }));
    show(sinks, Object.keys(answer.sinks).length ? delivered(answer.sinks) : null);
    const kinds = Object.entries(answer.counted).map(([kind, count]) => [kind, number(count)]);
    const focused = counted.contains(document.activeElement);
    const link = h("a", { href: "#/errors" }, "Their last records");
    show(counted, table(["Kind", { text: "Count", ...NUMBERS }], kinds), h("p", {}, link));
    if (focused) link.focus();
    charts.update([WHOLE, ...Object.keys(answer.outputs)]);
  });
}

function tiles({ ready, reason, lag_s, batch, records, restarts, state }) {
  const tile = (name, value, wrong) => h("div", { class: wrong && "wrong" }, h("dt", {}, name), h("dd", {}, value));
  return [
    tile(ready ? "Ready" : "Not ready", reason, !ready),
    tile("Lag", seconds(lag_s)),
    tile("Batch", number(batch)),
    tile("Records read", number(records)),
    tile("Restarts", number(restarts), restarts > 0),
    tile("State", `${bytes(state.bytes)}, ${number(state.entries)} entries, ${number(state.shards)} shards`),
  ];
}

/** The sinks, which run in processes of their own. */
function delivered(sinks) {
  const rows = Object.entries(sinks).map(([name, each]) => ({
    class: each.ready ? "" : "wrong",
    cells: [name, time(each.frontier), seconds(each.lag_s), number(each.updates), number(each.behind), number(each.restarts), each.state],
  }));
  return [h("h3", {}, "Sinks"), table(SINKS, rows, { class: "cards" })];
}

/** What is probably not meant, though it goes on. */
function noticed(notices) {
  const items = notices.map(({ words, since_ms }) => h("li", {}, words, " ", h("span", { class: "faint" }, `since ${time(since_ms)}`)));
  return [h("h3", {}, "Probably not meant"), h("ul", { class: "notices" }, items)];
}

/** The figures of a box of the plan. */
export function figuresOf({ inputs, operators, outputs, sinks }, poller, id, name) {
  const kind = id.split(" ")[0];
  if (kind === "sink") return ofSink(sinks[name]);
  const found = { output: outputs, decoding: inputs }[kind]?.[name] ?? operators[name];
  if (found === undefined) return {};
  return {
    frontier: `frontier ${time(found.frontier)}`,
    held: found.holds ? "holds the others back" : found.silent ? "silent" : "",
    lag: `lag ${seconds(found.lag_s)}`,
    rate: `${rate(poller.rate(name))} updates/s`,
  };
}

/** Those of a sink; its box leads to the first page, which has more of it. */
const ofSink = ({ state, frontier, lag_s }) => ({
  state: state.length > STATE ? `${state.slice(0, STATE - 1)}…` : state,
  frontier: `frontier ${time(frontier)}`,
  lag: `lag ${seconds(lag_s)}`,
  href: "#/",
});
