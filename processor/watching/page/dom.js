// Make elements.  What is inside is other elements or text, never HTML.

/** Make an element with attributes (`onclick` and the like are listeners) and children. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null));
  return made;
}

/** Make a table; `rows` are lists of cells, each text, an element, or {text, class}. */
export function table(heads, rows, attributes = {}) {
  const columns = heads.map((head) => (typeof head === "string" ? { text: head } : head));
  return h(
    "table",
    attributes,
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { class: c.class, scope: "col" }, c.text)))),
    h("tbody", {}, rows.map((row) => tableRow(columns, row))),
  );
}

function tableRow(columns, row) {
  const cells = row.cells ?? row;
  const made = cells.map((cell, at) =>
    h("td", { class: columns[at]?.class, "data-label": columns[at]?.text }, cell),
  );
  return h("tr", { class: row.class }, made);
}

/** Replace the children of an element. */
export function show(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter((child) => child != null));
}
