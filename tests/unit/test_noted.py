"""Records that were late, have drifted or made errors are noted by their places, a few of each."""

from typing import Any, Literal

import pytest

from ikebana import Column, EventTime, Input, Output, Plan, Upsert
from ikebana.processor.base.rows import (
    MOST_NOTED,
    Noted,
    NotedRecord,
    errors_noted,
    notes_added_up,
)
from ikebana.processor.engine.dataflow import Emitted
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.watching.monitor import Notes


class NotingRun(Run):
    """A run that keeps what its batches have noted."""

    def _publish(self, batch: Any, emitted: list[Emitted]) -> None:
        self.noted = notes_added_up(note for each in emitted for note in each.noted)
        super()._publish(batch, emitted)


BY_KAFKA = EventTime(clock="kafka", lateness_ms=1_000, idle_ms=None)


def _plan(source: Input, time: Literal["ingest", "offset"] = "ingest") -> Plan:
    shown = source.name
    operators: tuple[Upsert, ...] = ()
    if not source.is_collection:
        operators, shown = (Upsert("current", source.name),), "current"
    return Plan("p", (source,), operators, (Output("out", shown, "shown"),), time=time)


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_late_records_are_noted_with_how_late_they_are(mode: Literal["upsert", "append"]) -> None:
    """The last ones of many, and how many there were."""
    plan = _plan(Input("orders", ("in",), event_time=BY_KAFKA, mode=mode))
    run = NotingRun(plan, shards=2)
    for number, time in enumerate((50_000, 60_000)):
        run.send("in", number, {}, timestamp=time)
    run.read()
    assert run.noted == []
    for number in range(8):
        run.send("in", number, {}, timestamp=40_000 + number)
    run.batch()

    [noted] = run.noted
    assert (noted.kind, noted.input, noted.count) == ("late", "orders", 8)
    assert noted.count == run.counted["late"]
    # The frontier is a second behind the greatest time.
    assert noted.records == tuple(
        NotedRecord("in", 0, 2 + number, 19_000 - number) for number in range(8 - MOST_NOTED, 8)
    )


@pytest.mark.parametrize("time", ["ingest", "offset"])
def test_drift_is_noted_where_it_lies(time: Literal["ingest", "offset"]) -> None:
    """Whether all upserts of a batch have one time, or each its own."""
    run = NotingRun(_plan(Input("rows", ("a", "b"), "debezium-json"), time), shards=2)
    row = {"id": 1, "v": 1}
    run.send("b", {"id": 1}, {"op": "c", "before": None, "after": row})
    run.read()
    run.send("b", {"id": 1}, {"op": "u", "before": {"id": 1, "v": 7}, "after": row | {"v": 2}})
    run.send("b", {"id": 1}, {"op": "u", "before": row | {"v": 2}, "after": row | {"v": 3}})
    run.batch()

    assert run.noted == [Noted("drift", "rows", 1, (NotedRecord("b", 0, 1),))]


def test_drift_that_has_waited_is_noted_where_it_lies() -> None:
    """Its place comes back from the state."""
    event = EventTime(clock="kafka", lateness_ms=0, idle_ms=None)
    run = NotingRun(_plan(Input("rows", ("a",), "debezium-json", event_time=event)))
    row = {"id": 1, "v": 1}
    run.send("a", {"id": 1}, {"op": "c", "before": None, "after": row}, timestamp=10)
    changed = {"op": "u", "before": {"id": 1, "v": 7}, "after": row | {"v": 2}}
    run.send("a", {"id": 1}, changed, timestamp=20)
    run.read()
    assert run.noted == []
    run.send("a", {"id": 2}, {"op": "c", "before": None, "after": {"id": 2}}, timestamp=30)
    run.read()

    assert run.noted == [Noted("drift", "rows", 1, (NotedRecord("a", 0, 1),))]


def test_errors_are_noted_with_their_reasons() -> None:
    """And none of those that are taken back."""
    plan = _plan(Input("orders", ("in",), columns=(Column("n", "BIGINT"),)))
    run = NotingRun(plan)
    run.send("in", 1, {"n": "no number"})
    run.batch()

    [noted] = run.noted
    assert (noted.kind, noted.count) == ("error", 1)
    [record] = noted.records
    assert record.place == ("in", 0, 0)
    assert record.reason == run.errors()[0]["reason"]
    assert "no number" not in record.reason
    run.send("in", 1, {"n": 2})
    run.batch()
    assert run.noted == []


def test_errors_without_a_place_only_count() -> None:
    assert errors_noted(2, [(None, "an expression failed")]) == Noted("error", "", 2)


def test_a_run_keeps_the_last_of_all_batches() -> None:
    notes = Notes()
    for number in range(30):
        notes.add(
            [Noted("late", "orders", 3, (NotedRecord("orders", 0, number, 5),))], 100 + number
        )
    notes.add([Noted("drift", "rows", 1)], 200)

    drift, late = notes.figures()
    assert (drift.kind, drift.count, drift.records) == ("drift", 1, [])
    assert (late.count, late.since_ms, late.last_ms) == (90, 100, 129)
    assert [record.offset for record in late.records] == list(range(29, 9, -1))
    assert notes.has(("orders", 0, 29))
    assert not notes.has(("orders", 0, 9))
    assert not notes.has(("orders", 1, 29))
