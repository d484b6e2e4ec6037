"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.  A `Flow` is where updates go: to outputs, to operators by key, and
to other shards.
"""

# Decision (large differences in portions): An output at the edit's time writes beyond its end
# offsets, which readers do not see, and progress closes all of it at once. Formats of one value a
# key need all updates of a key together: one batch.

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval, Time
from ikebana.codecs import canonical
from ikebana.errors import RecordError
from ikebana.processor.base.rows import (
    MOST_NOTED,
    Columns,
    Errors,
    Facts,
    IgnoredMessages,
    KeyedUpdate,
    Noted,
    NotedKind,
    NotedRecord,
    Records,
    TimesReport,
    Truncate,
    Updates,
    Upserts,
    errors_noted,
    in_columns_of,
    keyed,
    notes_added_up,
    times_of,
    updates_of,
)
from ikebana.processor.base.sharding import Hot, hot_keys
from ikebana.processor.base.transition import (
    NO_TRANSITION,
    NOTHING_REPLAYED,
    Phase,
    Replayed,
    Transition,
)
from ikebana.processor.checkpoint import parts
from ikebana.processor.checkpoint.parts import waiting
from ikebana.processor.engine import replaying
from ikebana.processor.engine.budget import MOST as MOST_GATHERED
from ikebana.processor.engine.budget import Budget, GatheredUpdates
from ikebana.processor.engine.editing import (
    Editing,
    FilledPortion,
    is_of_old_plan,
    not_before,
    output_intervals,
    portion,
    store_updates,
)
from ikebana.processor.engine.joined_batch import BatchJoins
from ikebana.processor.engine.joining import portions
from ikebana.processor.engine.replaying import HoldPast, Replay
from ikebana.processor.kernels import arrange, facts, hold, locked, single_value, upsert
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.linear.chain import consolidated, in_portions
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.input_rows import comes_out_of_decoding
from ikebana.processor.planning.joins.stages import JoinStage, joined
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ERRORS, Input, Operator, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.planning.progress import (
    IN,
    OUT,
    far_inlets,
    far_targets,
    held_targets,
)
from ikebana.processor.topics.formatting import Formatted, formatted

Chunks = Sequence[Upserts | Truncate]
_AT_ONCE = 50_000
_WRITE = "write"


def _owns_all(_: bytes) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Beside:
    """What a shard does in a batch beside its records; most batches leave all at its default.

    * `transition`: the transition that this batch belongs to, and `edit`, the last change of the
      plan, if there was one.
    * `released`: parts of the store to delete, as much as fits into a batch.
    * `owns`: whether a key belongs to this shard; by default this is the only shard.
    * `early`: inputs in `mode: diffs` may give updates of times that are not closed yet.  Inputs
      with event time always may.
    * `budget`: how much time the batch may take; without one, any.
    """

    early: bool = False
    transition: Transition = NO_TRANSITION
    edit: Edit | None = None
    released: Sequence[str] = ()
    owns: Callable[[bytes], bool] = _owns_all
    budget: Budget | None = None


NOTHING_BESIDE = Beside()


class Flow:
    """What a micro-batch has emitted so far, and which updates operators get next.

    `emitted` has updates by output; `arriving` those by key for operators of this shard, until
    they are moved; `exchanges` those for operators in the shards of other keys, which the next
    batch hands to them.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        intervals: Mapping[str, Interval],
        physical: Physical,
        beside: Beside,
    ) -> None:
        self.plan, self.store = plan, store
        self.transition, self.owns = beside.transition, beside.owns
        self.editing = editing = Editing.of(beside.edit, beside.transition)
        self.budget = beside.budget or Budget()
        self._physical = physical
        self._far = far_inlets(physical)
        self._held = held_targets(plan, physical, early=beside.early)
        if editing is not None:
            # Updates from the edit's time on wait until these operators are filled.
            self._held |= {(IN, name) for name in editing.edit.frozen}
            intervals = editing.intervals(intervals)
        self.intervals = intervals
        self.outputs = output_intervals(plan, intervals, beside.transition, editing)
        self.emitted = {output.name: GatheredUpdates() for output in plan.published}
        self.arriving: defaultdict[str, GatheredUpdates] = defaultdict(GatheredUpdates)
        self.exchanges: defaultdict[str, GatheredUpdates] = defaultdict(GatheredUpdates)
        self.counted: Counter[str] = Counter()
        self.noted: list[Noted] = []
        self.seen: list[TimesReport] = []
        self._errors_back = GatheredUpdates()
        """Retractions of errors that are in the error topic."""
        self.of_moving: dict[str, list[KeyedUpdate]] = {}
        """The updates of operators that an edit is reading meanwhile."""

    def take(self, rows: Sequence[Records]) -> None:
        """Take the updates that decoding has computed."""
        for row in rows:
            match row:
                case Errors():
                    self.emitted[ERRORS] += _error_updates(row)
                case Updates():
                    updates = Columns(row.keys, row.values, row.times, row.diffs)
                    if ERRORS in row.outputs:
                        self._take_back_errors(updates)
                        continue
                    self._deliver(row.outputs, row.inlets, updates)
                    if row.root:
                        self.flow(row.root, updates)
                case IgnoredMessages():
                    self.counted.update(row.counts)
                    self.noted += row.noted
                case TimesReport():
                    self.seen.append(row)

    def fill(self, editing: Editing) -> FilledPortion:
        """Send a portion of the state through the old plan and the new one, if it takes one."""
        self._gather(editing.time)
        of_before = [name for name in self.arriving if is_of_old_plan(name)]
        arriving = {name: self.arriving.pop(name) for name in of_before}
        filling = portion(editing, self.store, arriving)
        for name, updates in filling.outputs.items():
            self.emitted[name] += updates
        for name, updates in filling.inlets.items():
            self.arriving[name] += updates
        for name, updates in filling.exchanges.items():
            self.send(name, updates)
        self.emitted[ERRORS] += filling.errors
        return filling

    def _gather(self, time: Time) -> None:
        """Give outputs the updates that an edit at `time` has sent to the shards of their keys."""
        for output in self.plan.outputs:
            inlet = planner.inlet_of(output.name)
            for update in self.arriving.pop(inlet, ()):
                to = self.emitted[output.name] if update.time < time else self.arriving[inlet]
                to += [update]

    def send(self, name: str, updates: Iterable[KeyedUpdate]) -> None:
        """Send updates to an operator in the shards of other keys."""
        self.exchanges[name] += updates

    def arrived(self, name: str, upper: Time | None = None) -> Collection[KeyedUpdate]:
        """The updates that an operator gets now; those of times beyond its reach are held."""
        arriving = self.arriving.pop(name, GatheredUpdates())
        if (IN, name) not in self._held:
            return arriving
        part = self.part(hold.IN, name)
        reach = self.intervals[name].upper if upper is None else upper
        latest = (max(some.times) for some in arriving.in_columns(_AT_ONCE))
        if max(latest, default=reach - 1) < reach and not hold.is_due(part, reach):
            return arriving
        step = hold.step if name in self._far else hold.step_in_blocks
        return step(part, arriving, reach)

    def wait(self, name: str, time: Time, *, is_first: bool = False) -> None:
        """Hold the rows of a stage until the edit at `time` is filled.

        Only a new stage gets rows of earlier times, from which its join is filled.  If the join
        begins with them, as the stage `is_first`, they count at the time of the edit; otherwise
        hydration brings them again.
        """
        later = [
            update if update.time >= time else update._replace(time=time)
            for update in self.arriving.pop(name, ())
            if is_first or update.time >= time
        ]
        if later:
            step = hold.step if name in self._far else hold.step_in_blocks
            step(self.part(hold.IN, name), later, time)

    def waiting(self) -> int:
        """How much waits for its time to be closed, except updates that a step moved ahead."""
        if not self.plan.is_dated:
            return 0
        held = self._held - far_targets(self._physical)
        names = [(hold.OUT if kind == OUT else hold.IN).prefix + name for kind, name in held]
        return waiting(self.plan, self.store, self.intervals, names)

    def release(self) -> None:
        """Release the due updates of each output, and hold the rest."""
        for output in self.plan.outputs:
            self._release(output.name)

    def formatted(self) -> dict[str, Formatted]:
        """The messages of every output whose format is not `diff`."""
        messages = {}
        for output in self.plan.outputs:
            if not output.traits.as_updates:
                part = self.part(single_value.PART, output.name)
                result = formatted(self.plan, output, [*self.emitted[output.name]], part)
                messages[output.name] = result
                self.emitted[ERRORS] += result.errors
        return messages

    def _take_back_errors(self, updates: Collection[KeyedUpdate]) -> None:
        """Retract errors of the error topic: those that an edit ends, or all in a rebuild."""
        if not self.transition.rebuilds:
            assert self.editing is not None, "errors are taken back, and no edit is under way"
            updates = self.editing.edit.ended_errors.of(updates)
        self._errors_back += updates

    def release_errors(self) -> None:
        """Release the due errors; this is last, since any operator may add errors."""
        self.emitted[ERRORS] += self._errors_back
        self._release(ERRORS)

    def large(self) -> list[str]:
        """The outputs with more at the time of an edit than a batch should write."""
        if self.editing is None:
            return []
        shown = self.editing.shown.union(self.transition.writing)
        # Formats that need all updates of a key together are written at once.
        return [
            output.name
            for output in self.plan.published
            if output.name in shown
            and output.traits.as_updates
            and self._is_large(output.name, self.editing.time)
        ]

    def written_before(self) -> dict[str, int]:
        """How many updates of each output that this batch closes were written before it."""
        counts = {}
        for name in sorted(self.transition.wrote):
            replay = Replay(self.store, _WRITE, name)
            counts[name] = replay.count
            replay.forget()
        return counts

    def _is_large(self, name: str, time: Time) -> bool:
        """Whether the hold of an output has more than one portion at a time."""
        start = Replay(self.store, _WRITE, name).next or b""
        return hold.has_more(self.part(hold.OUT, name), time, replaying.PORTION, start)

    def sends_before(self, time: Time) -> bool:
        """Whether anything of times before one goes to other shards."""
        return any(is_of_old_plan(name) for name in self.exchanges) or any(
            update.time < time for updates in self.exchanges.values() for update in updates
        )

    def _release(self, name: str) -> None:
        part, lower = self.part(hold.OUT, name), self.outputs[name].lower
        upper = self.outputs[name].upper
        if self.transition.rebuilds:
            passed = progress.output_intervals(self.plan, self.intervals)[name].upper
            released = _rebuilt(part, self.emitted[name], self.transition, lower, passed)
            self.emitted[name] = GatheredUpdates(released)
            return
        since, writes = None, name in self.transition.writing
        if self.editing is not None and name in self.editing.shown:
            since = self.editing.time
        if name == ERRORS and self.plan.backfills:
            # Errors of records that are read again may have times that are closed.
            since = max(lower, since or 0)
        if since is not None:
            self.emitted[name] = GatheredUpdates(not_before(self.emitted[name], since))
        elif (
            not writes
            and (OUT, name) not in self._held
            and (
                # The hold may have updates of an earlier edit at the same time.
                self.editing is None or not hold.is_due(part, upper)
            )
        ):
            return
        released = hold.step(part, self.emitted[name], upper)
        if writes:
            assert not released, f'"{name}" gets updates of times that are closed'
            past = HoldPast(part, self.transition.at)
            released = [*Replay(self.store, _WRITE, name).take(past).rows]
        self.emitted[name] = GatheredUpdates(released)

    def part(self, kind: PartKind, name: str) -> PrefixStore:
        """The part of the store of an operator, an input or an output."""
        return kind.of(self.store, name)

    def flow(self, root: str, updates: Collection[KeyedUpdate]) -> None:
        """Send updates of a root through its branches.

        Raises: TooMuchError, if the results are more than fits into a batch.
        """
        editing = self.editing
        if editing is not None and editing.fills and root in editing.edit.moving:
            self.of_moving.setdefault(root, []).extend(updates)
        for branch in self._physical.branches[root]:
            steps = planner.chain_of(self.plan, branch, self._physical)
            if steps.is_empty and not branch.inlets:
                self._deliver(branch.outputs, (), updates, branch.exchanges)
                continue
            if steps.arranges:
                for some in in_columns_of(updates, _AT_ONCE):
                    arranged, errors = steps.arranged(some, branch.silent)
                    self.emitted[ERRORS] += errors
                    rows = arranged
                    if branch.inlets and None in arranged.keys:
                        rows = Columns.of(keyed([*arranged]))
                    self._deliver(branch.outputs, branch.inlets, rows, branch.exchanges)
                continue
            for passed in in_portions(steps, updates, branch.silent):
                self.emitted[ERRORS] += passed.errors
                results = keyed(passed.updates) if branch.inlets else passed.updates
                self._deliver(branch.outputs, branch.inlets, results, branch.exchanges)
                if steps.expands:
                    self.budget.expand(root)
                # Free their memory before the next portion is computed.
                del passed, results

    def _deliver(
        self,
        outputs: Iterable[str],
        inlets: Collection[str],
        updates: Collection[KeyedUpdate],
        exchanges: Collection[str] = (),
    ) -> None:
        for name in outputs:
            if planner.inlet_of(name) not in (*inlets, *exchanges):
                self.emitted[name] += updates
        for name in inlets:
            self.arriving[name] += updates
        for name in exchanges:
            self.send(name, updates)


def _error_updates(row: Errors) -> list[KeyedUpdate]:
    count = len(row.records)
    diffs = [1] * count if row.diffs is None else row.diffs
    times = times_of(row.times, count)
    return [
        KeyedUpdate(None, record, time, diff)
        for record, time, diff in zip(row.records, times, diffs, strict=True)
    ]


def _rebuilt(
    part: PrefixStore, updates: Collection[KeyedUpdate], of: Transition, stand: Time, passed: Time
) -> list[KeyedUpdate]:
    """Add updates to the hold of an output in a rebuild; release the difference in its last batch.

    The hold adds up the results of the plan, minus the contents of the output's own topic.  Both
    count at one time, so that equal data cancel.  The output is closed up to `stand`, and its
    collection has `passed` a time.  Updates of later times go on waiting.
    """
    adding = [
        update._replace(time=of.at) if of.at <= update.time < passed else update
        for update in updates
    ]
    if of.phase is Phase.REBUILD:
        released = hold.step(part, adding, stand)
        assert not released, "an output gets updates of times that are closed"
        return released
    # Updates that waited for a time which has been passed meanwhile count at the one time.
    return consolidated(
        [
            update._replace(time=min(update.time, of.at))
            for update in hold.step(part, adding, passed)
        ]
    )


class Operators:
    """The operators of a plan in a micro-batch; their results go into its flow."""

    def __init__(self, flow: Flow) -> None:
        self.new_facts: dict[str, dict[int, int]] = {}
        self.complete_joins: list[str] = []
        self.is_filled = False
        self.filled: tuple[int, int] | None = None
        self.flow = flow
        self._plan = plan = flow.plan
        self._operators = {operator.name: operator for operator in plan.operators}
        self._joined = joined(plan)
        self._editing = editing = flow.editing
        filling = editing.edit.takers if editing is not None and editing.fills else ()
        looked_up_as_of = {} if editing is None else editing.looked_up_as_of
        self._joins = BatchJoins(
            plan,
            flow.intervals,
            flow.transition.join_times,
            hydrates=flow.transition.takes and not self._fills,
            filling=filling,
            looked_up_as_of=looked_up_as_of,
            budget=flow.budget,
        )
        self._gathered = {inlet: name for name, inlet in planner.gathered(plan).items()}

    def fill(self, editing: Editing) -> None:
        """Send a portion of the state through the old plan and the new one, if it takes one."""
        filling = self.flow.fill(editing)
        self.filled = filling.parts, filling.keys
        self.is_filled = filling.done

    @property
    def _fills(self) -> bool:
        return self._editing is not None and self._editing.fills

    def learn(self, source: Input, rows: Sequence[Facts]) -> None:
        """Keep the facts of an input until its frontier has passed them."""
        name = source.name
        interval = self.flow.intervals[name]
        of_input = [row for row in rows if row.input == name]
        result = facts.step(
            self.flow.part(facts.PART, name),
            [update for row in of_input for update in updates_of(row)],
            interval,
            since=min((row.since for row in of_input if row.since is not None), default=None),
        )
        self.new_facts[name] = result.counts
        self.flow.counted["repeated"] += result.repeated
        self.flow.flow(name, result.updates)

    def move(self, name: str, upserts: Chunks) -> None:
        """Advance an operator through its interval, after all operators that it waits for."""
        operator = self._operators.get(name)
        if operator is not None:
            view = _OfOperator(self, operator, upserts)
            kind_of(operator).step(operator, view, catalog_of(self._plan))
        elif name in self._joined.stages:
            self._stage(name)
        elif name in self._joined.arrangements:
            self._arrange(name)
        elif name in self._gathered:
            self.flow.emitted[self._gathered[name]] += self.flow.arrived(name)
        # Any other name is an input in `mode: diffs`: its updates flowed when they were taken.

    def settle(self) -> None:
        """Write the arrangements, without the history that no lookup needs any more."""
        self._joins.settle()
        editing = self._editing
        if editing is None or not editing.fills:
            return
        store_updates(self.flow.store, self.flow.of_moving)
        # Other shards first have to take the updates of earlier times that this one sent.
        self.is_filled = self.is_filled and not self.flow.sends_before(editing.time)

    def looked_up(self, name: str, updates: Collection[KeyedUpdate]) -> None:
        """Keep the updates of an upsert for joins that look up its state."""
        if self._joins.looks_up(name):
            part = self.flow.part(upsert.PART, name)
            self._joins.keep_upsert(name, part, updates)

    def _arrange(self, name: str) -> None:
        arrived = self.flow.arrived(name)
        self._joins.arrange(name, self.flow.part(arrange.PART, name), arrived)
        if self._editing is not None and self._fills and name in self._editing.edit.takers:
            # A new join begins from its arrangements when all of them are filled.
            return
        for stage in self._joined.readers.get(name, ()):
            self.flow.arriving[stage.name] += arrived

    def _stage(self, name: str) -> None:
        stage = self._joined.stages[name]
        if self._editing is not None and self._fills and name in self._editing.edit.frozen:
            is_first = name in self._editing.edit.filled_joins.values()
            self.flow.wait(name, self._editing.time, is_first=is_first)
            return
        if self._joins.hydrates(stage):
            self._hydrate(stage)
        elif self._joins.is_hydrated(stage, self.flow.store):
            # It is reported until the exchange topic is read to the end, which may take batches.
            self.complete_joins.append(stage.join)
        part = self.flow.part(locked.PART, name)
        arrived = self.flow.arrived(name, self._joins.reach(stage))
        for (to, exchange), rows, errors, _ in self._joins.run(stage, part, arrived):
            self.flow.emitted[ERRORS] += errors
            if to is not None and exchange:
                self.flow.send(to, rows)
            else:
                self.flow.arriving[to or stage.join] += rows

    def _hydrate(self, stage: JoinStage) -> None:
        begun = self._joins.hydrate(stage, self.flow.store)
        self.flow.arriving[stage.name] += begun.near
        self.flow.send(stage.name, begun.far)
        self.flow.emitted[ERRORS] += begun.errors
        if begun.done:
            self.complete_joins.append(stage.join)


class _OfOperator:
    """The batch as one operator sees it."""

    def __init__(self, batch: Operators, operator: Operator, upserts: Chunks) -> None:
        self._batch, self._flow, self._plan = batch, batch.flow, batch.flow.plan
        self._operator, self._upserts, self._name = operator, upserts, operator.name

    @property
    def interval(self) -> Interval:
        return self._flow.intervals[self._name]

    def part(self, kind: PartKind) -> PrefixStore:
        return self._flow.part(kind, self._name)

    def rows(self) -> list[Upserts | Truncate]:
        sources = kind_of(self._operator).sources(self._operator)
        return [chunk for chunk in self._upserts if chunk.input in sources]

    def arrived(self) -> Collection[KeyedUpdate]:
        return self._flow.arrived(self._name)

    def portions(self) -> Iterator[list[KeyedUpdate]]:
        return portions(self.arrived(), MOST_GATHERED)

    def owns(self, key: bytes) -> bool:
        return self._flow.owns(key)

    def emit(self, updates: Collection[KeyedUpdate], errors: Sequence[KeyedUpdate] = ()) -> None:
        self._flow.emitted[ERRORS] += errors
        self._batch.looked_up(self._name, updates)
        self._flow.flow(self._name, updates)

    def count(self, kind: NotedKind, count: int, places: Iterable[tuple[int, int, int]]) -> None:
        if not count or self._name in reads_again(self._plan):
            return
        (source,) = kind_of(self._operator).sources(self._operator)
        read = self._plan.input(source)
        topics = (*read.topics, read.history_topic)
        records = tuple(
            NotedRecord(topics[rank], partition, offset) for rank, partition, offset in places
        )
        self._flow.counted[kind] += count
        self._flow.noted.append(Noted(kind, source, count, records))


# Rows as they reach a shard.
RecordLists = Sequence[Records]


@dataclass(frozen=True, slots=True)
class Emitted:
    """The results of a batch: updates by the name of the output, messages, and counts.

    * `messages`: by output in a format other than `diff`, its encoded messages.  What a format
      cannot write is among the errors.
    * `exchanges`: updates by the operator that gets them in the next micro-batch, in the shards of
      their keys.
    * `seen`: what the batch learned about the times of inputs.
    * `facts`: by input in CDCv2, how many new facts there are at each time.
    * `intervals`: the interval of each output.
    * `counted`, by kind: messages without a row ("heartbeat", ...), old images that differ from
      the state ("drift"), records behind the frontier ("late"), records that are older than
      their row ("outdated"), facts that came before ("repeated"), and errors that the plan drops
      ("error dropped").
    * `replayed`: what the shard reports of the transition.
    * `waiting`: how many records, and updates of them, wait until their times are closed.
    * `noted`: the last records that were late, drifted or made errors.
    * `filled`, while an edit fills: how many parts of the state the shard has done, and how many
      keys this batch went through.
    * `hot`: the keys that took most of the batch.
    * `written_before`: by output that this batch closes, how many of its updates earlier batches
      wrote.
    """

    updates: Mapping[str, GatheredUpdates]
    messages: dict[str, Formatted]
    exchanges: Mapping[str, GatheredUpdates]
    counted: Counter[str]
    seen: list[TimesReport]
    facts: dict[str, dict[int, int]]
    intervals: Mapping[str, Interval]
    waiting: int = 0
    filled: tuple[int, int] | None = None
    noted: Sequence[Noted] = ()
    replayed: Replayed = NOTHING_REPLAYED
    written_before: Mapping[str, int] = field(default_factory=dict)
    hot: Sequence[Hot] = ()


def advance(
    plan: Plan,
    store: Store,
    rows: RecordLists,
    intervals: Mapping[str, Interval],
    physical: Physical | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> Emitted:
    """Advance every operator of `plan` through its interval.

    Raises:
        RecordError: the plan says that an error is to stop the pipeline.
        TooMuchError: a batch cannot end in its time.
    """
    physical = planner.physical(plan) if physical is None else physical
    flow = Flow(plan, store, intervals, physical, beside)
    operators = Operators(flow)
    flow.take(rows)
    if flow.editing is not None and flow.editing.fills:
        operators.fill(flow.editing)
    _move(plan, operators, rows)
    emitted = _emitted(operators, [*hot_keys(rows), *flow.budget.hot()])
    if beside.released:
        parts.release(store, beside.released)
    return emitted


def _emitted(operators: Operators, hot: Sequence[Hot]) -> Emitted:
    """Release due updates and encode them; errors come last, since every step may add some."""
    flow = operators.flow
    flow.release()
    messages = flow.formatted()
    if flow.plan.on_error == "drop":
        # No error waits: the only updates are retractions of errors in the topic.
        noted = _settle_errors(flow.plan, flow.emitted, flow.counted)
        flow.release_errors()
    else:
        flow.release_errors()
        noted = _settle_errors(flow.plan, flow.emitted, flow.counted)
    # While an edit fills, its outputs may get more.
    large = flow.large() if operators.is_filled or not flow.transition.fills else []
    return Emitted(
        updates=flow.emitted,
        messages=messages,
        exchanges=flow.exchanges,
        counted=+flow.counted,
        seen=flow.seen,
        facts=operators.new_facts,
        intervals=flow.outputs,
        waiting=flow.waiting(),
        filled=operators.filled,
        noted=notes_added_up([*flow.noted, *noted]),
        replayed=Replayed(operators.complete_joins, large, operators.is_filled),
        written_before=flow.written_before(),
        hot=hot,
    )


def _move(plan: Plan, operators: Operators, rows: RecordLists) -> None:
    """Move all operators through their intervals, each after those that it reads."""
    for source in plan.inputs:
        if source.is_collection and not comes_out_of_decoding(source):
            operators.learn(source, [row for row in rows if isinstance(row, Facts)])
    upserts = [row for row in rows if isinstance(row, Upserts | Truncate)]
    for name in progress.order(plan):
        operators.move(name, upserts)
    operators.settle()


def _settle_errors(
    plan: Plan, emitted: Mapping[str, GatheredUpdates], counted: Counter[str]
) -> list[Noted]:
    """Do with errors what the plan says, and note the last new ones."""
    errors = emitted[ERRORS]
    # There may be millions of them, of which a part lies in a file.
    count, last = 0, deque[KeyedUpdate](maxlen=MOST_NOTED)
    for update in errors:
        if update.diff > 0:
            if plan.on_error == "fail":
                _fail(update)
            count += 1
            last.append(update)
    if plan.on_error == "drop":
        counted["error dropped"] += count
        errors.clear()
    return [errors_noted(count, list(map(_noted_error, last)))] if count else []


def _fail(error: KeyedUpdate) -> NoReturn:
    """End the run with an error."""
    first = canonical.decode(error.value)
    where = "" if first["topic"] is None else "{topic}[{partition}]@{offset}: ".format(**first)
    raise RecordError(
        f"{where}{first['reason']}",
        hint="errors.policy is fail. Nothing of this batch was committed: with record "
        "the record goes to the error topic, and the pipeline goes on.",
    )


def _noted_error(error: KeyedUpdate) -> tuple[tuple[str, int, int] | None, str]:
    """Return the place and the reason of an error record."""
    record = canonical.decode(error.value)
    topic, partition, offset = (record[part] for part in ("topic", "partition", "offset"))
    return None if topic is None else (topic, partition, offset), record["reason"]
