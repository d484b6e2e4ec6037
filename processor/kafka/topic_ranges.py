"""Plan which offsets have the collection of a topic as of a time, or its closed batches.

One machine plans the offsets, and others read them, partition by partition.  Only progress and
the first record of each partition are read here.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ikebana.codecs.diff import ProgressRecord, SnapshotRecord, topic_of
from ikebana.errors import SourceError
from ikebana.processor.base.texts import moment
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.kafka.reader import Range, RangeReader

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

    def after(self, place: TopicPlace, most: int | None) -> TopicPlace:
        """Find the place after all batches that are closed now, or about `most` offsets.

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
