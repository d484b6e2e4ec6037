"""Inputs with times of their own: whatever the order and the cut, the plain computation."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Concat, EventTime, Input, Output, Plan, Reduce, Upsert, evaluate
from ikebana.codecs import canonical, cdcv2, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.testing import Run, Topics
from support.strategies import unhurried
from support.sums import summed

LATENESS = 5
EVENTS = Plan(
    "events",
    inputs=(
        Input(
            "rows",
            ("rows",),
            columns=(Column("t", "BIGINT"), Column("v", "BIGINT")),
            event_time=EventTime(of="t", lateness_ms=LATENESS, ahead_ms=None),
        ),
    ),
    operators=(
        Upsert("current", "rows"),
        Reduce("by_value", "current", (("n", "count(*)"),), by="v"),
        Concat("both", ("current", "by_value")),
    ),
    outputs=(Output("current", "current", "current"), Output("both", "both", "both")),
)
Event = tuple[str, int, int]


def consolidated(updates: Iterable[KeyedUpdate]) -> Counter[tuple[bytes | None, bytes, int]]:
    """The diffs by data and time."""
    return summed(((key, value, time), count) for key, value, time, count in updates)


def told(updates: Sequence[Any]) -> Counter[tuple[bytes | None, bytes, int]]:
    """What `evaluate` gives, in the same form."""
    return Counter(
        {
            (canonical.encode(u.data[0]), canonical.encode(u.data[1]), u.time): u.diff
            for u in updates
        }
    )


def row(time: int, value: int) -> bytes:
    return b'{"t":%d,"v":%d}' % (time, value)


events = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 60), st.integers(0, 2)),
    max_size=25,
    unique_by=lambda event: event[1],
)


@unhurried
@given(events, st.randoms(use_true_random=False), st.integers(1, 3))
def test_shuffled_within_the_lateness_it_is_the_ordered_history(
    history: list[Event], choice: Random, shards: int
) -> None:
    """Over two partitions, in any batches: nothing is late, and updates are the same."""
    topics = Topics()
    assert topics.messages["rows"][0] == topics.messages["rows"][1] == []
    run = Run(EVENTS, topics, shards)
    shuffled = sorted(history, key=lambda event: event[1] + choice.uniform(0, LATENESS))
    for key, time, value in shuffled:
        topics.send(
            "rows", b'"%b"' % key.encode(), row(time, value), partition=choice.randrange(2)
        )
        if choice.random() < 0.4:
            read = {
                p: choice.randrange(run.last.positions["rows"][p], end + 1)
                for p, end in topics.ends("rows").items()
            }
            run.batch(ends={"rows": read})
    for partition in range(2):
        topics.send("rows", b'"z"', row(1_000, 9), partition=partition)
    run.read()

    frontier = 1_000 - LATENESS
    ordered = evaluate(
        EVENTS, {"rows": [(k, {"t": t, "v": v}, 0) for k, t, v in history]}, upper=frontier
    )
    assert set(run.frontiers.values()) == {frontier}
    assert run.counted["late"] == 0
    assert run.written.updates["errors"] == []
    for name in ("current", "both"):
        assert consolidated(run.written.updates[name]) == told(ordered[name])


def test_late_records_count_at_the_frontier_and_are_told() -> None:
    """None is dropped: the row is there from the frontier on."""
    topics = Topics()
    topics.send("rows", b'"a"', row(100, 1))
    run = Run(EVENTS, topics)
    run.read()
    topics.send("rows", b'"b"', row(3, 2))
    topics.send("rows", b'"z"', row(500, 9))
    run.read()

    assert run.counted["late"] == 1
    assert (b'"b"', b'{"t":3,"v":2}', 100 - LATENESS, 1) in run.written.updates["current"]


@pytest.mark.parametrize(
    ("lateness_ms", "reached"), [(0, 100), (5, 95), (10, 90), (50, 90)], ids=str
)
def test_lateness_may_change_between_two_runs(lateness_ms: int, reached: int) -> None:
    """With less the frontier goes on at once, with more it stays until it is reached again."""
    (source,) = EVENTS.inputs
    assert source.event_time is not None
    first, then = (
        replace(
            EVENTS,
            inputs=(
                replace(
                    source,
                    event_time=msgspec.structs.replace(source.event_time, lateness_ms=ms),
                ),
            ),
        )
        for ms in (10, lateness_ms)
    )
    topics = Topics()
    run = Run(first, topics)
    topics.send("rows", b'"a"', row(100, 1))
    run.read()
    assert run.last.upper == 90

    run.restart(then)
    run.read()
    assert run.last.upper == reached

    # What comes in between is neither lost nor before what was closed.
    topics.send("rows", b'"b"', row(93, 2))
    topics.send("rows", b'"a"', row(200, 3))
    run.read()
    assert run.last.upper == 200 - lateness_ms
    times = [update.time for update in run.written.updates["current"] if update.time < 150]
    assert sorted(times) == sorted([100, max(93, reached)])


def test_a_silent_partition_holds_the_frontier_until_it_is_idle() -> None:
    """An idle one is not waited for; what it has after all is late, and counts."""
    topics = Topics()
    topics.send("rows", b'"a"', row(100, 1), partition=0)
    assert topics.messages["rows"][1] == []
    run = Run(EVENTS, topics)
    run.read()
    assert run.last.upper == 0

    while run.batch(idle={("rows", 1)}):
        pass

    assert run.last.upper == 100 - LATENESS


def test_a_time_ahead_of_the_clock_moves_nothing() -> None:
    """It is an error record of its key, and the frontier is that of the others."""
    source = EVENTS.inputs[0]
    event = EventTime(of="t", ahead_ms=1_000)
    plan = Plan("p", (replace(source, event_time=event),), EVENTS.operators, EVENTS.outputs)
    topics = Topics()
    topics.send("rows", b'"a"', row(100, 1))
    topics.send("rows", b'"b"', row(10_000, 1))
    run = Run(plan, topics)
    while run.batch(now_ms=500):
        pass

    assert run.last.upper == 100
    (error,) = run.written.updates["errors"]
    assert "too far ahead" in canonical.decode(error.value)["reason"]


FIRST = Plan(
    "first",
    inputs=(Input("names", ("names",)),),
    operators=(Upsert("current", "names"),),
    outputs=(Output("out", "current", "between"),),
    time="offset",
)
SECOND_OPERATORS = (Reduce("by_value", "current", (("n", "count(*)"),), by="value"),)
SECOND_OUTPUTS = (Output("out", "by_value", "out"), Output("all", "current", "all"))
SECOND = Plan(
    "second",
    inputs=(Input("current", ("between",), "diff", mode="diffs"),),
    operators=SECOND_OPERATORS,
    outputs=SECOND_OUTPUTS,
)
WHOLE = Plan(
    "whole", FIRST.inputs, (*FIRST.operators, *SECOND_OPERATORS), SECOND_OUTPUTS, time="offset"
)
upserts = st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", None]))


@unhurried
@given(
    st.lists(upserts, min_size=1, max_size=20),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
    st.none() | st.integers(1, 4),
)
def test_two_pipelines_in_a_row_are_as_one(
    messages: list[tuple[str, str | None]], choice: Random, shards: int, limit: int | None
) -> None:
    """However their batches lie to each other, update for update."""
    topics = Topics()
    assert topics.messages["names"][0] == topics.messages["between"][0] == []
    first, second = Run(FIRST, topics, shards), Run(SECOND, topics, 2)
    whole = Run(WHOLE, topics, shards)
    for key, value in messages:
        raw = None if value is None else canonical.encode(value)
        topics.send("names", canonical.encode(key), raw)
        if choice.random() < 0.5:
            first.batch(limit=limit)
        if choice.random() < 0.3:
            second.batch(limit=limit)
    for run in (first, second, whole):
        run.read(limit=limit)

    assert set(second.frontiers.values()) == {whole.last.upper}
    assert whole.last.upper == len(messages)
    for name in ("out", "all"):
        assert consolidated(second.written.updates[name]) == consolidated(
            whole.written.updates[name]
        )


def collections(updates: Iterable[KeyedUpdate], times: range) -> list[dict[Any, int]]:
    """The collection at each of these times."""
    return [
        dict(consolidated(u._replace(time=0) for u in updates if u.time <= time)) for time in times
    ]


@unhurried
@given(
    st.lists(upserts, min_size=1, max_size=20),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
)
def test_a_pipeline_that_begins_at_a_snapshot_is_as_one_that_began_before(
    messages: list[tuple[str, str | None]], choice: Random, shards: int
) -> None:
    """At the time of the snapshot and at all later ones, whenever it is started and restarted."""
    topics = Topics()
    assert topics.messages["names"][0] == topics.messages["between"][0] == []
    first, whole = Run(FIRST, topics, shards), Run(WHOLE, topics, 1)
    compacted_at = choice.randrange(len(messages))
    second = None
    for at, (key, value) in enumerate(messages):
        raw = None if value is None else canonical.encode(value)
        topics.send("names", canonical.encode(key), raw)
        if at == compacted_at:
            first.read()
            topics.compact("between")
        elif choice.random() < 0.5:
            first.batch()
        if at >= compacted_at and second is None and choice.random() < 0.5:
            second = Run(SECOND, topics, shards)
        if second is not None and choice.random() < 0.3:
            second.batch()
            if choice.random() < 0.3:
                second.restart()
    for run in (first, second := second or Run(SECOND, topics, shards), whole):
        run.read()

    since = topics.snapshots["between"].time
    assert set(second.frontiers.values()) == {whole.last.upper}
    times = range(since, whole.last.upper)
    for name in ("out", "all"):
        found = second.written.updates[name]
        assert all(update.time >= since for update in found)
        assert collections(found, times) == collections(whole.written.updates[name], times)


def two_diff_topics() -> tuple[Topics, Plan]:
    """Topics "a" and "b" without a message, and a plan that adds them up."""
    topics = Topics()
    plan = Plan(
        "both",
        inputs=tuple(Input(name, (name,), "diff", mode="diffs") for name in ("a", "b")),
        operators=(Concat("both", ("a", "b")),),
        outputs=(Output("out", "both", "out"),),
    )
    for topic in "ab":
        assert topics.messages[topic][0] == []
    return topics, plan


def test_topics_with_snapshots_of_several_times_begin_at_the_latest() -> None:
    """What another topic has had before counts at that time."""
    topics, plan = two_diff_topics()
    publish(topics, "a", 0, 10, [3, 7])
    topics.compact("a")
    publish(topics, "b", 0, 15, [7, 14])
    topics.compact("b")
    publish(topics, "a", 10, 20, [12, 14, 17])
    run = Run(plan, topics)
    run.read()
    assert run.last.upper == 15
    (update,) = consolidated(run.written.updates["out"]).items()
    assert (update[0][2], update[1]) == (14, 6)
    publish(topics, "b", 15, 18, [17])
    run.read()
    assert run.last.upper == 18
    assert consolidated(run.written.updates["out"])[b'"k"', b"1", 17] == 2


def test_facts_beside_a_topic_that_begins_at_a_snapshot_count_from_then_on() -> None:
    """None of those of earlier times is lost."""
    topics, _ = two_diff_topics()
    publish(topics, "a", 0, 10, [3])
    topics.compact("a")
    told = [(b'"k"', b"2", 4, 1), (b'"k"', b"2", 12, 1)]
    for fact in cdcv2.encode_updates(told, 1 << 20):
        topics.send("b", None, fact)
    for statement in cdcv2.encode_progress(0, 15, {4: 1, 12: 1}, 1 << 20):
        topics.send("b", None, statement)
    plan = Plan(
        "both",
        inputs=(
            Input("a", ("a",), "diff", mode="diffs"),
            Input("b", ("b",), "cdcv2-json", mode="diffs"),
        ),
        operators=(Concat("both", ("a", "b")),),
        outputs=(Output("out", "both", "out"),),
    )
    run = Run(plan, topics, 2)
    run.read()
    publish(topics, "a", 10, 20, [])
    run.read()

    assert run.last.upper == 15
    assert run.updates("out") == [(("k", 1), 9, 1), (("k", 2), 9, 1), (("k", 2), 12, 1)]


def test_several_diff_topics_are_read_up_to_the_least_of_their_frontiers() -> None:
    """So their data are always those of one time."""
    topics, plan = two_diff_topics()
    run = Run(plan, topics)
    publish(topics, "a", 0, 10, [3, 7])
    publish(topics, "a", 10, 20, [12])
    publish(topics, "b", 0, 15, [7, 14])
    run.read()

    assert run.last.upper == 15
    assert sorted(update.time for update in run.written.updates["out"]) == [3, 7, 7, 12, 14]

    publish(topics, "b", 15, 18, [])
    publish(topics, "a", 20, 30, [29])
    run.read()
    assert run.last.upper == 18
    assert len(run.written.updates["out"]) == 5


def publish(topics: Topics, topic: str, lower: int, upper: int, times: list[int]) -> None:
    """A batch of another pipeline."""
    for time in times:
        topics.send(topic, b'"k"', b"1", headers=diff.headers(time, 1))
    closed = topics.closed[topic]
    ends = topics.ends(topic)
    record = ProgressRecord(
        "c", "p", topic, len(closed), lower, upper, len(times), ends, "changes"
    )
    closed.append(ClosedProgress(record, len(closed) + 1))


BANK = Plan(
    "bank",
    inputs=tuple(
        Input(
            name,
            (f"bank.public.{name}",),
            "debezium-json",
            columns=(Column("amount", "BIGINT"),),
            event_time=EventTime(clock="transaction", transactions="bank.transaction"),
        )
        for name in ("savings", "loans")
    ),
    operators=(
        Upsert("saved", "savings"),
        Upsert("lent", "loans"),
        Concat("both", ("saved", "lent")),
        Reduce("sum", "both", (("total", "sum(amount)"),), by="0"),
    ),
    outputs=(Output("sum", "sum", "sum"),),
)


def change(table: str, account: int, amount: int, transaction: tuple[int, int, int]) -> bytes:
    """An insert or an update, the `order`-th of a transaction that begins at `time`."""
    number, time, order = transaction
    return json.dumps(
        {
            "op": "u",
            "before": None,
            "after": {"id": account, "amount": amount},
            "source": {
                "connector": "postgresql",
                "ts_ms": 1,
                "schema": "public",
                "table": table,
                "lsn": time + order,
                "sequence": f'["{time}","{time + order}"]',
            },
            "transaction": {
                "id": f"{number}:{time + order}",
                "total_order": order,
                "data_collection_order": 1,
            },
        }
    ).encode()


def end(number: int, lsn: int, counts: dict[str, int]) -> bytes:
    """The end of a transaction."""
    return json.dumps(
        {
            "status": "END",
            "id": f"{number}:{lsn}",
            "event_count": sum(counts.values()),
            "data_collections": [
                {"data_collection": f"public.{name}", "event_count": count}
                for name, count in counts.items()
            ],
            "ts_ms": 1,
        }
    ).encode()


@unhurried
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=8
    ),
    st.builds(Random, st.integers()),
    st.integers(1, 2),
    st.integers(0, 2),
)
def test_no_part_of_a_transaction_ever_shows(
    transfers: list[tuple[int, int, int]], choice: Random, shards: int, restarts: int
) -> None:
    """Money goes between two tables: at no time that shows is the sum another one.

    The connector restarts, and sends again what it has sent some time before.
    """
    topics = Topics()
    names = ("bank.public.savings", "bank.public.loans", "bank.transaction")
    for name in names:
        assert topics.messages[name][0] == []
    saved, lent = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)
    run = Run(BANK, topics, shards)
    sent: list[tuple[str, bytes, bytes]] = []
    for number, (source, target, amount) in enumerate(transfers, 1):
        time = number * 100
        saved[source] -= amount
        lent[target] += amount
        for order, (table, account, left) in enumerate(
            (("savings", source, saved[source]), ("loans", target, lent[target])), 1
        ):
            key = json.dumps({"id": account}).encode()
            value = change(table, account, left, (number, time, order))
            sent.append((f"bank.public.{table}", key, value))
        told = end(number, time + 50, {"savings": 1, "loans": 1})
        sent.append(("bank.transaction", b"{}", told))
    for _ in range(restarts):
        until = choice.randint(0, len(sent))
        sent[until:until] = sent[choice.randint(0, until) : until]
    for message in sent:
        topics.send(*message)
        while choice.random() < 0.4:
            # Each topic at its own pace.
            read = {}
            for name in names:
                further = run.last.positions[name][0] + choice.choice([0, 1, 1, 9])
                read[name] = {0: min(further, topics.ends(name)[0])}
            run.batch(ends=read)
    run.read()

    assert set(run.frontiers.values()) == {len(transfers) * 100 + 50}
    assert run.counted["late"] == 0
    sums = {canonical.decode(value)["total"] for _, value, _, _ in run.written.updates["sum"]}
    assert sums <= {0}
    assert run.written.updates["errors"] == []
