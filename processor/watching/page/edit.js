// The last edit of the plan: what stays, is new, replaced or dropped, and how far it is.
import { ask } from "./api.js";
import { h, s, show } from "./dom.js";
import { counted, number, time } from "./format.js";

const SIGNS = { new: "+", replaced: "~", dropped: "−", renamed: "=", stays: "=", refused: "!" };
const KINDS = { input: "Inputs", operator: "Operators", arrangement: "Arrangements of joins", output: "Outputs" };
const STATES = {
  "to come": "It comes next: what it needs is being made ready under the plan before.",
  filling: "It goes through the state.",
  waiting: "All parts are filled; outputs show the difference when its time is closed.",
  through: "It is done.",
};
// The classes of the boxes that a part may have; their titles name the part, or several.
const BOXES = {
  input: ["decoding", "input"],
  operator: ["state", "join", "path", "operator", "pass", "exchange"],
  arrangement: ["arrangement"],
  output: ["output", "hold"],
};
const BETWEEN_NAMES = " + ";
// A path of a join has the join's name, and the input's.
const IN_A_JOIN = "/";

/** Show the last edit in `place`, mark its parts in the pictures of `page`; return how to stop. */
export function edit(place, page, poller) {
  let shown = null;
  let ended = false;
  const stop = poller.listen(async () => {
    const answer = await ask("/v1/edit").then((found) => found, () => null);
    const text = JSON.stringify(answer);
    if (ended || answer === null || text === shown) return;
    shown = text;
    const open = place.querySelector("details")?.open;
    show(place, answer.edit === null ? none() : described(answer));
    if (open) place.querySelector("details").open = true;
    for (const part of answer.edit?.parts ?? []) mark(page, part);
  });
  return () => {
    ended = true;
    stop();
  };
}

const none = () => [h("h3", {}, "Last edit"), h("p", { class: "faint" }, "The plan has not been edited since the checkpoint was made.")];

function described({ edit, state, filling }) {
  const at = edit.frontier === null ? "Its time was not recorded." : `It was made at ${time(edit.frontier)}.`;
  const changed = edit.parts.filter((part) => part.does !== "stays");
  const stays = edit.parts.filter((part) => part.does === "stays");
  return [
    h("h3", {}, "Last edit"),
    h("p", {}, at, " ", h("span", { role: "status" }, state === null ? "" : STATES[state])),
    filling && progress(filling),
    sections(changed),
    stays.length ? h("details", {}, h("summary", {}, stays.length === 1 ? "1 part stays as before" : `${number(stays.length)} parts stay as before`), sections(stays)) : null,
  ];
}

function progress({ part, parts, name, share, keys }) {
  const words = `Part ${part} of ${parts}, ${name}: ${counted(keys, "key")} so far`;
  return h("p", { class: "filling" }, h("progress", { value: share, max: 1, "aria-label": "Filling" }), " ", words);
}

function sections(parts) {
  return Object.entries(KINDS).flatMap(([kind, title]) => {
    const own = parts.filter((part) => part.kind === kind);
    return own.length ? [h("h4", {}, title), h("ul", { class: "edit" }, own.map(item))] : [];
  });
}

const item = (part) =>
  h(
    "li",
    { class: part.does },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[part.does]),
    h("span", {}, h("b", {}, part.name), part.type ? h("span", { class: "faint" }, ` ${part.type}`) : null, h("span", {}, `: ${words(part)}`)),
  );

/** Say what the edit does to a part, as `ikebana plan` does. */
function words(part) {
  const { does, why, was, topic, shows, filled_from: from } = part;
  const said = [
    {
      everything: `new, topic ${topic} begins with all that there is`,
      difference: `replaced, topic ${topic} gets the difference`,
      end: `dropped, topic ${topic} ends`,
      nothing: does === "stays" ? "as before" : does === "renamed" ? `renamed, was ${was}` : does,
    }[shows],
  ];
  if (was !== null && does !== "renamed") said.push(`called ${was} in the checkpoint`);
  if (why) said.push(why);
  if (from.length && part.kind !== "input") said.push(`${shows === "nothing" ? "filled from" : "made of"} ${from.map(origin).join(" and ")}`);
  return said.join(", ");
}

const origin = ({ kind, name }) =>
  ({
    state: `the state of ${name}`,
    arrangement: `arrangement ${name}`,
    topic: `topic ${name}`,
    operator: `the new operator ${name}`,
    join: `the results of ${name}, computed once more`,
    own: "what its own topic has, read once more",
  })[kind];

/** Mark the boxes of a part that the edit has made. */
function mark(page, { kind, name, does }) {
  if (does !== "new" && does !== "replaced") return;
  for (const box of page.querySelectorAll("[data-box]")) {
    const isOfKind = BOXES[kind].some((each) => box.classList.contains(each));
    const title = box.querySelector(".title")?.textContent ?? "";
    const isPath = box.classList.contains("path");
    const names = isPath ? title.split(IN_A_JOIN).slice(0, -1) : title.split(BETWEEN_NAMES);
    if (!isOfKind || !names.includes(name) || box.classList.contains("marked")) continue;
    box.classList.add("marked", `marked-${does}`);
    const outline = box.querySelector("rect");
    const right = Number(outline.getAttribute("x")) + Number(outline.getAttribute("width"));
    const y = box.querySelector("text").getAttribute("y");
    box.append(s("text", { class: "mark", x: right - 10, y, "text-anchor": "end" }, `${SIGNS[does]} ${does}`));
  }
}
