"""Spark's format "ikebana" as a sink of streams: rows become upserts of a topic, exactly once.

    frame.writeStream.format("ikebana").option("topic", "orders").option("writer", "billing")
        .option("key", "id").option("deleted", "gone").option("order", "version")

A message has the columns of the key as a JSON object, and the other columns as another one; the
message of a deleted row has no value.  A micro-batch has at most one message a key: its row with
the greatest `order`.  Tasks make messages, and the driver writes them in one Kafka transaction
together with the number of the micro-batch, so a micro-batch has to fit into the driver's memory.
A frame with the columns `key` and `value` alone, STRING or BINARY, has the messages themselves; a
value that is null deletes.

A writer of numbered batches writes each into a topic exactly once.  It has a name, and a log
beside the topic: a compacted topic of one partition.  Its last record has the last batch that the
writer has committed.  A batch and its record are one transaction.  If it is not known whether a
batch was committed, it is written again: the broker ends the transaction of an earlier instance,
and the log then says whether the batch is there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from ikebana.codecs.output_messages import OutputMessage
from ikebana.errors import CheckpointError, ConfigError, SourceError
from ikebana.processor.base.arrow_json import objects
from ikebana.processor.base.texts import suggestion
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.client import TRANSACTIONS, enqueue
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.transactions import (
    COMMITS_SETTINGS,
    TransactionalProducer,
    last_record,
)

_KAFKA = "kafka."
_OPTIONS = ("topic", "writer", "key", "deleted", "order")
# Options that Spark adds itself.
_OF_SPARK = ("path", "checkpointLocation")
_RAW = {"key", "value"}
# How long a transaction of a numbered batch may take; after a crash, readers wait for the next
# start, or so long.
_TIMEOUT_S = 300.0
# The brokers' own number of replicas.
_USUAL = -1


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a write."""

    topic: str
    writer: str
    kafka: dict[str, str]
    key: tuple[str, ...] = ()
    """The columns of the key; empty if the frame has messages."""
    deleted: str | None = None
    order: str | None = None


class UpsertMessage(NamedTuple):
    """A message, and its order among messages of the same key."""

    key: bytes
    value: bytes | None
    order: Any


@dataclass
class TaskUpserts(WriterCommitMessage):  # type: ignore[misc]
    """The messages of one task."""

    rows: list[UpsertMessage]


def write_options(options: dict[str, str]) -> WriteOptions:
    """Read the options of a write.

    Raises:
        ConfigError: one is missing or unknown.
    """
    kafka = {name[len(_KAFKA) :]: v for name, v in options.items() if name.startswith(_KAFKA)}
    others = {name: v for name, v in options.items() if not name.startswith(_KAFKA)}
    for name in others:
        if name.lower() not in map(str.lower, (*_OPTIONS, *_OF_SPARK)):
            raise _refused(f'there is no option "{name}"{suggestion(name, _OPTIONS)}')
    topic = others.get("topic") or others.get("path")
    if not topic:
        raise _refused('name the topic: .option("topic", "orders")')
    if "bootstrap.servers" not in kafka:
        raise _refused('name the brokers: .option("kafka.bootstrap.servers", "host:9092")')
    if not (writer := others.get("writer")):
        raise _refused(
            'name the writer: .option("writer", "billing"). Batches are counted by this name, '
            "so each query needs its own, and keeps it"
        )
    key = tuple(name.strip() for name in others.get("key", "").split(",") if name.strip())
    return WriteOptions(topic, writer, kafka, key, others.get("deleted"), others.get("order"))


class TopicWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes micro-batches as upserts.

    Raises:
        ConfigError: the options do not fit the columns, or the query's output mode is `complete`.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, replaces: bool) -> None:
        if replaces:
            raise _refused("the output mode complete writes all rows each time; take update")
        self._options = options
        _require_columns(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskUpserts:
        make = _raw_upserts if not self._options.key else self._json_upserts
        rows = (row for batch in iterator for row in make(batch))
        # A row of another task may be after two of which neither is the last here.
        return TaskUpserts([row for last in last_by_key(rows).values() for row in last])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [message for message in messages if isinstance(message, TaskUpserts)]
        options = self._options
        written = messages_of((row for each in parts for row in each.rows), options.topic)
        write_batch(options.kafka, options.topic, options.writer, batchId, written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave nothing: only `commit` writes."""

    def _json_upserts(self, batch: pa.RecordBatch) -> Iterator[UpsertMessage]:
        options = self._options
        special = {*options.key, options.deleted, options.order}
        of_key = objects(batch, options.key)
        of_value = objects(batch, [name for name in batch.schema.names if name not in special])
        gone = batch.column(options.deleted).to_pylist() if options.deleted else None
        order = batch.column(options.order).to_pylist() if options.order else None
        for at, (key, value) in enumerate(zip(of_key, of_value, strict=True)):
            is_gone = gone is not None and bool(gone[at])
            yield UpsertMessage(
                key, None if is_gone else value, None if order is None else order[at]
            )


def last_by_key(rows: Iterable[UpsertMessage]) -> dict[bytes, list[UpsertMessage]]:
    """Keep the last row of each key, or two with different values if no order decides.

    >>> last_by_key([UpsertMessage(b"1", b"a", 2), UpsertMessage(b"1", b"b", 1)])
    {b'1': [UpsertMessage(key=b'1', value=b'a', order=2)]}
    """
    last: dict[bytes, list[UpsertMessage]] = {}
    for row in rows:
        others = last.setdefault(row.key, [])
        if all(_is_after(row, other) for other in others):
            others[:] = [row]
        elif len(others) == 1 and row.value != others[0].value and not _is_after(others[0], row):
            others.append(row)
    return last


def messages_of(rows: Iterable[UpsertMessage], topic: str) -> list[OutputMessage]:
    """Make the messages of the last rows, in order of their keys.

    Raises:
        SourceError: the order does not determine which of two values of a key is the last one.
    """
    written = []
    for key, (row, *others) in sorted(last_by_key(rows).items()):
        if others:
            raise SourceError(
                f'cannot write into "{topic}": a micro-batch has several rows with key '
                f"{key!r}, and nothing says which of them is the last",
                hint='Name a column that does: .option("order", "version").',
            )
        written.append(OutputMessage(key, row.value, []))
    return written


def _is_after(row: UpsertMessage, other: UpsertMessage) -> bool:
    if row.order is None or other.order is None:
        return row.order is not None
    return bool(row.order > other.order)


def _raw_upserts(batch: pa.RecordBatch) -> Iterator[UpsertMessage]:
    keys, values = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise SourceError("cannot write a row: its key is null")
        yield UpsertMessage(key, value, None)


def _require_columns(options: WriteOptions, schema: StructType) -> None:
    """Refuse options that name columns which the frame does not have."""
    names = set(schema.fieldNames())
    for name in (*options.key, options.deleted, options.order):
        if name is not None and name not in names:
            raise _refused(f'there is no column "{name}"{suggestion(name, sorted(names))}')
    if options.deleted and not isinstance(schema[options.deleted].dataType, BooleanType):
        raise _refused(f'the column "{options.deleted}" says what is deleted: it is BOOLEAN')
    if options.key:
        return
    if names != _RAW or options.deleted or options.order:
        raise _refused(
            'name the columns of the key: .option("key", "id"); only a frame with the columns '
            "key and value, and no others, has the messages themselves"
        )
    for field in schema.fields:
        if not isinstance(field.dataType, BinaryType | StringType):
            raise _refused(f"the column {field.name} is BINARY or STRING")


def _refused(why: str) -> ConfigError:
    return ConfigError(f"cannot write a topic with Spark: {why}")


class Written(msgspec.Struct, frozen=True):
    """The last batch of a writer: its number, and the number and digest of its messages."""

    batch: int
    messages: int
    digest: str


def log_of(topic: str, writer: str) -> str:
    """Return the name of the topic with a writer's log.

    >>> log_of("orders", "billing")
    'orders.writer-billing'
    """
    return f"{topic}.writer-{writer}"


def digest_of(messages: Sequence[OutputMessage]) -> str:
    """Compute a digest of keys and values that does not depend on their order."""
    total = 0
    for key, value, _ in messages:
        hashed = blake2b(msgspec.msgpack.encode((key, value)), digest_size=16)
        total += int.from_bytes(hashed.digest())
    return f"{total % 2**128:032x}"


def is_written(topic: str, writer: str, last: Written | None, batch: Written) -> bool:
    """Decide whether a batch was committed before, from the last batch of its writer.

    Raises:
        CheckpointError: the batch belongs to another numbering.
    """
    if last is None or batch.batch > last.batch:
        return False
    if batch.batch == last.batch and batch.digest == last.digest:
        return True
    difference = (
        "with other messages" if batch.batch == last.batch else f"and {last.batch} after it"
    )
    raise CheckpointError(
        f'cannot write batch {batch.batch} of writer "{writer}" into "{topic}": batch '
        f"{batch.batch} is there already, {difference}",
        hint="The checkpoint of the query is another one than before, or its rows depend on "
        "chance. Go on with the checkpoint of before, or give the writer another name: all "
        "batches of this checkpoint are then written.",
    )


def write_batch(
    settings: Mapping[str, str],
    topic: str,
    writer: str,
    number: int,
    messages: Sequence[OutputMessage],
) -> bool:
    """Write a batch in one transaction, unless it is there; return whether it was written.

    Raises:
        SourceError: there is no such topic, or the brokers did not take the batch.
        CheckpointError: the numbers are those of another query.
        FencedError: another instance of this writer has taken over.
    """
    client_settings = dict(settings)
    client.reach(client_settings)
    admin = client.admin(client_settings)
    if topic not in topics.describe(admin, [topic]):
        raise SourceError(
            f'cannot write into "{topic}": there is no such topic',
            hint="Create it, with as many partitions as its readers need.",
        )
    log = log_of(topic, writer)
    topics.create(admin, log, 1, _USUAL, COMMITS_SETTINGS)
    producer = TransactionalProducer(client_settings, f"{TRANSACTIONS}{log}", _TIMEOUT_S)
    batch = Written(number, len(messages), digest_of(messages))
    reader = RangeReader(client_settings)
    try:
        end = producer.end_of(log, 0)
        last = last_record(reader, log, 0, Written, end)
    finally:
        reader.close()
    if is_written(topic, writer, last, batch):
        return False
    with producer.transaction() as kafka:
        producer.produce_messages(topic, messages)
        enqueue(kafka, log, key=b"batch", value=msgspec.json.encode(batch), partition=0)
    return True
