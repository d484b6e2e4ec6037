"""The knowledge about the times of inputs with event times or times of a source.

It is logged with each batch, and updated from the markers of a batch before the next batch is
minted.  So the interval of a batch never depends on the records of that batch.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.progress import add_times
from ikebana.processor.base.offsets import Offsets, Positions
from ikebana.processor.base.rows import FIRST, InSource, Seen
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics import event_time, transactions
from ikebana.processor.topics.cdcv2_coverage import Coverage, advanced
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.reading_log import ReadingLog
from ikebana.processor.topics.transactions import Transactions


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
      last one that was read, as `transactions.Repeats` has it.

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


class Learned(NamedTuple):
    """The reports of the shards on a batch: times, and the numbers of new facts by input."""

    seen: list[Seen]
    facts: list[dict[str, list[int]]]


def topic_key(topic: str) -> str:
    """Make the key for knowledge about a transaction topic; no input name has a space."""
    return f"transactions {topic}"


def key_of(source: Input) -> str:
    """Choose the key for knowledge about an input: its name, or that of its transaction topic."""
    topic = source.transaction_topic
    return source.name if topic is None else topic_key(topic)


def learned(
    plan: Plan,
    knowledge: Mapping[str, InputTimes],
    news: Learned,
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
            [seen for seen in news.seen if seen.input == topic_key(topic)],
            {name: positions.get(name, {}) for name in changes},
            {name: ends.get(name, {}) for name in changes},
        )
    for source in plan.inputs:
        if source.tells_later and source.transaction_topic is None:
            before = knowledge.get(source.name, InputTimes())
            if source.event_time is not None:
                silent = idle.get(source.name, frozenset())
                result[source.name] = _events(source, before, news, ends, silent)
            else:
                result[source.name] = _facts(source, before, news)
    return result


def _transactions(
    before: InputTimes, seen: Sequence[Seen], positions: Offsets, ends: Offsets
) -> InputTimes:
    reports = [one.transactions for one in seen if one.transactions is not None]
    after = transactions.advanced(before.transactions or Transactions(), reports)
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
    news: Learned,
    partitions: Offsets,
    idle: Set[Where],
) -> InputTimes:
    greatest: Positions = before.greatest
    log = before.log
    for seen in news.seen:
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


def _facts(source: Input, before: InputTimes, news: Learned) -> InputTimes:
    coverage = covered(source.name, before.coverage or Coverage(), news)
    return msgspec.structs.replace(before, frontier=coverage.frontier, coverage=coverage)


def covered(name: str, before: Coverage, news: Learned) -> Coverage:
    """Advance the coverage of an input of facts by the statements and facts of a batch."""
    statements = []
    for seen in news.seen:
        for lower, upper, packed in seen.statements if seen.input == name else ():
            counts: dict[int, int] = {}
            add_times(counts, packed)
            statements.append(Progress(lower, upper, counts))
    new: dict[int, int] = {}
    for facts in news.facts:
        add_times(new, facts.get(name, ()))
    return advanced(before, statements, new)
