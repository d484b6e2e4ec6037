"""The console of `ikebana run --http` in a browser."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import Run
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching.batch_report import BatchReport
from ikebana.processor.watching.health import Health, Limits, Progress
from ikebana.processor.watching.metrics import WHOLE, Trigger
from ikebana.processor.watching.monitor import Monitor, serving
from support.browsers import chromium, looking, picture

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


def _batch(monitor: Monitor, number: int, count: int) -> None:
    """Report a batch as a run does, with files of two shards."""
    upper = time.time_ns() // 1_000_000
    markers = [
        Marker(
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
            manifest=Manifest("c", shard, version=5, runs=[Run("b", 0, 4, "s", 812, 90_210)]),
        )
        for shard in (0, 1)
    ]
    counts = {"open_orders": count, "people": count // 3, "errors": 1}
    monitor.batch(
        BatchReport(
            batch=number,
            lower=upper - 500,
            upper=upper,
            records=count,
            behind=0,
            counts=counts,
            counted={"late": 2},
            state_bytes=0,
            seconds=0.5,
            markers=markers,
        )
    )
    progress = Progress(done=count, offered=count, upper=upper, closed=upper)
    monitor.trigger(Trigger({WHOLE: 500}, {"current": upper, "people": upper}, progress))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests."""
    with chromium() as found:
        yield found


def test_a_run_shows_its_outputs_and_what_it_counted(browser: Browser) -> None:
    """With rates from one answer to the next."""
    monitor = Monitor(PLAN, Health(Limits(60, 900, 3600), time.monotonic))
    _batch(monitor, 7, 12_000)
    with serving(monitor, "127.0.0.1", 0) as url, looking(browser) as page:
        page.goto(url)
        row = page.locator("tr", has=page.locator("td", has_text="open_orders"))
        expect(row.locator("[data-label=Updates]")).to_have_text("12,000")
        rate = row.locator("[data-label='Updates/s']")
        expect(rate).to_have_text("0")
        _batch(monitor, 8, 9_000)
        expect(row.locator("[data-label=Updates]")).to_have_text("21,000")
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
