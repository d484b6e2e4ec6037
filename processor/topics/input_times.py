"""The knowledge about the times of inputs with event times or times of a source.

It is logged with each batch, and updated from the commit records of a batch before the next batch
is minted.  So the interval of a batch never depends on the records of that batch.

A part of it is the log of which records were late or too far ahead when they were read.  An edit
may have to read the records again, and each has to count at the same time as before.  A record
counts at its own time, unless it was late, and counted at the frontier, or too far ahead of the
clock.  The log has both kinds as ranges of offsets.  It also has some of the frontiers, each with
the offsets up to which the input had been read.  No record after these offsets counts before the
frontier, so a second reading that is past them may close all times before it.

An input of facts (CDCv2) has its frontier from the reports of tasks (`Coverage`): it is the least
time that is not complete, because progress has no statement about it, or counts more updates than
were read.  It equals that of `Cdcv2Reader`, which has the facts themselves; statements and
numbers of distinct updates are enough here, and fit into commit records and the logged offset.
The order of the reports does not matter.  Times before the frontier are dropped.  Two statements
that contradict each other are an error as long as both are there, even beyond a gap; so are more
updates than progress counts.  Each update may be counted only once: `kernels.facts` removes
repeats.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.diff import add_times, pack_times
from ikebana.processor.base.diff_reader import ContradictionError
from ikebana.processor.base.offsets import Offsets, Positions, have_reached
from ikebana.processor.base.rows import FIRST, InSource, Judged, TimesReport
from ikebana.processor.base.transition import NOTHING_REPLAYED, Replayed
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics import event_time, source_transactions
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.source_transactions import Transactions, topic_key

# Decision (a log of the first reading): Which records were late depends on the batches of then,
# which no topic tells. Places in each key's state are not enough for partial images and state
# machines; a first pass over the topic does not tell who was late.

# Every batch logs all of it, so it must stay small.
MOST_JUDGED = 1_000
_MOST_OFFSETS = 3_000
_MOST_REACHED = 256
_LEAST_REACHED = 8


class Reached(msgspec.Struct, array_like=True, frozen=True):
    """A frontier: no record at or after these offsets counts before it."""

    frontier: int
    positions: Positions


class ReadingLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log of one input.

    * `judged`: the late and too early records, by topic and partition, in order of offsets.
    * `reached`: in order of frontiers.
    * `every`: one of so many batches that move the frontier is in `reached`; `count` have come
      since the last one.
    * `is_full`: there were more such records than fit into the log, which is therefore empty.
    """

    judged: dict[str, dict[int, list[Judged]]] = {}
    reached: list[Reached] = []
    every: int = 1
    count: int = 0
    is_full: bool = False

    def with_judged(self, topic: str, partition: int, judged: Judged) -> "ReadingLog":
        """Add a range of offsets from a batch; batches come in their order."""
        if self.is_full:
            return self
        earlier = self.judged.get(topic, {}).get(partition, [])
        added = sorted([*earlier, judged], key=lambda each: each.first)
        merged = added[:1]
        for each in added[1:]:
            last = merged[-1]
            if (last.lower, last.latest) == (each.lower, each.latest):
                # The frontier has not moved in between, so it holds for all offsets between them.
                merged[-1] = msgspec.structs.replace(last, last=max(last.last, each.last))
            else:
                merged.append(each)
        of_topic = {**self.judged.get(topic, {}), partition: merged}
        return msgspec.structs.replace(self, judged={**self.judged, topic: of_topic})

    def with_frontier(self, frontier: int, positions: Offsets) -> "ReadingLog":
        """Add the frontier after a batch, and the offsets up to which it has read."""
        earlier = self.reached
        if frontier <= (earlier[-1].frontier if earlier else 0) or self.is_full:
            return self
        if self.count + 1 < self.every:
            return msgspec.structs.replace(self, count=self.count + 1)
        newest = Reached(frontier, {topic: dict(by) for topic, by in positions.items()})
        reached, every = [*earlier, newest], self.every
        offsets = sum(map(len, positions.values()))
        most = max(_LEAST_REACHED, min(_MOST_REACHED, _MOST_OFFSETS // max(offsets, 1)))
        if len(reached) > most:
            reached, every = reached[1::2], 2 * every
        return msgspec.structs.replace(self, reached=reached, every=every, count=0)

    def limited(self) -> "ReadingLog":
        """The log itself; an empty one marked as full if it has too many ranges."""
        count = sum(len(ranges) for by in self.judged.values() for ranges in by.values())
        return ReadingLog(is_full=True) if count > MOST_JUDGED else self

    def closed(self, positions: Offsets) -> int:
        """The frontier of a second reading that has reached these offsets."""
        return max(
            (each.frontier for each in self.reached if have_reached(positions, each.positions)),
            default=0,
        )

    def within(self, topic: str, partition: int, start: int, end: int) -> tuple[Judged, ...]:
        """The logged ranges that overlap the offsets from `start` up to `end`."""
        ranges = self.judged.get(topic, {}).get(partition, ())
        return tuple(each for each in ranges if each.first < end and each.last >= start)


class RowFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a history: the number of its rows, its size, and when it was written last.

    `constants` are columns that the file itself lacks: those by which a table is partitioned.
    """

    path: str
    rows: int
    size: int
    mtime_ns: int
    constants: dict[str, bool | int | float | str | None] = {}


class Base(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a new checkpoint reads before the topic of an input.

    Of a diff topic it is a snapshot, with offsets of the snapshot topic.  Of other inputs it is a
    history: each of the `files` is a partition, and its rows are the offsets.
    """

    topic: str
    starts: dict[int, int]
    ends: dict[int, int]
    files: list[RowFile] = []


class Coverage(msgspec.Struct, frozen=True):
    """The statements and the updates found, for times at or beyond the frontier.

    `stated` has the united statements as `packed` packs them.  `counts` has the numbers of
    distinct updates by time, as `diff.pack_times` packs them.  The form is unique: two
    coverages with the same content are equal.
    """

    frontier: int = 0
    stated: list[list[int]] = []
    counts: list[int] = msgspec.field(default_factory=list, name="found")


class InputTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The knowledge about one input.

    * `frontier`: the time up to which the input is complete.
    * `greatest`: the greatest event time by topic and partition.
    * `idle`: all partitions are idle, so the frontier does not wait for the input.
    * `coverage`: the statements and counts of a CDCv2 input.
    * `transactions`: the state of a source's transactions.
    * `reads`, `progress_at`, `checkpoint`, of a diff topic: the offsets up to which the batch
      reads, the offset at which progress is read next, and the checkpoint that writes the topic.
    * `base`, of a diff topic: the snapshot that the first batch that reads the topic reads, too;
      of other inputs: the history that is read before the topics, until it has been read.
    * `log`, of an input with event times: how its records were judged.
    * `again`, of such an input that is read again: times before it are complete.
    * `furthest`, of a transaction topic: by topic and partition of its changes the place of the
      last one that was read, as `source_transactions.Repeats` has it.

    No END counts the rows of a source's first snapshot, but all of them were in their topics
    before the first END.  So the frontier passes the first transaction only when changes have
    been read up to `snapshot`: the ends of the topics when the first END was seen.
    """

    frontier: int = 0
    greatest: Positions = {}
    coverage: Coverage | None = None
    transactions: Transactions | None = None
    reads: dict[int, int] = {}
    progress_at: int = 0
    checkpoint: str = ""
    snapshot: Positions | None = None
    idle: bool = False
    base: Base | None = None
    log: ReadingLog = ReadingLog()
    again: int | None = None
    furthest: dict[str, dict[int, InSource]] = {}

    @property
    def unread_base(self) -> Base | None:
        """The snapshot, unless a batch has read it."""
        return None if self.frontier else self.base


class ShardReports(msgspec.Struct, frozen=True):
    """The reports of all shards on a batch, from which the next one is minted.

    * `seen`: the reports on inputs' times that came with the batch.
    * `facts`: the numbers of new facts of CDCv2 by input, packed by `pack_times`.
    * `replayed`: the progress of a transition, by all shards.
    * `size`: the number of bytes of the packed rows that the shards got.
    """

    batch: int
    seen: list[TimesReport] = []
    facts: list[dict[str, list[int]]] = []
    replayed: Replayed = NOTHING_REPLAYED
    size: int = 0


def key_of(source: Input) -> str:
    """Choose the key for knowledge about an input: its name, or that of its transaction topic."""
    topic = source.transaction_topic
    return source.name if topic is None else topic_key(topic)


def after_reports(
    plan: Plan,
    knowledge: Mapping[str, InputTimes],
    reports: ShardReports,
    positions: Offsets,
    ends: Offsets,
    idle: Mapping[str, Set[Where]],
) -> dict[str, InputTimes]:
    """Update the knowledge about inputs by the reports on a batch.

    `positions` are the offsets up to which topics have been read, `ends` the end offsets of every
    partition.  `idle` has the idle partitions of each input.
    """
    result = dict(knowledge)
    for topic in plan.transaction_topics:
        before = knowledge.get(topic_key(topic), InputTimes())
        changes = [t for s in plan.inputs if s.transaction_topic == topic for t in s.topics]
        result[topic_key(topic)] = _transactions(
            before,
            [seen for seen in reports.seen if seen.input == topic_key(topic)],
            {name: positions.get(name, {}) for name in changes},
            {name: ends.get(name, {}) for name in changes},
        )
    for source in plan.inputs:
        if source.moves_frontier_later and source.transaction_topic is None:
            before = knowledge.get(source.name, InputTimes())
            if source.event_time is not None:
                silent = idle.get(source.name, frozenset())
                result[source.name] = _events(source, before, reports, ends, silent)
            else:
                result[source.name] = _facts(source, before, reports)
    return result


def _transactions(
    before: InputTimes, seen: Sequence[TimesReport], positions: Offsets, ends: Offsets
) -> InputTimes:
    reports = [one.transactions for one in seen if one.transactions is not None]
    after = source_transactions.advanced(before.transactions or Transactions(), reports)
    frontier, snapshot = after.frontier, before.snapshot
    if frontier and not before.frontier:
        if snapshot is None:
            snapshot = {topic: dict(by) for topic, by in ends.items()}
        behind = any(
            positions[topic].get(partition, 0) < end
            for topic, by in snapshot.items()
            for partition, end in by.items()
        )
        frontier = 0 if behind else frontier
    # A topic that is read no more may be read from its beginning later.
    furthest = {topic: dict(by) for topic, by in before.furthest.items() if topic in positions}
    for one in seen:
        if one.transactions is not None and (place := one.transactions.furthest) is not None:
            of_topic = furthest.setdefault(one.topic, {})
            of_topic[one.partition] = max(place, of_topic.get(one.partition, FIRST))
    return msgspec.structs.replace(
        before,
        frontier=frontier,
        transactions=after,
        snapshot=None if frontier else snapshot,
        furthest=furthest,
    )


def _events(
    source: Input,
    before: InputTimes,
    reports: ShardReports,
    partitions: Offsets,
    idle: Set[Where],
) -> InputTimes:
    greatest: Positions = before.greatest
    log = before.log
    for seen in reports.seen:
        if seen.input == source.name and seen.greatest is not None:
            greatest = event_time.merged(greatest, {seen.topic: {seen.partition: seen.greatest}})
        if seen.input == source.name and seen.judged is not None:
            log = log.with_judged(seen.topic, seen.partition, seen.judged)
    all_partitions = [(topic, p) for topic in source.topics for p in partitions.get(topic, ())]
    assert source.event_time is not None
    frontier = event_time.frontier(
        source.event_time, all_partitions, greatest, idle, before.frontier
    )
    silent = bool(all_partitions) and idle >= {*all_partitions}
    return msgspec.structs.replace(
        before, frontier=frontier, greatest=greatest, idle=silent, log=log
    )


def _facts(source: Input, before: InputTimes, reports: ShardReports) -> InputTimes:
    coverage = coverage_after(source.name, before.coverage or Coverage(), reports)
    return msgspec.structs.replace(before, frontier=coverage.frontier, coverage=coverage)


def coverage_after(name: str, before: Coverage, reports: ShardReports) -> Coverage:
    """Advance the coverage of an input of facts by the statements and facts of a batch."""
    statements = []
    for seen in reports.seen:
        for lower, upper, packed in seen.statements if seen.input == name else ():
            counts: dict[int, int] = {}
            add_times(counts, packed)
            statements.append(Progress(lower, upper, counts))
    new: dict[int, int] = {}
    for facts in reports.facts:
        add_times(new, facts.get(name, ()))
    return add_statements(before, statements, new)


def add_statements(
    coverage: Coverage, statements: Iterable[Progress], new: Mapping[int, int]
) -> Coverage:
    """Add the statements of a batch, and its numbers of `new` updates by time.

    Raises:
        ContradictionError: statements contradict each other or the updates.
    """
    frontier = coverage.frontier
    merged = merge_statements(_beyond(frontier, [*unpacked(coverage.stated), *statements]))
    there: dict[int, int] = {}
    add_times(there, coverage.counts)
    for time, count in new.items():
        if time < frontier:
            raise ContradictionError(time, "there are more of them than progress counts")
        there[time] = there.get(time, 0) + count
    _check(merged, there)
    if merged and merged[0].lower == frontier:
        _, covered, counts = merged[0]
        missing = (time for time, count in counts.items() if there.get(time, 0) < count)
        frontier = min(missing, default=covered)
    return Coverage(
        frontier,
        packed(_beyond(frontier, merged)),
        pack_times({time: count for time, count in there.items() if time >= frontier}),
    )


def merge_statements(statements: Iterable[Progress]) -> list[Progress]:
    """Merge statements whose intervals touch or overlap; return them in order.

    >>> merge_statements([Progress(4, 9, {5: 1}), Progress(0, 6, {5: 1}), Progress(11, 12, {})])
    [Progress(lower=0, upper=9, counts={5: 1}), Progress(lower=11, upper=12, counts={})]

    Raises:
        ContradictionError: two of them give different counts of one time.
    """
    pieces: list[Progress] = []
    counts: dict[int, int] = {}
    # The keys of the last piece's `counts`, in order.
    times: list[int] = []
    for statement in sorted(statements, key=lambda one: (one.lower, one.upper)):
        lower, upper, stated = statement
        if lower == upper:
            continue
        if not pieces or pieces[-1].upper < lower:
            counts, times = {}, []
            pieces.append(Progress(lower, lower, counts))
        covered = pieces[-1].upper
        before = times[bisect_left(times, lower) : bisect_left(times, upper)]
        for time in (*before, *stated):
            if time < covered and counts.get(time, 0) != stated.get(time, 0):
                raise ContradictionError(time, "progress gives two counts of them")
        fresh = sorted(time for time in stated if time >= covered)
        times += fresh
        counts.update((time, stated[time]) for time in fresh)
        pieces[-1] = pieces[-1]._replace(upper=max(covered, upper))
    return pieces


def packed(statements: Iterable[Progress]) -> list[list[int]]:
    """Pack statements as lists of lower, upper, and the counts as `diff.pack_times` has them.

    >>> packed([Progress(1_000, 9_000, {1_005: 1, 1_006: 2})])
    [[1000, 9000, 1005, 1, 1, 2]]
    """
    return [[lower, upper, *pack_times(dict(counts))] for lower, upper, counts in statements]


def unpacked(statements: Iterable[Sequence[int]]) -> Iterator[Progress]:
    """Unpack what `packed` has packed."""
    for lower, upper, *times in statements:
        counts: dict[int, int] = {}
        add_times(counts, times)
        yield Progress(lower, upper, counts)


def _beyond(frontier: int, statements: Iterable[Progress]) -> Iterator[Progress]:
    """Cut statements to the times at or beyond the frontier."""
    for lower, upper, counts in statements:
        if lower >= frontier:
            yield Progress(lower, upper, counts)
        elif upper > frontier:
            left = {time: count for time, count in counts.items() if time >= frontier}
            yield Progress(frontier, upper, left)


def _check(statements: Sequence[Progress], there: Mapping[int, int]) -> None:
    lowers = [statement.lower for statement in statements]
    for time, count in there.items():
        at = bisect_right(lowers, time) - 1
        if at >= 0 and time < statements[at].upper:
            counted = statements[at].counts.get(time, 0)
            if count > counted:
                raise ContradictionError(time, f"there are {count}, and progress counts {counted}")
