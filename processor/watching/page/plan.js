// The plan as a graph, with the figures of what runs in its boxes.
import { ask } from "./api.js";
import { h, show } from "./dom.js";
import { edit } from "./edit.js";

// The smallest scale of a picture.
const LEAST = 0.66;
// The server escapes what it draws, and scripts in it would not run by the page's policy.
const policy = globalThis.trustedTypes?.createPolicy("ikebana-plan", { createHTML: (text) => text });

/**
 * `figuresOf(answer, box id, name)` gives {figure: text} of a box, and perhaps `href`; with
 * `edits`, the last edit of the plan is known.
 */
export function plan(place, { poller, figuresOf, edits = false }) {
  let stops = [];
  let ended = false;
  ask("/v1/plan").then(
    (found) => {
      if (ended) return;
      const pictures = found.drawings.map((drawing) => [h("h3", {}, capital(drawing.title)), picture(drawing)]);
      const facts = h("p", { class: "faint" }, "plan ", h("code", {}, found.fingerprint), `; time: ${found.time}`);
      const [first, ...others] = pictures;
      const edited = h("section", { class: "last-edit" });
      show(place, h("h2", {}, "Plan of ", found.name), facts, first, edits ? edited : null, others.flat());
      stops = [poller.listen((answer) => write(place, found.boxes, answer, figuresOf))];
      if (edits) stops.push(edit(edited, place, poller));
    },
    (error) => show(place, h("h2", {}, "Plan"), h("p", { class: "said wrong" }, error.message)),
  );
  return () => {
    ended = true;
    for (const stop of stops) stop();
  };
}

function picture({ title, svg, width }) {
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(svg) : svg, "image/svg+xml");
  const drawn = document.importNode(parsed.documentElement, true);
  // A picture would hide what is in it from screen readers.
  drawn.setAttribute("role", "group");
  drawn.style.maxWidth = `${width}px`;
  drawn.style.minWidth = `${Math.round(width * LEAST)}px`;
  const place = h("div", { class: "plan", tabindex: "0", role: "region", "aria-label": `Plan ${title}` }, drawn);
  const more = h("p", { class: "faint", hidden: true }, "The drawing goes on to the right: scroll it sideways. →");
  new ResizeObserver(() => (more.hidden = place.scrollWidth <= place.clientWidth)).observe(place);
  return [more, place];
}

function write(place, boxes, answer, figuresOf) {
  for (const [id, name] of Object.entries(boxes)) {
    const box = place.querySelector(`[data-box="${CSS.escape(id)}"]`);
    const { href, ...figures } = figuresOf(answer, id, name);
    for (const text of box?.querySelectorAll("[data-figure]") ?? []) {
      text.textContent = figures[text.dataset.figure] ?? "";
    }
    if (href && !box.hasAttribute("tabindex")) linked(box, href, name);
  }
}

/** Make a box lead to a view, by mouse and by keyboard. */
function linked(box, href, name) {
  box.setAttribute("tabindex", "0");
  box.setAttribute("role", "link");
  box.setAttribute("aria-label", `browse ${name}`);
  const go = () => (location.hash = href);
  box.addEventListener("click", go);
  box.addEventListener("keydown", (event) => event.key === "Enter" && go());
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
