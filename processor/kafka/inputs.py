"""The topics of inputs: their end offsets and identity, and waiting for records and for topics.

A topic that was deleted and created again has another id, and its offsets name other records.
That is an error that names the topic; no record is skipped silently.

The brokers hold a fetch at the end of a partition until a record comes.  So waiting with a fetch
reports a record at once, and costs almost nothing until then.

Topics that do not exist yet are waited for, unless a checkpoint has begun to read them: then
records are lost.
"""

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.codecs.diff import SnapshotRecord
from ikebana.errors import SourceError
from ikebana.processor.base import texts
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.offsets import Offsets, Positions, TopicInfo, offset_in, progress_topic
from ikebana.processor.checkpoint.inputs import (
    again_refusal,
    beginnings_refusal,
    first_offsets,
    lost_end,
    read_whole,
    topics_refusal,
    writer_of,
)
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.client import patiently
from ikebana.processor.kafka.reader import Range, RangeReader, progress_record
from ikebana.processor.kafka.snapshots import Snapshots
from ikebana.processor.planning import starts
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics import input_times, replays
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.processor.topics.event_time import Silence, Where
from ikebana.processor.topics.input_times import InputTimes, ShardReports
from ikebana.processor.topics.row_files import files_of
from ikebana.processor.topics.source_offset import SourceOffset, started

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.next_step import Observed


# Decision (records that come together are one batch): A producer's records and a transaction's
# partitions show one after the other. So a batch after a pause waits until two looks at the ends,
# 5 ms apart, agree (30 ms at most).

# While no records come in, new partitions are looked for this often.
_DESCRIBE_EVERY_S = 5.0
# Records that are further apart than this count as separate arrivals.
_GATHER_EVERY_S = 0.005
# How long to ask again for the end of a partition if it is before the offset already read.
_REPLACED_S = 20.0

# Decision (an idle source waits in a fetch): Brokers hold a fetch at the end of what was read, so
# a record is heard of as it comes. Looks at the topics are for what a fetch does not show:
# partitions, the end of an aborted transaction, silence.

# How long brokers hold a fetch, in milliseconds, and the size of the answer: a hint suffices.
_HELD = {"fetch.wait.max.ms": "500", "max.partition.fetch.bytes": "1024"}
# A fetch does not wait for a record that is there already; then this is the pause.
_UNREAD_PAUSE_S = 0.02

# Topics are looked for this often; the missing ones are reported at pauses that double.
_LOOK_EVERY_S = 1.0
_SAY_AFTER_S = 10.0
_SAY_EVERY_S = 300.0
# How often the wait checks whether the run is to stop.
_SLICE_S = 0.1


class InputOffsets(NamedTuple):
    """The inputs at one moment; `begins` has every new partition."""

    ends: Positions
    begins: Positions
    ids: dict[str, str]


def refuse_lost(observed: "Observed", plan: Plan, settings: Mapping[str, str]) -> None:
    """Refuse a plan that reads inputs again if their topics have lost the records read first.

    Raises: SourceError.
    """
    last = observed.logged.offset or observed.metadata.start
    first = replays.first_offsets(observed.metadata.begins, last)
    # A backfill that is under way continues where it is.
    begins = replays.with_begins(replays.begins(plan, first), last.positions)
    admin = client.admin(settings)
    names = [topic for name in plan.backfills for topic in plan.input(name).topics]
    described = topics.describe(admin, names)
    if (refusal := topics_refusal(names, described, {})) is not None:
        raise refusal.error()
    have = topics.beginnings(admin, {name: topic.partitions for name, topic in described.items()})
    policies = {
        name: topics.settings_of(admin, name).get("cleanup.policy", "delete") for name in names
    }
    if (refusal := again_refusal(plan, begins, have, policies)) is not None:
        raise refusal.error()


class ExchangeEnds:
    """Caches the end offsets of the exchange topic after a batch.

    One request for each batch is enough: no transaction of the pipeline is open between two
    batches, so what a batch has written is readable, and nothing is written.
    """

    def __init__(self) -> None:
        self._last: tuple[int, Mapping[int, int]] | None = None

    def after(self, batch: int, ask: Callable[[], Mapping[int, int]]) -> Mapping[int, int]:
        """Return the end offsets after a batch, from `ask` if they are not cached."""
        if self._last is None or self._last[0] != batch:
            self._last = batch, ask()
        return self._last[1]


class Inputs:
    """Asks about the input topics of a plan, and remembers what seldom changes."""

    def __init__(self, plan: Plan, settings: Mapping[str, str]) -> None:
        self._plan = plan
        self._settings = settings
        self._admin = client.admin(settings)
        self._topics = list(dict.fromkeys([*plan.topics, *plan.transaction_topics]))
        self._exchange_ends = ExchangeEnds()
        self.dated = DatedInputs(plan, self._admin, settings) if plan.is_dated else None
        self._descriptions: dict[str, TopicInfo] = {}
        self._described_s = 0.0

    def start(self, read: Collection[str] | None = None) -> SourceOffset:
        """Choose the offsets at which a new checkpoint begins to read.

        `read` are the topics that an existing checkpoint has begun to read; None without one.

        Raises:
            SourceError: a topic that has to be read from its beginning has lost it.
        """
        self._describe({})
        snapshots = self._snapshots()
        # An input that is added to a checkpoint must not begin at a snapshot.
        compacted = snapshots if read is None else {*snapshots} & {*read}
        check_beginnings(self._plan, self._admin, compacted)
        begins = topics.beginnings(self._admin, self._partitions)
        ends = topics.ends(self._admin, self._partitions)
        positions: Positions = {topic: begins[topic] for topic in self._plan.transaction_topics}
        for source in self._plan.inputs:
            for topic in source.topics:
                # The beginning of a topic that was read before is known, and may be gone.
                is_new = read is None or topic not in read
                positions[topic] = (
                    self._first(source, topic, begins[topic], ends[topic])
                    if is_new
                    else begins[topic]
                )
        ids = {name: topic.id for name, topic in self._descriptions.items()}
        # An input that is added to a checkpoint has none.
        histories = files_of(self._plan) if read is None else {}
        return started(self._plan, positions, ids, snapshots, histories)

    def _first(
        self, source: Input, topic: str, begins: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int]:
        """Find where an input begins to read a topic.  Raises: SourceError."""
        asked = {topic: self._partitions[topic]}
        offsets = first_offsets(
            source, topic, begins, ends, lambda ms: topics.at_time(self._admin, asked, ms)[topic]
        )
        if isinstance(offsets, Refusal):
            raise offsets.error()
        return offsets

    def _added(self, positions: Offsets, begins: Positions, ends: Positions) -> Positions:
        """Find the first offsets of added topics, for inputs that start in their middle."""
        return {
            topic: self._first(source, topic, begins[topic], ends[topic])
            for source in self._plan.inputs
            for topic in source.topics
            if positions
            and topic not in positions
            and source.name not in self._plan.backfills
            and source.start not in starts.WORDS
        }

    def _snapshots(self) -> dict[str, SnapshotRecord]:
        """Choose the snapshots at which reading begins, for diff topics without their beginnings.

        The others are read whole: rows of other inputs may be older than a snapshot.
        """
        diffs = {s.topics[0] for s in self._plan.inputs if s.traits.kind == "updates"}
        if not diffs:
            return {}
        reader = RangeReader(self._settings)
        try:
            records = {
                topic: Snapshots(
                    self._admin, reader, topic, self._descriptions[topic].id
                ).instead()
                for topic in sorted(diffs)
            }
        finally:
            reader.close()
        return {topic: record for topic, record in records.items() if record is not None}

    def look(self, positions: Offsets, ids: Mapping[str, str] | None = None) -> InputOffsets:
        """Read the last stable offsets.

        Raises:
            SourceError: a topic does not exist, has another id than in `ids`, or ends before
                `positions`.
        """
        if not self._descriptions:
            self._describe(ids or {})
        try:
            ends = topics.ends(self._admin, self._partitions)
        except KafkaException:
            # This finds out whether the topic is gone or the brokers are away.
            self._describe(ids or {})
            raise
        moved = any(
            end != offset_in(topic, partition, positions)
            for topic, by in ends.items()
            for partition, end in by.items()
        )
        if moved or time.monotonic() - self._described_s > _DESCRIBE_EVERY_S:
            if self._describe(ids or {}):
                ends = topics.ends(self._admin, self._partitions)
            if lost_end(ends, positions) is not None:
                ends = topics.from_leaders(
                    lambda: topics.ends(self._admin, self._partitions),
                    self._admin,
                    lambda ends: lost_end(ends, positions) is not None,
                    _REPLACED_S,
                )
                if (refusal := lost_end(ends, positions)) is not None:
                    raise refusal.error()
        keys = self._position_keys
        new = {
            topic: count
            for topic, count in self._partitions.items()
            for key in keys[topic]
            if any(p not in positions.get(key, {}) for p in range(count))
        }
        begins = topics.beginnings(self._admin, new)
        begins |= self._added(positions, begins, ends)
        return InputOffsets(
            ends,
            {
                key: begins.get(topic, dict.fromkeys(by, 0))
                for topic, by in ends.items()
                for key in keys[topic]
            },
            {name: topic.id for name, topic in self._descriptions.items()},
        )

    def wait_for_pause(self, at_most_s: float) -> None:
        """Wait until no records have come for a few milliseconds, at most for a time.

        The records of a producer, and the marks at the end of a transaction, reach partitions one
        after the other.  A batch that began with the first of them would leave out the rest.
        """
        until = time.monotonic() + at_most_s
        before: Positions = {}
        try:
            while (ends := topics.ends(self._admin, self._partitions)) != before:
                if time.monotonic() + _GATHER_EVERY_S > until:
                    return
                before = ends
                time.sleep(_GATHER_EVERY_S)
        except KafkaException:
            return  # the look that follows says what is wrong

    def exchanges(self, batch: int, shards: int) -> Mapping[int, int]:
        """Read the ends of the exchange topic after a batch, by shard."""
        topic = self._plan.exchange_topic
        return self._exchange_ends.after(
            batch, lambda: topics.high_watermarks(self._admin, {topic: shards})[topic]
        )

    @functools.cached_property
    def _position_keys(self) -> Mapping[str, tuple[str, ...]]:
        """The position keys of each topic."""
        plan = self._plan
        again = [plan.input(name) for name in plan.backfills]
        return {
            topic: (topic, *(plan.position_key(i, topic) for i in again if topic in i.topics))
            for topic in self._topics
        }

    @property
    def _partitions(self) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self._descriptions.items()}

    def _describe(self, ids: Mapping[str, str]) -> bool:
        """Ask for the topics and their partitions; return whether they have changed."""
        described = topics.describe(self._admin, self._topics)
        similar = functools.partial(similar_topic, self._admin)
        if (refusal := topics_refusal(self._topics, described, ids, similar)) is not None:
            raise refusal.error()
        changed = described != self._descriptions
        self._descriptions = described
        self._described_s = time.monotonic()
        return changed


# Of inputs with times of their own it is known, before a batch is minted: for diff topics, the
# progress of their closed batches; for others, the report of the last batch, from its commit
# records, and which partitions are idle.


class DatedInputs:
    """Keeps, from batch to batch, the progress that was read and the idle partitions."""

    def __init__(self, plan: Plan, admin: AdminClient, settings: Mapping[str, str]) -> None:
        self._plan = plan
        self._admin = admin
        self._settings = settings
        self._closed: dict[str, list[ClosedProgress]] = {}
        self._read_to: dict[str, int] = {}
        self._frozen: Positions | None = None
        self._silence = Silence(plan)
        # A cache of the knowledge after a batch, for these ends, by the idle partitions.
        self._learned_at: tuple[int, Positions] | None = None
        self._learned: dict[frozenset[tuple[str, frozenset[Where]]], dict[str, InputTimes]] = {}
        self._open_reader: RangeReader | None = None

    def freeze(self) -> None:
        """Ignore batches of diff topics that are closed after this call."""
        self._frozen = self._progress_ends()

    def knowledge(
        self, last: SourceOffset, ends: Positions, reports: ShardReports
    ) -> tuple[dict[str, InputTimes], dict[str, list[ClosedProgress]]]:
        """Compute the knowledge about inputs after `last`, and the closed batches to read.

        `reports` are those of the shards on the batch `last`.

        Raises:
            SourceError: another checkpoint than before writes the progress of a diff topic.
        """
        times = dict(last.input_times)
        if any(source.moves_frontier_later for source in self._plan.inputs):
            moment = time.monotonic()
            self._silence.learn(last.batch, reports.seen, moment)
            idle = self._silence.idle(last.positions, ends, moment)
            times = dict(self._after(last, ends, reports, idle))
        return times, self._progress_of(times)

    def knowledge_if_silent(
        self, last: SourceOffset, ends: Positions, reports: ShardReports
    ) -> dict[str, InputTimes] | None:
        """Compute the knowledge as if all partitions that are read to their ends were idle.

        Return None if no input can become idle.
        """
        patient = [
            source
            for source in self._plan.inputs
            if source.event_time is not None
            and source.event_time.idle_ms is not None
            # A topic of transactions announces the changes that are still to come.
            and source.transaction_topic is None
        ]
        if not patient:
            return None
        done = {
            source.name: frozenset(
                (topic, p)
                for topic in source.topics
                for p, end in ends.get(topic, {}).items()
                if offset_in(topic, p, last.positions) >= end
            )
            for source in patient
        }
        return self._after(last, ends, reports, done)

    def _after(
        self,
        last: SourceOffset,
        ends: Positions,
        reports: ShardReports,
        idle: Mapping[str, frozenset[Where]],
    ) -> dict[str, InputTimes]:
        """Compute the knowledge after a batch, or take it from the cache if nothing came in."""
        if self._learned_at != (last.batch, ends):
            self._learned_at, self._learned = (last.batch, ends), {}
        which = frozenset(idle.items())
        if which not in self._learned:
            self._learned[which] = input_times.after_reports(
                self._plan, last.input_times, reports, last.positions, ends, idle
            )
        return self._learned[which]

    def _progress_of(self, knowledge: dict[str, InputTimes]) -> dict[str, list[ClosedProgress]]:
        """Return the closed batches of each diff topic that are not completely read yet."""
        diffs = [source for source in self._plan.inputs if source.traits.kind == "updates"]
        if not diffs:
            return {}
        ends = self._progress_ends() if self._frozen is None else self._frozen
        for source in diffs:
            times = knowledge.get(source.name, InputTimes())
            closed = [c for c in self._closed.get(source.name, ()) if c.after > times.progress_at]
            # Ends of transactions take offsets without records, so the position is kept.
            start = max(times.progress_at, self._read_to.get(source.name, 0))
            end = ends[progress_topic(source.topics[0])][0]
            closed += self._read(source, start, end)
            self._read_to[source.name] = max(start, end)
            self._closed[source.name] = closed
            writer = writer_of(source.topics[0], times.checkpoint, closed)
            if isinstance(writer, Refusal):
                raise writer.error()
            knowledge[source.name] = msgspec.structs.replace(times, checkpoint=writer)
        return dict(self._closed)

    def _progress_ends(self) -> Positions:
        diffs = [source for source in self._plan.inputs if source.traits.kind == "updates"]
        return topics.ends(self._admin, {progress_topic(s.topics[0]): 1 for s in diffs})

    def _read(self, source: Input, start: int, end: int) -> list[ClosedProgress]:
        topic = progress_topic(source.topics[0])
        return [
            ClosedProgress(progress_record(message, SourceError), message.offset() + 1)
            for _, messages in self._reader.read([Range(topic, 0, start, end)])
            for message in messages
        ]

    @property
    def _reader(self) -> RangeReader:
        if self._open_reader is None:
            self._open_reader = RangeReader(self._settings)
        return self._open_reader


def check_beginnings(plan: Plan, admin: AdminClient, compacted: Collection[str]) -> None:
    """Refuse inputs that lack records for which the pipeline would wait for ever.

    The `compacted` topics are read from snapshots.

    Raises:
        SourceError: records at a topic's beginning were deleted, or it has no progress, or
            a topic of transactions has several partitions.
    """
    whole = read_whole(plan).items()
    needed = {name for topic, names in whole if topic not in compacted for name in names}
    needed.update(plan.transaction_topics)
    if not needed:
        return
    described = topics.describe(admin, sorted(needed))
    begins = topics.beginnings(
        admin, {name: topic.partitions for name, topic in described.items()}
    )
    if (refusal := beginnings_refusal(plan, described, begins, compacted)) is not None:
        raise refusal.error()


class Arrival(Enum):
    """The result of a wait."""

    NONE = "no record has come"
    NEW = "a record has come"
    UNREAD = "a record has come before, which nobody has read yet"


class Arrivals:
    """Waits for the first committed record at or beyond positions; used by one thread."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._consumer: Consumer = client.consumer({**settings, **_HELD})
        self._waited_at: Offsets | None = None
        self._has_come = False

    def wait(self, positions: Offsets, at_most_s: float) -> Arrival:
        """Wait until a record has come, at most for a time.

        Other changes, such as the end of an aborted transaction, do not end the wait; the next
        look at the topics notices them.
        """
        if positions != self._waited_at:
            self._consumer.assign(
                [
                    TopicPartition(topic, partition, offset)
                    for topic, by in positions.items()
                    for partition, offset in by.items()
                ]
            )
            self._waited_at, self._has_come = positions, False
        if self._has_come:
            time.sleep(min(at_most_s, _UNREAD_PAUSE_S))
            return Arrival.UNREAD
        deadline = time.monotonic() + at_most_s
        while (left := deadline - time.monotonic()) > 0:
            event = self._consumer.poll(left)
            if event is None:
                return Arrival.NONE
            error = event.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                continue
            # The caller then reads the end offsets, which raises the error if it lasts.
            self._has_come = True
            self._consumer.unassign()
            return Arrival.NEW
        return Arrival.NONE

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


class MissingTopic(NamedTuple):
    """A topic of an input that does not exist, and an existing topic with a similar name."""

    input: str
    topic: str
    near: str | None

    def words(self) -> str:
        """Name it, and the topic that may be meant.

        >>> MissingTopic("people", "custmers", "customers").words()
        'topic "custmers" of input people; did you mean "customers"?'
        """
        meant = f'; did you mean "{self.near}"?' if self.near else ""
        return f'topic "{self.topic}" of input {self.input}{meant}'


def similar_topic(admin: AdminClient, topic: str) -> str | None:
    """The existing topic with a name similar to this one; None if the brokers list none."""

    def ask() -> Collection[str]:
        listed: Mapping[str, object] = admin.list_topics(timeout=client.REQUEST_S).topics
        return listed.keys()

    return texts.did_you_mean(topic, patiently(ask, "the brokers"))


def missing_topics(plan: Plan, admin: AdminClient) -> dict[str, str]:
    """The missing topics, each with its input; empty if the brokers refuse to describe them."""
    beside = read_whole(plan)
    readers: dict[str, str] = {}
    for source in plan.inputs:
        for topic in (*source.topics, *filter(None, [source.transaction_topic])):
            for name in (topic, *beside.get(topic, ())):
                readers.setdefault(name, source.name)
    try:
        there = topics.describe(admin, readers)
    except KafkaException:
        return {}  # what comes next asks the same, and says what is wrong
    return {name: reader for name, reader in readers.items() if name not in there}


def wait_for_topics(
    plan: Plan,
    settings: Mapping[str, str],
    read_before: Callable[[], Collection[str]],
    tell: Callable[[Sequence[Notice]], None],
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> bool:
    """Wait for all missing topics; False if `stopped`.

    The wait ends if one of them is among the topics that the checkpoint has read before
    (`read_before`).  `tell` gets a notice for each missing topic, and `say` the same in words,
    now and then.

    Raises:
        AwayError: the brokers do not answer.
    """
    client.reach(settings)
    admin = client.admin(settings)
    pause_s, due = _SAY_AFTER_S, 0.0
    said: dict[str, str] = {}
    while absent := missing_topics(plan, admin):
        now = time.monotonic()
        if absent != said and not absent.keys().isdisjoint(read_before()):
            break
        if absent != said or now >= due:
            # Which topics there are is asked no more often than something is said.
            lacking = [
                MissingTopic(reader, name, similar_topic(admin, name))
                for name, reader in absent.items()
            ]
            tell([_notice(each) for each in lacking])
            say(f"waiting for {' and '.join(each.words() for each in lacking)}")
            said, due = absent, now + pause_s
            pause_s = min(2 * pause_s, _SAY_EVERY_S)
        until = now + _LOOK_EVERY_S
        while time.monotonic() < until:
            if stopped():
                return False
            time.sleep(_SLICE_S)
    tell([])
    return True


def _notice(lacking: MissingTopic) -> Notice:
    remedy = "" if lacking.near else "; it is read as soon as it is there"
    words = f"waiting for {lacking.words()}{remedy}"
    return Notice("topic", lacking.input, lacking.topic, words)
