"""Read the batches of an output's topic that its progress has closed.

A reader reads only up to the end offsets that progress names, so it never sees a part of a
batch.  Reading starts at a snapshot, at the beginning, or at the last closed batch.  Nothing here
waits for a pipeline: call `closed` again for batches that are closed later.

Messages of outputs with one value for each key become updates.  Those by schemas of a registry
first become what they were made of, keys and values in JSON.

For readers on several machines, one plans the offsets that have the collection as of a time, or
the closed batches (`TopicRanges`), and others read them, partition by partition.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
from confluent_kafka import Message

from ikebana.codecs import diff
from ikebana.codecs.avro_out import InsertedRows
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.change import Headers
from ikebana.codecs.diff import ProgressRecord, SnapshotRecord, topic_of
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.diff_reader import (
    ClosedBatch,
    EarlierUpdates,
    PlacedUpdate,
    Portion,
    TopicPart,
)
from ikebana.processor.base.offsets import progress_topic
from ikebana.processor.base.rows import maker
from ikebana.processor.base.texts import moment
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import DeletedError, Range, RangeReader, progress_record
from ikebana.processor.kafka.snapshots import Snapshots, refuse_deleted
from ikebana.processor.kafka.topics import ReadTopics

# The content of a message: key, value and headers.
_Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | str | None]] | None]
# About how many offsets are in memory at once; a larger batch is in memory as a whole.
_PORTION = 100_000


class PassedError(SourceError):
    """The updates after a reader's place were deleted."""

    @classmethod
    def of(cls, refusal: Refusal) -> "PassedError":
        """Make the error of a refusal."""
        return cls(refusal.message, hint=refusal.hint)


class DiffTopic:
    """One pass over a diff topic; `frontier` is the frontier after the last yielded batch.

    The checks of the topic and the counts of offsets are methods too, because they need the
    same connections and positions as the pass.
    """

    def __init__(self, settings: Mapping[str, str], topic: str, form: str = "diff") -> None:
        self.topic = topic
        self._messages = output_reader(settings, topic, form)
        self.progress_topic = progress_topic(topic)
        self._admin = client.admin(settings)
        # Progress and the updates that it names are read at the same time.
        self._progress_reader = RangeReader(settings)
        self._reader = RangeReader(settings)
        self._last: ProgressRecord | None = None
        self._positions: dict[int, int] = {}
        self._progress_at = 0
        # The offsets of the progress records of batches that are read and not yielded yet.
        self._records_at: dict[int, int] = {}
        self.yielded_at: int | None = None
        """The offset of the progress record of the last batch that was yielded."""
        self._high: dict[int, int] = {}
        self._resumed_after: int | None = None
        self.snapshot: SnapshotRecord | None = None
        """The snapshot at which the pass begins."""
        self._has_snapshot_left = False
        self.complete = True
        """Whether the pass has the first progress record."""
        self.is_output = False
        """Whether there is a progress topic."""
        self._topics = ReadTopics(self._admin, topic)
        self.topic_id = self._topics.existing_id()
        """The id by which a recreated topic of the same name is recognized."""
        # Messages of other formats have old values in earlier messages.
        self.snapshots = (
            Snapshots(self._admin, self._progress_reader, topic, self.topic_id)
            if form == "diff"
            else None
        )
        """The snapshots of the topic, if its format can have any."""
        if described := self._topics.described(self.progress_topic):
            self.is_output = True
            count = described[self.progress_topic].partitions
            begins = self._topics.offsets(topics.beginnings, self.progress_topic, count)
            self._progress_at = begins[0]
            self.complete = self._progress_at == 0

    @property
    def frontier(self) -> int | None:
        """The `upper` of the last batch that was yielded; None before the first."""
        return None if self._last is None else self._last.upper

    def deleted(self) -> str | None:
        """Describe the deleted beginning of the topic; None if nothing was deleted."""
        for partition, low in sorted(self._topics.offsets(topics.beginnings, self.topic).items()):
            if low > 0:
                return (
                    f"the beginning of {self.topic}[{partition}] was deleted, its first "
                    f"record is at or after offset {low}"
                )
        return None

    def require_output(self) -> None:
        """Refuse a topic that is not an output of a pipeline.

        Raises:
            SourceError: it has no progress topic.
        """
        if not self.is_output:
            raise SourceError(
                f'"{self.topic}" is no output of a pipeline: there is no topic '
                f'"{self.progress_topic}"',
                hint="The topics that a pipeline reads have no frontier to follow. `ikebana run` "
                "makes an output topic and its progress when it starts.",
            )

    def begin(self, as_of: int | None = None, *, strict: bool = True) -> None:
        """Begin where the collection as of a time can be read, and all later times.

        This is the newest snapshot at or before `as_of`, else the beginning, else, unless
        `strict`, the oldest snapshot.

        Raises:
            SourceError: records at the beginning were deleted, and no snapshot is old enough.
        """
        if self.snapshots is None:
            self.require_beginning()
        elif (snapshot := self.snapshots.choose(as_of, strict=strict)) is not None:
            self.snapshot, self._has_snapshot_left, self.complete = snapshot, True, False
            self._go_on(snapshot.closing(), snapshot.progress_at)

    def require_beginning(self) -> None:
        """Refuse a topic that has lost its beginning.

        Raises:
            SourceError: records at its beginning were deleted.
        """
        if gone := self.deleted():
            raise SourceError(
                f'cannot accumulate "{self.topic}": {gone}',
                hint="Diff topics need retention.ms=-1 and retention.bytes=-1. What was "
                "deleted can only be made again, by a new checkpoint with new output topics.",
            )

    def last_closed(self) -> ProgressRecord | None:
        """Read the last progress record, searching from the end of the progress topic."""
        last = self.last_progress()
        return None if last is None else last[0]

    def last_progress(self) -> tuple[ProgressRecord, int] | None:
        """Read the same, with its offset."""
        return self._last_before(self._progress_end())

    def skip_closed(self) -> ProgressRecord | None:
        """Skip all closed batches, and return the last one."""
        end = self._progress_end()
        if (last := self._last_before(end)) is None:
            return None
        self._last, self._progress_at = last[0], end
        self._positions = dict(self._last.ends)
        return self._last

    @property
    def progress_at(self) -> int:
        """An offset of the progress topic at or before all batches that were not yielded yet."""
        return self._progress_at

    def resume(self, last: ProgressRecord, progress_at: int) -> None:
        """Go on after a batch that another pass has yielded, and its `progress_at`.

        Raises:
            SourceError: updates that follow were deleted.
        """
        for partition, begin in self._topics.offsets(topics.beginnings, self.topic).items():
            if begin > last.ends.get(partition, 0):
                usable = [] if self.snapshots is None else self.snapshots.usable()
                raise PassedError.of(refuse_deleted(self.topic, last.upper, usable))
        self._go_on(last, progress_at)

    def _go_on(self, last: ProgressRecord, progress_at: int) -> None:
        self._last, self._positions = last, dict(last.ends)
        self._resumed_after = last.batch
        self._progress_at = max(progress_at, self._progress_at)

    def closed(self) -> Generator[TopicPart, None, None]:
        """Yield the closed batches that were not yielded yet, after a history if there is one.

        A snapshot comes as a history, and a batch without updates that closes its time.

        Raises:
            PassedError: meanwhile the topic was compacted beyond the place of the pass.
            SourceError: records are missing or are no updates, the progress topic has a record
                that is no progress, or one of the topics was deleted.
        """
        try:
            yield from self._parts()
        except DeletedError as error:
            usable = [] if self.snapshots is None else self.snapshots.usable()
            if not usable:
                raise
            raise PassedError.of(refuse_deleted(self.topic, self.frontier or 0, usable)) from error

    def _parts(self) -> Iterator[TopicPart]:
        end = self._progress_end()
        yield from self._snapshot()
        middle = not self.complete and self._last is None
        progress = self._records(self._progress_at, end)
        if (after := self._resumed_after) is not None:
            progress = (record for record in progress if record.batch > after)
        records = diff_reader.without_repeats(progress, self._last)
        for portion in diff_reader.portions(
            records, self._positions, _PORTION, first_alone=middle
        ):
            updated = self._updates(portion)
            if middle:
                within: list[list[PlacedUpdate]] = []
                for updates in updated:
                    history, rest = diff_reader.split_history(portion.batches[0], updates)
                    within.append(rest)
                    yield history
                updated, middle = iter(within), False
            for batch in diff_reader.split(portion, updated):
                self._last = batch.progress
                self.yielded_at = self._records_at.pop(batch.progress.batch, self.yielded_at)
                yield batch
            self._positions = portion.ends()
        self._progress_at = max(end, self._progress_at)

    def not_closed(self, ends: Mapping[int, int]) -> int:
        """Count the committed records between the last yielded batch and `ends`."""
        ranges = [
            Range(self.topic, partition, self._positions.get(partition, 0), end)
            for partition, end in ends.items()
        ]
        return sum(len(messages) for _, messages in self._reader.read(ranges))

    def ends(self) -> dict[int, int]:
        """Read the offsets up to which the partitions can be read now."""
        return self._topics.offsets(topics.ends, self.topic)

    def behind(self) -> int:
        """Count the offsets after the last batch that was yielded."""
        ends = self.ends()
        return sum(max(0, end - self._positions.get(p, 0)) for p, end in ends.items())

    def read_so_far(self) -> int:
        """Count the offsets before the last portion that was read."""
        return sum(self._positions.values())

    def close(self) -> None:
        """Close the connections."""
        self._progress_reader.close()
        self._reader.close()

    def _snapshot(self) -> Iterator[TopicPart]:
        """Yield the snapshot at which the pass begins, once."""
        if not self._has_snapshot_left:
            return
        assert self.snapshot is not None, "no snapshot"
        assert self.snapshots is not None, "no snapshots"
        for updates in self.snapshots.read(self.snapshot):
            yield EarlierUpdates(updates)
        self._has_snapshot_left = False
        self.yielded_at = self.snapshot.progress_at
        yield ClosedBatch(self.snapshot.closing(), [])

    def _progress_end(self) -> int:
        # Of both, because the topic may be gone while its progress stays.
        existing = self._topics.described(self.topic, self.progress_topic)
        if self.progress_topic not in existing:
            return 0
        least = {0: self._progress_at}
        end = self._topics.reaching(topics.ends, self.progress_topic, least)[0]
        if end < self._progress_at:
            raise SourceError(
                f"cannot read {self.progress_topic}[0]@{self._progress_at}: it ends at {end}",
                hint="The topic was deleted and created again: read it from its beginning.",
            )
        return end

    def _last_before(self, end: int) -> tuple[ProgressRecord, int] | None:
        messages = self._progress_reader.tail(self.progress_topic, 0, self._progress_at, end)
        records = [(progress_record(each, SourceError), each.offset()) for each in messages]
        return records[-1] if records else None

    def progress_from(self, start: int) -> Iterator[tuple[ProgressRecord, int]]:
        """Yield all progress records from an offset on, each with its own offset."""
        return self._progress(max(start, self._progress_at), self._progress_end())

    def _records(self, start: int, end: int) -> Iterator[ProgressRecord]:
        for record, offset in self._progress(start, end):
            self._records_at.setdefault(record.batch, offset)
            yield record

    def _progress(self, start: int, end: int) -> Iterator[tuple[ProgressRecord, int]]:
        span = Range(self.progress_topic, 0, start, end)
        for _, messages in self._progress_reader.read([span]):
            for message in messages:
                yield progress_record(message, SourceError), message.offset()

    def _updates(self, portion: Portion) -> Iterator[list[PlacedUpdate]]:
        """Read a portion, as lists of updates of one partition each, in order of offsets."""
        ends = portion.ends()
        self._require(ends)
        ranges = [
            Range(self.topic, partition, portion.starts.get(partition, 0), end)
            for partition, end in ends.items()
        ]
        for (topic, partition, *_), messages in self._reader.read(ranges):
            if self._messages is None:
                yield decoded(topic, partition, messages)
            else:
                read = self._messages.read
                yield [
                    u for m in messages for u in read((m.partition(), m.offset()), *_content(m))
                ]

    def _require(self, ends: Mapping[int, int]) -> None:
        """Raise if the topic stays shorter than its progress says."""
        if all(end <= self._high.get(partition, 0) for partition, end in ends.items()):
            return
        self._high = self._topics.reaching(topics.high_watermarks, self.topic, ends)
        for partition, end in sorted(ends.items()):
            if end > self._high.get(partition, 0):
                raise SourceError(
                    f"cannot read {self.topic}[{partition}] up to offset {end}, which its "
                    f"progress names: it ends at {self._high.get(partition, 0)}",
                    hint="The topic was deleted and created again, or lost its end.",
                )


class OutputReader:
    """Reads the messages of one topic; the messages of each partition must come in order."""

    def __init__(self, topic: str, form: str, schemas: Schemas | None = None) -> None:
        self._topic = topic
        self._form = form
        traits = OUTPUT_FORMATS[form]
        assert traits.codec is not None, f"{form} is not read back"
        self._changes = traits.codec().reader()
        self._written = None
        if traits.schemas is not None:
            assert schemas is not None, f"{form} is read without a registry"
            back = traits.schemas().back
            self._written = back(schemas, "key"), back(schemas, "value"), InsertedRows()

    def read(
        self, at: tuple[int, int], key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[PlacedUpdate]:
        """Decode a message at (partition, offset) to its updates.

        Raises:
            SourceError: the message is not in this format.
        """
        try:
            time = diff.read_time(headers)
            if self._written is None:
                changes = self._changes(key, value)
            else:
                keys, values, rows = self._written
                key = None if key is None else keys(key)
                decoded = self._changes(key, None if value is None else values(value))
                changes = [rows.change(key, *change) for change in decoded]
        except DecodeError as error:
            raise SourceError(
                f"cannot read {self._topic}[{at[0]}]@{at[1]} as {self._form}: {error.reason}",
                hint="--format says how the topic is written.",
            ) from None
        return [PlacedUpdate(key, changed, time, count, *at) for changed, count in changes]


def output_reader(settings: Mapping[str, str], topic: str, form: str) -> OutputReader | None:
    """The reader of messages of keys; None for a format of updates, which have diffs.

    Raises:
        ConfigError: the format needs a registry, and the settings name none.
    """
    if form not in SINGLE_VALUE_FORMATS:
        return None
    if not OUTPUT_FORMATS[form].in_registry:
        return OutputReader(topic, form)
    registry = client.of_registry(settings)
    if "url" not in registry:
        raise ConfigError(
            f'cannot read "{topic}": the format {form} needs a schema registry',
            hint="Set schema.registry.url among the settings of the client (`--config`), or name "
            "the pipeline that writes the topic (`--pipeline`), whose registry is used.",
        )
    # Imported here, because few readers need it.
    from ikebana.processor.kafka.registry import Registry

    return OutputReader(topic, form, Registry(registry))


def decoded(topic: str, partition: int, messages: Sequence[Message]) -> list[PlacedUpdate]:
    """Decode messages of one partition of a diff topic, in order.

    Raises:
        SourceError: a record is no update in the `diff` format.
    """
    read = diff.read_headers
    values = [message.value() for message in messages]
    try:
        marks = [read(message.headers()) for message in messages]
    except DecodeError:
        marks = []
    if None in values or not marks:
        # This finds the record that is none, and says why.
        return [
            diff_reader.decode(topic, (partition, message.offset()), *_content(message))
            for message in messages
        ]
    rows = zip(
        [message.key() for message in messages],
        values,
        [time for time, _ in marks],
        [change for _, change in marks],
        repeat(partition),
        [message.offset() for message in messages],
        strict=False,
    )
    return list(map(_placed, rows))


_placed = maker(PlacedUpdate)


def _content(message: Message) -> _Content:
    return message.key(), message.value(), message.headers()


_PEEKED = 100


class PartitionPiece(msgspec.Struct, frozen=True):
    """Offsets of one partition of a topic, and of its snapshot."""

    partition: int
    ranges: list[Range]


class AsOf(NamedTuple):
    """The collection as of a time: the updates in `pieces` at or before it.

    Unless `by_key`, updates of a key may be in several pieces.
    """

    time: int
    pieces: list[PartitionPiece]
    partitions: int
    by_key: bool


class TopicPlace(msgspec.Struct, frozen=True):
    """A place after a closed batch: its frontier, and offsets of the topic and its progress."""

    topic_id: str
    upper: int
    ends: dict[int, int]
    progress_at: int
    batch: int
    # The snapshot before it, if a reader began there.
    base: SnapshotRecord | None = None


class TopicRanges:
    """Plans the offsets that are read of one topic.

    Raises:
        SourceError: the topic does not exist, or is no output.
    """

    def __init__(self, settings: Mapping[str, str], topic: str, form: str) -> None:
        self.topic = topic
        self._form = form
        self._reading = DiffTopic(settings, topic, form)
        self._reader = RangeReader(settings)
        try:
            self._reading.require_output()
        except BaseException:
            self.close()
            raise

    def as_of(self, time: int | None) -> AsOf:
        """Plan the collection as of a time, or the newest closed one.

        Raises:
            SourceError: the time is not closed, or what was before it is gone.
        """
        last = self._reading.last_closed()
        if last is None:
            raise SourceError(
                f'cannot read "{self.topic}": it has no progress, so no time is closed yet',
                hint="Wait until the pipeline has published its first batch.",
            )
        time = last.upper - 1 if time is None else time
        if time >= last.upper:
            raise SourceError(
                f'cannot read "{self.topic}" as of {moment(time)}: its frontier is '
                f"{moment(last.upper)}",
                hint=f"Wait until the frontier is beyond it, or ask for {moment(last.upper - 1)} "
                "or less.",
            )
        base = self._begin(time)
        ends: dict[int, int] = {}
        same = base is None or base.last.ends.keys() == last.ends.keys()
        first = base.closing().lower if base is not None else None
        for record, _ in self._records(0 if base is None else base.progress_at):
            first = record.lower if first is None else first
            same = same and record.ends.keys() == last.ends.keys()
            ends = record.ends
            if record.upper > time:
                break
        if first is not None and time < first and self._reading.complete:
            raise SourceError(
                f'cannot read "{self.topic}" as of {moment(time)}: it begins at time '
                f"{moment(first)}, and its frontier is {moment(last.upper)}",
                hint="Ask for a time between the two.",
            )
        pieces = _pieces(self.topic, {} if base is None else base.last.ends, ends, base)
        placed = base is None or len(base.starts) == len(ends)
        by_key = same and placed and not self._has_no_keys(pieces)
        return AsOf(time, pieces, len(ends), by_key)

    def first(self, since: int | None) -> TopicPlace:
        """Plan where an endless reader begins: at a snapshot, or the beginning.

        Raises:
            SourceError: the beginning is gone, and there is no snapshot at or before `since`.
        """
        topic_id = self._reading.topic_id
        if (base := self._begin(since)) is None:
            return TopicPlace(topic_id, 0, {}, 0, -1)
        return TopicPlace(
            topic_id, base.last.upper, base.last.ends, base.progress_at, base.last.batch, base
        )

    def last(self) -> TopicPlace:
        """The place after the last closed batch; `first` need not be readable any more."""
        topic_id, last = self._reading.topic_id, self._reading.last_progress()
        if last is None:
            return TopicPlace(topic_id, 0, {}, 0, -1)
        record, at = last
        return TopicPlace(topic_id, record.upper, record.ends, at, record.batch)

    def after(self, place: TopicPlace, most: int | None, until: int | None) -> TopicPlace:
        """Find the place after all batches that are closed now, or about `most` offsets.

        Batches after the batch `until` are left out.

        Raises:
            SourceError: the topic was created again.
        """
        if place.topic_id != self._reading.topic_id:
            raise SourceError(
                f'cannot go on reading "{self.topic}": it was deleted and created again since',
                hint="Begin with a new checkpoint.",
            )
        begin = sum(place.ends.values())
        result = place
        for record, at in self._records(place.progress_at):
            if record.batch <= result.batch:
                continue
            if until is not None and record.batch > until:
                break
            size = sum(record.ends.values()) - begin
            if most is not None and size > most and result is not place:
                break
            result = TopicPlace(place.topic_id, record.upper, record.ends, at, record.batch)
        return result

    def between(self, start: TopicPlace | None, end: TopicPlace) -> list[PartitionPiece]:
        """List the offsets of the batches after `start`, up to `end`; without one, of all."""
        begins = {} if start is None else start.ends
        if start is None and end.base is not None:
            begins = end.base.last.ends
        return _pieces(self.topic, begins, end.ends, end.base if start is None else None)

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._reader.close()

    def _begin(self, time: int | None) -> SnapshotRecord | None:
        if self._reading.snapshots is None:
            self._reading.require_beginning()
            return None
        return self._reading.snapshots.choose(time)

    def _records(self, start: int) -> Iterator[tuple[ProgressRecord, int]]:
        """Yield the progress records from an offset on, each with its own."""
        last = None
        for record, at in self._reading.progress_from(start):
            # After a restart progress may repeat a batch; its first record counts.
            if last is None or record.batch > last:
                yield record, at
                last = record.batch

    def _has_no_keys(self, pieces: list[PartitionPiece]) -> bool:
        """Return whether a record among the first of each piece has no key."""
        first = [each.ranges[0] for each in pieces]
        peeked = [r._replace(end=min(r.end, r.start + _PEEKED)) for r in first]
        return any(
            message.key() is None
            for _, messages in self._reader.read(peeked)
            for message in messages
        )


def _pieces(
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    base: SnapshotRecord | None,
) -> list[PartitionPiece]:
    by_partition = {p: [Range(topic, p, starts.get(p, 0), end)] for p, end in ends.items()}
    if base is not None:
        for at, start in base.starts.items():
            held = Range(topic_of(topic), at, start, base.ends[at])
            by_partition.setdefault(at - 1, []).insert(0, held)
    pieces = []
    for partition, ranges in sorted(by_partition.items()):
        if some := [each for each in ranges if each.start < each.end]:
            pieces.append(PartitionPiece(partition, some))
    return pieces
