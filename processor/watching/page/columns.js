// Compare the columns of the newest records of an input with those that it declares.
import { ask } from "./api.js";
import { h, show, table } from "./dom.js";
import { counted, number } from "./format.js";

const HEADS = ["Column", "Type", { text: "Rows", class: "number" }];

/** Make the section; `of` takes the names of the inputs. */
export function comparing() {
  const list = h("div");
  const element = h(
    "section",
    {},
    h("h3", {}, "Schema drift"),
    h("p", { class: "faint" }, "Columns that come and are not declared are not read; those that are declared and do not come are null. Values that do not fit a declared type are errors."),
    list,
  );
  let known = "";
  const of = (names) => {
    if (known === names.join()) return;
    known = names.join();
    show(list, names.map(input));
  };
  return { element, of };
}

function input(name) {
  const found = h("div", { role: "status" });
  const compare = async () => {
    show(found, h("p", { class: "faint" }, "reading the newest records"));
    try {
      show(found, told(await ask(`/v1/columns?${new URLSearchParams({ input: name })}`)));
    } catch (error) {
      show(found, h("p", { class: "wrong" }, error.message));
      if (error.status === 401) document.getElementById("ask-token").showModal();
    }
  };
  const button = h("button", { type: "button", "aria-label": `Compare the newest records of ${name}`, onclick: compare }, "Compare the newest records");
  return h("div", { class: "schema" }, h("h4", {}, name), button, found);
}

function told({ rows, undeclared, absent, why }) {
  if (why) return h("p", {}, `Nothing was compared: ${why}.`);
  const facts = [counted(rows, "row")];
  if (!undeclared.length) facts.push("no column that is not declared");
  if (!absent.length) facts.push("every declared column comes");
  else facts.push(`none has ${absent.join(", ")}`);
  const more = undeclared.map((each) => [each.name, each.type, number(each.rows)]);
  return [h("p", {}, `${facts.join("; ")}.`), more.length ? [h("p", {}, "Not declared:"), table(HEADS, more)] : null];
}
