"""The operators of a plan, moved through a micro-batch on one shard, each by its kernel."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ikebana.processor.batch.beside import Beside
from ikebana.processor.batch.budget import Budget
from ikebana.processor.batch.editing import Editing, remember
from ikebana.processor.batch.flow import Flow
from ikebana.processor.batch.gathered import MOST
from ikebana.processor.batch.joined_batch import JoinedBatch
from ikebana.processor.batch.joining import portions
from ikebana.processor.checkpoint import parts
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.joins.stages import Stage
from ikebana.processor.kernels import facts, reduce, reduce_rows, state_machine, upsert
from ikebana.processor.kernels.state_machine import Event
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.linear.functions import found
from ikebana.processor.planning import planner
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.operators.state_machine import machine as machine_of
from ikebana.processor.planning.plan import (
    ERRORS,
    TOTAL_KEY,
    Input,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
)
from ikebana.processor.rows.noted import Noted, NotedRecord
from ikebana.processor.rows.rows import Facts, Truncate, Upserts, times_of, updates_of
from ikebana.processor.timing.edit_steps import FILLED

Chunks = Sequence[Upserts | Truncate]


class Operators:
    """The operators of a plan in a micro-batch; what they come to goes into its flow."""

    def __init__(
        self,
        plan: Plan,
        flow: Flow,
        beside: Beside,
        budget: Budget,
    ) -> None:
        self.new_facts: dict[str, dict[int, int]] = {}
        self.hydrated: list[str] = []
        self.filled: tuple[int, int] | None = None
        self._plan = plan
        self._flow = flow
        self._operators = {operator.name: operator for operator in plan.operators}
        self._joined = joined(plan)
        self._editing = editing = beside.editing
        self._is_filled = False
        self._owns = beside.owns
        filling = editing.edit.takers if editing is not None and editing.fills else ()
        kept_for = {} if editing is None else editing.kept_for
        self._joins = JoinedBatch(
            plan,
            flow.intervals,
            beside.hydrating,
            hydrates=beside.hydrates and not self._fills,
            filling=filling,
            kept_for=kept_for,
            budget=budget,
        )
        self._gathered = {inlet: name for name, inlet in planner.gathered(plan).items()}

    def fill(self, editing: Editing, *, takes: bool) -> None:
        """Send a portion of the state through the old plan and the new one, if it `takes` one."""
        found = self._flow.fill(editing, takes=takes)
        self.filled = found.parts, found.keys
        self._is_filled = found.done

    @property
    def _fills(self) -> bool:
        return self._editing is not None and self._editing.fills

    def learn(self, source: Input, rows: Sequence[Facts]) -> None:
        """Keep the facts of an input until its frontier has passed them."""
        name = source.name
        interval = self._flow.intervals[name]
        own = [row for row in rows if row.input == name]
        found = facts.step(
            self._flow.part(parts.FACTS, name),
            [update for row in own for update in updates_of(row)],
            interval,
            since=min((row.since for row in own if row.since is not None), default=None),
        )
        self.new_facts[name] = found.counts
        self._flow.counted["repeated"] += found.repeated
        self._flow.flow(name, found.updates)

    def move(self, name: str, upserts: Chunks) -> None:
        """Advance an operator through its interval, after all operators that it waits for."""
        operator = self._operators.get(name)
        if operator is not None:
            _MOVES[type(operator)](self, operator, upserts)
        elif name in self._joined.stages:
            self._stage(name)
        elif name in self._joined.kept:
            self._arrange(name)
        elif name in self._gathered:
            self._flow.emitted[self._gathered[name]] += self._flow.arrived(name)
        # Else it is an input in `mode: diffs`, whose updates have flowed as they were taken.

    def settle(self) -> None:
        """Write the arrangements, without the history that no lookup needs any more."""
        self._joins.settle()
        editing = self._editing
        if editing is None or not editing.fills:
            return
        remember(editing, self._flow.store, self._flow.of_moving)
        # What this shard has sent of the times before others have to take first.
        if self._is_filled and not self._flow.sends_before(editing.time):
            self.hydrated.append(FILLED)

    def _upsert(self, operator: Upsert, upserts: Chunks) -> None:
        chunks = [chunk for chunk in upserts if chunk.input == operator.input]
        part = self._flow.part("", operator.name)
        changes = upsert.step(part, chunks, self._flow.intervals[operator.name])
        self._flow.emitted[ERRORS] += changes.errors
        if changes.drift and operator.name not in reads_again(self._plan):
            self._flow.counted["drift"] += changes.drift
            self._flow.noted.append(self._drifted(operator.input, changes))
        if self._joins.looks_up(operator.name):
            self._joins.keep_upsert(operator.name, part, changes.updates)
        self._flow.flow(operator.name, changes.updates)

    def _drifted(self, name: str, changes: upsert.Changes) -> Noted:
        """Note the records whose old images were not what the state had."""
        own = self._plan.input(name).topics
        records = tuple(
            NotedRecord(own[order], partition, offset)
            for order, partition, offset in changes.drifted
        )
        return Noted("drift", name, changes.drift, records)

    def _run(self, operator: StateMachine, upserts: Chunks) -> None:
        chunks = [chunk for chunk in upserts if chunk.input == operator.input]
        part = self._flow.part(parts.MACHINE, operator.name)
        interval = self._flow.intervals[operator.name]
        machine = machine_of(operator, self._plan.input(operator.input).topics)
        changes = state_machine.step(part, _events(chunks), interval, machine)
        self._flow.emitted[ERRORS] += changes.errors
        self._flow.flow(operator.name, changes.updates)

    def _reduce(self, operator: Reduce, _: Chunks) -> None:
        name, interval = operator.name, self._flow.intervals[operator.name]
        arriving = self._flow.arrived(name)
        if operator.function is None:
            part = self._flow.part(parts.REDUCE, name)
            aggregates = catalog_of(self._plan).aggregates(operator)
            always = TOTAL_KEY.encode() if operator.total else None
            if always is not None and not self._owns(always):
                always = None
            changes = reduce.step(part, arriving, interval, aggregates, name, always)
        else:
            part = self._flow.part(parts.REDUCE_ROWS, name)
            changes = reduce_rows.step(part, arriving, interval, found(operator.function), name)
        self._flow.emitted[ERRORS] += changes.errors
        self._flow.flow(name, changes.updates)

    def _arrange(self, name: str) -> None:
        arrived = self._flow.arrived(name)
        self._joins.arrange(name, self._flow.part(parts.ARRANGE, name), arrived)
        if self._editing is not None and self._fills and name in self._editing.edit.takers:
            # A new join begins from what arrangements have when all of them are full.
            return
        for stage in self._joined.stages.values():
            if stage.is_first and stage.rows_from == (name,):
                self._flow.arriving[stage.name] += arrived

    def _stage(self, name: str) -> None:
        stage = self._joined.stages[name]
        if self._editing is not None and self._fills and name in self._editing.edit.standing:
            begins = name in self._editing.edit.filled_joins.values()
            self._flow.wait(name, self._editing.time, begins=begins)
            return
        if self._joins.hydrates(stage):
            self._hydrate(stage)
        elif self._joins.is_hydrated(stage, self._flow.part(parts.HYDRATE, stage.join)):
            # It stays so while the exchange topic is read in shares, which may take many batches.
            self.hydrated.append(stage.join)
        part = self._flow.part(parts.LOCKED, name)
        arrived = self._flow.arrived(name, self._joins.reach(stage))
        for (to, hop), rows, errors, _ in self._joins.run(stage, part, arrived):
            self._flow.emitted[ERRORS] += errors
            if to is not None and hop:
                self._flow.send(to, rows)
            else:
                self._flow.arriving[to or stage.join] += rows

    def _hydrate(self, stage: Stage) -> None:
        part = self._flow.part(parts.HYDRATE, stage.join)
        begun = self._joins.hydrate(stage, part)
        self._flow.arriving[stage.name] += begun.near
        self._flow.send(stage.name, begun.far)
        self._flow.emitted[ERRORS] += begun.errors
        if begun.done:
            self.hydrated.append(stage.join)

    def _join(self, operator: Join, _: Chunks) -> None:
        """Emit the results of all paths up to their common frontier."""
        name = operator.name
        # What cancels need not: so it may be looked for in portions.
        for some in portions(self._flow.arrived(name), MOST):
            # Where nothing is retracted nothing cancels.
            cancels = any(update.diff < 0 for update in some)
            self._flow.flow(name, consolidated(some) if cancels else some)


# What moves an operator, by its type; linear ones are passes of others.
_MOVES: Mapping[type, Callable[[Operators, Any, Chunks], None]] = {
    Upsert: Operators._upsert,
    StateMachine: Operators._run,
    Reduce: Operators._reduce,
    DeltaJoin: Operators._join,
    AsOfJoin: Operators._join,
}


def _events(chunks: Iterable[Upserts | Truncate]) -> list[Event]:
    """Upserts as a machine's events."""
    events: list[Event] = []
    for chunk in chunks:
        # The planner lets only plain messages come to a machine, and pushes nothing there.
        assert isinstance(chunk, Upserts) and not chunk.failed and not chunk.partial, chunk.input  # noqa: PT018
        times = times_of(chunk.times, len(chunk.keys))
        order, bad = (chunk.input_order, chunk.partition), chunk.bad
        events += [
            Event(key, time, (*order, offset, index), value, bad.get(index))
            for index, (time, offset, key, value) in enumerate(
                zip(times, chunk.offsets, chunk.keys, chunk.values, strict=True)
            )
        ]
    return events
