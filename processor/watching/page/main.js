// Find out what serves this page, and show the view that the address names.
import { ask, hasToken, keepToken } from "./api.js";
import { browser } from "./browser.js";
import { h, show } from "./dom.js";
import { errors } from "./errors.js";
import { bytes, counted, rate, seconds, time } from "./format.js";
import * as collections from "./overview.js";
import { noted } from "./noted.js";
import { plan } from "./plan.js";
import { Poller } from "./poller.js";
import * as running from "./run.js";
import { sql } from "./sql.js";

const AGAIN_MS = 3000;
const UNKNOWN = 404;
const NO_TOKEN = 401;

const place = document.getElementById("content");
const state = document.getElementById("state");
const dialog = document.getElementById("ask-token");
const heading = document.getElementById("name");
// The name of the view that is shown.
let view = "";

const tokenButton = document.getElementById("token");
tokenButton.addEventListener("click", () => dialog.showModal());
tokenButton.hidden = !hasToken();
dialog.addEventListener("close", () => {
  if (dialog.returnValue !== "use") return;
  keepToken(document.getElementById("given-token").value.trim());
  location.reload();
});

/** Say how the connection stands; without a token, ask for it. */
function stands(error) {
  state.textContent = error === null ? "" : error.status ? error.message : "the server does not answer";
  state.classList.toggle("wrong", error !== null);
  if (error?.status !== NO_TOKEN) return;
  tokenButton.hidden = false;
  if (!dialog.open) dialog.showModal();
}

/** `ikebana serve` describes its reads; a run has no such document. */
async function served() {
  for (;;) {
    try {
      return Object.keys((await ask("/openapi.json")).paths);
    } catch (error) {
      if (error.status === UNKNOWN) return null;
      stands(error);
      if (error.status === NO_TOKEN) return new Promise(() => {});
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function begin() {
  const paths = await served();
  const context = await (paths === null ? ofRun() : ofServer(paths));
  let stop = () => {};
  const draw = () => {
    stop();
    const [path = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    const found = context.views[path] ?? context.views[""];
    show(place);
    stop = found.show(place, context, ...rest) ?? (() => {});
    navigation(context.views, found, rest);
  };
  addEventListener("hashchange", draw);
  context.poller.run();
  draw();
}

async function ofServer(paths) {
  const poller = new Poller("/v1/collections", collections.sampled, stands);
  await poller.remember();
  const views = { "": { title: "Collections", show: collections.overview } };
  const planned = await ask("/v1/plan").then((found) => found, () => null);
  if (planned !== null) {
    views.plan = { title: "Plan", show: plan };
    if (planned.errors !== null) views.errors = { title: "Errors", show: errors(planned.errors) };
    called(planned.name);
  }
  if (paths.includes("/v1/sql")) views.sql = { title: "SQL", show: sql };
  views.collections = { show: browser };
  const figuresOf = (answer, _, name) => {
    const found = answer.collections.find((each) => each.collection.name === name);
    if (found === undefined) return {};
    return {
      frontier: `frontier ${time(found.collection.upper)}`,
      lag: `lag ${seconds(found.lag_s ?? found.caught_up_s)}`,
      keys: `${counted(found.collection.keys, "key")}, ${bytes(found.collection.bytes)}`,
      rate: `${rate(poller.rate(name))} updates/s`,
      href: `#/collections/${encodeURIComponent(name)}`,
    };
  };
  return { poller, views, figuresOf };
}

async function ofRun() {
  const poller = new Poller("/v1/run", running.sampled, stands);
  await poller.remember(running.WHOLE);
  poller.listen(({ pipeline }) => called(pipeline));
  const figuresOf = (answer, id, name) => running.figuresOf(answer, poller, id, name);
  const views = {
    "": { title: "Run", show: running.run },
    plan: { title: "Plan", show: plan },
    errors: { title: "Errors", show: noted },
  };
  return { poller, views, figuresOf, edits: true };
}

/** Name the view that is shown, in the title and among the links, which keep the focus. */
function navigation(views, current, rest) {
  const links = document.getElementById("views");
  const named = Object.entries(views).filter(([, view]) => view.title);
  if (!links.childElementCount) {
    show(links, named.map(([path, view]) => h("a", { href: `#/${path}` }, view.title)));
  }
  named.forEach(([, view], at) => {
    if (view === current) links.children[at].setAttribute("aria-current", "page");
    else links.children[at].removeAttribute("aria-current");
  });
  view = current.title ?? rest.join(" / ");
  called(heading.textContent);
}

/** Name the pipeline, in the heading and in the title. */
function called(name) {
  if (heading.textContent !== name) heading.textContent = name;
  document.title = view ? `${view} - ${name}` : name;
}

begin();
