"""Compact a diff topic: write a snapshot of its collection, and delete the updates it replaces.

The snapshot is written in transactions of some ten thousand updates, and a last transaction
writes the record that names it.  If the process dies before that, nobody reads the updates; if
it dies after that, the next process deletes the replaced updates.

Two processes cannot mix: each fences the one before by a transactional id of the topic, and only
then reads the end of the snapshot topic.  All writes of the earlier process are before that end.
"""

# Decision (deleting up to the snapshot before the last): A reader that has begun there is not
# stopped; what a reader finds gone it says by name. The collection is in memory meanwhile: a
# served arrangement would take several times as long to write.

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.arrangements.update import pieces
from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord, SnapshotRecord, topic_of
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import EarlierUpdates, PlacedUpdate
from ikebana.processor.base.offsets import Offsets, Positions, progress_topic
from ikebana.processor.base.texts import moment
from ikebana.processor.base.verify import CollectionDigest, batch_offence
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.client import enqueue, patiently
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.kafka.snapshots import RECORDS, RETAINED_OFFSETS, retained_snapshots
from ikebana.processor.kafka.transactions import TransactionalProducer

_TRANSACTION_S = 300.0
_PORTION = 50_000
_PORTION_BYTES = 64 << 20
_REQUEST_S = 30.0
_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(64 << 20),
}

KeyAndValue = tuple[bytes | None, bytes]


class Collected(NamedTuple):
    """A collection as of the last time of a batch: counts, and the partition of each datum.

    `progress_at` is the offset of the batch's progress record; `read` updates were added up.
    """

    counts: dict[KeyAndValue, int]
    partitions: dict[KeyAndValue, int]
    last: ProgressRecord
    progress_at: int
    read: int


class SnapshotCost(NamedTuple):
    """The cost of writing a snapshot: the number of updates read, and the time."""

    read: int
    seconds: float


class Compacted(NamedTuple):
    """The present snapshot, and its cost if this call wrote it."""

    record: SnapshotRecord
    written: SnapshotCost | None


class Compaction:
    """Compacts one topic; it holds the topic's transactional id until another one takes over.

    Raises:
        SourceError: the topic does not exist, or is no output.
    """

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self.topic = topic
        self.name = topic_of(topic)
        self._settings = dict(settings)
        self._admin = client.admin(settings)
        self._reading = DiffTopic(settings, topic)
        self._new_records: list[SnapshotRecord] = []
        try:
            self._reading.require_output()
            partitions = topics.describe(self._admin, [topic])[topic].partitions
            if not topics.describe(self._admin, [self.name]):
                # As many replicas as brokers give by default.
                topics.create(self._admin, self.name, partitions + 1, -1, _SETTINGS)
            self._partitions = topics.describe(self._admin, [self.name])[self.name].partitions
            self._producer = TransactionalProducer(
                self._settings, f"{client.TRANSACTIONS}compact-{topic}", _TRANSACTION_S
            )
        except BaseException:
            self._reading.close()
            raise

    def compact(self, upto: int | None = None) -> Compacted | None:
        """Write a snapshot as of the last closed batch that ends at or before `upto` + 1.

        If there is such a snapshot already, nothing is written; None if no batch is closed.

        Raises:
            SourceError: the topic is not as its progress says, or `upto` is not closed, or is
                before the first time that can be read.
            FencedError: another process compacts this topic since.
        """
        began = time.monotonic()
        reading = self._reading
        last = reading.last_closed()
        if last is None or last.upper < 1:
            return None
        if upto is not None and upto >= last.upper:
            raise SourceError(
                f'cannot compact "{self.topic}" up to {moment(upto)}: its frontier is '
                f"{moment(last.upper)}",
                hint=f"Give {moment(last.upper - 1)} or less.",
            )
        reading.begin(upto)
        before = reading.snapshot
        collected = self._collected(upto)
        if collected is None or (before is not None and collected.last.batch == before.last.batch):
            return None if before is None else Compacted(before, None)
        record = self._written(collected)
        self._new_records.append(record)
        return Compacted(record, SnapshotCost(collected.read, time.monotonic() - began))

    def delete(self, keep: int) -> Positions:
        """Delete the updates before the oldest of the newest `keep` snapshots.

        The result has the offsets up to which partitions were deleted, by topic; nothing is
        deleted while there are fewer snapshots.  The last progress record stays.

        Raises:
            SourceError: that snapshot is not what was written, or brokers refuse to delete.
        """
        snapshots = self._retained_records(keep)
        if len(snapshots) < keep:
            return {}
        oldest = snapshots[0]
        assert self._reading.snapshots is not None, "a format without snapshots"
        if not self._reading.snapshots.is_independent(oldest):
            # The updates that it replaces cannot be recovered, so it is verified first.
            for _ in self._reading.snapshots.read(oldest):
                pass
        before = {
            self.topic: oldest.last.ends,
            progress_topic(self.topic): {0: oldest.progress_at},
        }
        return delete_before(self._admin, before)

    def trim(self, keep: int) -> Positions:
        """Delete the snapshots before the newest `keep`, and unfinished ones between them."""
        snapshots = self._retained_records(keep)
        if len(snapshots) < keep:
            return {}
        before = {RECORDS: self._ends()[RECORDS] - RETAINED_OFFSETS}
        for record in snapshots:
            # An older time may have been written later.
            for partition, start in record.starts.items():
                before[partition] = min(start, before.get(partition, start))
        return delete_before(self._admin, {self.name: before})

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()

    def _retained_records(self, keep: int) -> list[SnapshotRecord]:
        assert self._reading.snapshots is not None, "a format without snapshots"
        # A record of our own may not be readable yet: brokers end a transaction in every partition
        # only after the commit has returned.
        records = [*self._new_records, *self._reading.snapshots.records()]
        return retained_snapshots(records, self._reading.topic_id, keep)

    def _collected(self, upto: int | None) -> Collected | None:
        """Add up the updates of the batches that end at or before `upto` + 1."""
        counts: dict[KeyAndValue, int] = {}
        partitions: dict[KeyAndValue, int] = {}
        last: ProgressRecord | None = None
        at: int | None = None
        read = 0
        with closing(self._reading.closed()) as parts:
            for part in parts:
                if not isinstance(part, EarlierUpdates):
                    if upto is not None and part.progress.upper > upto + 1:
                        break
                    if offence := batch_offence(self.topic, last, part):
                        raise SourceError(
                            f"cannot compact: {offence.sentence}",
                            hint=f"ikebana check {self.topic} verifies the topic.",
                        )
                    last, at = part.progress, self._reading.yielded_at
                of_snapshot = (
                    isinstance(part, EarlierUpdates) and self._reading.snapshot is not None
                )
                _add(counts, partitions, part.updates, 1 if of_snapshot else 0)
                read += len(part.updates)
        if last is None or last.upper < 1:
            return None
        assert at is not None, "a batch without a progress record"
        return Collected(counts, partitions, last, at, read)

    def _written(self, collected: Collected) -> SnapshotRecord:
        count, digest = 0, CollectionDigest()
        starts = self._ends()
        del starts[RECORDS]
        stamps = {
            piece: diff.headers(collected.last.upper - 1, piece)
            for total in set(collected.counts.values())
            for piece in pieces(total)
        }
        for portion in _portions(_in_pieces(collected.counts), _PORTION):
            with self._producer.transaction() as producer:
                for (key, value), piece in portion:
                    count += 1
                    digest.add(key, value, piece)
                    self._enqueue(
                        producer, collected.partitions[key, value], key, value, stamps[piece]
                    )
        ends = self._ends()
        del ends[RECORDS]
        record = SnapshotRecord(
            collected.last,
            collected.progress_at,
            self._reading.topic_id,
            starts,
            ends,
            count,
            digest.hexdigest(),
        )
        with self._producer.transaction() as producer:
            enqueue(producer, self.name, value=record.encode(), partition=RECORDS)
        return record

    def _enqueue(
        self,
        producer: Producer,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: diff.UpdateHeaders,
    ) -> None:
        # Each partition of the topic has one partition of the snapshot topic.
        at = 1 + partition % (self._partitions - 1)
        enqueue(producer, self.name, key=key, value=value, headers=headers, partition=at)

    def _ends(self) -> dict[int, int]:
        """Read the offsets after all committed records."""
        return topics.high_watermarks(self._admin, {self.name: self._partitions})[self.name]


def delete_before(admin: AdminClient, before: Offsets) -> Positions:
    """Delete the records before offsets, by topic and partition; return the offsets that moved.

    Raises:
        SourceError: the brokers refuse it.
    """
    described = topics.describe(admin, before)
    begins = topics.beginnings(
        admin, {name: topic.partitions for name, topic in described.items()}
    )
    due = {
        topic: {p: at for p, at in by.items() if at > begins[topic].get(p, 0)}
        for topic, by in before.items()
    }
    asked = [TopicPartition(topic, p, at) for topic, by in due.items() for p, at in by.items()]

    def ask() -> None:
        for at, answer in admin.delete_records(asked, request_timeout=_REQUEST_S).items():
            try:
                answer.result()
            except KafkaException as error:
                cause = error.args[0]
                if client.may_pass(cause):
                    raise
                raise SourceError(
                    f"could not delete the records of {at.topic}[{at.partition}] before "
                    f"{before[at.topic][at.partition]}: {cause.str()}",
                    hint="--delete needs the right to delete records of the topic, its progress "
                    "and its snapshots.",
                ) from error

    if asked:
        patiently(ask, "the brokers")
    return {topic: by for topic, by in due.items() if by}


def _add(
    counts: dict[KeyAndValue, int],
    partitions: dict[KeyAndValue, int],
    updates: Iterable[PlacedUpdate],
    shift: int,
) -> None:
    """Add updates; `shift` is the number of the first partition."""
    for key, value, _, change, partition, _ in updates:
        datum = key, value
        if count := counts.get(datum, 0) + change:
            counts[datum] = count
            partitions[datum] = partition - shift
        else:
            counts.pop(datum, None)
            partitions.pop(datum, None)


def _in_pieces(counts: Mapping[KeyAndValue, int]) -> Iterator[tuple[KeyAndValue, int]]:
    """Yield each datum with its count, or with the pieces of a count beyond 64 bits."""
    for datum, total in counts.items():
        for piece in pieces(total):
            yield datum, piece


def _portions(
    items: Iterable[tuple[KeyAndValue, int]], size: int
) -> Iterator[list[tuple[KeyAndValue, int]]]:
    portion: list[tuple[KeyAndValue, int]] = []
    held = 0
    for item in items:
        key, value = item[0]
        portion.append(item)
        held += len(key or b"") + len(value)
        if len(portion) >= size or held >= _PORTION_BYTES:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion
