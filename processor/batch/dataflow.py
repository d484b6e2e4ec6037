"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part, Store
from ikebana.codecs import canonical
from ikebana.errors import RecordError
from ikebana.processor.batch.editing import Editing, portion, shown_at
from ikebana.processor.batch.formatting import Formatted, formatted
from ikebana.processor.batch.joined_batch import JoinedBatch
from ikebana.processor.batch.joins_before import is_of_before
from ikebana.processor.batch.waiting import waiting
from ikebana.processor.checkpoint import parts
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.joins.stages import Stage
from ikebana.processor.kernels import (
    facts,
    hold,
    reduce,
    reduce_rows,
    state_machine,
    upsert,
)
from ikebana.processor.kernels.state_machine import Event
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.linear.functions import found
from ikebana.processor.planning import machines, planner, progress, ways
from ikebana.processor.planning.joined import is_gathered, joined
from ikebana.processor.planning.plan import ERRORS, Input, Plan, Reduce, StateMachine, Upsert
from ikebana.processor.planning.planner import Physical
from ikebana.processor.rows.envelope import Records
from ikebana.processor.rows.rows import (
    Errors,
    Facts,
    Ignored,
    KeyedUpdate,
    Seen,
    Symbols,
    Truncate,
    Updates,
    keyed,
    times_of,
    updates_of,
)
from ikebana.processor.timing.reclock import FILLED

# Rows as they reach a shard.
Rows = Sequence[Records]
Chunks = Sequence[Symbols | Truncate]
# The name of an output, or of an operator that reads by key, before which updates are held.
Target = tuple[str, str]
_OUT, _IN = "out", "in"


@dataclass(frozen=True, slots=True)
class Emitted:
    """The results of a batch: updates by the name of the output, messages, and counts.

    `messages` are what the updates come to in outputs whose format is not `diff`; what a
    format cannot write is among the errors.  `hops` are updates by the name of the
    operator that gets them in the next micro-batch, in the shards of their keys.
    `seen` is what was learned of inputs' times, `facts` how many new facts by time the
    inputs in CDCv2 have given.  `counted` has, by kind: messages that said nothing of a
    relation ("heartbeat", ...), old images that were not what the state had ("drift"),
    records behind the frontier ("late"), facts that were known ("repeated"), and errors
    that the plan drops ("error dropped").  `hydrated` are the new joins that have got all
    that was there before them.  `waiting` is how many records, and updates of them, wait
    until their times are closed.  With an edit that fills, `filled` says how far that is: of how
    many parts of the state the shard is done, and how many keys the batch went through.
    """

    updates: dict[str, list[KeyedUpdate]]
    messages: dict[str, Formatted]
    hops: dict[str, list[KeyedUpdate]]
    counted: Counter[str]
    seen: list[Seen]
    facts: dict[str, dict[int, int]]
    hydrated: list[str]
    waiting: int = 0
    filled: tuple[int, int] | None = None


def advance(
    plan: Plan,
    store: Store,
    rows: Rows,
    intervals: Mapping[str, Interval],
    physical: Physical | None = None,
    *,
    early: bool = False,
    hydrating: Mapping[str, Time] | None = None,
    hydrates: bool = False,
    released: Iterable[str] = (),
    editing: Editing | None = None,
) -> Emitted:
    """Advance every operator of `plan` through its interval.

    New joins in `hydrating` are to get what was there before these times, and with `hydrates`
    get a portion of it now; parts of the store in `released` are deleted, as much as fits into
    a batch.  With `editing`, the plan has taken the place of another at that time, and
    what outputs and fresh operators get of it is on its way; while it fills, it is the edit
    that takes a portion with `hydrates`.

    With `early`, inputs in `mode: diffs` may give updates of times that are not closed yet;
    those with event time always may.

    Raises: RecordError, if the plan says that an error is to stop the pipeline.
    """
    physical = planner.physical(plan) if physical is None else physical
    held = held_targets(plan, physical, early=early)
    if editing is not None:
        # Also what outputs got of another edit at the same time, which this one leaves alone.
        held |= {(_OUT, output.name) for output in plan.published}
        intervals = editing.intervals(intervals)
    batch = _Batch(
        plan, store, intervals, physical, held, hydrating or {}, hydrates=hydrates, editing=editing
    )
    batch.take(rows)
    if editing is not None and editing.fills:
        batch.fill(editing, takes=hydrates)
    for source in plan.inputs:
        if source.is_collection and not ways.comes_out_of_decoding(source):
            batch.learn(source, [row for row in rows if isinstance(row, Facts)])
    symbols = [row for row in rows if isinstance(row, Symbols | Truncate)]
    for name in progress.order(plan):
        batch.move(name, symbols)
    batch.settle()
    batch.release()
    messages = batch.formatted()
    batch.release_errors()
    _settle_errors(plan, batch.emitted, batch.counted)
    parts.release(store, released)
    return Emitted(
        batch.emitted,
        messages,
        batch.hops,
        +batch.counted,
        batch.seen,
        batch.new_facts,
        batch.hydrated,
        batch.waiting(),
        batch.filled,
    )


class _Batch:
    """One micro-batch on its way through the operators, from roots to outputs."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        intervals: Mapping[str, Interval],
        physical: Physical,
        held: frozenset[Target],
        hydrating: Mapping[str, Time],
        *,
        hydrates: bool,
        editing: Editing | None = None,
    ) -> None:
        self.emitted: dict[str, list[KeyedUpdate]] = {o.name: [] for o in plan.published}
        self.hops: dict[str, list[KeyedUpdate]] = {}
        self.counted: Counter[str] = Counter()
        self.seen: list[Seen] = []
        self.new_facts: dict[str, dict[int, int]] = {}
        self._plan = plan
        self._store = store
        self._intervals = intervals
        self._outputs = progress.output_intervals(plan, intervals)
        self._physical = physical
        self._operators = {operator.name: operator for operator in plan.operators}
        self._joined = joined(plan)
        self._editing = editing
        filling = editing.edit.takers if editing is not None and editing.fills else ()
        hydrates = hydrates and not self._fills
        self._joins = JoinedBatch(plan, intervals, hydrating, hydrates=hydrates, filling=filling)
        self.hydrated: list[str] = []
        self.filled: tuple[int, int] | None = None
        # What comes to operators by key, until they are moved.
        self._arriving: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self._gathered = {j.name for j in plan.joins if is_gathered(plan, j.name)}
        self._held = held
        self._far = far_inlets(physical)

    def take(self, rows: Rows) -> None:
        """Take the updates that decoding has computed."""
        for row in rows:
            match row:
                case Errors():
                    self.emitted[ERRORS] += _error_updates(row)
                case Updates():
                    made = list(updates_of(row))
                    self._deliver(row.outputs, row.inlets, made)
                    if row.root:
                        self._flow(row.root, made)
                case Ignored():
                    self.counted.update(row.counts)
                case Seen():
                    self.seen.append(row)

    def fill(self, editing: Editing, *, takes: bool) -> None:
        """Send a portion of the state through the old plan and the new one, if it `takes` one."""
        of_before = [name for name in self._arriving if is_of_before(name)]
        arriving = {name: self._arriving.pop(name) for name in of_before}
        found = portion(editing, self._store, arriving, takes=takes)
        for name, updates in found.outputs.items():
            self.emitted[name] += updates
        for name, updates in found.inlets.items():
            self._arriving[name] += updates
        for name, updates in found.hops.items():
            self.hops.setdefault(name, []).extend(updates)
        self.emitted[ERRORS] += found.errors
        self.filled = found.parts, found.keys
        if found.begins:
            for join in editing.began & self._gathered:
                self._gather(join, editing)
        if found.done:
            self.hydrated.append(FILLED)

    def _gather(self, join: str, editing: Editing) -> None:
        """Send what waits at a join to the shards of its keys, if only now that is wanted.

        Of other joins nothing waits at the frontier of an edit.
        """
        if not is_gathered(editing.edit.before, join):
            part, after = self._part(parts.HOLD_IN, join), editing.time + 1
            self.hops.setdefault(join, []).extend(hold.step_in_blocks(part, [], after))

    @property
    def _fills(self) -> bool:
        return self._editing is not None and self._editing.fills

    def learn(self, source: Input, rows: Sequence[Facts]) -> None:
        """Keep the facts of an input until its frontier has passed them."""
        name = source.name
        interval = self._intervals[name]
        own = [row for row in rows if row.input == name]
        found = facts.step(
            self._part(parts.FACTS, name),
            [update for row in own for update in updates_of(row)],
            interval,
            since=min((row.since for row in own if row.since is not None), default=None),
            # An input that an edit has added also has facts of times before the edit.
            begins=self._editing is not None and self._editing.time == interval.lower,
        )
        self.new_facts[name] = found.counts
        self.counted["repeated"] += found.repeated
        self._flow(name, found.updates)

    def move(self, name: str, symbols: Chunks) -> None:
        """Advance an operator through its interval, after all operators that it waits for."""
        operator = self._operators.get(name)
        if operator is not None:
            _MOVES[type(operator)](self, operator, symbols)
        elif name in self._joined.stages:
            self._stage(name)
        elif name in self._joined.kept:
            self._arrange(name)
        # Else it is an input in `mode: diffs`, whose updates have flowed as they were taken.

    def settle(self) -> None:
        """Write the arrangements, without the history that no lookup needs any more."""
        self._joins.settle()

    def _upsert(self, operator: Upsert, symbols: Chunks) -> None:
        chunks = [chunk for chunk in symbols if chunk.input == operator.input]
        part = self._part("", operator.name)
        changes = upsert.step(part, chunks, self._intervals[operator.name])
        self.emitted[ERRORS] += changes.errors
        self.counted["drift"] += changes.drift
        if self._joins.looks_up(operator.name):
            self._joins.keep_upsert(operator.name, part, changes.updates)
        self._flow(operator.name, changes.updates)

    def _run(self, operator: StateMachine, symbols: Chunks) -> None:
        chunks = [chunk for chunk in symbols if chunk.input == operator.input]
        part = self._part(parts.MACHINE, operator.name)
        interval = self._intervals[operator.name]
        machine = machines.machine(operator, self._plan.topics)
        changes = state_machine.step(part, _events(chunks), interval, machine)
        self.emitted[ERRORS] += changes.errors
        self._flow(operator.name, changes.updates)

    def _reduce(self, operator: Reduce, _: Chunks) -> None:
        name, interval = operator.name, self._intervals[operator.name]
        arriving = self._arrived(name)
        if operator.function is None:
            part = self._part(parts.REDUCE, name)
            aggregates = ways.aggregates_of(self._plan, operator)
            changes = reduce.step(part, arriving, interval, aggregates, name)
        else:
            part = self._part(parts.REDUCE_ROWS, name)
            changes = reduce_rows.step(part, arriving, interval, found(operator.function), name)
        self.emitted[ERRORS] += changes.errors
        self._flow(name, changes.updates)

    def _arrange(self, name: str) -> None:
        arrived = self._arrived(name)
        self._joins.arrange(name, self._part(parts.ARRANGE, name), arrived)
        if self._fills:
            # A new join begins from what arrangements have when all of them are full.
            return
        for stage in self._joined.stages.values():
            if stage.is_first and stage.rows_from == (name,):
                self._arriving[stage.name] += arrived

    def _stage(self, name: str) -> None:
        stage = self._joined.stages[name]
        if self._editing is not None and self._editing.fills:
            self._wait(name, self._editing.time)
            return
        if self._joins.hydrates(stage):
            self._hydrate(stage)
        part = self._part(parts.LOCKED, name)
        arrived = self._arrived(name, self._joins.reach(stage))
        for (to, hop), rows, errors, _ in self._joins.run(stage, part, arrived):
            self.emitted[ERRORS] += errors
            if to is None:
                to, hop = stage.join, stage.join in self._gathered
            if hop:
                self.hops.setdefault(to, []).extend(rows)
            else:
                self._arriving[to] += rows

    def _wait(self, name: str, time: Time) -> None:
        """Keep what comes to a stage while an edit at a time fills.

        Only a new stage gets anything of the times before: what its join will begin with.
        """
        later = [update for update in self._arriving.pop(name, []) if update.time >= time]
        if later:
            step = hold.step if name in self._far else hold.step_in_blocks
            step(self._part(parts.HOLD_IN, name), later, time)

    def _hydrate(self, stage: Stage) -> None:
        part = self._part(parts.HYDRATE, stage.join)
        begun = self._joins.hydrate(stage, part)
        self._arriving[stage.name] += begun.near
        self.hops.setdefault(stage.name, []).extend(begun.far)
        self.emitted[ERRORS] += begun.errors
        if begun.done:
            self.hydrated.append(stage.join)

    def _join(self, operator: Join, _: Chunks) -> None:
        """Emit the results of all paths up to their common frontier."""
        name = operator.name
        arrived = self._arrived(name)
        # Where nothing is retracted nothing cancels.
        cancels = any(update.diff < 0 for update in arrived)
        self._flow(name, consolidated(arrived) if cancels else arrived)

    def _arrived(self, name: str, upper: Time | None = None) -> list[KeyedUpdate]:
        """The updates that have come to an operator, of times that it may be moved through."""
        arriving = self._arriving.pop(name, [])
        if (_IN, name) not in self._held:
            return arriving
        part = self._part(parts.HOLD_IN, name)
        reach = self._intervals[name].upper if upper is None else upper
        if all(update.time < reach for update in arriving) and not hold.is_due(part, reach):
            return arriving
        step = hold.step if name in self._far else hold.step_in_blocks
        return step(part, arriving, reach)

    def waiting(self) -> int:
        """How much waits for its time to be closed, but for what a step has moved far ahead."""
        if not self._plan.is_dated:
            return 0
        held = self._held - _far(self._physical)
        names = [(parts.HOLD if kind == _OUT else parts.HOLD_IN) + name for kind, name in held]
        return waiting(self._plan, self._store, self._intervals, names)

    def release(self) -> None:
        """Release the due updates of each output, and hold the rest."""
        for output in self._plan.outputs:
            self._release(output.name)

    def formatted(self) -> dict[str, Formatted]:
        """The messages of every output whose format is not `diff`."""
        messages = {}
        for output in self._plan.outputs:
            if not output.traits.as_updates:
                part = self._part(parts.SHOWN, output.name)
                found = formatted(self._plan, output, self.emitted[output.name], part)
                messages[output.name] = found
                self.emitted[ERRORS] += found.errors
        return messages

    def release_errors(self) -> None:
        """Release the due errors; this is last, since any operator may add errors."""
        self._release(ERRORS)

    def _release(self, name: str) -> None:
        if (_OUT, name) in self._held:
            part = self._part(parts.HOLD, name)
            upper = self._outputs[name].upper
            if self._editing is not None and name in (ERRORS, *self._editing.edit.affected):
                self.emitted[name] = shown_at(self.emitted[name], self._editing.time)
            self.emitted[name] = hold.step(part, self.emitted[name], upper)

    def _part(self, kind: str, name: str) -> Part:
        """The part of the store of an operator or an output."""
        return parts.operator_part(self._store, kind + name)

    def _flow(self, root: str, updates: Sequence[KeyedUpdate]) -> None:
        """Send updates of a root through its branches."""
        for branch in self._physical.branches[root]:
            steps = planner.chain_of(self._plan, branch, self._physical)
            passed = steps.apply(updates, branch.silent)
            self.emitted[ERRORS] += passed.errors
            made = keyed(passed.updates) if branch.inlets else passed.updates
            self._deliver(branch.outputs, branch.inlets, made)
            for name in branch.hops:
                self.hops.setdefault(name, []).extend(passed.updates)

    def _deliver(
        self, outputs: Iterable[str], inlets: Iterable[str], updates: Sequence[KeyedUpdate]
    ) -> None:
        for name in outputs:
            self.emitted[name] += updates
        for name in inlets:
            self._arriving[name] += updates


# What moves an operator, by its type; linear ones are passes of others.
_MOVES: Mapping[type, Callable[[_Batch, Any, Chunks], None]] = {
    Upsert: _Batch._upsert,
    StateMachine: _Batch._run,
    Reduce: _Batch._reduce,
    DeltaJoin: _Batch._join,
    AsOfJoin: _Batch._join,
}


def held_targets(plan: Plan, physical: Physical, *, early: bool = False) -> frozenset[Target]:
    """What gets updates of times that its frontier has not passed.

    That is what is behind a step that moves time, or behind a hop, since the loopback
    topic may be read in portions, and an output of collections of which one is further
    than another.  With `early`, so is what shows an input in `mode: diffs`.
    """
    graph = progress.edges(plan)
    depths = progress.depths(graph)
    timed = {
        source.name
        for source in plan.inputs
        if source.is_collection and (early or source.event_time is not None)
    }
    held = {
        target
        for root, branches in physical.branches.items()
        for branch in branches
        if branch.moves_time or root in timed
        for target in (
            *((_OUT, name) for name in branch.outputs),
            *((_IN, name) for name in (*branch.inlets, *branch.hops)),
        )
    }
    held |= {(_IN, name) for name, edge in graph.items() if edge.hops}
    held |= {
        (_IN, name)
        for name, edge in graph.items()
        # A stage may have to wait for what it asks.
        if edge.after and {depths[other] for other in edge.after} != {depths[name]}
    }
    stages = joined(plan)
    # As long as a join is new, its first path is not as far as the others.
    held |= {(_IN, name) for name, last in stages.last.items() if len(last) > 1}
    held |= {(_IN, stages.begins(join)) for join in stages.origins}
    held |= {
        (_OUT, name)
        for name, roots in progress.producers(plan).items()
        if len({depths[root] for root in roots}) > 1
    }
    # What fails behind a step that moves time is an error of that time.
    if held or early or plan.is_dated:
        # So is what has no time, and counts at the frontier, which it need not pass at once.
        held.add((_OUT, ERRORS))
    return frozenset(held)


def far_inlets(physical: Physical) -> frozenset[str]:
    """The operators that get updates of times far in the future, since a step moves them there."""
    return frozenset(name for kind, name in _far(physical) if kind == _IN)


def _far(physical: Physical) -> frozenset[Target]:
    """What gets updates of times far in the future, since a step moves them there."""
    moving = [b for branches in physical.branches.values() for b in branches if b.moves_time]
    found = {
        target
        for branch in moving
        for target in (
            *((_OUT, name) for name in branch.outputs),
            *((_IN, name) for name in (*branch.inlets, *branch.hops)),
        )
    }
    # What fails behind such a step is an error of that time.
    return frozenset(found | {(_OUT, ERRORS)} if moving else found)


def held_outputs(plan: Plan, physical: Physical) -> frozenset[str]:
    """The outputs of the plan that get updates of times that their frontiers have not passed."""
    held = held_targets(plan, physical)
    return frozenset(output.name for output in plan.outputs if (_OUT, output.name) in held)


def _events(chunks: Iterable[Symbols | Truncate]) -> list[Event]:
    """Symbols as a machine's events."""
    events: list[Event] = []
    for chunk in chunks:
        # The planner lets only plain messages come to a machine, and pushes nothing there.
        assert isinstance(chunk, Symbols) and not chunk.failed and not chunk.partial, chunk.input  # noqa: PT018
        times = times_of(chunk.times, len(chunk.keys))
        order, bad = (chunk.input_order, chunk.partition), chunk.bad
        events += [
            Event(key, time, (*order, offset, index), value, bad.get(index))
            for index, (time, offset, key, value) in enumerate(
                zip(times, chunk.offsets, chunk.keys, chunk.values, strict=True)
            )
        ]
    return events


def _error_updates(row: Errors) -> list[KeyedUpdate]:
    count = len(row.records)
    diffs = [1] * count if row.diffs is None else row.diffs
    times = times_of(row.times, count)
    return [
        KeyedUpdate(None, record, time, diff)
        for record, time, diff in zip(row.records, times, diffs, strict=True)
    ]


def _settle_errors(
    plan: Plan, emitted: dict[str, list[KeyedUpdate]], counted: Counter[str]
) -> None:
    errors = emitted[ERRORS]
    new = [update for update in errors if update.diff > 0]
    if plan.on_error == "fail" and new:
        first = canonical.decode(new[0].value)
        where = "" if first["topic"] is None else "{topic}[{partition}]@{offset}: ".format(**first)
        raise RecordError(
            f"{where}{first['reason']}",
            hint="errors.policy is fail. Nothing of this batch was committed: with record "
            "the record goes to the error topic, and the pipeline goes on.",
        )
    if plan.on_error == "drop":
        counted["error dropped"] += len(new)
        errors.clear()
