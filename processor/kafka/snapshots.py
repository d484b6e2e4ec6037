"""Find and read the snapshots of a diff topic, and choose the one at which a reader begins.

A snapshot can be used if it belongs to this topic, and everything after it still exists: the
updates of the topic after its last batch, the progress from that batch on, and the snapshot
itself.  Readers begin at the newest snapshot at or before their time, or at the beginning of the
topic.
"""

# Decision (snapshots have a topic): Who may read the one topic reads the other, by the same
# client; files would need a place, rights and a file system. In the diff topic it would count
# twice. It ends with a batch, so no reader filters.

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ikebana.codecs.diff import SnapshotRecord, decode_snapshot, topic_of
from ikebana.codecs.errors import DecodeError
from ikebana.errors import AccessError, SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.diff_reader import PlacedUpdate
from ikebana.processor.base.offsets import offset_in, progress_topic
from ikebana.processor.base.texts import moment
from ikebana.processor.base.verify import CollectionDigest
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.topics import ReadTopics


class Available(NamedTuple):
    """What the brokers still have: first offsets of the topic, its progress, and its snapshots."""

    topic: str
    topic_id: str
    begins: Mapping[int, int]
    progress_begin: int
    snapshot_begins: Mapping[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether the topic has its beginning."""
        return not any(self.begins.values())


def usable(records: Sequence[SnapshotRecord], available: Available) -> list[SnapshotRecord]:
    """List the snapshots at which reading can begin, in order of time; the last of equal ones."""
    by_time = {record.time: record for record in records if _is_usable(record, available)}
    return [by_time[time] for time in sorted(by_time)]


def _is_usable(record: SnapshotRecord, available: Available) -> bool:
    return (
        record.topic_id == available.topic_id
        and record.progress_at >= available.progress_begin
        and all(begin <= record.last.ends.get(p, 0) for p, begin in available.begins.items())
        and all(available.snapshot_begins.get(p, at) <= at for p, at in record.starts.items())
    )


def choose(
    records: Sequence[SnapshotRecord],
    available: Available,
    as_of: int | None,
    *,
    strict: bool = True,
) -> SnapshotRecord | Refusal | None:
    """Choose where to begin so that the collection as of a time can be read; None: the beginning.

    Without a time, it is the newest snapshot.  Unless `strict`, it is the oldest snapshot if none
    is old enough.
    """
    candidates = usable(records, available)
    before = [record for record in candidates if as_of is None or record.time <= as_of]
    if before:
        return before[-1]
    if available.is_whole:
        return None
    if candidates and not strict:
        return candidates[0]
    if candidates and as_of is not None:
        return refuse_before_first(available.topic, as_of, candidates[0].time)
    partition, low = next(at for at in sorted(available.begins.items()) if at[1] > 0)
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot accumulate "{available.topic}": the beginning of {available.topic}[{partition}] '
        f"was deleted, its first record is at or after offset {low}"
        + (", and none of its snapshots is followed by all later updates" if records else ""),
        "Diff topics need retention.ms=-1 and retention.bytes=-1, or snapshots that "
        "`ikebana compact` takes before records are deleted. What was deleted can only be made "
        "again, by a new checkpoint with new output topics.",
        SourceError,
    )


def refuse_before_first(topic: str, asked: int, first: int) -> Refusal:
    """Refuse a time before the oldest snapshot of a topic that has lost its beginning."""
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot read "{topic}" as of {moment(asked)}: it was compacted, and can be read as of '
        f"{moment(first)} and later times",
        f"Ask for {moment(first)} or a later time.",
        SourceError,
    )


def refuse_deleted(topic: str, upper: int, usable: Sequence[SnapshotRecord]) -> Refusal:
    """Refuse to go on at a frontier after which updates of the topic were deleted."""
    where = f"; it can be read as of {moment(usable[0].time)} and later times" if usable else ""
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot go on reading "{topic}" at time {moment(upper)}: updates that follow were '
        f"deleted{where}",
        "Begin again: leave the token out, or give --rebuild; a sink begins again under another "
        "name.",
        SourceError,
    )


def retained_snapshots(
    records: Sequence[SnapshotRecord], topic_id: str, number: int
) -> list[SnapshotRecord]:
    """List the newest `number` snapshots of a topic in order of time, which have to be kept."""
    by_time = {record.time: record for record in records if record.topic_id == topic_id}
    return [by_time[time] for time in sorted(by_time)][-number:]


# The partition of the snapshot topic with the records of snapshots.
RECORDS = 0
# This many offsets of it are read, and more are kept, so that none is deleted under a reader.
# A record and Kafka's marker of its transaction take two offsets.
_READ = 500
RETAINED_OFFSETS = 1_000
# How long to ask again for a topic that existed, and how often.
_GONE_S = 2.0
_PAUSE_S = 0.2
# A snapshot may be committed and an older one deleted between our questions.
_ATTEMPTS = 5


class Snapshots:
    """The snapshots of one topic.

    Raises:
        SourceError: the topic was deleted.
    """

    def __init__(self, admin: AdminClient, reader: RangeReader, topic: str, topic_id: str) -> None:
        self._admin = admin
        self._reader = reader
        self._topic = topic
        self._topic_id = topic_id
        self._topics = ReadTopics(admin, topic, topic_id)
        self.name = topic_of(topic)

    def records(self) -> list[SnapshotRecord]:
        """Read the records of the newest complete snapshots, a few hundred at most.

        Raises: AccessError, if brokers do not tell whether there are snapshots.
        """
        try:
            existing = topics.describe(self._admin, [self.name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise AccessError(
                f'topic "{self.name}", which may have snapshots of "{self._topic}", may not be '
                "seen",
                hint=f'Grant Read on topic "{self.name}" to the client that reads '
                f'"{self._topic}", whether it is there or not.',
            ) from error
        if not existing:
            return []
        try:
            begin = self._topics.offsets(topics.beginnings, self.name, 1)[RECORDS]
            end = self._topics.offsets(topics.ends, self.name, 1)[RECORDS]
        except KafkaException:
            if not self._is_gone():
                raise
            return []
        start = max(begin, end - _READ)
        return [
            self._record(message.value(), message.offset())
            for _, messages in self._reader.read([Range(self.name, RECORDS, start, end)])
            for message in messages
        ]

    def available(self) -> Available:
        """Ask for the first offsets that the brokers still have."""
        progress = progress_topic(self._topic)
        existing = self._topics.described(self._topic, progress)
        begins = {
            name: self._topics.offsets(topics.beginnings, name, topic.partitions)
            for name, topic in existing.items()
        }
        # The id of the snapshot topic is not checked: it may be deleted and created again.
        for name, topic in topics.describe(self._admin, [self.name]).items():
            try:
                begins[name] = self._topics.offsets(topics.beginnings, name, topic.partitions)
            except KafkaException:
                if not self._is_gone():
                    raise
        return Available(
            self._topic,
            self._topic_id,
            begins[self._topic],
            offset_in(progress, 0, begins),
            begins.get(self.name, {}),
        )

    def _is_gone(self) -> bool:
        """Whether the topic of the snapshots was deleted; a broker may not have heard of that."""
        deadline = time.monotonic() + _GONE_S
        while topics.describe(self._admin, [self.name]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)
        return True

    def choose(self, as_of: int | None, *, strict: bool = True) -> SnapshotRecord | None:
        """Choose where a reader begins that is asked for a time; None: the topic's beginning.

        Unless `strict`, the oldest snapshot is chosen if none is old enough.

        Raises:
            SourceError: no snapshot that can be used is old enough, and the beginning is gone.
        """
        records = self.records()
        for left in reversed(range(_ATTEMPTS)):
            choice = choose(records, self.available(), as_of, strict=strict)
            if not isinstance(choice, Refusal):
                return choice
            before, records = records, self.records()
            if records == before or not left:
                raise choice.error()
        raise AssertionError("no attempts")

    def instead(self) -> SnapshotRecord | None:
        """Find the newest snapshot to begin at, if the topic has lost its beginning; else None."""
        if self.available().is_whole:
            return None
        usable = self.usable()
        return usable[-1] if usable else None

    def usable(self) -> list[SnapshotRecord]:
        """List the snapshots at which reading can begin now, in order of time."""
        return usable(self.records(), self.available())

    def is_independent(self, record: SnapshotRecord) -> bool:
        """Return whether all updates that a snapshot replaces were deleted already."""
        begins = self.available().begins
        return all(begin >= record.last.ends.get(p, 0) for p, begin in begins.items())

    def read(self, record: SnapshotRecord) -> Iterator[list[PlacedUpdate]]:
        """Yield the updates of a snapshot, and compare them with its record at the end.

        Raises:
            SourceError: some updates were deleted meanwhile, or differ from those written.
        """
        count, digest = 0, CollectionDigest()
        ranges = [
            Range(self.name, partition, start, record.ends[partition])
            for partition, start in record.starts.items()
        ]
        for _, messages in self._reader.read(ranges):
            updates = [
                diff_reader.decode(
                    self.name, (m.partition(), m.offset()), m.key(), m.value(), m.headers()
                )
                for m in messages
            ]
            for update in updates:
                digest.add(update.key, update.value, update.diff)
            count += len(updates)
            yield updates
        if (count, digest.hexdigest()) != (record.count, record.digest):
            raise SourceError(
                f'cannot use the snapshot of "{self._topic}" as of {record.time}: '
                f'"{self.name}" has other updates than were written',
                hint="Something else has written to it or deleted from it. Take another "
                "snapshot with `ikebana compact`, if the updates before are still there.",
            )

    def _record(self, value: bytes | None, offset: int) -> SnapshotRecord:
        try:
            return decode_snapshot(value)
        except DecodeError as error:
            raise SourceError(
                f"cannot use {self.name}[{RECORDS}]@{offset}: {error.reason}",
                hint="Another version of ikebana, or another program, has written to the topic.",
            ) from None
