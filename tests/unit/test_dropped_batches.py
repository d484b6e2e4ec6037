"""Batches in the log that no shard has committed, when another plan or number of shards comes."""

import json
from collections import Counter
from typing import Any

import pytest

from ikebana import Plan
from ikebana.processor.base.rows import Records
from ikebana.processor.checkpoint.checkpoint import Logged
from ikebana.processor.checkpoint.next_step import Observed
from ikebana.processor.engine.testing.run import metadata_of
from ikebana.processor.kafka.reader import DeletedError
from ikebana.processor.topics.source_offset import SourceOffset, is_settled
from ikebana.testing import Run, Topics
from support import edited_shops


def plan_of(least: int, makes: str = "count(*)") -> Plan:
    """A pipeline that keeps only large orders, and counts them by customer in other shards."""
    return edited_shops.plan_of(f"""
inputs:
  orders: {{topic: orders, columns: {{customer: BIGINT, quantity: BIGINT}}}}
operators:
  order: {{upsert: orders}}
  large: {{linear: order, where: quantity > {least}}}
  totals: {{reduce: large, by: customer, aggregates: {{n: {makes}}}}}
outputs:
  large: {{from: large, topic: large}}
  totals: {{from: totals, topic: totals}}
""")


def narrow(columns: str) -> Plan:
    """A pipeline that shows these columns of orders, and keeps no others."""
    select = ", ".join(f"{column}: {column}" for column in columns.split(", "))
    return edited_shops.plan_of(f"""
inputs:
  orders: {{topic: orders, columns: {{customer: BIGINT, quantity: BIGINT}}}}
operators:
  order: {{upsert: orders}}
  slim: {{linear: order, select: {{{select}}}}}
outputs:
  slim: {{from: slim, topic: slim}}
""")


def order(topics: Topics, number: int) -> None:
    value = {"customer": number % 3, "quantity": number}
    topics.send("orders", b"%d" % number, json.dumps(value).encode())


def started() -> Run:
    run = Run(plan_of(3), Topics(), shards=2)
    for number in range(12):
        order(run.topics, number)
    run.read()
    assert is_settled(run.last)
    return run


def judge(run: Run, plan: Plan) -> None:
    """The outputs are what a run of the plan makes of the same records."""
    fresh = Run(plan, Topics())
    fresh.topics.messages["orders"] = run.topics.messages["orders"]
    fresh.read()
    for output in ("large", "totals"):
        assert shown(run, output) == shown(fresh, output)


def shown(run: Run, output: str) -> Counter[str]:
    return Counter(map(repr, run.collection(output)))


def test_a_batch_is_void_until_a_shard_has_committed_it() -> None:
    offset = SourceOffset(4, 5, 9, {}, "plan")
    metadata = metadata_of(plan_of(5), 1, offset, {})
    assert Observed(metadata, Logged(offset, 4, 3), 3).has_void_batch
    assert not Observed(metadata, Logged(offset, 4, 3), 4).has_void_batch
    assert not Observed(metadata, Logged(offset, 4, 4), 4).has_void_batch
    # Until the shards are fenced, one may commit it.
    assert not Observed(metadata, Logged(offset, 4, 3)).has_void_batch


@pytest.mark.parametrize("shards", [2, 3])
def test_another_plan_or_number_of_shards_drops_it(shards: int) -> None:
    """The plan of before is no edit then, and any other plan is one of that."""
    run = started()
    before = run.last
    run.restart(plan_of(5))
    run.crash()
    assert run._in_log().offset != before

    run.restart(plan_of(3))
    assert run._in_log().offset == before
    assert run._metadata is not None
    assert run._metadata.edits == 0
    order(run.topics, 20)
    run.crash()
    run.restart(plan_of(6, "max(quantity)"), shards=shards)
    assert (run._in_log().offset, len(run.stores)) == (before, shards)
    order(run.topics, 21)
    run.read()

    assert run.last.transition.edits == 1
    judge(run, plan_of(6, "max(quantity)"))


def test_the_same_plan_runs_it_as_it_is_in_the_log() -> None:
    run = started()
    order(run.topics, 20)
    run.crash()
    logged = run._in_log()

    run.restart(plan_of(3))
    assert run._in_log() == logged
    run.batch()
    assert run.last == logged.offset
    run.read()

    judge(run, plan_of(3))


def test_one_that_a_shard_has_committed_is_finished_under_the_plan_of_before() -> None:
    run = started()
    order(run.topics, 20)
    run.crash(committed=[1])
    logged = run._in_log()

    run.restart(plan_of(5))
    assert run._in_log() == logged
    run.batch()
    assert run.last == logged.offset
    run.read()

    assert run.last.transition.edits == 1
    judge(run, plan_of(5))


def test_an_edit_that_fails_every_time_is_withdrawn_by_the_file_of_before() -> None:
    """Here one that reads a topic again, which has lost its records meanwhile."""
    first, wider = (narrow(columns) for columns in ("quantity", "quantity, customer"))
    run = Run(first, Topics())
    for number in range(12):
        order(run.topics, number)
    run.read()
    rows: Any = run._rows
    run.restart(wider)
    run.batch(limit=2)
    assert run._running.backfills

    def lost(before: SourceOffset, after: SourceOffset) -> list[list[Records]]:
        again = after.positions.get("orders@orders@2")
        if again not in (None, before.positions.get("orders@orders@2")):
            raise DeletedError("the records are gone")
        found: list[list[Records]] = rows(before, after)
        return found

    run._rows = lost  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(DeletedError):
            run.read()
        run.restart(wider)

    run.restart(first)
    order(run.topics, 20)
    run.read()

    values = [value for _, value in run.collection("slim")]
    assert sorted(value["quantity"] for value in values) == [*range(12), 20]
