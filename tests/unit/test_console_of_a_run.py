"""The console of `ikebana run --http` in a browser."""

import base64
import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, expect

from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import RunEntry
from ikebana.errors import AwayError
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.authoring.proposing.look import ColumnsSeen, UndeclaredColumn
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.rows import MessagePlace, Noted
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.checkpoint.edit_description import EditDescription, FillSource, PartChange
from ikebana.processor.kafka.records import Record
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching import guard
from ikebana.processor.watching import monitor as module
from ikebana.processor.watching.answering import RecordLookup
from ikebana.processor.watching.guard import Access
from ikebana.processor.watching.health import BatchProgress, Health, HealthLimits
from ikebana.processor.watching.metrics import WHOLE, TriggerReport
from ikebana.processor.watching.monitor import Monitor
from ikebana.processor.watching.reports import BatchReport, Filling, RunStart
from ikebana.processor.watching.sinks import SinkFigures
from support.browsers import chromium, looking, picture
from support.http_answers import ask_json
from support.watched_runs import NOTED, monitored

PLAN = Plan(
    "shop",
    inputs=(Input("orders", ("orders",)), Input("customers", ("customers",))),
    operators=(Upsert("current", "orders"), Upsert("people", "customers")),
    outputs=(
        Output("open_orders", "current", "orders.diffs"),
        Output("people", "people", "people.diffs"),
    ),
    time="ingest",
)


LINES_OF_TEXT = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getClientRects().length;
}"""


def _report(number: int, count: int, noted: Sequence[Noted] = ()) -> BatchReport:
    """The report of a batch, with files of two shards."""
    upper = time.time_ns() // 1_000_000
    commits = [
        CommitRecord(
            checkpoint="c",
            epoch=0,
            incarnation=1,
            shard=shard,
            batch=number,
            lower=upper - 500,
            upper=upper,
            offset="",
            plan="",
            records=count,
            behind=0,
            counts={},
            manifest=Manifest(
                "c", shard, version=5, runs=[RunEntry("b", 0, 4, "s", 812, 90_210, 0, 0)]
            ),
        )
        for shard in (0, 1)
    ]
    counts = {"open_orders": count, "people": count // 3, "errors": 1}
    return BatchReport(
        batch=number,
        lower=upper - 500,
        upper=upper,
        records=count,
        behind=0,
        counts=counts,
        counted={"late": 2},
        state_bytes=0,
        seconds=0.5,
        commits=commits,
        noted=noted,
    )


def _batch(monitor: Monitor, number: int, count: int, noted: Sequence[Noted] = ()) -> None:
    """Report a batch as a run does."""
    report = _report(number, count, noted)
    upper = report.upper
    monitor.batch(report)
    progress = BatchProgress(done=count, offered=count, upper=upper, closed=upper)
    monitor.trigger(TriggerReport({WHOLE: 500}, {"current": upper, "people": upper}, progress))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests."""
    with chromium() as found:
        yield found


def test_a_run_shows_its_outputs_and_what_it_counted(browser: Browser) -> None:
    """With rates of the last seconds."""
    monitor = Monitor(PLAN, Health(HealthLimits(60, 900, 3600), time.monotonic))
    _batch(monitor, 7, 12_000)
    with monitored(monitor) as url, looking(browser) as page:
        page.goto(url)
        row = page.locator("tr", has=page.locator("td", has_text="open_orders"))
        expect(row.locator("[data-label=Updates]")).to_have_text("12,000")
        rate = row.locator("[data-label='Updates/s']")
        expect(rate).to_have_text("0")
        _batch(monitor, 8, 9_000)
        expect(row.locator("[data-label=Updates]")).to_have_text("21,000")
        expect(rate).to_have_text(re.compile(r"^[1-9]"))
        # A batch may take longer than the time between two answers.
        for _ in range(2):
            with page.expect_response("**/v1/run"):
                pass
        expect(rate).to_have_text(re.compile(r"^[1-9]"))
        expect(page.locator("tr", has_text="late")).to_contain_text("4")
        expect(page.locator(".tiles")).to_contain_text("1,624 entries, 2 shards")
        expect(page.locator("h1")).to_have_text("shop")
        picture(page, "console-run")

        page.get_by_role("link", name="Plan").click()
        box = page.locator("[data-box='output open_orders']").first
        expect(box.locator("[data-figure=frontier]")).to_contain_text("frontier 20")
        state = page.locator("[data-box='state current']").first
        expect(state.locator("[data-figure=lag]")).to_contain_text("lag ")
        assert page.get_by_role("link", name="SQL").count() == 0


def test_sinks_stand_on_the_first_page_and_in_the_plan(browser: Browser) -> None:
    """Their boxes lead to the first page, which says in full why one does not deliver."""
    tables = {"t": {"from": "people"}}
    sinks = {
        name: DeliverSection.model_validate({"parquet": {"folder": "f"}, "tables": tables})
        for name in ("lake", "shop")
    }
    why = 'sink "shop" waits: the database does not answer at 10.0.0.7; trying again in 8 s'
    figures = {
        "lake": SinkFigures(ready=True, state="delivering", frontier=1_790_000_000_000, lag_s=0.5),
        "shop": SinkFigures(ready=False, state=why, behind=1_234, restarts=3),
    }
    health = Health(HealthLimits(60, 900, 3600), time.monotonic)
    monitor = Monitor(PLAN, health, sinks=(sinks, lambda: figures))
    _batch(monitor, 7, 12)
    with monitored(monitor) as url, looking(browser) as page:
        page.goto(f"{url}/console/#/plan")
        lake, shop = (page.locator(f"[data-box='sink {name}']").first for name in sinks)
        expect(lake.locator("[data-figure=state]")).to_have_text("delivering")
        expect(lake.locator("[data-figure=frontier]")).to_contain_text("2026-09-21")
        expect(lake.locator("[data-figure=lag]")).to_have_text("lag 500 ms")
        expect(shop.locator("[data-figure=state]")).to_have_text(f"{why[:31]}…")
        shop.focus()
        shop.press("Enter")
        row = page.locator("tr", has=page.locator("td[data-label=Sink]", has_text="shop"))
        expect(row.locator("[data-label=State]")).to_have_text(why)
        expect(row.locator("[data-label='Offsets behind']")).to_have_text("1,234")
        expect(row).to_have_class("wrong")
        # None of a row that the next answer has replaced meanwhile.
        lines = row.locator("[data-label=Sink]").evaluate(LINES_OF_TEXT)
        assert lines < 2, "the name is cut"
        picture(page, "console-sinks")


HOSTILE = b'{"at": "<img src=x onerror=alert(1)>"}'
TOKEN = "secret"


def _noting() -> Monitor:
    monitor = Monitor(PLAN, Health(HealthLimits(60, 900, 3600), time.monotonic))
    _batch(monitor, 7, 120, NOTED)
    return monitor


def _read(place: MessagePlace) -> Record | None:
    return Record(b'"N1"', HOSTILE) if place == ("orders", 1, 9) else None


def _columns(name: str) -> ColumnsSeen | None:
    undeclared = [UndeclaredColumn("<b>gift</b>", "BOOLEAN", 7)]
    return ColumnsSeen(name, 40, undeclared, ["size"]) if name == "orders" else None


LOOKING = RecordLookup(_read, _columns)
TOKENS = guard.AccessLimits(Access.of_tokens([TOKEN]))


def test_notices_stand_on_the_first_page_while_they_hold(browser: Browser) -> None:
    """Their words, and since when; what messages have is not shown."""
    monitor = Monitor(PLAN, Health(HealthLimits(60, 900, 3600), time.monotonic))
    _batch(monitor, 7, 1)
    monitor.notice([Notice("column", "orders", "nom", "orders: nothing has nom", "; SECRET")])
    with monitored(monitor) as url, looking(browser) as page:
        page.goto(url)
        expect(page.locator(".notices li")).to_have_text(
            re.compile("orders: nothing has nom since")
        )
        assert "SECRET" not in page.content()
        monitor.notice([])
        expect(page.locator(".notices")).to_have_count(0)


def test_noted_records_are_told_by_their_places() -> None:
    """Without what they say."""
    with monitored(_noting()) as url:
        status, found = ask_json(url + "/v1/noted")
    error, late = found["noted"]
    assert (status, found["shows"]) == (200, False)
    assert (late["kind"], late["input"], late["count"]) == ("late", "orders", 12)
    place = {"topic": "orders", "partition": 1, "offset": 9}
    assert place.items() <= late["records"][0].items()
    assert late["records"][0]["late_by"] == 5_000
    assert error["records"][0]["reason"] == "the value is no JSON"


def test_records_are_shown_to_a_token_alone() -> None:
    """And only those that were noted."""
    late = "/v1/records?topic=orders&partition=1&offset=9"
    for looking_at in (None, LOOKING):
        with monitored(_noting(), looking=looking_at) as url:
            assert ask_json(url + late, token=TOKEN)[0] == 403
    with monitored(_noting(), TOKENS, LOOKING) as url:
        assert ask_json(url + late)[0] == 401
        assert ask_json(url + late, token="wrong")[0] == 401
        for other in (
            "topic=orders&partition=1&offset=10",
            "topic=orders&partition=0&offset=9",
            "topic=secrets&partition=1&offset=9",
            "topic=orders&partition=1&offset=-1",
            "topic=orders&partition=1&offset=x",
            "topic=orders&partition=1",
            "",
        ):
            assert ask_json(url + f"/v1/records?{other}", token=TOKEN)[0] == 404, other
        status, found = ask_json(url + late, token=TOKEN)
        assert (status, found["gone"]) == (200, False)
        assert base64.b64decode(found["value"]) == HOSTILE
        gone = ask_json(url + "/v1/records?topic=orders&partition=0&offset=8", token=TOKEN)[1]
        assert (gone["gone"], gone["value"]) == (True, None)


def test_columns_are_named_to_a_token_alone() -> None:
    """Of inputs that there are."""
    orders = "/v1/columns?input=orders"
    with monitored(_noting()) as url:
        assert ask_json(url + orders, token=TOKEN)[0] == 403
    with monitored(_noting(), TOKENS, LOOKING) as url:
        assert ask_json(url + orders)[0] == 401
        assert ask_json(url + "/v1/columns?input=nothing", token=TOKEN)[0] == 404
        status, found = ask_json(url + orders, token=TOKEN)
    assert (status, found["rows"], found["absent"]) == (200, 40, ["size"])


def test_brokers_that_do_not_answer_are_told() -> None:
    """With the message of the error."""

    def away(place: MessagePlace) -> Record | None:
        raise AwayError("the brokers do not answer", hint="Look at them.")

    with monitored(_noting(), TOKENS, RecordLookup(away, _columns)) as url:
        status, found = ask_json(
            url + "/v1/records?topic=orders&partition=1&offset=9", token=TOKEN
        )
    told = {"error": "the brokers do not answer", "hint": "Look at them."}
    assert (status, found) == (502, told)


def test_a_long_record_is_cut() -> None:
    """What is left out is said."""
    looking_at = RecordLookup(lambda _: Record(None, b"x" * 100_000), _columns)
    with monitored(_noting(), TOKENS, looking_at) as url:
        _, found = ask_json(url + "/v1/records?topic=orders&partition=1&offset=9", token=TOKEN)
    assert (found["key"], found["value_bytes"]) == (None, 100_000)
    assert len(base64.b64decode(found["value"])) == 65_536


def test_the_last_records_are_looked_at(browser: Browser) -> None:
    """With the token that the page asks for; as text."""
    monitor = _noting()
    with monitored(monitor, TOKENS, LOOKING) as url, looking(browser) as page:
        page.goto(f"{url}/console/#/errors")
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.get_by_role("button", name="Use it").click()
        late = page.locator("section", has_text="Late records")
        expect(late.locator("td[data-label=Records]")).to_have_text("12")
        expect(page.locator("section", has_text="Drift of old images")).to_contain_text(
            "None since"
        )
        show = late.get_by_role("button", name="Show the record at orders, partition 1")
        show.press("Enter")
        page.get_by_role("button", name="Compare the newest records of orders").click()
        expect(page.locator(".schema tr", has_text="<b>gift</b>")).to_contain_text("BOOLEAN")
        expect(page.locator(".schema").first).to_contain_text("none has size")
        expect(late.locator(".look")).to_contain_text("onerror")
        assert page.locator("main img").count() == 0
        # It stays open, and focused, when more is noted.
        late.get_by_role("button", name="Hide the record").focus()
        monitor.batch(_report(8, 5, NOTED))
        expect(late.locator("td[data-label=Records]")).to_have_text("24")
        expect(late.locator(".look").last).to_contain_text("onerror")
        expect(late.get_by_role("button", name="Hide the record").first).to_be_focused()


def test_without_tokens_no_record_is_shown(browser: Browser) -> None:
    """The page says how to let some see them."""
    with monitored(_noting()) as url, looking(browser) as page:
        page.goto(f"{url}/console/#/errors")
        expect(page.locator(".said")).to_contain_text("--token-file")
        assert page.get_by_role("button", name="Show").count() == 0


EDIT = EditDescription(
    "shop",
    "./checkpoint",
    edited=True,
    frontier=1_790_000_000_000,
    parts=(
        PartChange("operator", "current", "stays", "upsert"),
        PartChange("operator", "people", "new", filled_from=(FillSource("topic", "customers"),)),
        PartChange("operator", "totals", "dropped", "reduce", why="its state is released"),
        PartChange(
            "output",
            "open_orders",
            "replaced",
            "diff",
            shows="difference",
            topic="orders.diffs",
            filled_from=(FillSource("state", "current"),),
        ),
    ),
)


def test_the_last_edit_is_told_and_marked_in_the_plan(browser: Browser) -> None:
    """While it fills, with how far it is."""
    health = Health(HealthLimits(60, 900, 3600), time.monotonic)
    monitor = Monitor(PLAN, health, lambda: EDIT)
    monitor.edit(EDIT)
    with monitored(monitor) as url, looking(browser) as page:
        page.goto(f"{url}/console/#/plan")
        edit = page.locator(".last-edit")
        expect(edit).to_contain_text("comes next")
        monitor.started(RunStart("c", 1))
        monitor.batch(_report(1, 0)._replace(filling=Filling(1, 3, "people", 0.4, 20_000)))
        expect(edit.get_by_role("progressbar")).to_have_attribute("value", "0.4")
        expect(edit).to_contain_text("Part 2 of 3, people: 20,000 keys so far")
        expect(edit).to_contain_text("2026-09-21 14:13:20.000Z")
        monitor.batch(_report(2, 0))
        expect(edit).to_contain_text("It is done.")
        expect(edit.get_by_role("progressbar")).to_have_count(0)
        expect(edit.locator("li.dropped")).to_contain_text("totals")
        expect(edit.locator("li.replaced")).to_contain_text(
            "topic orders.diffs gets the difference, made of the state of current"
        )
        for box, mark in (
            ("state people", "+ new"),
            ("output open_orders", "~ replaced"),
            ("state current", None),
        ):
            found = page.locator(f"[data-box='{box}']").first.locator(".mark")
            expect(found).to_have_text([mark] if mark else [])


def test_charts_begin_before_the_page_is_opened(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the run has kept, a sample every five seconds; so they have no gap later."""
    monitor = Monitor(PLAN, Health(HealthLimits(60, 900, 3600), time.monotonic))
    now = time.time_ns() // 1_000_000
    clock = iter(range(now - 600_000, now))
    monkeypatch.setattr(module, "_now_ms", lambda: next(clock))
    _batch(monitor, 1, 100)
    for ago in range(600, 0, -1):
        clock = iter(range(now - 1_000 * ago, now))
        if ago == 300:
            _batch(monitor, 2, 900)
        else:
            monitor.trigger(None)
    monkeypatch.undo()
    with monitored(monitor) as url:
        _, past = ask_json(url + "/v1/history")
        updates = past["series"]["open_orders"]["updates"]
        assert 119 <= len(past["at"]) <= 121
        assert all(5_000 <= b - a < 7_000 for a, b in pairwise(past["at"]))
        assert (updates[0], updates[-1]) == (100, 1_000)
        with looking(browser) as page:
            page.goto(url)
            lines = page.locator(".chart path.line")
            expect(lines.nth(1)).to_have_attribute("d", re.compile(r"(L[^L]+){100,}"))
