"""While an edit goes through the state in portions, records come and what is unchanged goes on."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ikebana.processor.engine import replaying
from ikebana.testing import Run
from support.edited_runs import collection, plan_of

ORDERS = """
inputs:
  orders: {topic: orders, columns: {product: VARCHAR, customer: BIGINT, quantity: BIGINT}}
  customers: {topic: customers, columns: {name: VARCHAR}}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  totals: {reduce: order, by: product, aggregates: {n: count(*), q: sum(quantity)}}
outputs:
  all: {from: order, topic: all}
  totals: {from: totals, topic: totals}
  customers: {from: customer, topic: customers.all}
"""
LARGE = ORDERS.replace(
    "outputs:", "  large: {linear: order, where: quantity > 3}\noutputs:"
) + "  large: {from: large, topic: large}\n"  # fmt: skip
LARGER = LARGE.replace("> 3", "> 5")
BEHIND = ORDERS.replace(
    "outputs:", "  many: {linear: totals, where: n > 1}\noutputs:"
) + "  many: {from: many, topic: many}\n"  # fmt: skip
COUNTED = ORDERS.replace(
    "outputs:", "  sold: {reduce: totals, by: n, aggregates: {products: count(*)}}\noutputs:"
) + "  sold: {from: sold, topic: sold}\n"  # fmt: skip
JOIN = """  named:
    delta_join: {o: order, c: customer}
    where: [o.customer = c.key::BIGINT, o.quantity > 3]
    select: {product: o.product, name: c.name}
outputs:"""
JOINED = ORDERS.replace("outputs:", JOIN) + "  named: {from: named, topic: named}\n"
JOINED_BEHIND = JOINED.replace(
    "outputs:", "  tea: {linear: named, where: product = 'tea'}\noutputs:"
).replace("{from: named", "{from: tea")  # fmt: skip
# In place of the join an output shows the orders.
WITHOUT = ORDERS + "  named: {from: order, topic: named}\n"

EDITS = [
    pytest.param(ORDERS, LARGE, "large", id="an output that is added"),
    pytest.param(LARGE, LARGER, "large", id="a filter that changes"),
    pytest.param(ORDERS, BEHIND, "many", id="an output behind a reduction"),
    pytest.param(ORDERS, COUNTED, "sold", id="a reduction of a reduction"),
    pytest.param(ORDERS, JOINED, "named", id="a join that comes"),
    pytest.param(JOINED, JOINED_BEHIND, "named", id="a filter behind a join"),
    pytest.param(JOINED, WITHOUT, "named", id="a join that goes"),
    pytest.param(WITHOUT, JOINED, "named", id="a join in place of rows"),
]


def changes() -> Iterable[tuple[str, int, Any]]:
    """Rows that come, change, go and come again, before and behind what has been read."""
    for number in (*range(1, 24, 2), *range(0, 24, 3), *range(23, 0, -4), *range(7)):
        row = {"product": "tea" if number % 3 else "milk", "customer": number % 4}
        yield "orders", number, {**row, "quantity": (number * 7) % 11}
        if number % 5 == 0:
            yield "orders", (number * 3) % 24, None
        if number % 7 == 0:
            yield "customers", number % 4, {"name": f"n{number}"} if number % 2 else None


def started(text: str, time: str, shards: int = 2) -> Run:
    run = Run(plan_of(text, time), shards=shards)
    for number in range(24):
        row = {"product": "tea" if number % 3 else "milk", "customer": number % 4}
        run.send("orders", number, {**row, "quantity": number % 9})
    for number in range(4):
        run.send("customers", number, {"name": f"first {number}"})
    run.read()
    return run


@pytest.fixture(params=[1, 5])
def portions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(replaying, "PORTION", request.param)
    return int(request.param)


@pytest.mark.parametrize(("before", "after", "changed"), EDITS)
@pytest.mark.parametrize("time", ["offset", "ingest"])
@pytest.mark.usefixtures("portions")
def test_a_changed_output_has_all_of_its_time_and_what_came_meanwhile(
    before: str, after: str, changed: str, time: str
) -> None:
    """It is at each closed time what a pipeline is that has never been another one."""
    run, always = started(before, time), started(after, time)
    at = run.last.upper
    assert at == always.last.upper
    run.restart(plan_of(after, time))
    for topic, key, value in changes():
        for each in (run, always):
            each.send(topic, key, value)
            each.batch(limit=1)
    for each in (run, always):
        each.read()

    assert run.last.upper == always.last.upper
    for closed in (*range(at, run.last.upper, 5), run.last.upper):
        assert collection(run, changed, closed) == collection(always, changed, closed)


@pytest.mark.parametrize(("before", "after", "changed"), EDITS)
@pytest.mark.parametrize("shards", [3])
def test_what_is_unchanged_never_waits(
    before: str, after: str, changed: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the same updates at the same times as without the edit, in the same batches."""
    monkeypatch.setattr(replaying, "PORTION", 2)
    run, without = started(before, "offset", shards), started(before, "offset", shards)
    run.restart(plan_of(after, "offset"))
    stood = 0
    for topic, key, value in changes():
        for each in (run, without):
            each.send(topic, key, value)
            each.batch(limit=1)
        stood += run.last.transition.fills
        assert run.last.positions == without.last.positions
        for output in ("all", "customers"):
            assert run.frontier(output) == without.frontier(output) == run.last.upper
        # Behind an exchange it is as far behind as ever.
        assert run.frontier("totals") == without.frontier("totals")
    assert stood
    for output in ("all", "customers", "totals"):
        assert run.updates(output) == without.updates(output)


def test_keys_that_go_meanwhile_were_there_at_the_time_of_the_edit(portions: int) -> None:
    """The edit comes to them when they are gone, the last ones too."""
    run, always = started(ORDERS, "offset"), started(LARGE, "offset")
    at = run.last.upper
    run.restart(plan_of(LARGE, "offset"))
    for number in reversed(range(24)):
        for each in (run, always):
            each.send("orders", number, None)
            each.batch(limit=1)
    for each in (run, always):
        each.read()

    assert run.collection("large") == always.collection("large") == []
    assert sum(collection(always, "large", at).values()) > 10
    for closed in range(at, run.last.upper):
        assert collection(run, "large", closed) == collection(always, "large", closed)


def test_keys_that_change_and_change_back_meanwhile_are_undone_once(portions: int) -> None:
    """What a key has got in several batches is summed until the edit comes to it."""
    run, always = started(ORDERS, "offset"), started(LARGE, "offset")
    at = run.last.upper
    run.restart(plan_of(LARGE, "offset"))
    for number in reversed(range(20, 24)):
        row = next(row for key, row in run.collection("all") if key == number)
        for sent in ({**row, "quantity": 9}, row, {**row, "quantity": 0}):
            for each in (run, always):
                each.send("orders", number, sent)
                each.batch(limit=1)
    for each in (run, always):
        each.read()

    for closed in range(at, run.last.upper + 1):
        assert collection(run, "large", closed) == collection(always, "large", closed)


@pytest.mark.parametrize("dies", [1, 2, 3, 5])
def test_a_death_while_records_come_changes_nothing(
    dies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is, and whichever shard had committed."""
    monkeypatch.setattr(replaying, "PORTION", 3)
    run = started(JOINED, "offset")
    after = plan_of(JOINED_BEHIND + "  large: {from: order, topic: large}\n", "offset")
    run.restart(after)
    for number, (topic, key, value) in enumerate(changes(), 1):
        run.send(topic, key, value)
        if number % dies == 0:
            run.crash(committed=[number % 2], limit=1)
            run.restart(after)
        run.batch(limit=1)
    run.read()

    fresh = Run(after, run.topics)
    fresh.read()
    for output in ("all", "totals", "named", "large"):
        assert collection(run, output) == collection(fresh, output)


def test_another_edit_while_records_come_waits_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which reads nothing more, and then that one begins at its end."""
    monkeypatch.setattr(replaying, "PORTION", 2)
    run = started(JOINED, "offset")
    run.restart(plan_of(JOINED_BEHIND, "offset"))
    steps: list[Callable[[], None]] = [
        lambda: run.restart(plan_of(WITHOUT, "offset")),
        lambda: run.restart(plan_of(JOINED, "offset"), shards=3),
        lambda: run.restart(plan_of(COUNTED, "offset")),
    ]
    for number, (topic, key, value) in enumerate(changes(), 1):
        run.send(topic, key, value)
        run.batch(limit=1)
        if number % 9 == 0 and steps:
            steps.pop(0)()
    run.read()

    fresh = Run(plan_of(COUNTED, "offset"), run.topics)
    fresh.read()
    for output in ("all", "totals", "sold"):
        assert collection(run, output) == collection(fresh, output)
