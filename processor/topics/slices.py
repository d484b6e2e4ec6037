"""The slices of a batch: the offsets of each partition that it reads, with their times, decoded.

`Decoding` decodes the messages of a slice, assigns their rows to shards, and packs these.  A row
goes to the shard of its key.  An update without a key goes to a shard by its value, an error
record without a key to shard 0, and a truncate to every shard.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from ikebana.arrangements.update import Interval
from ikebana.processor.base.offsets import offset_in
from ikebana.processor.base.rows import (
    FIRST,
    MOST_NOTED,
    NO_KEY,
    Errors,
    Facts,
    IgnoredMessages,
    InSource,
    Judged,
    KeyedUpdate,
    Noted,
    NotedRecord,
    TimesReport,
    Truncate,
    Updates,
    Upserts,
    add,
    in_columns,
    pack,
    updates_of,
)
from ikebana.processor.base.sharding import (
    MOST_BYTES,
    MOST_RECORDS,
    PartitionRange,
    by_shard,
    shard_of,
)
from ikebana.processor.linear.chain import Growing
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.batch_selection import read_up_to
from ikebana.processor.topics.event_time import Dating
from ikebana.processor.topics.input_codec import takes_empty_for_null
from ikebana.processor.topics.input_times import InputTimes, RowFile, key_of
from ikebana.processor.topics.intake import DecodedUpdates, DecodedUpserts, Intake, UpdateIntake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.replays import split_at_past
from ikebana.processor.topics.row_files import key_columns, rows_of
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.topics.source_transactions import (
    BoundaryReading,
    SourceDating,
    Transactions,
    dating_of,
    topic_key,
    watch_of,
)


class Decoding:
    """Decodes the messages of one partition, in order, into chunks for each shard.

    With `counted`, the rows are marked as already counted: an earlier input reads the same
    messages.
    """

    def __init__(
        self,
        source: Input,
        intake: Intake | UpdateIntake,
        place: PartitionRange,
        shards: int,
        dating: SourceDating | None = None,
        *,
        counted: bool = False,
    ) -> None:
        self._counted = counted
        self._source = source
        self._source_dating = dating
        self._empty_is_null = takes_empty_for_null(source)
        self._intake = intake
        self._place = place
        self._dating = None
        if source.event_time is not None:
            self._dating = Dating(place.base, place.latest, place.judged or ())
        self._where = (place.topic, place.partition)
        self._count = shards
        self._shards = [self._empty() for _ in range(shards)]
        self._errors: list[KeyedUpdate] = []
        self._ignored: Counter[str] = Counter()
        self._latecomers: deque[tuple[int, int]] = deque(maxlen=MOST_NOTED)
        self._greatest: int | None = None
        self._judged: tuple[int, int, bool] | None = None
        self._held = 0
        self._size = 0
        self._growing = Growing()

    def add(self, messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
        """Take messages; yield (shard, packed chunk) whenever enough have gathered."""
        if self._empty_is_null:
            messages = [m if m.value != b"" else m._replace(value=None) for m in messages]
        if self._source_dating is not None:
            # A tombstone repeats the delete before it, which has a time of the source.
            whole = [message for message in messages if message.value is not None]
            self._ignored += Counter({"tombstone": len(messages) - len(whole)})
            messages = self._source_dating.dated(whole)
            self._ignored += self._source_dating.ignored
            self._source_dating.ignored.clear()
        if isinstance(self._intake, UpdateIntake):
            if self._source.traits.kind == "updates":
                place = self._place
                interval = Interval(place.base, place.upper)
                for some in self._growing.portions(messages, all_at_once=not self._intake.expands):
                    result = self._intake.updates(some, self._where, interval, place.since)
                    yield from self._results(result, len(some))
            else:
                yield from self._facts(*self._intake.facts(messages, self._where))
        elif self._source.is_collection:
            for some in self._growing.portions(messages, all_at_once=not self._intake.expands):
                times = self._place.times([message.offset for message in some])
                result = self._intake.updates(some, self._where, times, self._dating)
                yield from self._results(result, len(some))
        elif self._intake.takes_as_is:
            yield from self._upserts(self._place_as_is(messages))
        else:
            yield from self._upserts(messages)
        self._held += len(messages)
        full = self._held >= MOST_RECORDS * self._count
        if full or self._size >= MOST_BYTES * self._count:
            yield from self.flush()

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the gathered rows and the report on times, after the last message."""
        yield from self.flush()
        if self._source_dating is not None and (seen := self._source_dating.seen()) is not None:
            yield 0, pack(seen)
        if self._judged is not None:
            first, last, ahead = self._judged
            judged = Judged(first, last, self._place.base, self._place.latest if ahead else None)
            yield 0, pack(TimesReport(self._source.name, *self._where, judged=judged))

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield the gathered rows of every shard."""
        for at, shard in enumerate(self._shards):
            if shard.keys:
                if self._place.each and self._dating is None:
                    shard.times = self._place.times(shard.offsets)
                yield at, pack(shard)
                self._shards[at] = self._empty()
        if self._errors:
            _, records, times, diffs = zip(*self._errors, strict=True)
            errors = Errors(list(records), list(times), list(diffs), self._counted)
            yield 0, pack(errors)
            self._errors = []
        if self._ignored and not self._place.again:
            yield 0, pack(IgnoredMessages(dict(self._ignored), self._counted, self._noted()))
            self._ignored = Counter()
            self._latecomers.clear()
        if self._greatest is not None:
            seen = TimesReport(self._source.name, *self._where, greatest=self._greatest)
            yield 0, pack(seen)
            self._greatest = None
        self._held = self._size = 0

    def _upserts(self, messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
        assert isinstance(self._intake, Intake)
        decoded = self._intake.upserts(messages, self._where, self._place.partitions, self._dating)
        place = self._place
        if place.judged is None:
            self._judge(decoded.judged)
        self._ignored += decoded.ignored
        self._latecomers += decoded.latecomers
        self._see(decoded.greatest)
        for offset, record in () if place.reported else decoded.errors:
            (time,) = place.times([offset])
            self._error(record, time, 1)
        begin = 0
        for until, offset in decoded.truncates:
            self._place_symbols(decoded, begin, until)
            begin = until
            # A chunk never reaches over a truncate.
            yield from self.flush()
            (time,) = place.times([offset])
            order, partition = place.order, place.partition
            row = Truncate(self._source.name, order, partition, time, offset, self._counted)
            for shard in range(self._count):
                yield shard, pack(row)
        self._place_symbols(decoded, begin, len(decoded.keys))

    def _place_as_is(self, messages: Sequence[Message]) -> list[Message]:
        """Add messages to their shards as they are, and return those without a key."""
        shards, count, size = self._shards, self._count, 0
        keyless: list[Message] = []
        if place_messages is not None and isinstance(messages, list):
            columns = [(shard.keys, shard.values, shard.offsets) for shard in shards]
            placed, size = place_messages(messages, columns, keyless)
            messages = messages[placed:]
        adding = [
            (shard.keys.append, shard.values.append, shard.offsets.append) for shard in shards
        ]
        for message in messages:
            offset, key, value, *_ = message
            if key is None:
                keyless.append(message)
                continue
            add_key, add_value, add_offset = adding[crc32(key) % count]
            add_key(key)
            add_value(value)
            add_offset(offset)
            size += len(key) + (len(value) if value else 0)
        self._size += size
        return keyless

    def _place_symbols(self, decoded: DecodedUpserts, begin: int, until: int) -> None:
        """Add the upserts from `begin` to `until` to their shards."""
        shards, count = self._shards, self._count
        keys, values, offsets = decoded.keys, decoded.values, decoded.offsets
        if until - begin < len(keys):
            keys, values, offsets = keys[begin:until], values[begin:until], offsets[begin:until]
        if special := decoded.special:
            places = [len(shard.keys) for shard in shards]
            for index, key in enumerate(keys, begin):
                number = crc32(key) % count
                if index in special:
                    self._size += _copy_special(decoded, index, shards[number], places[number])
                places[number] += 1
        self._size += _place(keys, values, offsets, shards)
        if decoded.times is not None:
            for key, time in zip(keys, decoded.times[begin:until], strict=True):
                dated = shards[crc32(key) % count].times
                assert isinstance(dated, list)
                dated.append(time)

    def _results(self, result: DecodedUpdates, count: int) -> Iterator[tuple[int, bytes]]:
        self._growing.came(count, sum(len(updates) for _, updates in result.updates))
        self._ignored += result.ignored
        self._latecomers += result.latecomers
        self._see(result.greatest)
        for _, record, time, diff in result.errors:
            self._error(record, time, diff)
        for branch, updates in result.updates:
            outputs = list(branch.outputs)
            inlets = list(branch.inlets)
            root = "" if outputs or inlets else branch.root
            for at, part in by_shard(updates, self._count):
                row = Updates(outputs, *in_columns(part), root, inlets, self._counted)
                yield at, pack(row)

    def _facts(self, facts: Facts, seen: TimesReport) -> Iterator[tuple[int, bytes]]:
        """Add facts to shards by datum, so that one shard sees all repeats of a fact."""
        since = self._place.since
        shards = [Facts(facts.input, [], [], [], [], since) for _ in range(self._count)]
        for fact in updates_of(facts):
            add(shards[shard_of(NO_KEY if fact.key is None else fact.key, self._count)], fact)
        yield from ((at, pack(shard)) for at, shard in enumerate(shards) if shard.keys)
        if seen.statements:
            yield 0, pack(seen)

    def _noted(self) -> list[Noted]:
        """Note the late records among the ignored ones."""
        if not self._latecomers:
            return []
        records = tuple(NotedRecord(*self._where, offset, by) for offset, by in self._latecomers)
        return [Noted("late", self._source.name, self._ignored["late"], records)]

    def _see(self, greatest: int | None) -> None:
        if greatest is not None and (self._greatest is None or greatest > self._greatest):
            self._greatest = greatest

    def _judge(self, judged: tuple[int, int, bool] | None) -> None:
        if judged is not None:
            first, _, ahead = judged if self._judged is None else self._judged
            self._judged = first, judged[1], ahead or judged[2]

    def _error(self, record: bytes, time: int, diff: int) -> None:
        self._errors.append(KeyedUpdate(None, record, time, diff))
        self._size += len(record)

    def _empty(self) -> Upserts:
        place = self._place
        times: int | list[int] = [] if place.each or self._dating is not None else place.base
        name, counted = self._source.name, self._counted
        order, partition = place.order, place.partition
        return Upserts(name, order, partition, times, [], [], [], counted=counted)


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets of one partition that a batch reads for one input: `place.start` up to `end`.

    `transactions` is the state of the source's transactions when the batch was minted, and
    `furthest` the place of the last change in the partition before.  For a transaction topic,
    `input` is `transactions.topic_key`.  Of a history, `file` is the one that is read.
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
                        place = replace(place, since=read_up_to(start, source.name))
                elif plan.time == "offset" and source.name not in plan.backfills:
                    if (topic, partition) not in bases:
                        bases[topic, partition] = base
                        base += until - since
                    place = replace(place, base=bases[topic, partition], each=True)
                known_times = end.input_times.get(key_of(source), InputTimes())
                place = replace(place, partitions=partitions)
                for piece, to in split_at_past(plan, source, place, until, start, end):
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


try:
    from ikebana.compiled._placing import place_messages, place_upserts
except ImportError:
    place_messages = place_upserts = None  # type: ignore[assignment]


def _place(
    keys: list[bytes], values: list[bytes | None], offsets: list[int], shards: Sequence[Upserts]
) -> int:
    """Add upserts to their shards; return the size of their keys and values."""
    columns, count = [(shard.keys, shard.values, shard.offsets) for shard in shards], len(shards)
    placed, size = 0, 0
    if place_upserts is not None:
        placed, size = place_upserts(keys, values, offsets, columns)
    adding = [(keys.append, values.append, offsets.append) for keys, values, offsets in columns]
    for at in range(placed, len(keys)):
        key, value = keys[at], values[at]
        add_key, add_value, add_offset = adding[crc32(key) % count]
        add_key(key)
        add_value(value)
        add_offset(offsets[at])
        size += len(key) + (len(value) if value else 0)
    return size


def _copy_special(decoded: DecodedUpserts, index: int, shard: Upserts, at: int) -> int:
    """Copy the entries of an upsert's index in the dicts; return the size of what was copied."""
    size = 0
    for records, target in ((decoded.bad, shard.bad), (decoded.failed, shard.failed)):
        if (record := records.get(index)) is not None:
            target[at] = record
            size += len(record)
    if (partial := decoded.partial.get(index)) is not None:
        shard.partial[at] = partial
        size += len(partial.value) + len(partial.record)
    if (before := decoded.before.get(index)) is not None:
        shard.before[at] = before
    if (sequence := decoded.sequences.get(index)) is not None:
        shard.sequences[at] = sequence
        size += len(sequence)
    return size
