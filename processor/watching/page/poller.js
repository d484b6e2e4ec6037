// Ask for the figures of the server every two seconds, and keep those of the last hour.
import { ask } from "./api.js";

const EVERY_MS = 2000;
const KEPT_MS = 3_600_000;
// A rate is of so long at least: a batch may take longer than the time between two answers.
const RATE_MS = 10_000;

export class Poller {
  /** `path` answers the figures; `sampled` makes [{name, lag, updates}] of them. */
  constructor(path, sampled, onState) {
    this.path = path;
    this.sampled = sampled;
    this.onState = onState;
    this.answer = null;
    this.history = new Map();
    this.listeners = new Set();
  }

  /** Ask now and then until the page is closed. */
  async run() {
    for (;;) {
      if (!document.hidden || this.answer === null) await this.once();
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }

  /** Ask once, and tell the listeners. */
  async once() {
    try {
      this.answer = await ask(this.path);
    } catch (error) {
      this.onState(error);
      return;
    }
    this.onState(null);
    this.#keep(Date.now());
    for (const listener of this.listeners) listener(this.answer);
  }

  /** Take what the server has kept from before this page was opened; the whole has no name. */
  async remember(whole) {
    const { at, series } = await ask("/v1/history").catch(() => ({ at: [], series: {} }));
    for (const [name, { lag, updates }] of Object.entries(series)) {
      at.forEach((moment, index) => {
        const sample = { name: name || whole, lag: lag[index], updates: updates[index] };
        if (sample.updates !== null) this.#add(moment, sample);
      });
    }
  }

  /** Call a listener with each answer, the last one first; return how to stop. */
  listen(listener) {
    this.listeners.add(listener);
    if (this.answer !== null) listener(this.answer);
    return () => this.listeners.delete(listener);
  }

  /** The samples {at, lag, updates, rate} of a name; `at` is in milliseconds. */
  samples(name) {
    return this.history.get(name) ?? [];
  }

  /** Updates a second of a name in the last ten seconds. */
  rate(name) {
    return this.samples(name).at(-1)?.rate ?? null;
  }

  #keep(at) {
    for (const sample of this.sampled(this.answer)) this.#add(at, sample);
  }

  #add(at, { name, lag, updates }) {
    const samples = this.history.get(name) ?? [];
    const last = samples.at(-1);
    // A counter that is smaller than before is of a server that was started again.
    const counts = last !== undefined && updates >= last.updates && at > last.at;
    const from = samples.findLast((sample) => sample.rate === null || at - sample.at >= RATE_MS);
    const rate = counts ? ((updates - from.updates) * 1000) / (at - from.at) : null;
    samples.push({ at, lag, updates, rate });
    this.history.set(
      name,
      samples.filter((sample) => at - sample.at < KEPT_MS),
    );
  }
}
