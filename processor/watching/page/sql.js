// A box for SQL: one SELECT over the collections, all of them as of one time.
import { ask } from "./api.js";
import { h, show, table } from "./dom.js";
import { counted, number, time } from "./format.js";

const MOST_SHOWN = 1000;
const KEPT = "ikebana-sql";

export function sql(place, { poller }) {
  const all = (name) => `SELECT * FROM "${name.replaceAll('"', '""')}" LIMIT 20`;
  const text = h("textarea", { id: "sql", rows: "6", spellcheck: "false", "aria-label": "SQL" });
  text.value = sessionStorage.getItem(KEPT) ?? "";
  const asOf = h("input", { class: "time", id: "sql-as-of", placeholder: "the newest time" });
  const said = h("p", { class: "said", role: "status" });
  const found = h("div", { class: "found" });
  const button = h("button", {}, "Run");
  let asking = new AbortController();

  const run = async (event) => {
    event?.preventDefault();
    asking.abort();
    const { signal } = (asking = new AbortController());
    sessionStorage.setItem(KEPT, text.value);
    said.textContent = "running";
    said.classList.remove("wrong");
    const began = performance.now();
    try {
      const body = { query: text.value, as_of: asOf.value.trim() || null };
      const answer = await ask("/v1/sql", { body, signal });
      const took = Math.round(performance.now() - began);
      const cut = answer.rows.length > MOST_SHOWN ? `, the first ${number(MOST_SHOWN)} of them here` : "";
      const at = answer.as_of === null ? "" : ` as of ${time(answer.as_of)}`;
      said.textContent = `${counted(answer.rows.length, "row")}${cut}${at}, in ${took} ms`;
      show(found, result(answer));
    } catch (error) {
      if (signal.aborted) return;
      said.textContent = error.message;
      said.classList.add("wrong");
      show(found);
    }
  };
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  });
  const use = (name) => () => {
    text.value = all(name);
    run();
  };
  const tables = h("p", { class: "buttons" }, "Tables");
  let shown = "";
  // A page that is opened here has no answer yet; later ones may have other collections.
  const stop = poller.listen(({ collections }) => {
    const names = collections.map((each) => each.collection.name);
    if (names.join() === shown) return;
    shown = names.join();
    if (!text.value && names.length) text.value = all(names[0]);
    show(tables, "Tables", names.map((name) => h("button", { type: "button", onclick: use(name) }, h("code", {}, name))));
  });
  const line = h("p", { class: "buttons" }, h("label", { for: "sql-as-of" }, "As of"), asOf, button, h("span", { class: "faint" }, "Ctrl+Enter"));
  show(place, h("h2", {}, "SQL"), tables, h("form", { onsubmit: run }, text, line), said, found);
  return () => {
    stop();
    asking.abort();
  };
}

function result({ columns, rows }) {
  const heads = columns.map((column) => column.name ?? column);
  const cells = rows.slice(0, MOST_SHOWN).map((row) => row.map(cell));
  return table(heads, cells, { class: "rows" });
}

function cell(value) {
  if (value === null) return h("i", { class: "faint" }, "null");
  return h("code", {}, typeof value === "object" ? JSON.stringify(value) : String(value));
}
