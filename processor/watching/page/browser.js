// Browse one collection: by key or prefix, page by page, as of any time that is kept, or live.
import { ask, pathOf } from "./api.js";
import { AsOf } from "./as_of.js";
import { h, show } from "./dom.js";
import { follow } from "./events.js";
import { bytes, counted, rate, seconds, time } from "./format.js";
import { Changes, flat, marked, rowsTable } from "./rows.js";
import { feed } from "./feed.js";

const LIMIT = 50;
const REDRAW_MS = 400;
// For so long the rows that have changed are marked together.
const MARKED_MS = 3000;

export function browser(place, { poller }, name) {
  const view = new Browser(place, name);
  const stop = poller.listen(({ collections }) => {
    const found = collections.find((each) => each.collection.name === name);
    if (found !== undefined) view.stands(found, poller.rate(name));
  });
  view.begin();
  return () => {
    stop();
    view.end();
  };
}

class Browser {
  constructor(place, name) {
    this.name = name;
    this.facts = h("p", { class: "faint facts" });
    this.found = h("div", { class: "found", "aria-live": "off" });
    this.said = h("p", { class: "said", role: "status" });
    this.asOf = new AsOf(() => this.#first());
    this.latest = feed();
    this.search = this.#searching();
    this.back = h("button", { type: "button", onclick: () => this.#page(-1) }, "← Earlier keys");
    this.next = h("button", { type: "button", onclick: () => this.#page(1) }, "Later keys →");
    const pages = h("p", { class: "buttons" }, this.back, this.next);
    const head = h("h2", {}, h("a", { href: "#/" }, "Collections"), " / ", name);
    show(place, head, this.facts, this.asOf.element, this.search, this.said, this.found, pages, this.latest.element);
    this.ending = new AbortController();
    // The tokens of the pages up to this one; the first page has none.
    this.pages = [null];
    this.nextPage = null;
    // The rows that are shown, and those to which the marks refer.
    this.rows = [];
    this.before = [];
    this.changes = new Changes();
    this.stale = false;
    this.following = false;
    this.reading = new AbortController();
  }

  begin() {
    this.#first();
    const wanted = { collection: this.name, snapshot: "false", encoding: "base64" };
    const state = (text) => this.latest.state(text);
    follow(wanted, (event) => this.#batch(event), state, this.ending.signal);
  }

  end() {
    this.ending.abort();
    this.reading.abort();
  }

  /** Show how the collection stands now. */
  stands({ collection, lag_s, caught_up_s, disk_bytes }, perSecond) {
    this.facts.textContent = [
      counted(collection.keys, "key"),
      bytes(collection.bytes),
      `${bytes(disk_bytes)} on disk`,
      `${rate(perSecond)} updates/s`,
      caught_up_s === null ? "catching up" : `lag ${seconds(lag_s ?? caught_up_s)}`,
    ].join(" · ");
    // Before the first closed time there is none to choose.
    if (collection.upper !== null) this.asOf.bounds(collection.since, collection.upper);
  }

  #searching() {
    this.text = h("input", { type: "search", id: "search", placeholder: "all keys", spellcheck: "false" });
    this.how = h(
      "select",
      { "aria-label": "How keys are searched", onchange: () => this.#first() },
      h("option", { value: "prefix" }, "begins with"),
      h("option", { value: "key" }, "is"),
    );
    const go = (event) => {
      event.preventDefault();
      this.#first();
    };
    const label = h("label", { for: "search" }, "Key");
    return h("form", { class: "search", onsubmit: go }, label, this.how, this.text, h("button", {}, "Search"));
  }

  #first() {
    this.pages = [null];
    this.#read(false);
  }

  #page(step) {
    // All pages are of one time.
    this.asOf.pin();
    if (step > 0) this.pages.push(this.nextPage);
    else this.pages.pop();
    this.#read(false);
  }

  /** Take a batch of the subscription; rows are read again soon, once for many batches. */
  #batch({ name, data }) {
    if (name !== "batch") return;
    const updates = data.updates[this.name];
    this.latest.add(updates);
    this.asOf.closed(data.upper);
    if (!this.asOf.live) return;
    if (performance.now() - this.changes.began > MARKED_MS) this.#unmark();
    this.changes.add(updates);
    this.stale = true;
    if (!this.following) this.#follow();
  }

  async #follow() {
    this.following = true;
    while (this.stale && this.asOf.live && !this.ending.signal.aborted) {
      await new Promise((done) => setTimeout(done, REDRAW_MS));
      this.stale = false;
      if (this.asOf.live) await this.#read(true);
    }
    this.following = false;
  }

  #unmark() {
    this.before = this.rows;
    this.changes = new Changes();
  }

  async #read(marks) {
    this.reading.abort();
    const reading = (this.reading = new AbortController());
    try {
      const answer = await this.#asked(reading.signal);
      const rows = flat(answer.rows);
      const none = h("p", { class: "faint none" }, "There is no such key at this time.");
      const shown = marks ? marked(this.before, rows, this.changes) : rows;
      show(this.found, shown.length ? rowsTable(shown) : none);
      this.rows = rows;
      if (!marks) this.#unmark();
      this.nextPage = answer.page;
      this.back.disabled = this.pages.length < 2;
      this.next.disabled = answer.page === null;
      this.said.textContent = `${counted(rows.length, "row")} as of ${time(answer.as_of)}`;
      this.said.dataset.asOf = answer.as_of;
      this.said.classList.remove("wrong");
    } catch (error) {
      if (reading.signal.aborted) return;
      this.said.textContent = error.message;
      this.said.classList.add("wrong");
    }
  }

  /** Read a page.  Text that is searched may be JSON, or the text of a string without quotes. */
  async #asked(signal) {
    const text = this.text.value;
    const page = this.pages.at(-1);
    const read = (parameters) =>
      ask(pathOf(this.name, ...parameters), { signal }).then((answer) => this.#asRows(answer));
    const common = { as_of: this.asOf.value, encoding: "base64" };
    if (page !== null) return read(["scan", { page, limit: LIMIT, encoding: "base64" }]);
    const isKey = this.how.value === "key";
    const forms = text === "" ? [null] : [text, isKey ? JSON.stringify(text) : JSON.stringify(text).slice(0, -1)];
    let answer = null;
    for (const form of forms) {
      answer = await read(
        isKey && form !== null
          ? ["get", { key: form, ...common }]
          : ["scan", { prefix: form, limit: LIMIT, ...common }],
      );
      if (answer.rows.length) break;
    }
    return answer;
  }

  #asRows(answer) {
    if (answer.rows !== undefined) return answer;
    const rows = answer.values.length ? [{ key: answer.key, values: answer.values }] : [];
    return { as_of: answer.as_of, rows, page: null };
  }
}
