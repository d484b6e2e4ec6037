"""The console of `ikebana serve` in a browser: rows, times, colours, keyboard, tokens."""

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from ikebana.codecs.errors import error_record
from ikebana.processor.kafka.broker import Broker
from support.browsers import chromium, looking, picture
from support.waiting import wait_until
from support.written_topics import Row, Written

pytestmark = [pytest.mark.kafka, pytest.mark.long]

COMMAND = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()"]
PIPELINE = """
pipeline: flights
inputs:
  flights:
    topic: flights
    format: {{key: bytes, value: json}}
operators:
  aircraft: {{upsert: flights}}
outputs:
  whereabouts: {{from: aircraft, topic: {topic}}}
errors: {{topic: {topic}.errors}}
run: {{checkpoint: ./checkpoint}}
"""
# A path of at least one line.
LINES = re.compile(r"^M.*L.*$")
HOSTILE = "<img src=x onerror=alert(1)>"


class Flights:
    """A pipeline's topics, in which aircraft have been for ten minutes and move on."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.topic = f"whereabouts-{uuid.uuid4().hex[:8]}"
        self.servers = servers
        self.file = folder / "flights.yaml"
        self.file.write_text(PIPELINE.format(topic=self.topic))
        self.written = Written(servers, self.topic)
        self.errors = Written(servers, f"{self.topic}.errors", "collection")
        self.at: dict[str, bytes] = {}
        self.begun = time.time_ns() // 1_000_000 - 600_000
        first = {f"N{number}AA": "JFK" for number in range(100, 160)} | {HOSTILE: "<b>LGA</b>"}
        self.move(first, self.begun)
        self.move({"N100AA": "ATL", "N101AA": "ORD"}, self.begun + 300_000)

    def move(self, to: dict[str, str], at: int | None = None) -> int:
        """Aircraft are elsewhere from a time on, which is closed; now, if none is given."""
        now = time.time_ns() // 1_000_000 if at is None else at
        rows: list[Row] = []
        for tail, airport in to.items():
            key, value = json.dumps(tail).encode(), json.dumps({"airport": airport}).encode()
            if (before := self.at.get(tail)) is not None:
                rows.append((0, key, before, now, -1))
            rows.append((0, key, value, now, 1))
            self.at[tail] = value
        self.written.batch(rows, now + 1)
        self.errors.batch([], now + 1)
        return now

    @contextmanager
    def served(self, *options: str) -> Iterator[str]:
        """Run `ikebana serve` on the pipeline file; gets the URL of the console."""
        log = self.file.with_name(f"{uuid.uuid4().hex}.log")
        servers = f"--bootstrap-servers={self.servers}"
        data = f"--data={log.with_suffix('')}"
        with log.open("w") as err:
            process = subprocess.Popen(
                [*COMMAND, "serve", str(self.file), servers, data, "--http=127.0.0.1:0", *options],
                stderr=err,
            )

        def listening() -> bool:
            assert process.poll() is None, log.read_text()
            return "/console/" in log.read_text()

        try:
            wait_until(listening, 60, "the server listens")
            yield log.read_text().split(" and ")[1].split()[0]
        finally:
            process.kill()
            process.wait()


# The labels of charts that begin before their picture does.
CUT_LABELS = """() => [...document.querySelectorAll(".chart svg text")]
  .filter((text) => text.getBBox().x < 0).map((text) => text.textContent)"""


@pytest.fixture(scope="module")
def flights(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Flights:
    """The topics."""
    return Flights(broker.bootstrap_servers, tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="module")
def url(flights: Flights) -> Iterator[str]:
    """Their console, without tokens."""
    with flights.served() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a wide screen."""
    with looking(browser) as found:
        yield found


def _row(page: Page, tail: str) -> str:
    found = page.locator("main > .found tr", has_text=tail).first
    expect(found).to_be_visible()
    return found.inner_text()


def test_the_collections_are_listed_with_their_figures(
    page: Page, url: str, flights: Flights
) -> None:
    """And the charts have what was polled."""
    page.goto(url)

    row = page.locator("tr", has=page.get_by_role("link", name=flights.topic, exact=True))
    expect(row.locator("[data-label=Keys]")).to_have_text("61")
    flights.move({"N102AA": "BOS"})
    expect(row.locator("[data-label='Updates/s']")).to_have_text(re.compile(r"^[0-9.]+$"))
    expect(page.locator(".chart path.line").nth(0)).to_have_attribute("d", LINES)
    picture(page, "console-collections")


def test_a_collection_is_read_as_of_any_time(page: Page, url: str, flights: Flights) -> None:
    """By the slider, by its field, and live again."""
    page.goto(f"{url}#/collections/{flights.topic}")
    assert "ATL" in _row(page, "N100AA")

    slider = page.get_by_role("slider")
    slider.focus()
    at = flights.begun + 1
    field = page.get_by_label("As of: a time")
    field.fill(str(at))
    field.press("Enter")
    expect(page.locator(f".said[data-as-of='{at}']")).to_be_visible()
    assert "JFK" in _row(page, "N100AA")

    slider.press("End")
    newest = int(slider.get_attribute("max") or "")
    expect(page.locator(f".said[data-as-of='{newest}']")).to_be_visible()
    assert "ATL" in _row(page, "N100AA")
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "false")
    picture(page, "console-as-of")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")


def test_what_is_no_time_is_refused_by_the_field(page: Page, url: str, flights: Flights) -> None:
    """The rows stay as they are."""
    page.goto(f"{url}#/collections/{flights.topic}")
    _row(page, "N100AA")
    field = page.get_by_label("As of: a time")
    field.fill("no time")
    field.press("Enter")
    assert field.evaluate("field => field.validity.customError")
    assert "ATL" in _row(page, "N100AA")


def test_rows_that_change_are_marked(page: Page, url: str, flights: Flights) -> None:
    """While the collection is followed, what was and what is now."""
    page.goto(f"{url}#/collections/{flights.topic}")
    _row(page, "N103AA")
    # Nothing is marked before the subscription has begun.
    expect(page.locator("tr.inserted")).to_have_count(0)
    flights.move({"N103AA": "SFO"})
    shown = page.locator("main > .found")
    expect(shown.locator("tr.inserted", has_text="SFO")).to_be_visible()
    expect(shown.locator("tr.removed", has_text="JFK")).to_be_visible()
    expect(page.locator(".feed tr.inserted", has_text="N103AA")).to_be_visible()
    picture(page, "console-live")


def test_keys_are_searched_and_paged(page: Page, url: str, flights: Flights) -> None:
    """With or without the quotes of JSON; pages are of one time."""
    page.goto(f"{url}#/collections/{flights.topic}")
    rows = page.locator("main > .found tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Later keys").click()
    expect(rows).to_have_count(11)
    page.get_by_role("button", name="Earlier keys").click()
    expect(rows).to_have_count(50)
    for how, text, count in (
        ("begins with", "N11", 10),
        ("begins with", '"N12', 10),
        ("is", "N115AA", 1),
        ("is", '"N115AA"', 1),
        ("is", "N1", 0),
    ):
        page.get_by_label("How keys are searched").select_option(label=how)
        page.get_by_role("searchbox").fill(text)
        page.get_by_role("searchbox").press("Enter")
        expect(rows).to_have_count(count)


def test_records_are_text(page: Page, url: str, flights: Flights) -> None:
    """Whatever is in them: `looking` refuses a dialog, and no element is made of them."""
    page.goto(f"{url}#/collections/{flights.topic}")

    assert HOSTILE in _row(page, HOSTILE)
    assert "<b>LGA</b>" in _row(page, HOSTILE)
    assert page.locator("main img, main b").count() == 0
    page.goto(f"{url}#/collections/{HOSTILE}")
    expect(page.locator(".said.wrong")).to_contain_text("img")
    assert page.locator("main img").count() == 0


def _ground(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_light_and_dark(browser: Browser, url: str) -> None:
    """What the system prefers, until the switch says otherwise; then that is kept."""
    with looking(browser, scheme="dark") as page:
        page.goto(url)
        expect(page.get_by_role("button", name="Light")).to_be_visible()
        assert _ground(page) == "rgb(13, 17, 23)"
        page.get_by_role("button", name="Light").click()
        assert _ground(page) == "rgb(255, 255, 255)"
        page.reload()
        expect(page.get_by_role("button", name="Dark")).to_be_visible()
        assert _ground(page) == "rgb(255, 255, 255)"


def test_the_plan_has_the_figures_of_its_outputs(page: Page, url: str, flights: Flights) -> None:
    """And leads to a collection, by the keyboard too."""
    page.goto(f"{url}#/plan")

    box = page.locator("[data-box='output whereabouts']").first
    expect(box.locator("[data-figure=keys]")).to_have_text(re.compile(r"^61 keys, [0-9.]+ kB$"))
    expect(box.locator("[data-figure=frontier]")).to_contain_text("frontier 20")
    picture(page, "console-plan")
    box.focus()
    box.press("Enter")
    expect(page.locator("main h2")).to_contain_text(flights.topic)


def test_errors_are_counted_and_their_records_shown(
    page: Page, url: str, flights: Flights
) -> None:
    """As text, and without those that are taken back."""
    page.goto(f"{url}#/errors")
    expect(page.get_by_text("There are none.")).to_be_visible()

    wrong = error_record("the value is no JSON", ("flights", 0, 7), b"N1", HOSTILE.encode())
    more = error_record("the value is no JSON", ("flights", 0, 8), b"N2", b"{")
    other = error_record("an expression failed", None, b"N3", None)
    now = time.time_ns() // 1_000_000
    rows: list[Row] = [(0, None, each, now, 1) for each in (wrong, more, other)]
    flights.errors.batch(rows, now + 1)

    expect(page.locator("tr", has_text="the value is no JSON").first).to_contain_text("2")
    expect(page.locator(".rows tr", has_text=HOSTILE)).to_contain_text("N1")
    picture(page, "console-errors")
    flights.errors.batch([(0, None, each, now + 1, -1) for each in (wrong, more, other)], now + 2)
    expect(page.get_by_text("There are none.")).to_be_visible()


def test_the_count_of_errors_is_that_of_their_records(
    page: Page, url: str, flights: Flights
) -> None:
    """Also if one comes after the collections were described, and before it is read."""
    now = time.time_ns() // 1_000_000
    wrong = error_record("the value is no JSON", ("flights", 0, 9), b"N4", b"{")
    name = f"{flights.topic}.errors"

    def later(route: Route) -> None:
        flights.errors.batch([(0, None, wrong, now, 1)], now + 1)
        closed = f"/v1/wait?time={now}&collection={name}&timeout=60"
        with urllib.request.urlopen(urllib.parse.urljoin(url, closed)):
            route.continue_()

    page.route("**/scan?*", later, times=1)
    page.goto(f"{url}#/errors")
    expect(page.locator(".rows tr", has_text="N4")).to_be_visible()
    # Now: the next answer would say it right.
    assert page.get_by_text("Current errors as of").inner_text().endswith(": 1")
    flights.errors.batch([(0, None, wrong, now + 1, -1)], now + 2)


def test_sql_is_asked_as_of_one_time(page: Page, url: str, flights: Flights) -> None:
    """By Ctrl+Enter; a refusal is shown."""
    page.goto(url)
    page.get_by_role("link", name="SQL").click()
    text = page.get_by_label("SQL")
    text.fill(f'SELECT count(*) AS aircraft FROM "{flights.topic}"')
    text.press("Control+Enter")
    expect(page.locator(".found td")).to_have_text("61")
    expect(page.locator(".said")).to_contain_text("1 row as of 20")
    text.fill("SELECT nothing FROM nowhere")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".said.wrong")).to_contain_text("nowhere")


def test_a_table_is_shown_by_its_name(page: Page, url: str, flights: Flights) -> None:
    """Its first rows, by a query that can be changed."""
    page.goto(f"{url}#/sql")
    page.get_by_role("button", name=flights.topic, exact=True).click()
    expect(page.get_by_label("SQL")).to_have_value(f'SELECT * FROM "{flights.topic}" LIMIT 20')
    expect(page.locator(".said")).to_contain_text("20 rows as of 20")


@pytest.mark.parametrize("view", ["", "#/plan", "#/sql", "#/collections/{topic}"])
def test_a_narrow_screen_shows_all_without_scrolling_sideways(
    browser: Browser, url: str, flights: Flights, view: str
) -> None:
    """400 pixels are enough."""
    with looking(browser, width=400, scheme="dark") as page:
        page.goto(url + view.format(topic=flights.topic))
        expect(page.locator("main h2")).to_be_visible()
        if view.startswith("#/collections"):
            _row(page, "N100AA")
        if not view:
            expect(page.locator(".chart path.line").nth(0)).to_have_attribute("d", LINES)
            assert page.evaluate(CUT_LABELS) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        name = view.split("/")[1] if view else "list"
        picture(page, f"console-narrow-{name}")


def test_a_token_is_asked_for_and_kept_for_the_tab(
    browser: Browser, flights: Flights, tmp_path: Path
) -> None:
    """In the storage of the session alone."""
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    with flights.served(f"--token-file={tokens}") as url, looking(browser) as page:
        page.goto(url)
        page.get_by_label("Token", exact=True).fill("wrong")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#state")).to_contain_text("token")
        page.get_by_label("Token", exact=True).fill("secret")
        page.get_by_role("button", name="Use it").click()
        expect(page.get_by_role("link", name=flights.topic, exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name=flights.topic, exact=True)).to_be_visible()
        assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
        assert "secret" not in page.content()
