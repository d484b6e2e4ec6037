"""Diffs and times at the ends of 64 bits: an update, or an error record, and never a stop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from ikebana import (
    Column,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Reduce,
    Upsert,
    steps,
)
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import LARGEST, Interval, pieces, sums
from ikebana.codecs import canonical, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base.diff_reader import ClosedBatch, PlacedUpdate
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.verify import Verifier
from ikebana.processor.kafka import client, compacting, topics
from ikebana.processor.kafka.reader import Range
from ikebana.processor.kafka.snapshots import RECORDS, Snapshots
from ikebana.processor.kernels import hold
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.linear.chain import Chain, consolidated
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.spark.topic_source import RowMaker
from ikebana.serving import layout, sql, wire
from ikebana.serving.layout import CollectionSize, Meta, StoredTotals, TimePart
from ikebana.serving.view import ViewRow
from ikebana.testing import Run, Topics

NUMBERS = (2**31, -(2**31), 2**53, -(2**53), 2**62, -(2**62), LARGEST, -LARGEST)
HALF = 2**62
ROWS = Scope({KEY: JSON, VALUE: JSON, "n": "BIGINT"})


def test_a_sum_beyond_64_bits_is_several_updates() -> None:
    """So nothing of it is lost, and each of them can be stored and sent."""
    many = [KeyedUpdate(b"1", b"{}", 3, LARGEST)] * 3

    assert consolidated(many) == many
    assert sum(pieces(-(2**66))) == -(2**66)
    assert consolidated([*many, KeyedUpdate(b"1", b"{}", 3, -LARGEST)]) == many[:2]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("by", [1, -1, 2, HALF])
@pytest.mark.parametrize(
    "step",
    [
        steps.Sql(diff="n"),
        steps.explode(lambda data: [(data, data[1]["n"])]),
        steps.join_function(lambda data: [(data, LARGEST, data[1]["n"])]),
    ],
)
def test_a_product_beyond_64_bits_is_an_error_of_its_operator(
    step: Any, by: int, number: int
) -> None:
    """In SQL as in Python; whatever fits is the product."""
    value = canonical.encode({"n": by})
    passed = Chain([("many", step)], ROWS).apply([KeyedUpdate(b"1", value, 5, number)])

    if abs(number * by) <= LARGEST:
        assert [update.diff for update in passed.updates] == [number * by]
        assert passed.errors == []
        return
    assert passed.updates == []
    (error,) = passed.errors
    assert canonical.decode(error.value)["reason"] == "operator many: a diff is beyond 64 bits"
    assert error.diff == (1 if number * by > 0 else -1)


@pytest.mark.parametrize("time", [0, 2**31, 2**53, LARGEST])
def test_what_is_held_may_sum_up_beyond_64_bits(time: int) -> None:
    """At any time; it is released as updates that fit."""
    store, update = MemoryStore(), KeyedUpdate(b"1", b"{}", time, LARGEST)
    for _ in range(3):
        assert hold.step(store, [update], 0) == []

    assert hold.step(store, [update._replace(diff=-5)], time + 1) == [
        update,
        update,
        update._replace(diff=LARGEST - 5),
    ]


def test_an_arrangement_counts_beyond_64_bits() -> None:
    """What it keeps can be read again, and comes back to what it was."""
    store, update = MemoryStore(), KeyedUpdate(b"1", b"{}", 0, LARGEST)
    for time, change in enumerate([LARGEST, LARGEST, LARGEST, -LARGEST, -LARGEST]):
        arrangement = Arrangement(store, Interval(time, time + 1), time)
        arrangement.update([update._replace(time=time, diff=change)])
        arrangement.settle(time + 1)

    last = Arrangement(store, Interval(5, 6), 5)
    assert [list(group) for group in last.groups([b"1"])] == [[(b"{}", [LARGEST])]]


def ran(plan: Plan, *, count: int, number: int) -> Run:
    """A pipeline on so many equal numbers, through packed rows and exchanges."""
    topics = Topics()
    run = Run(plan, topics, 2)
    for name in {source.topics[0] for source in plan.inputs}:
        for key in range(count):
            topics.send(name, b"%d" % key, b'{"n":%d}' % number)
    run.read()
    for _ in range(4):
        run.batch(run.last.upper + 1, heartbeat=True)
    return run


ROW = Input("i", ("i",), columns=(Column("n", "BIGINT"),))
COUNTED = steps.Sql(select=(("c", "1"),), key="1", diff="n")


@pytest.mark.parametrize("number", [HALF, -HALF])
def test_a_reduction_behind_an_exchange_counts_beyond_64_bits(number: int) -> None:
    """The sum of what comes to it is exact."""
    plan = Plan(
        "p",
        (ROW,),
        (
            Upsert("u", "i"),
            Linear("l", "u", (COUNTED,)),
            Reduce("r", "l", (("n", "count(*)"),), by="c"),
        ),
        (Output("o", "r", "o"),),
    )
    run = ran(plan, count=5, number=number)

    assert run.written.updates["errors"] == []
    assert b'{"n":%d}' % (5 * number) in {update.value for update in run.written.updates["o"]}


def test_a_join_of_large_counts_is_an_error_that_names_it() -> None:
    """Diffs multiply: a product that does not fit is told, and the pipeline goes on."""
    plan = Plan(
        "p",
        (ROW,),
        (
            Upsert("u", "i"),
            Linear("l", "u", (COUNTED,)),
            DeltaJoin(
                "j", (JoinInput("a", "l"), JoinInput("b", "l")), ("a.c = b.c",), (("c", "a.c"),)
            ),
        ),
        (Output("o", "j", "o"),),
    )
    run = ran(plan, count=3, number=HALF)

    reasons = {
        canonical.decode(update.value)["reason"] for update in run.written.updates["errors"]
    }
    assert reasons == {"operator j: a diff is beyond 64 bits"}


@pytest.mark.parametrize("text", [b"9223372036854775808", b"-9223372036854775808"])
@pytest.mark.parametrize("name", ["time", "diff"])
def test_a_reader_of_updates_refuses_numbers_beyond_64_bits(name: str, text: bytes) -> None:
    """What is written is always between 2^63 - 1 and its negative."""
    headers = {"time": b"1", "diff": b"1"} | {name: text}
    with pytest.raises(DecodeError, match=f'header "{name}" is beyond 64 bits'):
        diff.read_headers(headers.items())


def test_the_last_time_is_a_bound_like_any_other() -> None:
    """In SQL as in Python; only infinity is no bound."""
    last = steps.Sql(valid_until=str(LARGEST))
    never = steps.Sql(valid_until="'infinity'::TIMESTAMP")
    update = KeyedUpdate(b"1", b'{"n":1}', 5, 1)

    assert [u[2:] for u in Chain([("l", last)], ROWS).apply([update]).updates] == [
        (5, 1),
        (LARGEST, -1),
    ]
    assert Chain([("l", never)], ROWS).apply([update]).updates == [update]


@pytest.mark.parametrize("most", [2**64 - 1, -(2**63)])
def test_a_served_count_of_64_bits_is_stored_as_a_number(most: int) -> None:
    """As it was before larger ones could be stored."""
    state = {b"a": most, b"b": -1}
    packed = msgspec.msgpack.encode(state)
    totals = CollectionSize(1, 2, most, 2)
    meta = Meta("t", "diff", 0, 9, 8, 0, StoredTotals.of(totals), b"place")
    part = TimePart(meta.totals, [layout.StoredUpdate(b"k", b"v", LARGEST)])

    assert layout.encode_state(state) == b"\x02" + packed
    assert layout.encode_diffs(state) == b"\x03" + packed
    assert msgspec.msgpack.decode(layout.encode(meta))[6] == [*totals]
    assert msgspec.msgpack.decode(layout.encode(part))[0] == [*totals]


@pytest.mark.parametrize("count", [1, -2, 2**64, -(2**63) - 1, 10**30])
def test_a_served_count_is_read_as_it_was_stored(count: int) -> None:
    """However large it is, beside others."""
    state = {b"a": count, b"b": -1}
    totals = CollectionSize(1, 2, count, 2)
    meta = Meta("t", "diff", 0, 9, 8, 0, StoredTotals.of(totals), b"place")
    part = TimePart(meta.totals, [layout.StoredUpdate(b"k", b"v", LARGEST)])

    assert layout.decode_state(layout.encode_state(state)) == state
    assert layout.decode_undo(layout.encode_state(state)) == (state, True)
    assert layout.decode_undo(layout.encode_diffs(state)) == (state, False)
    assert msgspec.msgpack.decode(layout.encode(meta), type=Meta) == meta
    assert msgspec.msgpack.decode(layout.encode(part), type=TimePart) == part
    assert meta.totals.read() == totals


def test_a_column_of_64_bits_has_no_larger_count() -> None:
    """Updates come in pieces instead, rows are refused by name."""
    larger = 2**63
    schema = StructType([StructField(name, LongType()) for name in ("diff", "count")])
    updates = [KeyedUpdate(b"1", b"{}", 3, larger)]

    with pytest.raises(ConfigError, match="a count is beyond 64 bits"):
        wire.rows_table([ViewRow(b"1", {b"{}": larger})])
    with pytest.raises(ConfigError, match="a count is beyond 64 bits"):
        sql.table_of([(b"1", b"{}", larger)])
    with pytest.raises(SourceError, match=r'column diff of "t": a count is beyond 64 bits'):
        list(RowMaker("t", schema).batches(updates))
    found = pa.ipc.open_stream(wire.updates_stream(updates)).read_all()
    assert found.column("diff").to_pylist() == [LARGEST, 1]
    (batch,) = RowMaker("t", schema).batches([updates[0]._replace(diff=-larger)])
    assert batch.to_pylist() == [{"diff": -larger, "count": -larger}]


@dataclass(frozen=True)
class Written:
    """A record of a snapshot as it was produced, and as a message that is read."""

    given: dict[str, Any]
    at: int

    def key(self) -> Any:
        return self.given["key"]

    def value(self) -> Any:
        return self.given["value"]

    def headers(self) -> Any:
        return self.given["headers"]

    def partition(self) -> Any:
        return self.given["partition"]

    def offset(self) -> int:
        return self.at


class CompactedTopic:
    """A topic of one closed batch, and what is written of its snapshot, in one partition."""

    topic_id = "AAAA"
    snapshot = None
    yielded_at = 0

    def __init__(self, batch: ClosedBatch) -> None:
        self.batch = batch
        self.written: list[Written] = []

    def require_output(self) -> None:
        pass

    def last_closed(self) -> ProgressRecord:
        return self.batch.progress

    def begin(self, _: int | None) -> None:
        pass

    def closed(self) -> Iterator[ClosedBatch]:
        yield self.batch

    @contextmanager
    def transaction(self) -> Iterator["CompactedTopic"]:
        yield self

    def produce(self, _: str, **given: Any) -> None:
        if given["partition"] != RECORDS:
            self.written.append(Written(given, len(self.written)))

    def ends(self, *_: object) -> dict[str, dict[int, int]]:
        return {"t.snapshot": {RECORDS: 0, 1: len(self.written)}}

    def read(self, ranges: list[Range]) -> Iterator[tuple[Range, list[Written]]]:
        for each in ranges:
            yield each, self.written[each.start : each.end]


def test_a_snapshot_of_a_count_beyond_64_bits_is_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its records have pieces, and `check` finds the same collection in the topic."""
    many, one = (b"k", b"1", 3, LARGEST), (b"k", b"2", 4, 1)
    updates = [PlacedUpdate(*each, 0, at) for at, each in enumerate([many, many, many, one])]
    progress = ProgressRecord("c", "p", "t", 0, 0, 10, len(updates), {0: 4}, "collection")
    topic: Any = CompactedTopic(ClosedBatch(progress, updates))
    there = SimpleNamespace(partitions=2)
    monkeypatch.setattr(compacting, "DiffTopic", lambda *_: topic)
    monkeypatch.setattr(compacting, "TransactionalProducer", lambda *_: topic)
    monkeypatch.setattr(client, "admin", lambda _: None)
    monkeypatch.setattr(topics, "describe", lambda _, names: dict.fromkeys(names, there))
    monkeypatch.setattr(topics, "high_watermarks", topic.ends)

    done = compacting.Compaction({}, "t").compact()

    assert done is not None
    (found,) = Snapshots(None, topic, "t", "AAAA").read(done.record)
    assert done.record.count == len(found) == 4
    assert sums(update[:4] for update in found) == {
        (b"k", b"1", 9): 3 * LARGEST,
        (b"k", b"2", 9): 1,
    }
    verifier = Verifier("t")
    assert verifier.feed(topic.batch) is None
    assert verifier.digest() == done.record.digest
