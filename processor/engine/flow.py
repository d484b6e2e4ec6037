"""Where the updates of a micro-batch go: to outputs, to operators by key, to other shards."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

# Decision (large differences in portions): An output at the edit's time writes beyond its end
# offsets, which readers do not see, and progress closes all of it at once. Formats of one value a
# key need all updates of a key together: one batch.
from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part, Store
from ikebana.processor.base.columns import Columns, in_columns_of
from ikebana.processor.base.envelope import Records
from ikebana.processor.base.noted import Noted
from ikebana.processor.base.rows import (
    Errors,
    IgnoredMessages,
    KeyedUpdate,
    Seen,
    Updates,
    keyed,
    times_of,
)
from ikebana.processor.base.transition import Stage, Transition
from ikebana.processor.engine import replaying
from ikebana.processor.engine.beside import Beside
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.editing import (
    Editing,
    FilledPortion,
    output_intervals,
    portion,
    shown_at,
)
from ikebana.processor.engine.gathered import GatheredUpdates
from ikebana.processor.engine.held import IN, OUT, Target, far_inlets, far_targets
from ikebana.processor.engine.joins_before import is_of_before
from ikebana.processor.engine.replaying import HoldPast, Replay
from ikebana.processor.engine.waiting import waiting
from ikebana.processor.kernels import hold, single_value
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.linear.portions import in_portions
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.topics.formatting import Formatted, formatted

_AT_ONCE = 50_000
_WRITE = "write"


class Flow:
    """What a micro-batch has emitted so far, and which updates operators get next.

    `emitted` has updates by output; `arriving` those by key for operators of this shard, until
    they are moved; `hops` those for operators in the shards of other keys, which the next batch
    hands to them.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        intervals: Mapping[str, Interval],
        physical: Physical,
        held: frozenset[Target],
        beside: Beside,
        budget: Budget,
    ) -> None:
        self.emitted = {output.name: GatheredUpdates() for output in plan.published}
        self.arriving: defaultdict[str, GatheredUpdates] = defaultdict(GatheredUpdates)
        self.hops: defaultdict[str, GatheredUpdates] = defaultdict(GatheredUpdates)
        self.counted: Counter[str] = Counter()
        self.noted: list[Noted] = []
        self.seen: list[Seen] = []
        self.intervals = intervals
        self._errors_back = GatheredUpdates()
        """Retractions of errors that are in the error topic."""
        self.of_moving: dict[str, list[KeyedUpdate]] = {}
        """The updates of operators that an edit is reading meanwhile."""
        self._plan = plan
        self.store = store
        self._transition = transition = beside.transition
        self._budget = budget
        self._outputs = output_intervals(plan, intervals, beside.edit, transition)
        self._physical = physical
        self._held = held
        self._editing = Editing.of(beside.edit, transition)
        self._far = far_inlets(physical)

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
                case Seen():
                    self.seen.append(row)

    def fill(self, editing: Editing) -> FilledPortion:
        """Send a portion of the state through the old plan and the new one, if it takes one."""
        self._gather(editing.time)
        of_before = [name for name in self.arriving if is_of_before(name)]
        arriving = {name: self.arriving.pop(name) for name in of_before}
        filling = portion(editing, self.store, arriving)
        for name, updates in filling.outputs.items():
            self.emitted[name] += updates
        for name, updates in filling.inlets.items():
            self.arriving[name] += updates
        for name, updates in filling.hops.items():
            self.send(name, updates)
        self.emitted[ERRORS] += filling.errors
        return filling

    def _gather(self, time: Time) -> None:
        """Give outputs the updates that an edit at `time` has sent to the shards of their keys."""
        for output in self._plan.outputs:
            inlet = planner.inlet_of(output.name)
            for update in self.arriving.pop(inlet, ()):
                to = self.emitted[output.name] if update.time < time else self.arriving[inlet]
                to += [update]

    def send(self, name: str, updates: Iterable[KeyedUpdate]) -> None:
        """Send updates to an operator in the shards of other keys."""
        self.hops[name] += updates

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

    def wait(self, name: str, time: Time, *, begins: bool = False) -> None:
        """Hold the rows of a stage until the edit at `time` is filled.

        Only a new stage gets rows of earlier times, from which its join is filled.  If the join
        `begins` with these rows, they count at the time of the edit; otherwise hydration brings
        them again.
        """
        later = [
            update if update.time >= time else update._replace(time=time)
            for update in self.arriving.pop(name, ())
            if begins or update.time >= time
        ]
        if later:
            step = hold.step if name in self._far else hold.step_in_blocks
            step(self.part(hold.IN, name), later, time)

    def waiting(self) -> int:
        """How much waits for its time to be closed, except updates that a step moved ahead."""
        if not self._plan.is_dated:
            return 0
        held = self._held - far_targets(self._physical)
        names = [(hold.OUT if kind == OUT else hold.IN).prefix + name for kind, name in held]
        return waiting(self._plan, self.store, self.intervals, names)

    def release(self) -> None:
        """Release the due updates of each output, and hold the rest."""
        for output in self._plan.outputs:
            self._release(output.name)

    def formatted(self) -> dict[str, Formatted]:
        """The messages of every output whose format is not `diff`."""
        messages = {}
        for output in self._plan.outputs:
            if not output.traits.as_updates:
                part = self.part(single_value.PART, output.name)
                result = formatted(self._plan, output, [*self.emitted[output.name]], part)
                messages[output.name] = result
                self.emitted[ERRORS] += result.errors
        return messages

    def _take_back_errors(self, updates: Collection[KeyedUpdate]) -> None:
        """Retract errors of the error topic: those that an edit ends, or all in a rebuild."""
        if not self._transition.rebuilds:
            assert self._editing is not None, "errors are taken back, and no edit is under way"
            updates = self._editing.edit.ended_errors.of(updates)
        self._errors_back += updates

    def release_errors(self) -> None:
        """Release the due errors; this is last, since any operator may add errors."""
        self.emitted[ERRORS] += self._errors_back
        self._release(ERRORS)

    def large(self) -> list[str]:
        """The outputs with more at the time of an edit than a batch should write."""
        if self._editing is None:
            return []
        shown = self._editing.shown.union(self._transition.writing)
        # Formats that need all updates of a key together are written at once.
        return [
            output.name
            for output in self._plan.published
            if output.name in shown
            and output.traits.as_updates
            and self._is_large(output.name, self._editing.time)
        ]

    def written_before(self) -> dict[str, int]:
        """How many updates of each output that this batch closes were written before it."""
        counts = {}
        for name in sorted(self._transition.wrote):
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
        return any(is_of_before(name) for name in self.hops) or any(
            update.time < time for updates in self.hops.values() for update in updates
        )

    def _release(self, name: str) -> None:
        part, lower = self.part(hold.OUT, name), self._outputs[name].lower
        upper = self._outputs[name].upper
        if self._transition.rebuilds:
            passed = progress.output_intervals(self._plan, self.intervals)[name].upper
            released = _rebuilt(part, self.emitted[name], self._transition, lower, passed)
            self.emitted[name] = GatheredUpdates(released)
            return
        since, writes = None, name in self._transition.writing
        if self._editing is not None and name in self._editing.shown:
            since = self._editing.time
        if name == ERRORS and self._plan.backfills:
            # Errors of records that are read again may have times that are closed.
            since = max(lower, since or 0)
        if since is not None:
            self.emitted[name] = GatheredUpdates(shown_at(self.emitted[name], since))
        elif (
            not writes
            and (OUT, name) not in self._held
            and (
                # The hold may have updates of an earlier edit at the same time.
                self._editing is None or not hold.is_due(part, upper)
            )
        ):
            return
        released = hold.step(part, self.emitted[name], upper)
        if writes:
            assert not released, f'"{name}" gets updates of times that are closed'
            past = HoldPast(part, self._transition.at)
            released = [*Replay(self.store, _WRITE, name).take(past).rows]
        self.emitted[name] = GatheredUpdates(released)

    def part(self, kind: PartKind, name: str) -> Part:
        """The part of the store of an operator, an input or an output."""
        return kind.of(self.store, name)

    def flow(self, root: str, updates: Collection[KeyedUpdate]) -> None:
        """Send updates of a root through its branches.

        Raises: TooMuchError, if the results are more than fits into a batch.
        """
        editing = self._editing
        if editing is not None and editing.fills and root in editing.edit.moving:
            self.of_moving.setdefault(root, []).extend(updates)
        for branch in self._physical.branches[root]:
            steps = planner.chain_of(self._plan, branch, self._physical)
            if steps.is_empty and not branch.inlets:
                self._deliver(branch.outputs, (), updates, branch.hops)
                continue
            if steps.arranges:
                for some in in_columns_of(updates, _AT_ONCE):
                    arranged, errors = steps.arranged(some, branch.silent)
                    self.emitted[ERRORS] += errors
                    rows = arranged
                    if branch.inlets and None in arranged.keys:
                        rows = Columns.of(keyed([*arranged]))
                    self._deliver(branch.outputs, branch.inlets, rows, branch.hops)
                continue
            for passed in in_portions(steps, updates, branch.silent):
                self.emitted[ERRORS] += passed.errors
                results = keyed(passed.updates) if branch.inlets else passed.updates
                self._deliver(branch.outputs, branch.inlets, results, branch.hops)
                if steps.expands:
                    self._budget.expand(root)
                # Free their memory before the next portion is computed.
                del passed, results

    def _deliver(
        self,
        outputs: Iterable[str],
        inlets: Collection[str],
        updates: Collection[KeyedUpdate],
        hops: Collection[str] = (),
    ) -> None:
        for name in outputs:
            if planner.inlet_of(name) not in (*inlets, *hops):
                self.emitted[name] += updates
        for name in inlets:
            self.arriving[name] += updates
        for name in hops:
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
    part: Part, updates: Collection[KeyedUpdate], of: Transition, stand: Time, passed: Time
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
    if of.stage is Stage.REBUILD:
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
