"""A source task: from offsets of Kafka to packed rows for the shards.

With it, the configuration of the source, which all tasks get.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ikebana.codecs.diff import topic_of
from ikebana.processor.base.offsets import Positions
from ikebana.processor.kafka import client
from ikebana.processor.kafka.reader import Range, RangeReader, connected, timestamp_of
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.spark.workers import left_rows
from ikebana.processor.topics.input_codec import needs_headers, needs_timestamps
from ikebana.processor.topics.intake import Intake, UpdateIntake, intake_of
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.reclock import NOT_EDITED, Edited
from ikebana.processor.topics.replays import OwnRange, retractions_of
from ikebana.processor.topics.slices import Decoding, Slice, reading_of, rows_in
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.topics.source_transactions import BoundaryReading

if TYPE_CHECKING:
    from ikebana.processor.kafka.registry import Registry


class SourceConfig(msgspec.Struct, frozen=True):
    """The configuration of the source, passed through a Spark option as JSON.

    * `adopted`: the digest of a batch that all shards have committed.
    * `edited`: the last edit of the plan, as far as minting needs it.
    * `exchanges`: there is an exchange topic to read.
    * `stop`: while this file exists, no batch is minted; `signals.Signals` are beside it.
    * `begins`: the offsets at which inputs that are read again begin.
    * `reading_kafka`: the client that reads inputs.
    * `kafka`: the client that reads the topics of outputs that are retracted.
    * `groups`: for each shard the group that Spark runs it in.
    * `interval_s`: the least time between two batches, unless the first leaves unfinished work.
    * `max_records`: the most records of a batch; fewer are read if they would take too large a
      part of `max_batch_s`.
    * `rows_folder`: for large rows that owners of shards read; empty if owners may be on other
      machines.
    """

    plan: Plan
    reading_kafka: dict[str, str]
    start: SourceOffset
    groups: list[int]
    readers: int
    max_records: int
    heartbeat_s: float
    max_batch_s: float
    stop: str
    incarnation: int
    registry: dict[str, str] = {}
    adopted: str | None = None
    edited: Edited = NOT_EDITED
    exchanges: bool = True
    begins: Positions = {}
    kafka: dict[str, str] = {}
    interval_s: float = 0.0
    rows_folder: str = ""

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.groups)


# The cost of passing on a packed row, as a number of records to read and decode.
_EXCHANGE_SIZE = 500
# A further task costs some 20 ms of CPU time, in which several thousand records are read, and a
# process that reads before Spark does costs 1 or 2 ms.  From so many on, one more saves time.
_TASK_SIZE = 2_000

_Piece = list[Slice] | Range | OwnRange


@dataclass
class Share(InputPartition):  # type: ignore[misc]
    """The work of one source task: emit ticks, read slices, pass on exchanged rows.

    With `read_back`, it also retracts contents of outputs' own topics.
    """

    ticks: list[tuple[int, bytes]]
    slices: list[Slice]
    exchanges: list[Range]
    read_back: list[OwnRange]


def shares_of(
    slices: Sequence[Slice],
    exchanges: Sequence[Range],
    readers: int,
    read_back: Sequence[OwnRange] = (),
) -> list[Share]:
    """Distribute slices and exchanges over tasks by size, as few tasks as are worth their cost.

    Inputs with the same offsets form one piece, so that the offsets are read once.
    """
    pieces = _pieces(slices, exchanges, read_back)
    worth = 1 + sum(map(_size, pieces)) // _TASK_SIZE
    count = max(1, min(readers, len(pieces), worth))
    shares = [Share([], [], [], []) for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=_size, reverse=True):
        least = sizes.index(min(sizes))
        sizes[least] += _size(piece)
        if isinstance(piece, list):
            shares[least].slices += piece
        elif isinstance(piece, OwnRange):
            shares[least].read_back.append(piece)
        else:
            shares[least].exchanges.append(piece)
    return shares


def is_small(shares: Sequence[Share]) -> bool:
    """Whether the work of all shares is too small to be worth the cost of a task."""
    pieces = (
        piece for each in shares for piece in _pieces(each.slices, each.exchanges, each.read_back)
    )
    return sum(map(_size, pieces)) < _TASK_SIZE


def one_share(shares: Sequence[Share]) -> Share:
    """One share with the work of several."""
    result = Share([], [], [], [])
    for each in shares:
        result.ticks += each.ticks
        result.slices += each.slices
        result.exchanges += each.exchanges
        result.read_back += each.read_back
    return result


def range_of(piece: Slice) -> Range:
    """Return the offsets of a slice; slices of several inputs may have the same."""
    place = piece.place
    return Range(place.topic, place.partition, place.start, piece.end)


def _pieces(
    slices: Sequence[Slice], exchanges: Sequence[Range], read_back: Sequence[OwnRange]
) -> list[_Piece]:
    by_range: dict[Range, list[Slice]] = {}
    for each in slices:
        by_range.setdefault(range_of(each), []).append(each)
    return [*by_range.values(), *exchanges, *read_back]


def _size(piece: _Piece) -> int:
    if isinstance(piece, list):
        return sum(each.size for each in piece)
    if isinstance(piece, OwnRange):
        return piece.end - piece.start
    # A message of the exchange topic is a packed row, which is only passed on.
    return (piece.end - piece.start) * _EXCHANGE_SIZE


# The wait of one attempt of a task; Spark makes four attempts before a query fails.
_REGISTRY_PATIENCE_S = client.PATIENCE_S / 4


def packed_rows(
    config: SourceConfig, share: Share, reader: RangeReader
) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Yield the packed rows of a task, each with its shard; `reader` reads the inputs."""
    shards = config.shards
    if share.ticks:
        yield share.ticks
    registry = tuple(sorted(config.registry.items()))

    def intake(of: Input) -> Intake | UpdateIntake:
        return _intake(config.plan, of, registry)

    # Offsets are read once, and decoded for each input that reads them.
    by_range: dict[Range, list[Decoding | BoundaryReading]] = {}
    for each in share.slices:
        reading = reading_of(config.plan, each, intake, shards)
        if each.file is not None:
            source = config.plan.input(each.input)
            for of_file in rows_in(source, each):
                if rows := [*reading.add(of_file)]:
                    yield rows
            yield [*reading.finish()]
            continue
        by_range.setdefault(range_of(each), []).append(reading)
    with closing(reader.read(share.exchanges)) as reading_exchanges:
        for at, exchanged in reading_exchanges:
            yield [(at.partition, message.value()) for message in exchanged]
    if share.read_back:
        of_outputs = connected(config.kafka)
        yield from retraction_rows(config.plan, of_outputs, share.read_back, shards)
    if not by_range:
        return
    with_headers = {topic for i in config.plan.inputs if needs_headers(i) for topic in i.topics}
    with_headers |= {topic_of(topic) for topic in with_headers}
    dated = {topic for i in config.plan.inputs if needs_timestamps(i) for topic in i.topics}
    with closing(reader.read(list(by_range))) as fetching:
        for at, records in fetching:
            read = messages(records, headers=at.topic in with_headers, dated=at.topic in dated)
            for reading in by_range[at]:
                if rows := [*reading.add(read)]:
                    yield rows
    for reading in itertools.chain.from_iterable(by_range.values()):
        if rows := [*reading.finish()]:
            yield rows


@functools.lru_cache(maxsize=32)
def _intake(
    plan: Plan, source: Input, registry: tuple[tuple[str, str], ...]
) -> Intake | UpdateIntake:
    # Cached for the worker, because each task gets a new reader and compiling is expensive.
    named = plan.shares_topics(plan.input(source.name))
    return intake_of(source, planner.physical(plan), _registry(registry), named=named)


@functools.lru_cache(maxsize=4)
def _registry(settings: tuple[tuple[str, str], ...]) -> "Registry | None":
    if not settings:
        return None
    # Its client takes a while to import, and few need it.
    from ikebana.processor.kafka.registry import Registry

    return Registry(dict(settings), _REGISTRY_PATIENCE_S)


try:
    from ikebana.compiled._kafka_records import taken as compiled_messages
except ImportError:
    compiled_messages = None  # type: ignore[assignment]

SCHEMA = "group_number int, shard int, chunk binary"
"""The rows of a source task: a packed chunk, its shard, and the group in which that runs."""


def spark_rows(
    packed: Iterable[Sequence[tuple[int, bytes]]], groups: Sequence[int], folder: str
) -> Iterator[pa.RecordBatch]:
    """Make Spark rows of packed chunks by shard; `groups` are those of the shards.

    With a `folder`, large chunks are left in a file there, and everything to pass on is one batch.
    """
    if not folder:
        for each in packed:
            yield rows_of(each, groups)
    elif passed_on := left_rows.leave_large_rows(packed, folder):
        yield rows_of(passed_on, groups)


def rows_of(packed: Sequence[tuple[int, bytes]], groups: Sequence[int]) -> pa.RecordBatch:
    """Make Spark rows of some packed chunks, each with its shard."""
    shards, chunks = zip(*packed, strict=True)
    numbers = [groups[shard] for shard in shards]
    columns = [pa.array(numbers, pa.int32()), pa.array(shards, pa.int32())]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(chunks, pa.binary())], names=["group_number", "shard", "chunk"]
    )


def messages(records: Sequence[Any], *, headers: bool, dated: bool) -> list[Message]:
    """Take the needed fields of Kafka's messages; the others would cost time."""
    if compiled_messages is not None and not headers:
        return compiled_messages(records, Message, dated)
    return [
        Message(
            m.offset(),
            m.key(),
            m.value(),
            m.headers() if headers else None,
            timestamp_of(m) if dated else None,
        )
        for m in records
    ]


def retraction_rows(
    plan: Plan, reader: RangeReader, ranges: Sequence[OwnRange], shards: int
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the packed rows that retract contents of outputs' own topics."""
    by_range = {Range(each.topic, each.partition, each.start, each.end): each for each in ranges}
    for at, records in reader.read(list(by_range)):
        read = messages(records, headers=True, dated=False)
        if packed := [*retractions_of(plan, by_range[at], read, shards)]:
            yield packed
