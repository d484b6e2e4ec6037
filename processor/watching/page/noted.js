// The errors, late records and drift that a run has noted, with a look at the records.
import { ask } from "./api.js";
import { comparing } from "./columns.js";
import { h, show, table } from "./dom.js";
import { content, isDated, number, seconds, time } from "./format.js";

const FEW = 5;
const NUMBERS = { class: "number" };
const INPUTS = ["Input", { text: "Records", ...NUMBERS }, "Since", "Last"];
const KINDS = {
  error: {
    title: "New errors",
    what: "Records that could not be read or computed with. An error ends with the next good record of its key.",
    column: "Reason",
  },
  late: {
    title: "Late records",
    what: "Records that arrived later than the lateness of the input allows. None is dropped: each counts at the frontier.",
    column: { text: "Late by", ...NUMBERS },
  },
  drift: {
    title: "Drift of old images",
    what: "Change records with an old image unlike the state, or deletes of rows that it does not have. A source that repeats messages after a restart causes some.",
    column: null,
  },
  outdated: {
    title: "Outdated records",
    what: "Records with a lower sequence than an earlier record of their key. They are not applied, because the row is newer.",
    column: null,
  },
};

/** Show what was noted, and again when that has changed. */
export function noted(place, { poller }) {
  const said = h("p", { class: "said", role: "status" });
  const sections = h("div");
  const records = new Looks(() => draw());
  const columns = comparing();
  show(place, h("h2", {}, "Errors, late records, drift"), said, sections);
  let answer = null;
  let ended = false;
  const draw = () => {
    said.textContent = answer.shows
      ? ""
      : "The content of records is not shown: start the run with --token-file to let tokens see it.";
    const focused = document.activeElement?.id;
    const inputs = poller.answer?.inputs ?? {};
    const kinds = Object.keys(KINDS).map((kind) => section(kind, answer, inputs, records));
    show(sections, kinds, answer.shows ? columns.element : null);
    columns.of(answer.inputs);
    if (focused) document.getElementById(focused)?.focus();
  };
  const stop = poller.listen(async () => {
    try {
      const found = await ask("/v1/noted");
      if (ended || JSON.stringify(found) === JSON.stringify(answer)) return;
      answer = found;
      draw();
    } catch (error) {
      if (!ended) said.textContent = error.message;
    }
  });
  return () => {
    ended = true;
    stop();
  };
}

function section(kind, { shows, noted }, inputs, records) {
  const { title, what, column } = KINDS[kind];
  const found = noted.filter((each) => each.kind === kind);
  const head = [h("h3", {}, title), h("p", { class: "faint" }, what)];
  if (!found.length) return h("section", {}, head, h("p", {}, "None since the run began."));
  const sums = found.map((each) => [each.input || "all inputs", number(each.count), time(each.since_ms), time(each.last_ms)]);
  const heads = [
    "Topic",
    { text: "Partition", ...NUMBERS },
    { text: "Offset", ...NUMBERS },
    ...(column ? [column] : []),
    "Noted",
    ...(shows ? ["Record"] : []),
  ];
  const all = found.flatMap((each) => each.records.map((record) => ({ ...record, input: each.input })));
  const rows = all.slice(0, records.wantsAll(kind) ? all.length : FEW).map((record) => {
    const isMs = isDated(inputs[record.input]?.frontier ?? 0);
    const how = { error: record.reason, late: lateBy(record.late_by, isMs) }[kind];
    return [
      record.topic,
      number(record.partition),
      number(record.offset),
      ...(column ? [how] : []),
      time(record.at_ms),
      ...(shows ? [records.look(kind, record)] : []),
    ];
  });
  return h(
    "section",
    {},
    head,
    table(INPUTS, sums, { class: "cards" }),
    rows.length ? [h("h4", {}, "The last records"), table(heads, rows, { class: "cards places" })] : null,
    rows.length < all.length ? more(kind, all.length - rows.length, records) : null,
  );
}

function more(kind, count, records) {
  const onclick = () => records.wantAll(kind);
  return h("p", {}, h("button", { type: "button", id: `more ${kind}`, onclick }, `Show ${number(count)} more`));
}

const lateBy = (by, isMs) => (isMs ? seconds(by / 1000) : number(by));

/** What was asked for of records, which stays open while tables are drawn again. */
class Looks {
  #opened = new Map();
  #all = new Set();
  #again;

  /** `again` draws all of it again. */
  constructor(again) {
    this.#again = again;
  }

  wantsAll = (kind) => this.#all.has(kind);

  wantAll(kind) {
    this.#all.add(kind);
    this.#again();
  }

  /** Make the button that shows a record, or the record if it was asked for. */
  look(kind, { topic, partition, offset }) {
    const id = `look ${kind} ${topic} ${partition} ${offset}`;
    const place = h("div", { class: "look" });
    const name = `the record at ${topic}, partition ${partition}, offset ${offset}`;
    const open = async () => {
      try {
        this.#opened.set(id, await ask(`/v1/records?${new URLSearchParams({ topic, partition, offset })}`));
      } catch (error) {
        if (error.status !== 401) this.#opened.set(id, { error: error.message });
        else document.getElementById("ask-token").showModal();
      }
      this.#draw(place, id, name, open);
    };
    this.#draw(place, id, name, open);
    return place;
  }

  #draw(place, id, name, open) {
    const found = this.#opened.get(id);
    const close = () => {
      this.#opened.delete(id);
      this.#draw(place, id, name, open);
    };
    const onclick = found ? close : open;
    const attributes = { type: "button", id, "aria-expanded": String(found !== undefined), onclick };
    const button = h("button", { ...attributes, "aria-label": `${found ? "Hide" : "Show"} ${name}` }, found ? "Hide" : "Show");
    const focused = place.contains(document.activeElement);
    show(place, button, found ? record(found) : null);
    if (focused) button.focus();
  }
}

function record(found) {
  if (found.error) return h("p", { class: "wrong" }, found.error);
  if (found.gone) return h("p", {}, "The topic has it no more.");
  return h("dl", {}, part("Key", found.key, found.key_bytes), part("Value", found.value, found.value_bytes));
}

function part(name, base64, bytes) {
  if (base64 === null) return [h("dt", {}, name), h("dd", {}, h("i", { class: "faint" }, "null"))];
  const shown = base64.endsWith("==") ? -2 : base64.endsWith("=") ? -1 : 0;
  const cut = (base64.length / 4) * 3 + shown < bytes;
  const more = cut ? h("p", { class: "faint" }, `the beginning of ${number(bytes)} bytes`) : null;
  return [h("dt", {}, name), h("dd", {}, h("code", {}, content(base64, cut)), more)];
}
