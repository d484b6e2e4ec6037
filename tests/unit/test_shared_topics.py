"""One topic that several inputs read: what they agree on, and what is counted once for all."""

from dataclasses import replace
from typing import Any

import pytest

from ikebana import Column, EventTime, Input, Output, Plan, PlanError, Upsert
from ikebana.processor.base.rows import Tick, size_of, unpack
from ikebana.processor.explain.graph import as_run
from ikebana.processor.kafka.reader import Range
from ikebana.processor.planning import planner
from ikebana.processor.planning.checking import checked
from ikebana.processor.spark.source_task import shares_of
from ikebana.processor.topics import reclock
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.intake import intake_of
from ikebana.processor.topics.slices import reading_of, slices
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.testing import Run

A = Input("a", ("t",))
B = Input("b", ("t",))
ASIDE = Input("aside", ("others",))
EVENT = EventTime(clock="kafka")
READ = "topic 't' is also read, at inputs.a.topic"


def plan_of(*inputs: Input, time: Any = "ingest") -> Plan:
    """Each input as an output of its own."""
    upserts = tuple(Upsert(f"{i.name}_now", i.name) for i in inputs if i.mode == "upsert")
    shown = [i.name if i.is_collection else f"{i.name}_now" for i in inputs]
    outputs = tuple(Output(name, name, f"{name}.out") for name in shown)
    return Plan("p", inputs, upserts, outputs, time=time)


def positions(plan: Plan, **by_topic: dict[int, int]) -> SourceOffset:
    """Where a pipeline begins to read."""
    return SourceOffset(-1, 0, 0, by_topic, plan.fingerprint())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(B, id="alike"),
        pytest.param(replace(B, value_format="maxwell", tables="shop.b"), id="another format"),
        pytest.param(replace(B, mode="append"), id="another mode"),
        pytest.param(replace(B, topics=("others", "t")), id="with another topic"),
    ],
)
def test_what_inputs_of_one_topic_may_differ_in(other: Input) -> None:
    """Format, mode, tables and further topics are an input's own."""
    assert checked(plan_of(A, other))
    assert checked(plan_of(other, A))


@pytest.mark.parametrize(
    ("first", "other", "problem"),
    [
        pytest.param(
            A,
            replace(B, start="latest"),
            (
                "inputs.b.start",
                f'is "latest", and {READ}, from the "earliest" on: both have one position there; '
                "set both to the same",
            ),
            id="start",
        ),
        pytest.param(
            A,
            replace(B, event_time=EVENT),
            (
                "inputs.b.event_time",
                f"{READ}, and inputs.b has event_time where inputs.a has none: records that say "
                "their times are read as they come, others when theirs is closed; give it to both "
                "or to neither",
            ),
            id="event time in one",
        ),
        pytest.param(
            replace(A, value_format="cdcv2-json", mode="diffs"),
            replace(B, value_format="cdcv2-json", mode="diffs"),
            (
                "inputs.b.topic",
                f"{READ}, and updates of cdcv2-json have progress of their own, for one input "
                "alone; any number of operators may read that one",
            ),
            id="updates",
        ),
        pytest.param(
            A,
            replace(B, value_format="diff", mode="diffs"),
            (
                "inputs.b.topic",
                f"{READ}, and updates of diff have progress of their own, for one input alone; "
                "any number of operators may read that one",
            ),
            id="updates and rows",
        ),
    ],
)
def test_what_inputs_of_one_topic_have_to_agree_on(
    first: Input, other: Input, problem: tuple[str, str]
) -> None:
    """They have one position; the second is told what the first one is."""
    with pytest.raises(PlanError) as caught:
        checked(plan_of(first, other))

    assert caught.value.problems == [problem]


def test_event_times_may_be_each_inputs_own() -> None:
    """Lateness and patience are; only whether there are any is the topic's."""
    own = EventTime(of="(value->>'v')::BIGINT", lateness_ms=5, idle_ms=None)

    assert checked(plan_of(replace(A, event_time=EVENT), replace(B, event_time=own)))


def test_a_batch_in_time_by_records_counts_each_once() -> None:
    """Both inputs have a record at one time; what another topic has comes after or before."""
    plan = plan_of(A, ASIDE, replace(B, topics=("more", "t")), time="offset")
    before = positions(plan, t={0: 3, 1: 0}, others={0: 0}, more={0: 1})
    ends = {"t": {0: 5, 1: 1}, "others": {0: 4}, "more": {0: 2}}
    batch = reclock.mint(plan, before, MintingState(ends, {}), reclock.BatchTrigger(0))

    found = [
        (piece.input, piece.place.topic, piece.place.partition, piece.place.base)
        for piece in slices(plan, before, batch)
    ]

    assert batch.upper - batch.lower == 2 + 1 + 4 + 1
    assert found == [
        ("a", "t", 0, 0),
        ("a", "t", 1, 2),
        ("aside", "others", 0, 3),
        ("b", "more", 0, 7),
        ("b", "t", 0, 0),
        ("b", "t", 1, 2),
    ]


def test_a_limit_counts_a_record_once() -> None:
    """R10. Two inputs read as much in a batch as one."""
    one, two = (Run(plan) for plan in (plan_of(A), plan_of(A, B)))
    for run in (one, two):
        for number in range(10):
            run.send("t", number, {})
        run.batch(limit=4)

    assert one.last.positions == two.last.positions == {"t": {0: 4}}
    assert one.last.behind == two.last.behind == 6


def test_a_record_counts_as_read_once() -> None:
    """By the first input, be it a row, an error or a message that is passed over."""
    messages = [
        (b"1", b'{"v":1}'),
        (b"2", b"{"),
        (b"3", None),
        (b"{", b"1"),
        (None, b'{"type":"INSERT"}'),
    ]
    inputs = (
        A,
        replace(B, mode="append"),
        Input("c", ("t",), "maxwell", tables="shop.c", key=("id",)),
    )
    plan = plan_of(*inputs)
    run = Run(plan)
    for key, value in messages:
        run.send("t", key, value)
    before = run.last
    run.batch()

    counts = {}
    for piece in slices(plan, before, run.last):
        reading = reading_of(
            plan, piece, lambda i: intake_of(i, planner.physical(plan), None, named=True), 2
        )
        given = [m for m in run.topics.messages["t"][0] if m is not None]
        rows = [unpack(chunk) for _, chunk in [*reading.add(given), *reading.finish()]]
        assert rows
        counts[piece.input] = sum(size_of(row) for row in rows if not isinstance(row, Tick))
    assert counts == {"a": len(messages), "b": 0, "c": 0}


def test_inputs_of_one_partition_are_read_by_one_task() -> None:
    """Its offsets are fetched once; other partitions go to other tasks."""
    plan = plan_of(A, B, ASIDE)
    before = positions(plan, t={0: 0, 1: 0}, others={0: 0})
    ends = {"t": {0: 9_000, 1: 5_000}, "others": {0: 10_000}}
    batch = reclock.mint(plan, before, MintingState(ends, {}), reclock.BatchTrigger(0))
    exchange = Range("p.exchange", 0, 0, 60)

    shares = shares_of(list(slices(plan, before, batch)), [exchange], 3)

    assert [
        [(each.input, each.place.topic, each.place.partition) for each in share.slices]
        for share in shares
    ] == [
        [],
        [("a", "t", 0), ("b", "t", 0)],
        [("a", "t", 1), ("b", "t", 1), ("aside", "others", 0)],
    ]
    assert shares[0].exchanges == [exchange]


@pytest.mark.parametrize(("records", "tasks"), [(1, 1), (666, 1), (667, 2), (2_000, 3)])
def test_few_records_are_read_by_few_tasks(records: int, tasks: int) -> None:
    """A task costs more than to read two thousand records."""
    plan = plan_of(ASIDE)
    partitions = range(3)
    before = positions(plan, others=dict.fromkeys(partitions, 0))
    ends = {"others": dict.fromkeys(partitions, records)}
    batch = reclock.mint(plan, before, MintingState(ends, {}), reclock.BatchTrigger(0))

    shares = shares_of(list(slices(plan, before, batch)), [], 3)

    assert len(shares) == tasks
    assert sum(each.size for share in shares for each in share.slices) == 3 * records


def test_an_error_is_one_of_the_input_that_cannot_read_the_record() -> None:
    """It says which; in a topic of one input there is nothing to say."""
    run = Run(plan_of(A, replace(B, mode="append")))
    run.send("t", 1, b"{")
    run.send("t", b"[", {"v": 1})
    run.read()
    alone = Run(plan_of(A))
    alone.send("t", 1, b"{")
    alone.read()

    assert sorted((r["offset"], r["reason"].split(":")[0]) for r in run.errors()) == [
        (0, "input a"),
        (0, "input b"),
        (1, "input a"),
        (1, "input b"),
    ]
    assert not alone.errors()[0]["reason"].startswith("input")


def test_an_error_of_one_input_is_none_of_the_others() -> None:
    """A value that is not of the type that one of them declares."""
    run = Run(plan_of(A, replace(B, columns=(Column("v", "BIGINT"),))))
    run.send("t", 1, {"v": "text"})
    run.read()

    assert run.collection("a_now") == [(1, {"v": "text"})]
    assert run.collection("b_now") == []
    assert [r["reason"].split(":")[0] for r in run.errors()] == ["input b"]


def test_a_table_that_nobody_chooses_is_counted_by_each_input() -> None:
    """It is no error: what is passed over is told by its kind."""
    chosen = (replace(i, value_format="maxwell", tables=f"shop.{i.name}") for i in (A, B))
    run = Run(plan_of(*chosen))
    row = {"database": "shop", "type": "insert", "primary_key_columns": ["id"]}
    for table in ("a", "b", "c"):
        run.send("t", None, {**row, "table": table, "data": {"id": table}})
    run.read()

    assert run.collection("a_now") == [({"id": "a"}, {"id": "a"})]
    assert run.collection("b_now") == [({"id": "b"}, {"id": "b"})]
    assert run.counted["table"] == 4
    assert run.errors() == []


def test_an_input_on_a_topic_that_was_read_is_read_from_its_beginning_beside() -> None:
    """It catches up with the other one, and is read with it from then on."""
    run = Run(plan_of(A))
    run.send("t", 1, {"v": 1})
    run.read()
    run.restart(plan_of(A, B))
    run.send("t", 2, {"v": 2})
    run.read()
    run.send("t", 1, None)
    run.read()

    assert run.collection("a_now") == run.collection("b_now") == [(2, {"v": 2})]
    assert run.last.positions == {"t": {0: 3}}


def test_explain_shows_one_topic_that_leads_to_each_input() -> None:
    """A box for the topic, an arrow for each input."""
    plan = plan_of(A, B)
    graph = as_run(plan, planner.physical(plan))

    assert [box.id for box in graph.boxes if box.kind == "topic"] == ["topic t"]
    assert [arrow.target for arrow in graph.arrows if arrow.origin == "topic t"] == [
        "decoding a",
        "decoding b",
    ]
