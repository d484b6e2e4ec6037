"""Orders of the last 30 days, on a clock that the test turns: rows leave with no input."""

from collections import Counter

from ikebana import Column, Input, Linear, Output, Plan, Reduce, Upsert, steps
from ikebana.codecs import canonical
from ikebana.testing import Run, Topics
from support.sums import summed

DAY = 86_400_000
MONTH = 30 * DAY
PLAN = Plan(
    "recent",
    inputs=(
        Input(
            "orders",
            ("orders",),
            columns=(Column("placed", "BIGINT"), Column("amount", "BIGINT")),
        ),
    ),
    operators=(
        Upsert("current", "orders"),
        Linear("recent", "current", (steps.valid_between("placed", f"placed + {MONTH}"),)),
        Reduce("sum", "recent", (("orders", "count(*)"), ("total", "sum(amount)")), by="0"),
    ),
    outputs=(Output("recent", "recent", "recent"), Output("sum", "sum", "sum")),
)


def order(topics: Topics, number: int, placed: int, amount: int) -> None:
    value = {"placed": placed, "amount": amount}
    topics.send("orders", b"%d" % number, canonical.encode(value))


def shown(run: Run, name: str) -> Counter[bytes]:
    """What an output comes to now."""
    return summed((update.value, update.diff) for update in run.written.updates[name])


def turned_to(run: Run, now_ms: int) -> None:
    """Let the clock show a time, and the pipeline do what there is to do."""
    run.batch(now_ms, heartbeat=True)
    while run.batch(now_ms):
        pass


def test_rows_leave_on_time_with_no_input() -> None:
    """To the millisecond; the sum, two shards away, follows at the same time."""
    topics = Topics()
    order(topics, 1, placed=10 * DAY, amount=5)
    order(topics, 2, placed=12 * DAY, amount=7)
    run = Run(PLAN, topics, shards=2)
    turned_to(run, 20 * DAY)
    assert shown(run, "sum") == {b'{"orders":2,"total":12}': 1}

    turned_to(run, 10 * DAY + MONTH - 2)
    assert len(shown(run, "recent")) == 2

    turned_to(run, 10 * DAY + MONTH)
    assert shown(run, "sum") == {b'{"orders":1,"total":7}': 1}
    left = [update for update in run.written.updates["recent"] if update.diff < 0]
    assert [(update.key, update.time) for update in left] == [(b"1", 10 * DAY + MONTH)]

    turned_to(run, 12 * DAY + MONTH)
    assert shown(run, "recent") == shown(run, "sum") == {}
    assert {update.time for update in run.written.updates["sum"][-1:]} == {12 * DAY + MONTH}


def test_what_changes_before_it_expires_expires_once() -> None:
    """A retraction takes the pending one with it."""
    topics = Topics()
    order(topics, 1, placed=10 * DAY, amount=5)
    run = Run(PLAN, topics)
    turned_to(run, 20 * DAY)
    order(topics, 1, placed=15 * DAY, amount=5)
    turned_to(run, 21 * DAY)
    turned_to(run, 10 * DAY + MONTH)
    assert len(shown(run, "recent")) == 1

    turned_to(run, 15 * DAY + MONTH)
    assert shown(run, "recent") == {}
    assert sum(update.diff < 0 for update in run.written.updates["recent"]) == 2
