"""Both consoles for people who use the keyboard, a screen reader, or see little."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from ikebana.codecs.errors import error_record
from ikebana.processor.authoring.proposing.look import ColumnsSeen
from ikebana.processor.checkpoint.edit_description import EditDescription, FillSource, PartChange
from ikebana.processor.kafka.records import Record
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching import console
from ikebana.processor.watching.answering import RecordLookup
from ikebana.processor.watching.health import Health, HealthLimits
from ikebana.processor.watching.monitor import Monitor
from ikebana.processor.watching.reports import BatchReport
from support.accessibility import faint, misplaced_headings, unnamed, unreached
from support.browsers import chromium, looking
from support.served_topics import MemoryTopics, answering, caught_up, serving
from support.watched_runs import NOTED, monitored

pytestmark = pytest.mark.long

PLAN = Plan(
    "shop",
    inputs=(Input("orders", ("orders",)),),
    operators=(Upsert("current", "orders"),),
    outputs=(Output("out", "current", "orders.diffs"),),
    error_topic="errors",
    time="ingest",
)
EDIT = EditDescription(
    "shop",
    "./checkpoint",
    edited=True,
    frontier=40,
    parts=(
        PartChange("operator", "current", "new", filled_from=(FillSource("topic", "orders"),)),
        PartChange("operator", "totals", "dropped", "reduce", why="its state is released"),
        PartChange("operator", "other", "stays", "upsert"),
        PartChange("output", "out", "replaced", "diff", shows="difference", topic="orders.diffs"),
    ),
)
VIEWS = {
    "run": ["#/", "#/plan", "#/errors"],
    "serve": ["#/", "#/plan", "#/errors", "#/sql", "#/collections/orders.diffs"],
}
# What a view shows when all of it is there.
SHOWN = {
    "#/": "table",
    "#/plan": "svg",
    "#/errors": "main td",
    "#/sql": "textarea",
    "#/collections/orders.diffs": "main > .found td",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests."""
    with chromium() as found:
        yield found


def _run(opened: ExitStack) -> str:
    health = Health(HealthLimits(60, 900, 3600), time.monotonic)
    looked = RecordLookup(lambda _: Record(b"1", b"{}"), ColumnsSeen)
    monitor = Monitor(PLAN, health, lambda: EDIT)
    now = time.time_ns() // 1_000_000
    counts = {"out": 5, "errors": 1}
    monitor.batch(BatchReport(1, now - 9, now, 5, 0, counts, {"late": 2}, 0, 1.0, [], noted=NOTED))
    return opened.enter_context(monitored(monitor, looking=looked)) + "/console/"


def _server(opened: ExitStack, folder: Path) -> str:
    topics = MemoryTopics()
    rows = [(b"%d" % key, json.dumps({"quantity": key}).encode(), 5, 1) for key in range(60)]
    topics.close("orders.diffs", 10, *rows)
    record = error_record("the value is no JSON", ("orders", 0, 7), b"N1", b"{")
    topics.close("errors", 10, (None, record, 5, 1))
    service = opened.enter_context(serving(topics, folder, "orders.diffs", "errors", start=False))
    url = opened.enter_context(answering(service, plan=lambda: console.of_served(PLAN)))
    caught_up(service, topics, "orders.diffs", "errors")
    return url + "/console/"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The consoles of a run and of a server."""
    with ExitStack() as opened:
        served = _server(opened, tmp_path_factory.mktemp("served"))
        yield {"run": _run(opened), "serve": served}


def _open(page: Page, url: str, view: str) -> None:
    page.goto(url + view)
    expect(page.locator(SHOWN[view]).first).to_be_attached()
    expect(page.locator("nav a[aria-current=page]")).to_have_count(int("collections" not in view))


@pytest.mark.parametrize(
    ("console", "view"), [(name, view) for name, views in VIEWS.items() for view in views]
)
def test_every_control_has_a_name_and_is_reached_by_tab(
    browser: Browser, urls: dict[str, str], console: str, view: str
) -> None:
    """With a ring that shows where the focus is, on a wide screen and on a narrow one."""
    for width in (1280, 400):
        with looking(browser, width=width) as page:
            _open(page, urls[console], view)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert unnamed(page) == []
            assert unreached(page) == []
            assert not misplaced_headings(page)
            assert page.title().endswith(" - shop")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("console", "view"), [(name, view) for name, views in VIEWS.items() for view in views]
)
def test_every_text_can_be_told_from_what_it_stands_on(
    browser: Browser,
    urls: dict[str, str],
    console: str,
    view: str,
    scheme: Literal["light", "dark"],
) -> None:
    """By a contrast of 4.5 at least, also in pictures of the plan."""
    with looking(browser, scheme=scheme) as page:
        _open(page, urls[console], view)
        assert faint(page) == []


def test_the_checks_find_what_is_wrong(browser: Browser, urls: dict[str, str]) -> None:
    """A control without a name, one that Tab passes, text that is faint, a heading left out."""
    with looking(browser) as page:
        _open(page, urls["run"], "#/errors")
        page.evaluate("""() => {
          const main = document.querySelector("main");
          const button = document.createElement("button");
          const link = document.createElement("a");
          link.href = "#/";
          link.textContent = "passed";
          link.setAttribute("tabindex", "-1");
          link.style.color = "rgb(250, 250, 250)";
          main.append(button, link, document.createElement("h6"));
          document.querySelectorAll("h2").forEach((each) => each.remove());
        }""")
        assert unnamed(page) == ["button"]
        assert [each.split(":")[0] for each in unreached(page)] == ["not reached"]
        assert [each.split(":")[0] for each in faint(page)] == ["passed"]
        assert misplaced_headings(page)


def test_links_between_views_keep_the_focus(browser: Browser, urls: dict[str, str]) -> None:
    """So that a second Tab goes on from there."""
    with looking(browser) as page:
        _open(page, urls["run"], "#/")
        link = page.get_by_role("link", name="Plan")
        link.focus()
        link.press("Enter")
        expect(page.locator(".plan")).not_to_have_count(0)
        expect(link).to_be_focused()


def test_the_token_is_asked_for_in_a_dialog_that_keeps_the_focus(
    browser: Browser, urls: dict[str, str]
) -> None:
    """Escape leaves it."""
    with looking(browser) as page:
        _open(page, urls["run"], "#/")
        page.evaluate("document.getElementById('ask-token').showModal()")
        assert unnamed(page) == []
        assert unreached(page) == []
        page.keyboard.press("Escape")
        expect(page.locator("#ask-token")).not_to_be_visible()
