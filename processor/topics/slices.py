"""The slices of a batch: the offsets of each partition that it reads, with their times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ikebana.processor.base.offsets import offset_in
from ikebana.processor.base.rows import FIRST, InSource
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.again import pieces
from ikebana.processor.topics.decoding import Decoding
from ikebana.processor.topics.history import key_columns, rows_of
from ikebana.processor.topics.input_times import InputTimes, RowFile, key_of, topic_key
from ikebana.processor.topics.intake import Intake, UpdateIntake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.source_dating import BoundaryReading, dating_of, watch_of
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.topics.taking import taken_to
from ikebana.processor.topics.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets of one partition that a batch reads for one input: `place.start` up to `end`.

    `transactions` is the state of the source's transactions when the batch was minted, and
    `furthest` the place of the last change in the partition before.  For a transaction topic,
    `input` is `input_times.topic_key`.  Of a history, `file` is the one that is read.
    """

    input: str
    place: PartitionRange
    end: int
    transactions: Transactions | None = None
    furthest: InSource = FIRST
    file: RowFile | None = None

    @property
    def size(self) -> int:
        """The number of offsets, including those of aborted records and transaction markers."""
        return self.end - self.place.start


def slices(plan: Plan, start: SourceOffset, end: SourceOffset) -> Iterator[Slice]:
    """Yield the slices of a batch, in the order that decides between records of equal times.

    Inputs come in the order of the plan, and the topics of an input in the order in which it
    lists them, each with its partitions by number.  A topic of several inputs has a slice for
    each of them, with the same offsets and the same times.
    """
    base = end.lower
    bases: dict[tuple[str, int], int] = {}
    for source in plan.inputs:
        yield from _base_slices(plan, source, end)
        for rows in _history_slices(plan, source, start, end, base):
            base += rows.size if rows.place.each else 0
            yield rows
        partitions = sum(len(end.positions.get(topic, {})) for topic in source.topics)
        for topic in source.topics:
            key = plan.position_key(source, topic)
            ends = end.positions.get(key, {})
            if source.traits.kind == "updates":
                ends = end.input_times[source.name].reads if source.name in end.input_times else {}
            for partition, until in sorted(ends.items()):
                since = offset_in(key, partition, start.positions, end.begins)
                if until <= since:
                    continue
                order = source.topics.index(topic)
                place = PartitionRange(topic, partition, order, since, end.upper - 1, each=False)
                if source.is_dated:
                    event = source.event_time
                    latest = None if event is None else event.latest(end.now)
                    place = replace(place, base=end.lower, upper=end.upper, latest=latest)
                    if source.traits.is_updates:
                        place = replace(place, since=taken_to(start, source.name))
                elif plan.time == "offset" and source.name not in plan.backfills:
                    if (topic, partition) not in bases:
                        bases[topic, partition] = base
                        base += until - since
                    place = replace(place, base=bases[topic, partition], each=True)
                known_times = end.input_times.get(key_of(source), InputTimes())
                place = replace(place, partitions=partitions)
                for piece, to in pieces(plan, source, place, until, start, end):
                    furthest = known_times.furthest.get(topic, {}).get(partition, FIRST)
                    yield Slice(source.name, piece, to, known_times.transactions, furthest)
    yield from _transaction_slices(plan, start, end)


def _transaction_slices(plan: Plan, start: SourceOffset, end: SourceOffset) -> Iterator[Slice]:
    """Yield the slices of transaction topics."""
    for topic in plan.transaction_topics:
        for partition, until in sorted(end.positions.get(topic, {}).items()):
            since = offset_in(topic, partition, start.positions, end.begins)
            if until > since:
                place = PartitionRange(topic, partition, 0, since, end.lower, each=False)
                times = end.input_times.get(topic_key(topic), InputTimes())
                yield Slice(topic_key(topic), place, until, times.transactions)


def _base_slices(plan: Plan, source: Input, end: SourceOffset) -> Iterator[Slice]:
    """Yield the slices of the snapshot of a diff topic, in the batch that reads it."""
    times = end.input_times.get(source.name, InputTimes())
    if times.base is None or times.base.files or not times.frontier:
        return
    base = times.base
    for partition, start in sorted(base.starts.items()):
        if (until := base.ends[partition]) > start:
            place = PartitionRange(base.topic, partition, 0, start, end.lower, each=False)
            place = replace(place, upper=end.upper, partitions=len(base.starts), since=0)
            yield Slice(source.name, place, until)


def _history_slices(
    plan: Plan, source: Input, start: SourceOffset, end: SourceOffset, base: int
) -> Iterator[Slice]:
    """Yield the slices of files; `base` is the time of the first row if each has its own."""
    snapshot = end.input_times.get(source.name, InputTimes()).base
    if snapshot is None or not snapshot.files:
        return
    before = start.positions.get(snapshot.topic, {})
    each = plan.time == "offset" and not plan.is_dated
    for at, until in sorted(end.positions.get(snapshot.topic, {}).items()):
        if (since := before.get(at, 0)) < until:
            first = base if each else end.upper - 1
            # Behind those of the topics, of which none is read in the same batch.
            place = PartitionRange(snapshot.topic, at, len(source.topics), since, first, each)
            yield Slice(source.name, place, until, file=snapshot.files[at])
            base += until - since


def rows_in(source: Input, piece: Slice) -> Iterator[list[Message]]:
    """The rows of a slice of a history.

    Raises:
        SourceError: the file is gone, or has changed.
    """
    assert piece.file is not None, "a slice of a topic"
    # Few pipelines have files, and pyarrow takes a while to import.
    from ikebana.processor.topics import row_files

    key, bare = key_columns(source)
    return row_files.read(piece.file, piece.place.start, piece.end, key, bare=bare)


def reading_of(
    plan: Plan, piece: Slice, intake: Callable[[Input], Intake | UpdateIntake], shards: int
) -> Decoding | BoundaryReading:
    """Make the reader of a slice; `intake` gives the intake of an input.

    If several inputs read a topic, the first one counts its records, and the first one with
    transactions counts the changes of these.
    """
    place = piece.place
    where = place.topic, place.partition
    if place.topic in plan.transaction_topics:
        watch = watch_of(plan, place.topic, where, piece.transactions)
        return BoundaryReading(watch, where, place.base)
    source = plan.input(piece.input)
    if piece.file is not None:
        rows = rows_of(source)
        return Decoding(rows, intake(rows), place, shards)
    dating = dating_of(plan, source, where, piece.transactions, piece.furthest)
    # A snapshot has a topic of its own, and the same readers.
    topic = place.topic if place.topic in source.topics else source.topics[0]
    counted = plan.readers(topic)[0] != source
    return Decoding(source, intake(source), place, shards, dating, counted=counted)
