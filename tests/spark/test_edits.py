"""A pipeline whose file is edited between two runs, through Kafka and Spark."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import progress_of
from support.pipeline_processes import Written, create, produce, written
from support.shops import ORDERS, Collection, counted, narrow, sections, send_orders, shown

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_outputs_follow_the_edits_of_a_file(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """They get the difference; new operators begin with what is there; times stay in order."""
    servers, choice = broker.bootstrap_servers, Random(17)
    name = topic_name("shop")
    orders: dict[int, dict[str, int]] = {}
    levels: dict[int, int] = {}
    for relation in ("orders", "customers"):
        create(servers, f"{name}.{relation}", 2)

    def change(count: int) -> None:
        messages: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key = choice.randrange(40)
            orders.pop(key, None)
            if choice.random() < 0.8:
                orders[key] = {"customer": choice.randrange(5), "amount": choice.randrange(40)}
            row = orders.get(key)
            messages.append((b"%d" % key, None if row is None else json.dumps(row).encode()))
        produce(servers, f"{name}.orders", messages)

    def judge(least: int, makes: Callable[[list[int]], dict[str, int]], *, joined: bool) -> None:
        large = [(key, row) for key, row in orders.items() if row["amount"] > least]
        assert shown(servers, f"{name}.large") == counted(large)
        amounts: dict[int, list[int]] = {}
        for _, row in large:
            amounts.setdefault(row["customer"], []).append(row["amount"])
        totals = [(customer, makes(found)) for customer, found in amounts.items()]
        assert shown(servers, f"{name}.totals") == counted(totals)
        if joined:
            rated = [
                (key, {"amount": row["amount"], "level": levels[row["customer"]]})
                for key, row in large
                if row["customer"] in levels
            ]
            assert shown(servers, f"{name}.rated") == counted(rated)

    pipeline = written(tmp_path, servers, name, {})
    change(120)
    replace(pipeline, sections=sections(name, 10, {"n": "count(*)"}, joined=False)).drained()
    judge(10, lambda found: {"n": len(found)}, joined=False)

    # A filter, an aggregate, an input and a join over it; records come meanwhile.
    change(30)
    levels |= {customer: 10 * customer for customer in range(4)}
    produce(
        servers,
        f"{name}.customers",
        [(b"%d" % key, json.dumps({"level": level}).encode()) for key, level in levels.items()],
    )
    totals = {"n": "count(*)", "most": "max(amount)"}
    edited = replace(pipeline, sections=sections(name, 20, totals, joined=True))
    edited.drained()
    judge(20, lambda found: {"n": len(found), "most": max(found)}, joined=True)

    # And it goes on from there as any pipeline does.
    change(30)
    edited.drained()
    judge(20, lambda found: {"n": len(found), "most": max(found)}, joined=True)
    for output in ("large", "totals", "rated"):
        records = progress_of(servers, f"{name}.{output}")
        assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def died(servers: str, name: str, place: Path) -> tuple[Written, dict[int, dict[str, int]]]:
    """A pipeline that died after one shard had committed a batch, and the orders that it read."""
    create(servers, f"{name}.orders", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(30)}
    send_orders(servers, name, orders)
    first = sections(name, 10, {"n": "count(*)"}, joined=False)
    pipeline = replace(written(place, servers, name, {}), sections=first)
    with pipeline.start("--once", fault="after_commit:1:1:all") as run:
        run.wait(120)
    assert run.once.exists()
    return pipeline, orders


def test_a_run_that_has_died_is_finished_before_an_edit(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """What has hopped and what is unfinished, under the plan of before; then the new plan."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    pipeline, orders = died(servers, name, tmp_path)
    logged = pipeline.log("offsets")
    assert max(logged) > max(pipeline.log("commits"))

    totals = {"n": "count(*)", "most": "max(amount)"}
    edited = replace(pipeline, sections=sections(name, 20, totals, joined=False)).drained()

    assert "finished under the plan of before first" in edited.text
    large = [(key, row) for key, row in orders.items() if row["amount"] > 20]
    assert shown(servers, f"{name}.large") == counted(large)
    amounts: dict[int, list[int]] = {}
    for _, row in large:
        amounts.setdefault(row["customer"], []).append(row["amount"])
    expected = [(by, {"n": len(each), "most": max(each)}) for by, each in amounts.items()]
    assert shown(servers, f"{name}.totals") == counted(expected)
    for output in ("large", "totals"):
        records = progress_of(servers, f"{name}.{output}")
        assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def test_much_of_an_edit_is_written_in_portions_and_read_at_once(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Also if the run dies when one shard has written a portion, and the other has not."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    create(servers, f"{name}.orders", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(40_000)}
    send_orders(servers, name, orders)
    few = sections(name, 39_000, {"n": "count(*)"}, joined=False)
    pipeline = replace(written(tmp_path, servers, name, {}, limit=40_000), sections=few)
    pipeline.drained()
    last = progress_of(servers, f"{name}.large")[-1]

    # Two batches go through the state, and the third writes the first portion.
    edited = replace(pipeline, sections=sections(name, -1, {"n": "count(*)"}, joined=False))
    with edited.start("--once", fault=f"after_commit:{last.batch + 3}:1:all") as run:
        run.wait(120)
    assert run.once.exists()
    edited.drained()

    assert shown(servers, f"{name}.large") == counted(list(orders.items()))
    totals = [(customer, {"n": 8_000}) for customer in range(5)]
    assert shown(servers, f"{name}.totals") == counted(totals)
    records = [r for r in progress_of(servers, f"{name}.large") if r.batch > last.batch]
    (whole,) = [record for record in records if record.updates]
    assert (whole.lower, whole.updates) == (last.upper, 39_001)
    before = [record for record in records if record.batch < whole.batch]
    assert len(before) > 3
    assert {record.upper for record in before} == {last.upper}


@pytest.mark.parametrize("point", ["before_rescaled", "after_rescaled"])
def test_another_number_of_shards_is_taken_up_by_a_start(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, point: str
) -> None:
    """With a filter that changes too, after a death of the old run, and one while rescaling."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    pipeline, orders = died(servers, name, tmp_path)

    edited = replace(
        pipeline, sections=sections(name, 20, {"n": "count(*)"}, joined=False), shards=3
    )
    with edited.start("--once", fault=f"{point}:0:*:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    assert "the state is rewritten for 3 shards, from 2" in run.text
    orders |= {key: {"customer": 7, "amount": key} for key in range(25, 40)}
    rows = [(b"%d" % key, json.dumps(row).encode()) for key, row in orders.items()]
    produce(servers, f"{name}.orders", rows[-15:])
    edited.drained()

    large = [(key, row) for key, row in orders.items() if row["amount"] > 20]
    assert shown(servers, f"{name}.large") == counted(large)
    totals = Counter(row["customer"] for _, row in large)
    assert shown(servers, f"{name}.totals") == counted(
        [(by, {"n": n}) for by, n in totals.items()]
    )
    assert sorted(path.name for path in edited.place.iterdir()) == ["epoch-1", "ikebana.json"]
    for output in ("large", "totals"):
        records = progress_of(servers, f"{name}.{output}")
        assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]
        assert [each.batch for each in records] == list(range(len(records)))


@pytest.mark.parametrize("dated", [False, True], ids=["ingest", "event time"])
def test_a_column_that_was_not_kept_is_read_again_beside_what_goes_on(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, *, dated: bool
) -> None:
    """With a death while it is read; then the topic gets the difference."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    create(servers, f"{name}.orders", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(300)}
    send_orders(servers, name, orders)
    pipeline = written(tmp_path, servers, name, {}, limit=60)
    times = {"event_time": {"clock": "kafka", "idle": "1s"}} if dated else {}
    first = replace(pipeline, sections=narrow(name, {"a": "amount"}, **times))
    first.drained()
    assert shown(servers, f"{name}.slim") == counted([(k, {"a": k}) for k in orders])

    more = {key: {"customer": 9, "amount": 1000 + key} for key in range(250, 320)}
    orders |= more
    send_orders(servers, name, more)
    wider = replace(pipeline, sections=narrow(name, {"a": "amount", "c": "customer"}, **times))
    batch = max(first.log("offsets")) + 5
    with wider.start("--once", fault=f"after_commit:{batch}:1:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    assert 'reading "orders" again from the beginning' in run.text
    if not dated:
        # What was there goes on meanwhile.
        old = {key: {"a": row["amount"]} for key, row in orders.items()}
        assert shown(servers, f"{name}.slim") == counted(list(old.items()))
    end = wider.drained()

    assert 'reading "orders" again from the beginning' in end.text
    if dated:
        # Nothing has closed the time of the edit yet.
        orders[999] = {"customer": 1, "amount": 1}
        produce(servers, f"{name}.orders", [(b"999", json.dumps(orders[999]).encode())])
        wider.drained()
    new = [(k, {"a": row["amount"], "c": row["customer"]}) for k, row in orders.items()]
    assert shown(servers, f"{name}.slim") == counted(new)
    records = progress_of(servers, f"{name}.slim")
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]
    wider.drained()
    assert shown(servers, f"{name}.slim") == counted(new)


def rated(name: str, least: int | None, behind: str | None) -> str:
    """A file whose output shows orders with their levels, or without a join as they are."""
    inputs = {"orders": {"topic": f"{name}.orders", "columns": ORDERS}}
    operators: dict[str, Any] = {"order": {"upsert": "orders"}}
    if least is not None:
        inputs["customers"] = {"topic": f"{name}.customers", "columns": {"level": "BIGINT"}}
        operators["customer"] = {"upsert": "customers"}
        operators["rated"] = {
            "delta_join": {"o": "order", "c": "customer"},
            "where": ["o.customer = c.key::BIGINT", f"o.amount > {least}"],
            "select": {"amount": "o.amount", "level": "c.level"},
        }
    if behind is not None:
        operators["few"] = {"linear": "rated", "where": behind}
    last = list(operators)[-1]
    # With an output of whole rows, decoding keeps them, whatever the join reads.
    outputs = {
        "all": {"from": "order", "topic": f"{name}.all"},
        "rated": {"from": last, "topic": f"{name}.rated"},
    }
    return json.dumps({"inputs": inputs, "operators": operators, "outputs": outputs})


def test_an_output_follows_a_join_that_changes_and_goes(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A condition, a filter behind, no join and so no exchange any more, one of which dies."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    for relation in ("orders", "customers"):
        create(servers, f"{name}.{relation}", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(30)}
    send_orders(servers, name, orders)
    customers = [(b"%d" % key, json.dumps({"level": 10 * key}).encode()) for key in range(4)]
    produce(servers, f"{name}.customers", customers)

    def joined(least: int, level: int) -> Collection:
        found = [
            (key, {"amount": row["amount"], "level": 10 * row["customer"]})
            for key, row in orders.items()
            if row["amount"] > least and level < 10 * row["customer"] < 40
        ]
        return counted(found)

    pipeline = written(tmp_path, servers, name, {})
    replace(pipeline, sections=rated(name, 10, None)).drained()
    assert shown(servers, f"{name}.rated") == joined(10, -1)

    changed = replace(pipeline, sections=rated(name, 20, None))
    with changed.start("--once", fault="after_commit*2:0:1:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    changed.drained()
    assert shown(servers, f"{name}.rated") == joined(20, -1)

    replace(pipeline, sections=rated(name, 20, "level > 10")).drained()
    assert shown(servers, f"{name}.rated") == joined(20, 10)

    alone = replace(pipeline, sections=rated(name, None, None))
    alone.drained()
    orders |= {40: {"customer": 1, "amount": 40}}
    produce(servers, f"{name}.orders", [(b"40", json.dumps(orders[40]).encode())])
    alone.drained()
    assert shown(servers, f"{name}.rated") == counted(list(orders.items()))
    records = progress_of(servers, f"{name}.rated")
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def enriched(name: str, kind: str, condition: str) -> str:
    """A file whose output shows orders with the levels of their customers."""
    joined = {
        kind: {"o": "order", "c": "customer"},
        condition: ["o.customer = c.key::BIGINT"],
        "select": {"amount": "o.amount", "level": "c.level"},
    }
    topics = {"orders": ORDERS, "customers": {"level": "BIGINT"}}
    return json.dumps(
        {
            "inputs": {
                each: {"topic": f"{name}.{each}", "columns": columns}
                for each, columns in topics.items()
            },
            "operators": {
                "order": {"upsert": "orders"},
                "customer": {"upsert": "customers"},
                "rated": joined,
            },
            "outputs": {
                "all": {"from": "order", "topic": f"{name}.all"},
                "rated": {"from": "rated", "topic": f"{name}.rated"},
            },
        }
    )


def test_what_nothing_keeps_is_taken_back_out_of_the_topic(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Results of an as-of join, in portions, with a death; then such a join begins anew."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    for relation in ("orders", "customers"):
        create(servers, f"{name}.{relation}", 2)

    def rate(levels: dict[int, int]) -> None:
        rows = [
            (b"%d" % key, json.dumps({"level": each}).encode()) for key, each in levels.items()
        ]
        produce(servers, f"{name}.customers", rows)

    def expected(levels: dict[int, int]) -> Collection:
        return counted([(k, {"amount": k, "level": levels[k % 5]}) for k in range(120)])

    first, second = {key: 10 * key for key in range(5)}, {key: 11 * key for key in range(5)}
    rate(first)
    rows = [
        (b"%d" % key, json.dumps({"customer": key % 5, "amount": key}).encode())
        for key in range(120)
    ]
    produce(servers, f"{name}.orders", rows)
    pipeline = written(tmp_path, servers, name, {}, limit=500)
    as_of = replace(pipeline, sections=enriched(name, "as_of_join", "on"))
    as_of.drained()
    assert shown(servers, f"{name}.rated") == expected(first)

    # Of the customers of now there is another level, which the orders of before do not get.
    rate(second)
    delta = replace(pipeline, sections=enriched(name, "delta_join", "where"), limit=60)
    batch = max(as_of.log("offsets")) + 2
    with delta.start("--once", fault=f"after_commit:{batch}:1:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    assert 'what output "rated" has had is read from its own topic' in run.text
    assert shown(servers, f"{name}.rated") == expected(first)
    delta.drained()
    assert shown(servers, f"{name}.rated") == expected(second)

    as_of.drained()
    assert shown(servers, f"{name}.rated") == expected(second)
    records = progress_of(servers, f"{name}.rated")
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]
