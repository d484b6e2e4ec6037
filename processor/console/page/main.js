// Find out what serves this page, and show the view that the address names.
import { ask, hasToken, keepToken } from "./api.js";
import { browser } from "./browser.js";
import { h, show } from "./dom.js";
import { number, rate, seconds, time } from "./format.js";
import * as collections from "./overview.js";
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
  const context = paths === null ? ofRun() : await ofServer(paths);
  let stop = () => {};
  const draw = () => {
    stop();
    const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    const found = context.views[view] ?? context.views[""];
    show(place);
    stop = found.show(place, context, ...rest) ?? (() => {});
    navigation(context.views, found);
  };
  addEventListener("hashchange", draw);
  context.poller.run();
  draw();
}

async function ofServer(paths) {
  const poller = new Poller("/v1/collections", collections.sampled, stands);
  const views = { "": { title: "Collections", show: collections.overview } };
  const planned = await ask("/v1/plan").then((found) => found, () => null);
  if (planned !== null) {
    views.plan = { title: "Plan", show: plan };
    document.getElementById("name").textContent = planned.name;
  }
  if (paths.includes("/v1/sql")) views.sql = { title: "SQL", show: sql };
  views.collections = { show: browser };
  const figuresOf = (answer, _, name) => {
    const found = answer.collections.find((each) => each.collection.name === name);
    if (found === undefined) return {};
    return {
      frontier: `frontier ${time(found.collection.upper)}`,
      lag: `lag ${seconds(found.lag_s ?? found.caught_up_s)}`,
      keys: `${number(found.collection.keys)} keys`,
      rate: `${rate(poller.rate(name))} updates/s`,
      href: `#/collections/${encodeURIComponent(name)}`,
    };
  };
  return { poller, views, figuresOf };
}

function ofRun() {
  const poller = new Poller("/v1/run", running.sampled, stands);
  poller.listen(({ pipeline }) => (document.getElementById("name").textContent = pipeline));
  const figuresOf = (answer, id, name) => running.figuresOf(answer, poller, id, name);
  const views = { "": { title: "Run", show: running.run }, plan: { title: "Plan", show: plan } };
  return { poller, views, figuresOf };
}

function navigation(views, current) {
  const links = Object.entries(views).filter(([, view]) => view.title);
  show(
    document.getElementById("views"),
    links.map(([path, view]) =>
      h("a", { href: `#/${path}`, "aria-current": view === current ? "page" : null }, view.title),
    ),
  );
}

begin();
