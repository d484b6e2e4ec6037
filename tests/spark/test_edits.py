"""A pipeline whose file is edited between two runs, through Kafka and Spark.

`test_edited_life.py` has filters, aggregates, columns and joins that come and change.
"""

from collections import Counter
from typing import Any

import pytest

from support.output_judge import progress_of
from support.pipeline_processes import Written, WrittenOver
from support.shops import (
    ORDERS,
    Collection,
    Sections,
    assert_without_gaps,
    counted,
    messages,
    narrow,
    sections,
    shown,
)

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def orders_of(keys: range, **row: int) -> dict[int, dict[str, int]]:
    """Orders by their keys, each with its key as its amount."""
    return {key: {"customer": key % 5, "amount": key, **row} for key in keys}


@pytest.fixture
def died(written_over: WrittenOver) -> Written:
    """A pipeline that died after one shard had committed a batch of thirty orders."""
    pipeline = written_over("orders")
    pipeline.send_to("orders", messages(orders_of(range(30))))
    first = pipeline.having(sections(pipeline.name, 10))
    first.dies("after_commit:1:1:all")
    return first


def test_a_run_that_has_died_is_finished_before_an_edit(died: Written) -> None:
    """What was exchanged and what is unfinished, under the plan of before; then the new plan."""
    assert max(died.log("offsets")) > max(died.log("commits"))

    totals = {"n": "count(*)", "most": "max(amount)"}
    edited = died.having(sections(died.name, 20, totals)).drained()

    assert "finished under the plan of before first" in edited.text
    large = orders_of(range(21, 30))
    assert shown(died, "large") == counted(large.items())
    amounts: dict[int, list[int]] = {}
    for row in large.values():
        amounts.setdefault(row["customer"], []).append(row["amount"])
    expected = [(by, {"n": len(each), "most": max(each)}) for by, each in amounts.items()]
    assert shown(died, "totals") == counted(expected)
    assert_without_gaps(died, "large", "totals")


def test_much_of_an_edit_is_written_in_portions_and_read_at_once(
    written_over: WrittenOver,
) -> None:
    """Also if the run dies when one shard has written a portion, and the other has not."""
    pipeline = written_over("orders", limit=40_000)
    orders = orders_of(range(40_000))
    pipeline.send_to("orders", messages(orders))
    few = pipeline.having(sections(pipeline.name, 39_000))
    few.drained()
    last = progress_of(few.servers, f"{few.name}.large")[-1]

    # Two batches go through the state, and the third writes the first portion.
    edited = pipeline.having(sections(pipeline.name, -1))
    edited.dies(f"after_commit:{last.batch + 3}:1:all")
    edited.drained()

    assert shown(edited, "large") == counted(orders.items())
    assert shown(edited, "totals") == counted((customer, {"n": 8_000}) for customer in range(5))
    progress = progress_of(edited.servers, f"{edited.name}.large")
    records = [record for record in progress if record.batch > last.batch]
    (whole,) = [record for record in records if record.updates]
    assert (whole.lower, whole.updates) == (last.upper, 39_001)
    before = [record for record in records if record.batch < whole.batch]
    assert len(before) > 3
    assert {record.upper for record in before} == {last.upper}


@pytest.mark.parametrize("point", ["before_rescaled", "after_rescaled"])
def test_another_number_of_shards_is_taken_up_by_a_start(died: Written, point: str) -> None:
    """With a filter that changes too, after a death of the old run, and one while rescaling."""
    edited = died.having(sections(died.name, 20), shards=3)
    run = edited.dies(f"{point}:0:*:all")
    assert "the state is rewritten for 3 shards, from 2" in run.text
    more = orders_of(range(25, 40), customer=7)
    edited.send_to("orders", messages(more))
    edited.drained()

    large = orders_of(range(21, 25)) | more
    assert shown(edited, "large") == counted(large.items())
    totals = Counter(row["customer"] for row in large.values())
    assert shown(edited, "totals") == counted((by, {"n": n}) for by, n in totals.items())
    assert sorted(path.name for path in edited.place.iterdir()) == ["epoch-1", "ikebana.json"]
    assert_without_gaps(edited, "large", "totals")
    for output in ("large", "totals"):
        records = progress_of(edited.servers, f"{edited.name}.{output}")
        assert [each.batch for each in records] == list(range(len(records)))


@pytest.mark.parametrize("dated", [False, True], ids=["ingest", "event time"])
def test_a_column_that_was_not_kept_is_read_again_beside_what_goes_on(
    written_over: WrittenOver, *, dated: bool
) -> None:
    """With a death while it is read; then the topic gets the difference."""
    pipeline = written_over("orders", limit=60)
    orders = orders_of(range(300))
    pipeline.send_to("orders", messages(orders))
    times = {"event_time": {"clock": "kafka", "idle": "1s"}} if dated else {}
    first = pipeline.having(narrow(pipeline.name, {"a": "amount"}, **times))
    first.drained()
    assert shown(first, "slim") == counted((k, {"a": k}) for k in orders)

    more = {key: {"customer": 9, "amount": 1000 + key} for key in range(250, 320)}
    orders |= more
    pipeline.send_to("orders", messages(more))
    both = {"a": "amount", "c": "customer"}
    wider = pipeline.having(narrow(pipeline.name, both, **times))
    run = wider.dies(f"after_commit:{max(first.log('offsets')) + 5}:1:all")
    assert 'reading "orders" again from the beginning' in run.text
    if not dated:
        # What was there goes on meanwhile.
        assert shown(wider, "slim") == counted((k, {"a": o["amount"]}) for k, o in orders.items())
    end = wider.drained()

    assert 'reading "orders" again from the beginning' in end.text
    if dated:
        # Nothing has closed the time of the edit yet.
        orders[999] = {"customer": 1, "amount": 1}
        wider.send_to("orders", messages({999: orders[999]}))
        wider.drained()
    new = [(k, {"a": row["amount"], "c": row["customer"]}) for k, row in orders.items()]
    assert shown(wider, "slim") == counted(new)
    assert_without_gaps(wider, "slim")
    wider.drained()
    assert shown(wider, "slim") == counted(new)


def rated(name: str, join: dict[str, Any] | None, behind: str | None = None) -> Sections:
    """A file whose output shows orders with their levels, or without a join as they are."""
    inputs = {"orders": {"topic": f"{name}.orders", "columns": ORDERS}}
    operators: dict[str, Any] = {"order": {"upsert": "orders"}}
    if join is not None:
        inputs["customers"] = {"topic": f"{name}.customers", "columns": {"level": "BIGINT"}}
        operators["customer"] = {"upsert": "customers"}
        operators["rated"] = {"select": {"amount": "o.amount", "level": "c.level"}, **join}
    if behind is not None:
        operators["few"] = {"linear": "rated", "where": behind}
    last = list(operators)[-1]
    # With an output of whole rows, decoding keeps them, whatever the join reads.
    outputs = {
        "all": {"from": "order", "topic": f"{name}.all"},
        "rated": {"from": last, "topic": f"{name}.rated"},
    }
    return {"inputs": inputs, "operators": operators, "outputs": outputs}


INPUTS = {"o": "order", "c": "customer"}
BY_CUSTOMER = "o.customer = c.key::BIGINT"
AS_OF = {"as_of_join": INPUTS, "on": [BY_CUSTOMER]}


def delta(*conditions: str) -> dict[str, Any]:
    return {"delta_join": INPUTS, "where": [BY_CUSTOMER, *conditions]}


def test_an_output_follows_a_join_that_changes_and_goes(written_over: WrittenOver) -> None:
    """A condition, a filter behind, no join and so no exchange any more, one of which dies."""
    pipeline = written_over("orders", "customers")
    name = pipeline.name
    orders = orders_of(range(30))
    pipeline.send_to("orders", messages(orders))
    pipeline.send_to("customers", messages({key: {"level": 10 * key} for key in range(4)}))

    def joined(least: int, level: int) -> Collection:
        return counted(
            (key, {"amount": row["amount"], "level": 10 * row["customer"]})
            for key, row in orders.items()
            if row["amount"] > least and level < 10 * row["customer"] < 40
        )

    pipeline.having(rated(name, delta("o.amount > 10"))).drained()
    assert shown(pipeline, "rated") == joined(10, -1)

    changed = pipeline.having(rated(name, delta("o.amount > 20")))
    changed.dies("after_commit*2:0:1:all")
    changed.drained()
    assert shown(pipeline, "rated") == joined(20, -1)

    pipeline.having(rated(name, delta("o.amount > 20"), "level > 10")).drained()
    assert shown(pipeline, "rated") == joined(20, 10)

    alone = pipeline.having(rated(name, None))
    alone.drained()
    orders |= {40: {"customer": 1, "amount": 40}}
    pipeline.send_to("orders", messages({40: orders[40]}))
    alone.drained()
    assert shown(pipeline, "rated") == counted(orders.items())
    assert_without_gaps(pipeline, "rated")


def test_what_nothing_keeps_is_taken_back_out_of_the_topic(written_over: WrittenOver) -> None:
    """Results of an as-of join, in portions, with a death; then such a join begins anew."""
    pipeline = written_over("orders", "customers", limit=500)
    name = pipeline.name

    def rate(by: int) -> Collection:
        """Give each customer another level; what each order has by these levels."""
        pipeline.send_to("customers", messages({key: {"level": by * key} for key in range(5)}))
        return counted((k, {"amount": k, "level": by * (k % 5)}) for k in range(120))

    first = rate(10)
    pipeline.send_to("orders", messages(orders_of(range(120))))
    as_of = pipeline.having(rated(name, AS_OF))
    as_of.drained()
    assert shown(pipeline, "rated") == first

    # Of the customers of now there is another level, which the orders of before do not get.
    second = rate(11)
    later = pipeline.having(rated(name, delta()), limit=60)
    run = later.dies(f"after_commit:{max(as_of.log('offsets')) + 2}:1:all")
    assert 'what output "rated" has had is read from its own topic' in run.text
    assert shown(pipeline, "rated") == first
    later.drained()
    assert shown(pipeline, "rated") == second

    as_of.drained()
    assert shown(pipeline, "rated") == second
    assert_without_gaps(pipeline, "rated")
