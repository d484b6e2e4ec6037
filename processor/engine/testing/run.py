"""A pipeline that runs over topics in memory: micro-batches, deaths, restarts, shards."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval, Update
from ikebana.arrangements.update import Multiset as Counted
from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.output_messages import OutputMessage
from ikebana.errors import CheckpointError, ConfigError
from ikebana.processor.base.offsets import Offsets, Positions
from ikebana.processor.base.rows import KeyedUpdate, Records, Tick, pack, unpack
from ikebana.processor.base.sharding import exchange_chunks, owner_of, shard_of
from ikebana.processor.base.transition import ReadBack
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, described
from ikebana.processor.checkpoint.next_step import Desired, Observed, StartStep, start
from ikebana.processor.checkpoint.parts import to_new_shards
from ikebana.processor.checkpoint.recorded_plan import edit_under_way, without_unlogged_edit
from ikebana.processor.checkpoint.recovering import Remains, Unclosed, rebuild, rebuild_problems
from ikebana.processor.checkpoint.takeover import OutputState
from ikebana.processor.engine.dataflow import Beside, Emitted
from ikebana.processor.engine.evaluate import (
    Attempt,
    HasPlan,
    OutputsWritten,
    as_message,
    attempt,
    consolidated,
    plan_of,
    reports_of,
    require_readable,
    schema_lookup,
)
from ikebana.processor.engine.testing.topics import Topics
from ikebana.processor.planning import planner, starts
from ikebana.processor.planning.backfill import has_caught_up
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.plan import ERRORS, Input, Output, Plan
from ikebana.processor.topics import input_times, reclock, replays
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.input_times import InputTimes, ShardReports
from ikebana.processor.topics.intake import Intake, UpdateIntake, intake_of
from ikebana.processor.topics.replays import retractions_of
from ikebana.processor.topics.row_files import files_of
from ikebana.processor.topics.slices import reading_of, rows_in, slices
from ikebana.processor.topics.source_offset import SourceOffset, is_settled, started

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


class BatchRequest(NamedTuple):
    """The arguments of the next batch; see `Run.batch`."""

    now_ms: int | None
    limit: int | None
    ends: Mapping[str, Mapping[int, int]] = {}
    idle: Set[Where] = frozenset()
    heartbeat: bool = False
    first: bool = False


def minting_state(
    plan: Plan,
    topics: Topics,
    last: SourceOffset,
    reports: ShardReports,
    asked: BatchRequest,
) -> MintingState:
    """How far the topics go after a batch on which the shards have these reports."""
    names = dict.fromkeys((*plan.topics, *plan.transaction_topics))
    there = {name: topics.ends(name) for name in names}
    idle = dict.fromkeys((source.name for source in plan.inputs), asked.idle)
    times = input_times.after_reports(plan, last.input_times, reports, last.positions, there, idle)
    closed = {
        source.name: [
            each
            for each in topics.closed[source.topics[0]]
            if each.after > times.get(source.name, InputTimes()).progress_at
        ]
        for source in plan.inputs
        if source.traits.kind == "updates"
    }
    ends = {topic: dict(asked.ends.get(topic, there[topic])) for topic in there}
    begins = {
        topic: topics.first(source, topic)
        for source in plan.inputs
        for topic in source.topics
        if topic not in last.positions
        and source.name not in plan.backfills
        and source.start not in starts.WORDS
    }
    return MintingState(ends, begins, {}, times, closed)


def rebuild_begin(
    plan: Plan, topics: Topics, begins: Positions, exchanges: Mapping[int, int]
) -> SourceOffset:
    """The offset at which the rebuild of a plan's state begins.

    Raises: CheckpointError, for topics of outputs that `ikebana recover` refuses.
    """
    own_ranges: dict[str, Mapping[int, tuple[int, int]]] = {}
    for output in plan.published:
        if output.traits.codec is None:
            snapshot, ends = topics.snapshots.get(output.topic), topics.ends(output.topic)
            own_ranges |= replays.to_read(output.topic, dict.fromkeys(ends, 0), ends, snapshot)
    left = Remains(
        lease=None,
        commits={},
        outputs={each.name: OutputState(topics.last(each.topic)) for each in plan.published},
        unclosed={each.name: _unclosed(each, topics) for each in plan.published},
        lost={},
        read_back=own_ranges,
        begins={topic: dict.fromkeys(by, 0) for topic, by in begins.items()},
        ends={topic: topics.ends(topic) for topic in begins},
        policies={},
        topic_ids={},
        exchanges=exchanges,
        starts=begins,
    )
    if problems := list(rebuild_problems(plan, left)):
        raise CheckpointError(
            "the checkpoint cannot be created again: "
            + "; ".join(f"{each.path} {each.reason}" for each in problems),
            hint=f"{problems[0].instead}.",
            paths=[each.path for each in problems],
        )
    return rebuild(plan, left)


def _unclosed(output: Output, topics: Topics) -> Unclosed:
    """What a topic has beyond the end of its last progress."""
    last = topics.last(output.topic)
    ends, stand = ({}, 0) if last is None else (last.ends, last.upper)
    beyond = [
        (partition, message)
        for partition, held in topics.messages[output.topic].items()
        for message in held[ends.get(partition, 0) :]
        if message is not None
    ]
    if output.traits.codec is not None:
        return Unclosed(len(beyond))
    times = [
        update.time
        for partition, message in beyond
        for update in replays.updates_of(output, output.topic, partition, message)
        if update.time >= stand
    ]
    return Unclosed(len(times), max(times, default=-1))


@dataclass(slots=True)
class Unfinished:
    """A batch in the offset log that some shards have not committed.

    `attempts` has the last result of each shard, `committed` the results that are committed.
    """

    before: SourceOffset
    after: SourceOffset
    attempts: dict[int, Attempt] = field(default_factory=dict)
    committed: dict[int, Emitted] = field(default_factory=dict)

    @property
    def last_committed(self) -> int:
        """The last batch that any shard has committed."""
        return (self.after if self.committed else self.before).batch

    def computed(self, shard: int, result: Attempt) -> None:
        """Remember the result of a shard.

        Raises:
            CheckpointError: the shard had another result before.
        """
        earlier = self.attempts.setdefault(shard, result)
        if earlier is result:
            return
        for output, updates in result.emitted.updates.items():
            if (first := sorted(earlier.emitted.updates[output], key=repr)) != (
                then := sorted(updates, key=repr)
            ):
                raise CheckpointError(
                    f"batch {self.after.batch} of shard {shard}, run again, gives other updates "
                    f'of output "{output}": {_shown(first, then)} before, and '
                    f"{_shown(then, first)} now",
                    hint="A function of the pipeline depends on more than what it is given, such "
                    "as a clock, chance, or what it has kept.",
                )
        if (
            earlier.changes != result.changes
            or earlier.emitted.exchanges != result.emitted.exchanges
        ):
            raise CheckpointError(
                f"batch {self.after.batch} of shard {shard}, run again, leaves another state",
                hint="A function of the pipeline depends on more than what it is given, such as a "
                "clock, chance, or what it has kept.",
            )

    def commit(self, shard: int, store: MemoryStore) -> None:
        """Commit the result of a shard, if it is not committed already."""
        if shard not in self.committed:
            self.attempts[shard].commit(store)
            self.committed[shard] = self.attempts[shard].emitted


def _shown(updates: Sequence[KeyedUpdate], others: Sequence[KeyedUpdate]) -> str:
    """The first update that the others lack, as text."""
    return next((str(tuple(each)) for each in updates if each not in others), "none")


def metadata_of(
    plan: Plan, shards: int, last: SourceOffset, begins: Positions
) -> CheckpointMetadata:
    """The metadata of a checkpoint of a plan.  Raises: PlanError, for functions without names."""
    plain = described(plan.portable())
    return CheckpointMetadata("test", "test", shards, plain, last, begins=begins)


def rescaled(stores: Sequence[MemoryStore], shards: int) -> list[MemoryStore]:
    """Distribute the entries of shards over another number of shards, by key."""
    after = [MemoryStore() for _ in range(shards)]
    entries = heapq.merge(*(list(store.scan(b"")) for store in stores))
    for shard, entry in to_new_shards(entries, lambda key: shard_of(key, shards)):
        after[shard].put(*entry)
    return after


# No event time lies beyond this clock, whatever `ahead` says.
_NO_CLOCK = 1 << 62


class Run:
    """A run of a pipeline over topics in memory, one micro-batch at a time.

    `send` appends messages to its topics; `batch` runs one micro-batch, and `read` runs
    batches until nothing is left to do.  Read the results with `updates`, `collection`,
    `messages` and `errors`.  `crash` runs a batch in a process that dies, `restart` continues
    as a new process, with a changed pipeline where a checkpoint allows it, or, as
    `restart(shards=…)`, with another number of shards.

    >>> from ikebana import Pipeline
    >>> shop = Pipeline("shop")
    >>> _ = shop.topic("orders").upsert().to("latest")
    >>> run = Run(shop, shards=2)
    >>> run.send("orders", 1, {"product": "tea"})
    >>> run.read()
    >>> run.collection("latest")
    [(1, {'product': 'tea'})]

    No clock is read: pass `now_ms` where the time of day counts.  Without it, batches in
    ingest time have the times 0, 1, 2 and so on, and no event time is too far ahead.  A batch
    takes at most `exchange` packed messages that come from other shards.

    A batch is minted as Spark's source mints it, is in the log from then on, and runs in every
    shard that has not committed it.
    """

    def __init__(
        self,
        pipeline: Plan | HasPlan,
        topics: Topics | None = None,
        shards: int = 1,
        exchange: int = 1000,
        *,
        schemas: "Schemas | Mapping[int, Any] | None" = None,
    ) -> None:
        self.plan = self._written = self._running = plan = plan_of(pipeline)
        self.topics = Topics() if topics is None else topics
        for source in plan.inputs:
            require_readable(source, schemas)
        positions = {}
        for source in plan.inputs:
            for topic in source.topics:
                self.topics.create(topic)
                positions[topic] = self.topics.first(source, topic)
        for topic in plan.transaction_topics:
            positions[topic] = dict.fromkeys(self.topics.ends(topic), 0)
        self.last = started(plan, positions, {}, self.topics.snapshots, files_of(plan))
        """The last batch as in the offset log: the offsets it read, and the upper of its times."""
        self._begins = self.last.positions
        self.frontiers: dict[str, int] = {}
        """The frontiers of those outputs that have advanced."""
        self.written = OutputsWritten(plan)
        self.waiting = 0
        """The number of records that wait until their times are closed."""
        self.stores = [MemoryStore() for _ in range(shards)]
        self._metadata: CheckpointMetadata | None = None
        self._next: CheckpointMetadata | None = None
        """The metadata of the new plan while the old one still runs."""
        self._finishes = False
        """Whether the old plan only finishes its work."""
        self._exchange: list[list[bytes]] = [[] for _ in range(shards)]
        self._most = exchange
        self._reports = ShardReports(-1)
        self._ahead: Positions = {}
        """By output that is written in portions, its ends before the first portion."""
        self._unfinished: Unfinished | None = None
        self._schemas = schema_lookup(schemas)
        self._open()

    @property
    def released(self) -> tuple[str, ...]:
        """The parts of the state that removed operators leave to be deleted."""
        return () if self._metadata is None else self._metadata.released

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        *,
        partition: int = 0,
        timestamp: int | None = None,
    ) -> None:
        """Append a message to a topic that the pipeline reads; see `Topics.send`.

        Raises:
            ConfigError: the pipeline does not read the topic, or the message does not have
                the topic's format.
        """
        sources = [source for source in self.plan.inputs if topic in source.topics]
        if not sources and topic not in self.plan.transaction_topics:
            raise ConfigError(
                f'pipeline "{self.plan.name}" does not read topic "{topic}"',
                hint=f"It reads {', '.join(dict.fromkeys(self.plan.topics))}.",
            )
        for source in sources:
            where = f'a message of topic "{topic}"'
            key = as_message(source, "key", key, where)
            value = as_message(source, "value", value, where)
        self.topics.send(topic, key, value, partition=partition, timestamp=timestamp)

    def batch(
        self,
        now_ms: int | None = None,
        *,
        heartbeat: bool = False,
        first: bool = False,
        limit: int | None = None,
        ends: Offsets | None = None,
        idle: Set[Where] = frozenset(),
    ) -> bool:
        """Run the next micro-batch; return False if there is nothing to do.

        The batch reads about `limit` records at most, and up to `ends`, offsets by topic and
        partition.  Partitions (topic, number) in `idle` count as idle and do not hold the
        frontier back.  A `heartbeat` batch advances the time without records; `first` is the
        batch that Spark runs at a start.  If a `crash` has left a batch unfinished, this
        finishes that batch.  After a `restart` with a changed pipeline the first batches finish
        the work of the old pipeline, and read nothing.

        Raises:
            CheckpointError: a replayed batch gives other updates than before.
            RecordError: a record cannot be used, and the pipeline's policy is to fail.
        """
        unfinished = self._logged(BatchRequest(now_ms, limit, ends or {}, idle, heartbeat, first))
        if unfinished is None:
            return False
        self._finish(unfinished)
        return True

    def crash(
        self,
        now_ms: int | None = None,
        *,
        committed: Collection[int] = (),
        limit: int | None = None,
    ) -> bool:
        """Run the next micro-batch in a process that dies; return False if there is none.

        Every shard computes the batch, and the shards in `committed` commit it.  The next
        call of `batch` replays it in the others, and raises an error if they compute other
        updates than before: then the pipeline depends on more than its records.
        """
        unfinished = self._logged(BatchRequest(now_ms, limit))
        if unfinished is None:
            return False
        self._attempt(unfinished)
        for shard in committed:
            unfinished.commit(shard, self.stores[shard])
        return True

    def read(self, now_ms: int | None = None, *, limit: int | None = None) -> None:
        """Run micro-batches until there is nothing to do."""
        while self.batch(now_ms, limit=limit):
            pass

    def restart(
        self, pipeline: Plan | HasPlan | None = None, *, shards: int | None = None
    ) -> None:
        """Continue as a new process, with a changed pipeline or number of shards if given.

        If work is unfinished, the next batches first finish it under the old pipeline, with the
        old number of shards.

        Raises:
            CheckpointError: a checkpoint does not allow the change; it names every reason.
        """
        if pipeline is not None or shards is not None:
            self._edit(
                self._written if pipeline is None else plan_of(pipeline),
                len(self.stores) if shards is None else shards,
            )
        self._open()

    def recover(self, pipeline: Plan | HasPlan | None = None) -> None:
        """Lose the checkpoint, and go on as after `ikebana recover`, or as another pipeline.

        The next batches rebuild the state, and write the missing updates to the outputs.

        Raises:
            CheckpointError: the contents of outputs cannot be retracted, as in `ikebana recover`.
        """
        self._lose(self._written if pipeline is None else plan_of(pipeline))
        self._open()

    def updates(self, output: str) -> list[Update[Any]]:
        """The updates of an output so far: `((key, value), time, diff)`, consolidated.

        They are in order of time, with keys and values as Python data.  The data of the
        output `errors` are error records.

        Raises:
            ConfigError: the pipeline has no such output.
        """
        target = self._output(output)
        return consolidated(self.plan, target, self.written.updates[target.name])

    def collection(self, output: str, as_of: int | None = None) -> list[Any]:
        """The pairs (key, value) of an output as of a time, by default the last.

        A pair whose count is 2 is in the list twice.  They are in the order of arrival.

        Raises:
            ConfigError: the pipeline has no such output, or a count is negative, as it may
                be in the difference of two collections.
        """
        rows = Counted(
            (data, change)
            for data, time, change in self.updates(output)
            if as_of is None or time <= as_of
        )
        if negative := [data for data, count in rows.items() if count < 0]:
            raise ConfigError(
                f'cannot list output "{output}": {negative[0]!r} has a negative count',
                hint="Read the counts with updates().",
            )
        return [data for data, count in rows.items() for _ in range(count)]

    def errors(self) -> list[dict[str, Any]]:
        """The error records that have not been retracted."""
        return self.collection(ERRORS)

    def messages(self, output: str) -> list[OutputMessage]:
        """The messages of an output's topic so far, encoded in the output's format."""
        return self.written.messages[self._output(output).name]

    def frontier(self, output: str) -> int:
        """The frontier of an output: no more updates come at times before it."""
        return self.frontiers.get(self._output(output).name, 0)

    @property
    def counted(self) -> Counter[str]:
        """The numbers of late, repeated and other records by kind; see `dataflow.Emitted`."""
        return self.written.counted

    def _open(self) -> None:
        """Set up as a new process does."""
        for topic in self.plan.topics:
            self.topics.create(topic)
        plan = self._running
        self._physical = planner.physical(plan)
        self._intakes = {
            s: intake_of(s, self._physical, self._schemas, named=plan.shares_topics(s))
            for s in plan.inputs
        }

    def _edit(self, written: Plan, shards: int) -> None:
        """Go on with a plan, at once or after the old one has finished its work."""
        plan = written.portable()
        step = start(MemoryWorld(self, shards), Desired(plan, shards))
        self.plan, self._written = step.following.final, written
        after = step.following.after
        self._next = msgspec.structs.replace(after, shards=shards) if step.precedes else None

    def _lose(self, written: Plan) -> None:
        """Lose the checkpoint, and begin to rebuild the state of a plan from the topics."""
        for topic in written.topics:
            self.topics.create(topic)
        begins = {t: self.topics.first(i, t) for i in written.inputs for t in i.topics}
        exchanges = {shard: len(rows) for shard, rows in enumerate(self._exchange)}
        self.last = rebuild_begin(written, self.topics, begins, exchanges)
        # In the lost checkpoint outputs may have had other names.
        self.written.rename({each.topic: each.name for each in self._running.published}, written)
        progress = {each.name: self.topics.last(each.topic) for each in written.published}
        self.frontiers = {name: last.upper for name, last in progress.items() if last is not None}
        self.plan = self._written = self._running = written
        self._begins, shards = begins, len(self.stores)
        self.stores = [MemoryStore() for _ in range(shards)]
        self._metadata = self._next = self._unfinished = None
        self._finishes, self._reports = False, ShardReports(-1)
        self._ahead.clear()

    def _is_over(self) -> bool:
        """Whether the old plan is done: its work is finished, or its backfill has caught up."""
        if self._next is None or not is_settled(self.last):
            return False
        return self._finishes or has_caught_up(self._running, self.last.positions)

    def _in_log(self) -> Logged:
        """The end of the offset log, and of the log of commits."""
        after = self.last if self._unfinished is None else self._unfinished.after
        return Logged(None if after.batch < 0 else after, after.batch, self.last.batch)

    def _logged(self, asked: BatchRequest) -> Unfinished | None:
        """The batch to run: the unfinished one, or the next one, which this puts into the log."""
        if self._unfinished is None:
            while (after := self._next) is not None and self._is_over():
                self._edit(self._written, after.shards)
                self._open()
            if (minted := self._minted(asked)) is None:
                return None
            # It is in the offset log from here on, so it is replayed after any failure.
            self._unfinished = Unfinished(self.last, minted)
        return self._unfinished

    def _minted(self, asked: BatchRequest) -> SourceOffset | None:
        """The next batch over the records that can be read now; None if there is none."""
        before = self.last
        plan, edited = self._running, self._edited(before)
        look = minting_state(plan, self.topics, before, self._reports, asked)
        now_ms = asked.now_ms
        if now_ms is None:
            now_ms = _NO_CLOCK if plan.is_dated else before.upper
        after = reclock.mint(
            plan,
            before,
            look._replace(
                begins=replays.with_begins(
                    look.begins, replays.begins(plan, replays.first_offsets(self._begins, before))
                ),
                exchanges={shard: len(rows) for shard, rows in enumerate(self._exchange)},
                replayed=self._reports.replayed,
                read_back=self._read_back(edited, before),
            ),
            reclock.BatchTrigger(now_ms, asked.limit, asked.heartbeat, asked.first, self._most),
            edited,
        )
        if after.batch == before.batch:
            return None
        assert after.transition.follows(before.transition), (before.transition, after.transition)
        # Encoded and decoded, as in Spark's offset log.
        return SourceOffset.from_json(after.to_json())

    def _finish(self, batch: Unfinished) -> None:
        """Complete a batch in the shards that have not committed it."""
        self._attempt(batch)
        for shard, store in enumerate(self.stores):
            batch.commit(shard, store)
        self._unfinished = None
        self.last = batch.after
        self._publish(batch, [batch.committed[shard] for shard in range(len(self.stores))])

    def _attempt(self, batch: Unfinished) -> None:
        before, after = batch.before, batch.after
        intervals = replays.intervals(self._running, before, after)
        rows, edit = self._rows(before, after), self._edit_of(after)
        for shard, store in enumerate(self.stores):
            if shard not in batch.committed:
                result: Attempt = attempt(
                    self._running,
                    self._physical,
                    store,
                    rows[shard],
                    intervals,
                    Beside(
                        transition=after.transition,
                        edit=edit,
                        released=() if after.transition.fills else self.released,
                        owns=owner_of(shard, len(self.stores)),
                    ),
                )
                batch.computed(shard, result)

    def _edited(self, before: SourceOffset) -> reclock.Edited:
        """How the batch after `before` continues the last edit."""
        metadata = self._metadata
        if metadata is None:
            return reclock.NOT_EDITED
        edit = edit_under_way(metadata, before, is_done=True)
        return reclock.Edited.of(metadata.edits, edit, metadata.released, finishes=self._finishes)

    def _read_back(self, edited: reclock.Edited, before: SourceOffset) -> ReadBack:
        """The offsets that an edit about to begin reads of the topics of outputs."""
        spans: ReadBack = {}
        for topic in edited.read_back if before.transition.is_behind(edited.edits) else ():
            snapshot, ends = self.topics.snapshots.get(topic), self.topics.ends(topic)
            spans |= replays.nothing_read(
                replays.to_read(topic, dict.fromkeys(ends, 0), ends, snapshot)
            )
        return spans

    def _retractions(self, after: SourceOffset) -> Iterator[tuple[int, Records]]:
        """The rows that a batch reads from the topics of outputs, by shard."""
        edit, transition = self._edit_of(after), after.transition
        read_back = edit.read_back if edit else {}
        outputs = replays.read_in(self._running, read_back, transition)
        for piece in replays.ranges(outputs, transition):
            held = self.topics.messages[piece.topic][piece.partition][piece.start : piece.end]
            messages = [message for message in held if message is not None]
            for shard, chunk in retractions_of(self._running, piece, messages, len(self.stores)):
                yield shard, _record(chunk)

    def _edit_of(self, after: SourceOffset) -> Edit | None:
        """The edit of the plan that a batch belongs to, if any."""
        return None if self._metadata is None else edit_under_way(self._metadata, after)

    def _rows(self, before: SourceOffset, after: SourceOffset) -> list[list[Records]]:
        """The rows that each shard gets in a batch."""
        rows: list[list[Records]] = [[] for _ in self.stores]
        for piece in slices(self._running, before, after):
            place = piece.place
            reading = reading_of(self._running, piece, self._intake, len(rows))
            if piece.file is not None:
                files = rows_in(self._running.input(piece.input), piece)
                messages = [message for some in files for message in some]
            else:
                held = self.topics.messages[place.topic][place.partition][place.start : piece.end]
                messages = [message for message in held if message is not None]
            for shard, chunk in [*reading.add(messages), *reading.finish()]:
                rows[shard].append(_record(chunk))
        for shard, record in self._retractions(after):
            rows[shard].append(record)
        for shard, shard_rows in enumerate(rows):
            begin, end = (of.exchanges.get(shard, 0) for of in (before, after))
            shard_rows += map(_record, self._exchange[shard][begin:end])
        return rows

    def _intake(self, source: Input) -> Intake | UpdateIntake:
        """The intake of an input, or of the rows of its history."""
        intake = self._intakes.get(source)
        if intake is None:
            named = self._running.shares_topics(self._running.input(source.name))
            intake = intake_of(source, self._physical, self._schemas, named=named)
            self._intakes[source] = intake
        return intake

    def _publish(self, batch: Unfinished, emitted: list[Emitted]) -> None:
        """Publish the results of a batch from all shards."""
        transition = batch.after.transition
        closed = emitted[0].intervals
        for result in emitted:
            for at, row in exchange_chunks(result.exchanges, len(self.stores)):
                self._exchange[at].append(pack(row))
        self._reports = reports_of(emitted, batch.after.batch)
        self.waiting = sum(result.waiting for result in emitted)
        messages = self.written.take(self._running, emitted, closed)
        ends = {output.name: self.topics.ends(output.topic) for output in self._running.published}
        for output in self._running.published:
            for key, value, headers in messages[output.name]:
                self.topics.send(output.topic, key, value, headers=headers)
            times = [u.time for result in emitted for u in result.updates[output.name]]
            if output.name in transition.writing:
                # Progress does not mention a portion.
                self._ahead.setdefault(output.name, ends[output.name])
                assert set(times) <= {transition.at}, (output.name, times)
                times = []
            elif self._ahead.pop(output.name, None) is not None:
                before = sum(result.written_before[output.name] for result in emitted)
                times += [transition.at] * before
            self._close(output, closed[output.name], batch.after.batch, times)

    def _close(self, output: Output, interval: Interval, batch: int, times: Sequence[int]) -> None:
        """Check that updates lie in their batch's interval, and that intervals leave no gap."""
        assert interval.lower == self.frontiers.get(output.name, interval.lower)
        assert all(time in interval for time in times), (output.name, interval, times)
        self.frontiers[output.name] = interval.upper
        lower, upper, topic = interval.lower, interval.upper, output.topic
        ends, count = self._ahead.get(output.name, self.topics.ends(topic)), len(times)
        self.topics.publish(
            ProgressRecord("c", "p", topic, batch, lower, upper, count, ends, "changes")
        )

    def _output(self, name: str) -> Output:
        # In the checkpoint outputs may have their old names.
        topics = {output.name: output.topic for output in self._written.published}
        for output in self.plan.published:
            if topics.get(name) == output.topic:
                return output
        raise ConfigError(
            f'pipeline "{self.plan.name}" has no output "{name}"',
            hint=f"Its outputs are {', '.join(topics)}.",
        )


class MemoryWorld:
    """The checkpoint of a run in memory, where no other instance is; see `next_step.World`."""

    def __init__(self, run: Run, shards: int) -> None:
        self._run, self._shards = run, shards

    def look(self) -> Observed:
        """Look at the run; its first edit makes the metadata of its checkpoint."""
        run, shards, logged = self._run, len(self._run.stores), self._run._in_log()
        unfinished = run._unfinished
        committed = logged.committed if unfinished is None else unfinished.last_committed
        metadata = run._metadata or metadata_of(run._running, shards, run.last, run._begins)
        ran = msgspec.structs.replace(
            without_unlogged_edit(metadata, logged.offset), shards=shards
        )
        return Observed(ran, logged, committed)

    def hold(self, step: StartStep) -> Observed:
        """Go on with the plan of a step."""
        observed, run = self.look(), self._run
        if not step.fits(observed.logged):
            return observed
        run._running, run._metadata, run._finishes = step.plan, step.metadata, step.finishes
        run.written.expect(step.following.final)
        return observed

    def take(self, step: StartStep) -> None:
        """Drop the unfinished batch, or distribute the state over another number of shards."""
        run = self._run
        if step.action == "drop":
            run._unfinished = None
        else:
            run._exchange += [[] for _ in range(self._shards - len(run.stores))]
            run.stores = rescaled(run.stores, self._shards)


def _record(chunk: bytes) -> Records:
    row = unpack(chunk)
    assert not isinstance(row, Tick)
    return row
