// The rows of a page of a collection, and how they differ from those before.
import { h, table } from "./dom.js";
import { content } from "./format.js";

const HEADS = ["Key", "Value", { text: "Count", class: "number" }];

const idOf = (key, value) => `${key} ${value}`;

/** Make one row of each key and value of a scan in base64. */
export const flat = (rows) =>
  rows.flatMap(({ key, values }) =>
    values.map(({ value, count }) => ({ id: idOf(key, value), key, value, count })),
  );

/** The net diffs of updates that come one batch after another, and when that began. */
export class Changes {
  #net = new Map();
  began = performance.now();

  add(updates) {
    for (const { key, value, diff } of updates) {
      const id = idOf(key, value);
      this.#net.set(id, (this.#net.get(id) ?? 0) + diff);
    }
  }

  of = (id) => this.#net.get(id) ?? 0;
}

/** Mark rows that changes have inserted, and put those that they removed where they were. */
export function marked(before, after, changes) {
  const left = new Set(after.map((row) => row.id));
  const removed = (row) => !left.has(row.id) && changes.of(row.id) < 0;
  const known = new Map(before.map((row, at) => [row.id, at]));
  const found = [];
  let done = 0;
  const passed = (end) => {
    for (const row of before.slice(done, end)) if (removed(row)) found.push({ ...row, mark: "removed" });
    done = Math.max(done, end);
  };
  for (const row of after) {
    const at = known.get(row.id);
    if (at !== undefined) passed(at + 1);
    // What a key had stands before what it has now.
    while (done < before.length && before[done].key === row.key && removed(before[done])) passed(done + 1);
    found.push(changes.of(row.id) > 0 ? { ...row, mark: "inserted" } : row);
  }
  passed(before.length);
  return found;
}

/** Show rows; a mark is a class and, for those who see no colours, a sign. */
export const rowsTable = (rows) =>
  table(
    HEADS,
    rows.map(({ key, value, count, mark }) => ({
      class: mark,
      cells: [
        key === null ? h("i", { class: "faint" }, "no key") : h("code", {}, content(key)),
        h("code", {}, content(value)),
        `${{ inserted: "+", removed: "−" }[mark] ?? ""}${count}`,
      ],
    })),
    { class: "rows" },
  );
