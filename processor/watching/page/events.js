// Read server-sent events with `fetch`, which can send a token.  EventSource cannot.
import { open, Refusal } from "./api.js";

const AGAIN_MS = 2000;
const GONE = 410;

/** Call `onEvent` with each event of a subscription; goes on where it was after an interruption. */
export async function follow(parameters, onEvent, onState, signal) {
  let resume = null;
  while (!signal.aborted) {
    try {
      const query = new URLSearchParams(resume === null ? parameters : { ...parameters, resume });
      const answer = await open(`/v1/subscribe?${query}`, { signal });
      onState("live");
      for await (const event of eventsOf(answer.body)) {
        resume = event.id ?? resume;
        if (event.name === "error") throw new Refusal(GONE, event.data);
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      // The history after the last event is gone: begin anew.
      if (error.status === GONE) resume = null;
      onState(error.message);
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event !== null) yield event;
    }
  }
}

/** Parse the lines of an event; null for a comment. */
function parsed(block) {
  const found = { name: "message", id: null };
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) found.name = line.slice(7);
    else if (line.startsWith("id: ")) found.id = line.slice(4);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return data.length ? { ...found, data: JSON.parse(data.join("\n")) } : null;
}
