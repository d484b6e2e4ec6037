// The latest updates of a subscription.
import { h, show, table } from "./dom.js";
import { content, time } from "./format.js";

const SHOWN = 20;
const HEADS = ["Time", { text: "Diff", class: "number" }, "Key", "Value"];

/** Make the list; `add` takes updates in base64, `state` says how the subscription stands. */
export function feed() {
  const list = h("div", { class: "found" }, h("p", { class: "faint" }, "No updates since this page was opened."));
  const said = h("span", { class: "faint", role: "status" });
  const element = h("section", { class: "feed" }, h("h3", {}, "Latest updates ", said), list);
  let latest = [];
  const add = (updates) => {
    if (!updates.length) return;
    latest = [...updates.slice(-SHOWN).reverse(), ...latest].slice(0, SHOWN);
    show(list, table(HEADS, latest.map(rowOf), { class: "rows" }));
  };
  const state = (text) => {
    said.textContent = text === "live" ? "" : `(${text})`;
  };
  return { element, add, state };
}

function rowOf(update) {
  return {
    class: update.diff > 0 ? "inserted" : "removed",
    cells: [
      time(update.time),
      `${update.diff > 0 ? "+" : "−"}${Math.abs(update.diff)}`,
      h("code", {}, content(update.key)),
      h("code", {}, content(update.value)),
    ],
  };
}
