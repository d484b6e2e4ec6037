"""What source tasks hand to the shards of a batch's offsets, with topics in memory for Kafka's."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ikebana import Column, EventTime, Input, Output, Plan, Upsert
from ikebana.errors import LostError
from ikebana.processor.base import processes
from ikebana.processor.base.rows import IgnoredMessages, Tick, Upserts, unpack
from ikebana.processor.base.transition import Replayed
from ikebana.processor.kafka.reader import Range
from ikebana.processor.spark.source import StreamReader
from ikebana.processor.spark.source_task import Share, SourceConfig
from ikebana.processor.spark.workers.network import Pickled, WorkerAddress
from ikebana.processor.spark.workers.owners import HostAddress
from ikebana.processor.topics import reclock
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.source_offset import SourceOffset

READ = "ikebana.processor.spark.workers.owners.read"
ROW = '{"database":"shop","table":"%s","type":"insert","primary_key_columns":["id"],"data":%s}'


class KafkaMessage(NamedTuple):
    """A message as Kafka's client gives it."""

    at: int
    content: bytes

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self.content

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self.at


class Fetching:
    """Gives what ranges have, and remembers which were asked for."""

    def __init__(self, held: Sequence[bytes]) -> None:
        self._held = held
        self.asked: list[Range] = []

    def read(self, ranges: Sequence[Range]) -> Iterator[tuple[Range, list[KafkaMessage]]]:
        self.asked += ranges
        for each in ranges:
            found = range(each.start, each.end)
            yield each, [KafkaMessage(at, self._held[at]) for at in found]


class Source(StreamReader):
    """The source of a pipeline that reads such messages."""

    def __init__(self, config: SourceConfig, fetching: Fetching) -> None:
        super().__init__(config)
        self._fetching = fetching

    def _connected(self) -> Any:
        return self._fetching


def config_of(plan: Plan, start: SourceOffset) -> SourceConfig:
    return SourceConfig(
        plan=plan,
        reading_kafka={},
        start=start,
        groups=[7],
        readers=4,
        max_records=100,
        heartbeat_s=0,
        max_batch_s=300.0,
        stop="nowhere/stop",
        incarnation=1,
    )


@pytest.mark.parametrize("event", [None, EventTime(clock="kafka")], ids=["ingest", "event time"])
def test_a_topic_of_two_inputs_is_fetched_once(
    event: EventTime | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both decode what has been read, each its own table, with the time that its records have."""
    # It changes how garbage is collected in a worker, which this process is not.
    monkeypatch.setattr(processes, "exempt_objects", lambda: None)
    columns = (Column("id", "BIGINT"),)
    inputs = tuple(
        Input(name, ("t",), "maxwell", columns=columns, tables=f"shop.{name}", event_time=event)
        for name in ("a", "b")
    )
    plan = Plan(
        "p",
        inputs,
        tuple(Upsert(f"{i.name}_now", i.name) for i in inputs),
        tuple(Output(i.name, f"{i.name}_now", f"{i.name}.out") for i in inputs),
    )
    held = [(ROW % (table, f'{{"id":{at}}}')).encode() for at, table in enumerate("abbc")]
    before = SourceOffset(-1, 0, 0, {"t": {0: 1}}, plan.fingerprint())
    look = MintingState({"t": {0: 4}}, {})
    after = reclock.mint(plan, before, look, reclock.BatchTrigger(5_000))
    fetching = Fetching(held)
    source = Source(config_of(plan, before), fetching)

    shares = source.partitions(before.to_json(), after.to_json())
    rows = [
        unpack(chunk.as_py())
        for share in shares
        for batch in source.read(share)
        for chunk in batch.column("chunk")
    ]

    assert fetching.asked == [Range("t", 0, 1, 4)]
    assert len([row for row in rows if isinstance(row, Tick)]) == 1
    times = [1_001, 1_002] if event else after.upper - 1
    assert [
        (row.input, row.keys, row.offsets, row.times) for row in rows if isinstance(row, Upserts)
    ] == [("b", [b'{"id":1}', b'{"id":2}'], [1, 2], times)]
    assert [(row.counts, row.counted) for row in rows if isinstance(row, IgnoredMessages)] == [
        ({"table": 3}, False),
        ({"table": 1}, True),
    ]


def test_the_batches_of_an_edit_are_told_so_although_no_time_has_been_closed() -> None:
    """Its time is 0, then, which no other edit has; the source asks shards until it is filled."""
    inputs = (Input("orders", ("t",)),)
    plan = Plan("p", inputs, (Upsert("order", "orders"),), (Output("all", "order", "all"),))
    read = SourceOffset(3, 0, 0, {"t": {0: 1}}, plan.fingerprint(), {"order": 0})
    edited = reclock.Edited(edits=1)
    fills = reclock.mint(plan, read, MintingState({}, {}), reclock.BatchTrigger(0), edited)
    filled = reclock.mint(
        plan,
        fills,
        MintingState({}, {}, replayed=Replayed(is_filled=True)),
        reclock.BatchTrigger(0),
        edited,
    )
    later = reclock.mint(
        plan, filled, MintingState({"t": {0: 9}}, {}), reclock.BatchTrigger(9), edited
    )
    source = Source(config_of(plan, read), Fetching([]))

    def tick(before: SourceOffset, after: SourceOffset) -> Tick:
        shares = source.partitions(before.to_json(), after.to_json())
        (found,) = [unpack(chunk) for share in shares for _, chunk in share.ticks]
        assert isinstance(found, Tick)
        return found

    assert [each.transition.asks_shards for each in (read, fills, filled, later)] == [0, 1, 0, 0]
    batches = [(read, fills), (fills, filled), (filled, later)]
    assert [tick(*each).transition.is_edit for each in batches] == [True, True, False]
    assert {each.transition.at for each in (fills, filled, later)} == {0}


def planned(source: StreamReader, each: int = 10_000) -> list[int]:
    """The partitions of a batch that reads three of a topic, by the records of each."""
    plan = source._config.plan
    before = SourceOffset(-1, 0, 0, {"t": dict.fromkeys(range(3), 0)}, plan.fingerprint())
    look = MintingState({"t": dict.fromkeys(range(3), each)}, {})
    after = reclock.mint(plan, before, look, reclock.BatchTrigger(5_000))
    shares = source.partitions(before.to_json(), after.to_json())
    return [sum(piece.size for piece in share.slices) for share in shares]


@pytest.fixture
def read_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamReader:
    """A source on a machine with processes that read batches, and with the owners of shards."""
    return reading_beforehand(monkeypatch, tmp_path, str(tmp_path))


def reading_beforehand(monkeypatch: pytest.MonkeyPatch, folder: Path, rows: str) -> StreamReader:
    """A source whose host has readers, which leave rows in a folder, if there is one."""
    ((name, value),) = HostAddress("/nowhere", 1, 2).variable.items()
    monkeypatch.setenv(name, value)
    inputs = (Input("orders", ("t",)),)
    plan = Plan("p", inputs, (Upsert("order", "orders"),), (Output("all", "order", "all"),))
    start = SourceOffset(-1, 0, 0, {"t": dict.fromkeys(range(3), 0)}, plan.fingerprint())
    config = msgspec.structs.replace(
        config_of(plan, start), rows_folder=rows, stop=str(folder / "stop"), max_records=90_000
    )
    return Source(config, Fetching([]))


def test_what_was_read_beforehand_comes_along_with_one_partition(
    read_beforehand: StreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the work of all shares, for a task that has to read it after all; Spark asks once."""
    asked: list[int] = []

    def read(
        readers: list[WorkerAddress], config: Pickled, batch: int, shares: list[Share]
    ) -> list[tuple[int, bytes]]:
        assert readers == ["/nowhere/reader-0", "/nowhere/reader-1"]
        assert config.digest == hashlib.sha256(config.content).hexdigest()
        asked.append(len(shares))
        return [(0, b"one"), (0, b"two")]

    monkeypatch.setattr(READ, read)

    assert planned(read_beforehand) == [30_000]
    rows = read_beforehand.getCache({}, {})

    assert asked == [3]
    assert rows is not None
    assert [batch.to_pydict() for batch in rows] == [
        {"group_number": [7, 7], "shard": [0, 0], "chunk": [b"one", b"two"]}
    ]
    assert read_beforehand.getCache({}, {}) is None


@pytest.mark.parametrize("error", [None, LostError("a reader was lost"), ValueError("theirs")])
def test_what_could_not_be_read_beforehand_is_left_to_tasks(
    read_beforehand: StreamReader, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """They meet the same again, and Spark tries them four times."""

    def read(*_: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(READ, read)

    assert planned(read_beforehand) == [10_000, 10_000, 10_000]
    assert read_beforehand.getCache({}, {}) is None


@pytest.mark.parametrize(("each", "beforehand"), [(600, True), (10_000, False)])
def test_where_owners_are_elsewhere_only_small_batches_are_read_beforehand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each: int, *, beforehand: bool
) -> None:
    """The driver would pass on all rows of a large one; tasks on executors read it."""
    monkeypatch.setattr(READ, lambda readers, *_: [(0, b"row")] if readers else None)
    source = reading_beforehand(monkeypatch, tmp_path, "")

    planned(source, each)

    assert (source.getCache({}, {}) is not None) == beforehand


def test_without_a_host_tasks_read(
    read_beforehand: StreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a session that was given."""
    monkeypatch.delenv("IKEBANA_HOST")
    monkeypatch.setattr(READ, lambda readers, *_: [(0, b"row")] if readers else None)

    assert planned(read_beforehand) == [10_000, 10_000, 10_000]
