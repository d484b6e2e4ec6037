"""Write the updates of a batch and its commit record in one transaction.

The order makes it safe: first fence the former holder of the transactional id, *then* read
what was committed, then begin a transaction.  Between reading and committing nobody else can
commit without fencing us.

Commit records are not Kafka's own transaction markers.  Each shard has one partition of the topic
of commit records, whose last record is authoritative: it has the batch that the shard last
committed to Kafka, the counts of the batch, and its manifest.  A replay adopts it instead of
computing the batch again, because the input may have been compacted meanwhile.  Partition 0
belongs to the driver, and its last record is the driver's lease.  The topic is compacted and has
no retention, so commit records outlast any downtime.

Committed records are read up to an offset from `end_of`.  A broker that was replaced as a
partition's leader, and has not noticed it, still answers readers, with an old end and old
records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ikebana.codecs import diff
from ikebana.codecs.output_messages import OutputMessage
from ikebana.errors import AwayError, CheckpointError, FencedError, LateError, SourceError
from ikebana.processor.base.rows import KeyedUpdate, in_columns_of
from ikebana.processor.checkpoint.commits import CommitRecord, Lease
from ikebana.processor.kafka import client
from ikebana.processor.kafka.client import (
    REQUEST_S,
    TRANSACTIONS,
    enqueue,
    patiently,
    transactional_producer,
    unless_full,
)
from ikebana.processor.kafka.reader import RangeReader

try:
    from ikebana.compiled._kafka_records import produced as compiled_produced
except ImportError:
    compiled_produced = None  # type: ignore[assignment]
_AT_ONCE = 10_000
# The key of records that are only written for their offsets.
_LOOK = b"look"
# The partition that the key chooses, and the time at which a record is produced.
_ANY, _NOW = -1, 0
_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
# Errors after which a retry may succeed, such as a batch that once took too long.
_LATE = client.AWAY | {
    KafkaError.INVALID_TXN_STATE,
    KafkaError._MSG_TIMED_OUT,
    # Messages were not delivered in time.
    KafkaError._INCONSISTENT,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.UNKNOWN_PRODUCER_ID,
}


class TransactionalProducer:
    """A producer that holds its transactional id alone, until it is fenced."""

    def __init__(self, settings: dict[str, str], transactional_id: str, timeout_s: float) -> None:
        self.id = transactional_id
        self._timeout_s = timeout_s
        self._begun_s: float | None = None
        self._producer: Producer = transactional_producer(settings, transactional_id, timeout_s)

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Run a block in a transaction: commit at its end, or abort after an error.

        Readers never see records that are not committed.  Aborting only spares them the wait
        until the transaction times out.

        Raises:
            FencedError: a newer holder of the transactional id has taken over.
            AwayError: the brokers were away for too long.
            LateError: the transaction took longer than its timeout.
            SourceError: the brokers refuse it, such as for a message that is too large.

        After any of these the topic of commit records shows whether it was committed.
        """
        self._begin()
        try:
            yield self._producer
        except Exception:
            with suppress(KafkaException):
                self._producer.abort_transaction(REQUEST_S)
            raise
        self._end(self._producer.commit_transaction)

    def end_of(self, topic: str, partition: int) -> int:
        """Return an offset after all records that were committed to a partition before this call.

        It is the offset of a record that is written and aborted.  Only the real leader can have it
        acknowledged by the other replicas, so a reader that reaches it has read all of them.

        Raises:
            FencedError: a newer holder of the transactional id has taken over.
            AwayError: the brokers were away for too long.
        """
        delivered: list[Message] = []
        self._begin()
        record = {"value": b"", "key": _LOOK, "partition": partition}
        enqueue(self._producer, topic, **record, on_delivery=lambda _, m: delivered.append(m))
        self._producer.flush(self._timeout_s)
        self._end(self._producer.abort_transaction)
        if not delivered or delivered[0].error() is not None:
            why = delivered[0].error().str() if delivered else "no answer"
            raise AwayError(f"could not write to {topic}[{partition}]: {why}")
        return int(delivered[0].offset())

    def produce(self, topic: str, updates: Iterable[KeyedUpdate]) -> int:
        """Add updates in the `diff` format; return their number."""
        produce, wait, count = self._producer.produce, partial(self._producer.poll, 0.1), 0
        try:
            for some in in_columns_of(updates, _AT_ONCE):
                columns = some.keys, some.values, some.times, some.diffs
                if compiled_produced is not None:
                    compiled_produced(produce, wait, topic, _ANY, _NOW, *columns)
                else:
                    for key, value, time, change in zip(*columns, strict=True):
                        # By position: by name, the call takes half as long again.
                        of_time = diff.headers(time, change)
                        record = topic, value, key, _ANY, None, None, _NOW, of_time
                        unless_full(partial(produce, *record), wait)
                count += len(some)
        except KafkaException as error:
            raise self._named(error) from error
        return count

    def produce_messages(self, topic: str, messages: Sequence[OutputMessage]) -> int:
        """Add messages unchanged; return their number."""
        for key, value, headers in messages:
            try:
                enqueue(self._producer, topic, key=key, value=value, headers=headers)
            except KafkaException as error:
                raise self._named(error) from error
        return len(messages)

    def _begin(self) -> None:
        self._begun_s = None
        self._guarded(self._producer.begin_transaction)
        self._begun_s = monotonic()

    def _end(self, act: Callable[[float], object]) -> None:
        self._guarded(lambda: patiently(lambda: act(REQUEST_S), f"transaction {self.id}"))

    def _is_expired(self) -> bool:
        """Whether the brokers may have ended the transaction for its length."""
        return self._begun_s is not None and (monotonic() - self._begun_s >= self._timeout_s)

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except KafkaException as error:
            raise self._named(error) from error

    def _named(self, error: KafkaException) -> Exception:
        cause = error.args[0]
        if cause.code() in _FENCED:
            # Brokers answer the same for a transaction that they have ended themselves.
            if self._is_expired():
                return LateError(
                    f"the brokers have ended transaction {self.id}, which took longer than "
                    f"{self._timeout_s:.0f} s",
                    hint="If batches take longer, raise run.max_batch or lower "
                    "source.max_records_per_batch.",
                )
            return FencedError(f"transaction {self.id} has been taken over by a newer holder")
        if cause.code() in _TOO_LARGE:
            return SourceError(
                f"could not write in transaction {self.id}: {cause.str()}",
                hint="A message is larger than its topic takes. Raise that topic's "
                "max.message.bytes; topics that a run creates have 64 MiB. Nothing is committed.",
            )
        if cause.code() == KafkaError.INVALID_TXN_STATE or cause.txn_requires_abort():
            return (LateError if cause.code() in _LATE else SourceError)(
                f"could not commit transaction {self.id}: {cause.str()}",
                hint=f"It is aborted by the brokers after {self._timeout_s:.0f} s; if batches "
                "take longer, raise run.max_batch or lower source.max_records_per_batch.",
            )
        if away := client.away_error(error):
            return away
        return SourceError(f"could not go on with transaction {self.id}: {cause.str()}")


COMMITS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.5",
}
Record = TypeVar("Record", bound=msgspec.Struct)


def driver_id(checkpoint: str) -> str:
    """Return the transactional id of the driver; its holder has the lease."""
    return f"{TRANSACTIONS}{checkpoint}-driver"


def task_id(checkpoint: str, shard: int) -> str:
    """Return the transactional id of a shard's task."""
    return f"{TRANSACTIONS}{checkpoint}-{shard}"


def trial_id(checkpoint: str) -> str:
    """Return an unused transactional id, with which `preflight` tests the right to use them."""
    return f"{TRANSACTIONS}{checkpoint}-trial"


def partition_of_shard(shard: int) -> int:
    """Return the partition of a shard's commit records; partition 0 belongs to the driver."""
    return shard + 1


def shards_of(partitions: int) -> int:
    """Return the number of shards for which a topic with so many partitions was created."""
    return partitions - 1


def last_commit(
    reader: RangeReader, topic: str, shard: int, end: int | None = None
) -> CommitRecord | None:
    """Read the last commit record of a shard; for `end` see `last_record`."""
    return last_record(reader, topic, partition_of_shard(shard), CommitRecord, end)


def last_lease(reader: RangeReader, topic: str, end: int | None = None) -> Lease | None:
    """Read the last committed lease; for `end` see `last_record`."""
    return last_record(reader, topic, 0, Lease, end)


def last_record(
    reader: RangeReader, topic: str, partition: int, kind: type[Record], end: int | None = None
) -> Record | None:
    """Read and decode the last committed record of a partition.

    A caller that has fenced others, and acts on the record, has to pass an `end` from after that
    (`TransactionalProducer.end_of`): the end that readers see may be old.
    """
    message = last_message(reader, topic, partition, end)
    return None if message is None else _decoded(message, kind)


def _decoded(message: Message, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(message.value() or b"", type=kind)
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"cannot read {message.topic()}[{message.partition()}]@{message.offset()}: {error}",
            hint="Another version of ikebana or another program wrote this record. Use the "
            "version that last ran the pipeline, and let nobody else write to the topic.",
        ) from None


def last_message(
    reader: RangeReader, topic: str, partition: int, end: int | None = None
) -> Message | None:
    """Read the last committed message of a partition, searching backwards from its end.

    The cost does not grow with the topic.  The caller has just fenced the writers of the
    partition, so no transaction is open before the high watermark.
    """
    low, high = reader.watermarks(topic, partition)
    messages = reader.tail(topic, partition, low, high if end is None else end)
    return messages[-1] if messages else None


def produce_commit(producer: Producer, topic: str, commit: CommitRecord) -> None:
    """Add a commit record to the open transaction."""
    enqueue(
        producer,
        topic,
        key=b"shard-%d" % commit.shard,
        value=msgspec.json.encode(commit),
        partition=partition_of_shard(commit.shard),
    )


def produce_lease(producer: Producer, topic: str, lease: Lease) -> None:
    """Add a lease to the open transaction."""
    enqueue(producer, topic, key=b"driver", value=msgspec.json.encode(lease), partition=0)


def commit_alone(transactions: TransactionalProducer, topic: str, commit: CommitRecord) -> None:
    """Commit a transaction with only a commit record."""
    with transactions.transaction() as producer:
        produce_commit(producer, topic, commit)
