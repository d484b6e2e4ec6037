// The current errors of a pipeline: how many of each reason, and their records.
import { ask, pathOf } from "./api.js";
import { h, show, table } from "./dom.js";
import { content, number, time } from "./format.js";

const MOST = 500;
const REASONS = ["Reason", { text: "Count", class: "number" }];
const HEADS = ["Reason", "Topic", { text: "Partition", class: "number" }, { text: "Offset", class: "number" }, "Key", "Value"];

/** Show the errors as of the newest time of their topic, and again when more of it is closed. */
export const errors = (topic) => (place, { poller }) => {
  const reasons = h("div");
  const records = h("div", { class: "found" });
  const said = h("p", { class: "faint", role: "status" });
  show(place, h("h2", {}, "Errors"), said, reasons, h("h3", {}, "Their records"), records);
  let shown = null;
  let ended = false;
  const stop = poller.listen(async (answer) => {
    const found = answer.collections.find(({ collection }) => collection.name === topic)?.collection;
    if (found === undefined || shown === found.upper) return;
    shown = found.upper;
    try {
      const page = await ask(pathOf(topic, "scan", { limit: MOST }));
      if (ended) return;
      const rows = page.rows.flatMap(({ values }) => values);
      // What was counted before may be of an earlier time than the records.
      const count = page.page ? (found.total ?? found.keys) : rows.reduce((sum, row) => sum + row.count, 0);
      said.textContent = `Current errors as of ${time(page.as_of)}: ${number(count)}${page.page ? `; the first ${number(rows.length)} are shown` : ""}`;
      show(reasons, table(REASONS, counted(rows)));
      show(records, rows.length ? table(HEADS, rows.map(rowOf), { class: "rows cards failed" }) : h("p", { class: "faint" }, "There are none."));
    } catch (error) {
      shown = null;
      if (!ended) said.textContent = error.message;
    }
  });
  return () => {
    ended = true;
    stop();
  };
};

function counted(rows) {
  const found = new Map();
  for (const { value, count } of rows) found.set(value.reason, (found.get(value.reason) ?? 0) + count);
  return [...found].sort(([, one], [, other]) => other - one).map(([reason, count]) => [reason, number(count)]);
}

const rowOf = ({ value }) => [
  value.reason,
  value.topic ?? "",
  number(value.partition),
  number(value.offset),
  h("code", {}, content(value.key)),
  h("code", {}, content(value.value)),
];
