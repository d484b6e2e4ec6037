"""From the messages of a source task to Spark rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ikebana.processor.kafka.reader import Range, RangeReader, timestamp_of
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark.workers import left_rows
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.own_reading import taken_back
from ikebana.processor.topics.own_topics import OwnRange

try:
    from ikebana.compiled._kafka_records import taken as compiled_messages
except ImportError:
    compiled_messages = None  # type: ignore[assignment]

SCHEMA = "label int, shard int, chunk binary"
"""The rows of a source task: a packed chunk, its shard, and the group in which that runs."""


def spark_rows(
    packed: Iterable[Sequence[tuple[int, bytes]]], labels: Sequence[int], folder: str
) -> Iterator[pa.RecordBatch]:
    """Make Spark rows of packed chunks by shard; `labels` are the groups of the shards.

    With a `folder`, large chunks are left in a file there, and everything to pass on is one batch.
    """
    if not folder:
        for each in packed:
            yield rows_of(each, labels)
    elif passed_on := left_rows.passed_on(packed, folder):
        yield rows_of(passed_on, labels)


def rows_of(packed: Sequence[tuple[int, bytes]], labels: Sequence[int]) -> pa.RecordBatch:
    """Make Spark rows of some packed chunks, each with its shard."""
    shards, chunks = zip(*packed, strict=True)
    groups = [labels[shard] for shard in shards]
    columns = [pa.array(groups, pa.int32()), pa.array(shards, pa.int32())]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(chunks, pa.binary())], names=["label", "shard", "chunk"]
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


def rows_taken_back(
    plan: Plan, reader: RangeReader, ranges: Sequence[OwnRange], shards: int
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the packed rows that retract contents of outputs' own topics."""
    by_range = {Range(each.topic, each.partition, each.start, each.end): each for each in ranges}
    for at, records in reader.read(list(by_range)):
        read = messages(records, headers=True, dated=False)
        if packed := [*taken_back(plan, by_range[at], read, shards)]:
            yield packed
