// The time of a read: a slider over the times that are kept, a field for one of them, or live.
import { h } from "./dom.js";
import { isDated, time } from "./format.js";

const SETTLED_MS = 120;

export class AsOf {
  /** `onChange` is called when another time is wanted. */
  constructor(onChange) {
    this.live = true;
    this.onChange = onChange;
    this.timer = null;
    this.slider = h("input", {
      type: "range",
      id: "as-of",
      step: "1",
      oninput: () => this.#chosen(Number(this.slider.value)),
    });
    this.field = h("input", {
      id: "as-of-time",
      class: "time",
      "aria-label": "As of: a time",
      spellcheck: "false",
      onchange: () => this.#written(),
    });
    this.button = h("button", { type: "button", id: "live", onclick: () => this.#toggled() }, "Live");
    this.since = h("span");
    this.newest = h("span");
    this.element = h(
      "section",
      { class: "as-of", "aria-label": "Time" },
      h("label", { for: "as-of" }, "As of"),
      this.field,
      this.button,
      this.slider,
      h("div", { class: "ends faint" }, this.since, this.newest),
    );
    this.#draw();
  }

  /** The time of reads as a parameter; null means the newest one. */
  get value() {
    return this.live ? null : this.slider.value;
  }

  /** Take the times that can be read: `since <= time < upper`. */
  bounds(since, upper) {
    this.#within(since, Math.max(since, upper - 1));
    this.since.textContent = `since ${time(since)}`;
  }

  /** Take a new frontier. */
  closed(upper) {
    this.#within(Number(this.slider.min), upper - 1);
  }

  /** Stay at the time that is shown. */
  pin() {
    this.live = false;
    this.#draw();
  }

  #within(since, newest) {
    const chosen = Number(this.slider.value);
    // A browser moves the value into the bounds by itself.
    this.slider.min = since;
    this.slider.max = newest;
    this.slider.value = this.live ? newest : Math.max(since, chosen);
    this.newest.textContent = `newest ${time(newest)}`;
    this.#draw();
  }

  #toggled() {
    this.live = !this.live;
    if (this.live) this.slider.value = this.slider.max;
    this.#draw();
    this.onChange();
  }

  #chosen(at) {
    this.live = false;
    this.slider.value = at;
    this.#draw();
    // While the slider is drawn, not each of its times is read.
    clearTimeout(this.timer);
    this.timer = setTimeout(this.onChange, SETTLED_MS);
  }

  #written() {
    const text = this.field.value.trim().replaceAll(",", "");
    // A date without a zone is in UTC, as the dates here are.
    const dated = text.replace(" ", "T");
    const at = /^-?\d+$/.test(text)
      ? Number(text)
      : Date.parse(/T.*(Z|[+-]\d\d:?\d\d)$/.test(dated) ? dated : `${dated}Z`);
    this.field.setCustomValidity(Number.isNaN(at) ? "a number, or a date and time" : "");
    if (this.field.reportValidity()) this.#chosen(at);
  }

  #draw() {
    const at = Number(this.slider.value);
    this.button.setAttribute("aria-pressed", this.live);
    this.slider.setAttribute("aria-valuetext", time(at));
    if (document.activeElement !== this.field) this.field.value = isDated(at) ? time(at) : String(at);
  }
}
