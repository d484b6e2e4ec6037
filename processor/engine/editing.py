"""A portion of an edit on one shard: send contents of the state through the old and new plan.

At the frontier t of an edit, the state of each part has its contents as of t - 1, the last closed
time.  Each datum of a part that stays goes through the steps of the old plan, negated, and through
those of the new plan.  Replaced outputs get the difference, new outputs the results of the new
plan, and fresh reductions and arrangements their initial contents.  The data of a part that ends
are retracted from replaced outputs, and so are its errors; errors that are in no state are read
from the error topic (`edits.EndedErrors`).  The updates have the time t - 1 internally, so
that fresh operators take them before all updates at t; outputs write them at t.

Meanwhile records are read, and parts that stay go on.  Fresh operators and the outputs that
change are frozen at t: updates from t on wait before them.  Contents of a part that goes on are
led back to time t (`Undo`), and arrangements keep their history from t on.

Steps see one datum at a time, so the old and the new results of a datum cancel within one
portion.  Results of different data cancel in the hold of the output, which keeps them until
all portions are done.

The results of joins of the old plan are recomputed from its arrangements, as a join keeps none.
All operators have reached t, and time does not advance while the edit fills, so the arrangements
have the inputs of a join as of t - 1.  The data of its first input go through the path of that
input, as changes at t that see all others strictly before it, as when a new join begins
(`joined_batch.hydrate`).  The result is the whole join as of t - 1; nothing is stored, and no
topic is read.

Rows for another shard go through the exchange topic under other names, since the new plan may
have a stage of the same name.  They are processed as they come, in any order.

A join that began at t itself has written nothing yet: all of its results have the time t.
"""

# Decision (an edit in place): What stays goes on, and what is new or changed stands at the edit's
# time t. A cursor that forwards copied keys would have no one time, and a second query would need
# a second state. Price: a changed output stands until it is filled.

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval, Time
from ikebana.processor.base.rows import KeyedUpdate, keyed
from ikebana.processor.base.texts import shown
from ikebana.processor.base.transition import Phase, Transition
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine import replaying
from ikebana.processor.engine.joined_batch import apply_stage, rows_for_first_stage
from ikebana.processor.engine.replaying import ArrangementPast, PastPortion, Replay
from ikebana.processor.kernels import arrange, hold, reduce, upsert
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.layout import Contents
from ikebana.processor.kernels.upsert import UpsertArrangement
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.edits import Edit, PlanSign, branches_of
from ikebana.processor.planning.joins.stages import JoinStage, joined
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Branch

_Entry = list[tuple[bytes, int]]
_FILL = "fill"
_PREFIX = b"u"
_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(_Entry).decode
# Names of operators have no space.
_MARK = "before "

Arriving = Mapping[str, Collection[KeyedUpdate]]


def is_of_old_plan(target: str) -> bool:
    """Whether rows go to a join of the old plan, or to a stage of one."""
    return target.startswith(_MARK)


class JoinsBefore:
    """The joins of the old plan, in one batch of an edit that fills, on one shard.

    `results` has the results by join, in the shards of the last lookups; `errors` the errors of
    combinations that cannot be evaluated, and `exchanges` the rows for other shards.
    """

    def __init__(self, edit: Edit, time: Time, store: Store) -> None:
        self.results: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self.errors: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self.exchanges: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self._edit, self._time, self._store = edit, time, store
        self._joined = joined(edit.before)
        self._arrangements: dict[str, Arrangement | UpsertArrangement] = {}

    def arrive(self, arriving: Arriving) -> None:
        """Take rows from other shards, and bring each on from its stage."""
        for join in self._edit.joins_before:
            self._run(join, {s.name: arriving.get(_MARK + s.name, ()) for s in self._path(join)})

    def past(self, join: str) -> "JoinPast":
        """The past of a join: the data of its first input, which go through their path."""
        origin = self._arrangement(self._joined.origins[join])
        return JoinPast(self, join, ArrangementPast(origin, self._time))

    def begin(self, join: str, rows: list[KeyedUpdate]) -> None:
        """Send data of a join's first input through their path."""
        first = next(self._path(join))
        near, far, errors = rows_for_first_stage(self._edit.before, first, rows)
        self.errors[join] += errors
        self.exchanges[_MARK + first.name] += far
        self._run(join, {first.name: near})

    def _run(self, join: str, arriving: Arriving) -> None:
        plan = self._edit.before
        waiting = defaultdict(list, {name: [*rows] for name, rows in arriving.items() if rows})
        for stage in self._path(join):
            rows = waiting.pop(stage.name, [])
            if not rows:
                continue
            arranged = self._arrangement(stage.looks_up)
            for (to, exchange), results, errors, _ in apply_stage(plan, stage, rows, arranged):
                self.errors[join] += errors
                if to is None:
                    self.results[join] += results
                elif exchange:
                    self.exchanges[_MARK + to] += results
                else:
                    waiting[to] += results

    def _path(self, join: str) -> Iterator[JoinStage]:
        """The stages of the path of a join's first input, in the order of their rows."""
        alias = self._joined.stages[self._joined.first_stage(join)].alias
        for stage in self._joined.stages.values():
            if (stage.join, stage.alias) == (join, alias):
                yield stage

    def _arrangement(self, name: str) -> Arrangement | UpsertArrangement:
        """An arrangement of the old plan, for reading: it does not change while the edit fills."""
        if name not in self._arrangements:
            at = Interval(self._time, self._time)
            if self._joined.arrangements[name].is_own:
                part = upsert.PART.of(self._store, name)
                self._arrangements[name] = UpsertArrangement(part, (), at, self._time)
            else:
                part = arrange.PART.of(self._store, name)
                self._arrangements[name] = Arrangement(part, at, self._time)
        return self._arrangements[name]


class JoinPast(NamedTuple):
    """A join's results as of an edit's time; `joins` has them when rows have passed all stages."""

    joins: JoinsBefore
    join: str
    first: ArrangementPast

    def portion(self, start: bytes, most: int) -> PastPortion:
        data = self.first.portion(start, most)
        self.joins.begin(self.join, [*data.rows])
        return data._replace(rows=())


class Undo:
    """The updates of one operator since an edit's time, of keys that the edit has not read yet."""

    def __init__(self, store: Store, name: str) -> None:
        self._part = PrefixStore(parts.EDIT.of(store, ""), _PREFIX + name.encode() + b"\0")

    def keep(self, updates: Iterable[KeyedUpdate], start: bytes = b"") -> None:
        """Store updates of keys from `start` on."""
        sums: dict[bytes, Counter[bytes]] = {}
        for key, value, _, diff in updates:
            assert key is not None, "contents have keys"
            if key >= start:
                sums.setdefault(key, Counter())[value] += diff
        keys = list(sums)
        for key, entry in zip(keys, self._part.get_many(keys), strict=True):
            counts = sums[key]
            for value, diff in () if entry is None else _entry_of(entry):
                counts[value] += diff
            if left := [(value, diff) for value, diff in counts.items() if diff]:
                self._part.put(key, _encode(left))
            elif entry is not None:
                self._part.delete(key)

    def undone(
        self, contents: Sequence[Contents], start: bytes, end: bytes | None
    ) -> list[Contents]:
        """Contents of keys in `[start, end)` as of the edit's time, from the `contents` now.

        The stored updates of these keys are deleted.  Without an `end` these are all other keys.
        Keys that have no contents any more come last.
        """
        later = self._part.scan(b"", start)
        entries = list(takewhile(lambda entry: end is None or entry[0] < end, later))
        since = {key: _entry_of(entry) for key, entry in entries}
        for key in since:
            self._part.delete(key)
        had = [
            (key, _had(values, since.pop(key)), errors) if key in since else (key, values, errors)
            for key, values, errors in contents
        ]
        return [*had, *((key, _had((), updates), ()) for key, updates in since.items())]


def _had(values: Sequence[bytes], since: _Entry) -> tuple[bytes, ...]:
    counts = Counter(values)
    for value, diff in since:
        counts[value] -= diff
    assert all(count >= 0 for count in counts.values()), "more has come than is there"
    return tuple(counts.elements())


@dataclass(frozen=True, slots=True)
class Editing:
    """A batch of an edit: the change of the plan, and the transition that makes it."""

    edit: Edit
    transition: Transition

    @classmethod
    def of(cls, edit: Edit | None, transition: Transition) -> "Editing | None":
        """The edit that a batch with this transition belongs to; `edit` is the last one."""
        if not transition.is_edit:
            return None
        assert edit is not None, "an edit of no plan"
        return cls(edit, transition)

    @property
    def time(self) -> Time:
        return self.transition.at

    @property
    def fills(self) -> bool:
        return self.transition.fills

    def intervals(self, intervals: Mapping[str, Interval]) -> Mapping[str, Interval]:
        """Give fresh operators the last closed time as their interval, during the fill."""
        if not self.fills:
            return intervals
        # No time is closed before 0, and there are no contents then.
        before = Interval(max(self.time - 1, 0), self.time)
        return {name: before if name in self.edit.takers else at for name, at in intervals.items()}

    @property
    def shown(self) -> frozenset[str]:
        """The outputs that get updates from the edit."""
        return self.edit.affected | {ERRORS}

    @property
    def looked_up_as_of(self) -> Mapping[str, Time | None]:
        """By arrangement that the edit reads, the time as of which it does; None if it is done."""
        return dict.fromkeys(self.edit.looked_up, self.time if self.fills else None)


def output_intervals(
    plan: Plan, of: Mapping[str, Interval], transition: Transition, editing: Editing | None
) -> dict[str, Interval]:
    """The interval of each output, from the intervals `of` the operators.

    While an edit fills, the outputs that it changes are frozen at its time, and so are outputs
    that are written in portions.  In a rebuild, outputs are frozen where they were closed, until
    its last batch.
    """
    intervals = progress.output_intervals(plan, of)
    if (lost := transition.rebuilding) is not None:
        ends = transition.phase is Phase.REBUILT
        stands = {name: lost.stands.get(name, 0) for name in intervals}
        return {
            name: Interval(stand, intervals[name].upper if ends else stand)
            for name, stand in stands.items()
        }
    if editing is None:
        return intervals
    time = editing.time
    going_on = editing.shown if transition.is_filled else {*transition.wrote}
    frozen = editing.shown if transition.fills else {*transition.writing}
    for name in (going_on | frozen) & intervals.keys():
        intervals[name] = Interval(time, time if name in frozen else intervals[name].upper)
    return intervals


@dataclass(slots=True)
class FilledPortion:
    """The result of a portion: updates by output, and by operator, here or over an exchange.

    The portion went through `keys` keys, and `parts` parts of the state are done now.
    """

    outputs: dict[str, list[KeyedUpdate]] = field(default_factory=dict)
    inlets: dict[str, list[KeyedUpdate]] = field(default_factory=dict)
    exchanges: dict[str, list[KeyedUpdate]] = field(default_factory=dict)
    errors: list[KeyedUpdate] = field(default_factory=list)
    keys: int = 0
    parts: int = 0
    done: bool = False


def portion(editing: Editing, store: Store, arriving: Arriving | None = None) -> FilledPortion:
    """Take the next portion of an edit at its frontier; the progress is in the store.

    `arriving` are rows from other shards for joins of the old plan.  A batch that takes no portion
    processes only these.
    """
    edit, time = editing.edit, editing.time
    filling, left = FilledPortion(), replaying.PORTION if editing.transition.takes else 0
    if replaying.is_first_portion(store, editing.transition):
        _clear(edit, store)
        filling.errors += _errors_waiting(edit, store)
    joins = JoinsBefore(edit, time, store)
    joins.arrive(arriving or {})
    for root in edit.scanned:
        replay = Replay(store, _FILL, root)
        if left > 0 and root in editing.transition.began:
            # No output has anything of it.
            replay.go(None)
        elif left > 0 and not replay.is_done:
            is_join = root in edit.joins_before
            past = joins.past(root) if is_join else _StatePast(editing, store, root)
            contents = replay.take(past, left)
            _Filler(edit, root, time - 1, filling).take(contents.rows, contents.errors)
            left -= contents.keys
            filling.keys += contents.keys
        filling.parts += replay.is_done
    for root in edit.joins_before:
        _Filler(edit, root, time - 1, filling).take(joins.results[root], joins.errors[root])
    for name, updates in joins.exchanges.items():
        filling.exchanges.setdefault(name, []).extend(updates)
    filling.done = filling.parts == len(edit.scanned)
    return filling


def _clear(edit: Edit, store: Store) -> None:
    """Empty the parts that the edit adds, and the holds of outputs that it reads from topics.

    An earlier part of the same name may not be deleted completely yet.  From the next batch on
    other shards may send to the new one, so all of it is deleted now.  Updates in the hold of
    such an output are not in its topic yet, and the new plan computes all of its contents.
    """
    while not parts.release(store, [*_new_parts(edit), *_waiting_parts(edit)]):
        pass


def _errors_waiting(edit: Edit, store: Store) -> list[KeyedUpdate]:
    """Retract the errors of ended parts that are in no topic yet: they wait for their times."""
    waiting = hold.held_updates(hold.OUT.of(store, ERRORS))
    ended = edit.ended_errors.of(waiting) if edit.ended_errors else ()
    return [update._replace(diff=-update.diff) for update in ended]


@dataclass(frozen=True, slots=True)
class _StatePast:
    """The contents of a part of the old plan's state, as of just before an edit's time."""

    editing: Editing
    store: Store
    root: str

    def portion(self, start: bytes, most: int) -> PastPortion:
        edit, time = self.editing.edit, self.editing.time - 1
        contents = list(islice(_contents(edit.before, self.root, self.store, start), most + 1))
        after = contents.pop()[0] if len(contents) > most else None
        count = len(contents)
        if self.root in edit.moving:
            contents = Undo(self.store, self.root).undone(contents, start, after)
        # Errors of messages have the key of their row, those of operators have none.
        of_rows = any(
            operator.name == self.root and kind_of(operator).reads_rows
            for operator in edit.before.operators
        )
        rows = [KeyedUpdate(key, each, time, 1) for key, data, _ in contents for each in data]
        errors = [
            KeyedUpdate(key if of_rows else None, record, time, 1)
            for key, _, records in contents
            for record in records
        ]
        return PastPortion(rows, count, after, errors)


def store_updates(store: Store, emitted: Mapping[str, Sequence[KeyedUpdate]]) -> None:
    """Store a batch's updates of operators that an edit has not read to the end, by operator."""
    for root, updates in emitted.items():
        after = Replay(store, _FILL, root).next
        if after is not None:
            Undo(store, root).keep(updates, after)


def _new_parts(edit: Edit) -> list[str]:
    """List the parts of the state that begin with an edit."""
    return sorted(parts.parts_of(edit.after) - parts.parts_of(edit.before))


def _waiting_parts(edit: Edit) -> list[str]:
    """List the holds of outputs that the edit retracts by reading their own topics."""
    return [hold.OUT.prefix + name for name in sorted(edit.own_topics)]


class _Filler:
    """Takes the contents of one part of the state through both plans."""

    def __init__(self, edit: Edit, root: str, time: Time, filling: FilledPortion) -> None:
        self._edit, self._root, self._time = edit, root, time
        self._filling = filling
        self._ends = root in edit.gone
        self._errs = self._ends or edit.passes_differ(root)

    def take(self, rows: Sequence[KeyedUpdate], errors: Sequence[KeyedUpdate]) -> None:
        """Take rows of the part, and its errors, which end with it."""
        if self._ends:
            self._filling.errors += [
                KeyedUpdate(key, record, self._time, -diff) for key, record, _, diff in errors
            ]
        for plan, sign in self._edit.sides:
            signed = [
                KeyedUpdate(key, value, self._time, sign * diff) for key, value, _, diff in rows
            ]
            self._pass(plan, sign, signed)

    def _pass(self, plan: Plan, sign: PlanSign, rows: Sequence[KeyedUpdate]) -> None:
        """Send rows of the part through its branches in one of the plans."""
        physical = planner.physical(plan)
        for branch in branches_of(plan, self._root):
            if self._errs or self._edit.goes(branch, sign):
                passed = planner.chain_of(plan, branch, physical).apply(rows, branch.silent)
                if self._errs:
                    self._filling.errors += passed.errors
                self._deliver(plan, branch, sign, passed.updates)

    def _deliver(
        self, plan: Plan, branch: Branch, sign: PlanSign, updates: Sequence[KeyedUpdate]
    ) -> None:
        edit, filling = self._edit, self._filling
        for name in edit.shown_by(branch, sign):
            inlet = planner.inlet_of(name)
            if inlet in branch.exchanges:
                filling.exchanges.setdefault(inlet, []).extend(updates)
            else:
                filling.outputs.setdefault(name, []).extend(updates)
        if sign < 0:
            self._retract_errors(plan, branch, updates)
            return
        takers = edit.filled_with(branch)
        for name in filter(takers.__contains__, branch.inlets):
            filling.inlets.setdefault(name, []).extend(keyed(updates))
        for name in filter(takers.__contains__, branch.exchanges):
            filling.exchanges.setdefault(name, []).extend(updates)

    def _retract_errors(self, plan: Plan, branch: Branch, updates: Sequence[KeyedUpdate]) -> None:
        """Retract the errors of single rows in reductions that end."""
        ended = [name for name in (*branch.inlets, *branch.exchanges) if name in self._edit.gone]
        for reduction in plan.reductions:
            # A concatenation of a collection with itself has each row twice.
            for _ in range(ended.count(reduction.name)):
                aggregates = catalog_of(plan).aggregates(reduction)
                rows = list(keyed(updates))
                self._filling.errors += reduce.errors_of(rows, aggregates, shown(reduction.name))


def not_before(updates: Collection[KeyedUpdate], time: Time) -> list[KeyedUpdate]:
    """Move updates before `time` to `time`, for an output whose earlier times are closed."""
    moved = [update if update.time >= time else update._replace(time=time) for update in updates]
    return consolidated(moved)


def _contents(plan: Plan, root: str, store: Store, start: bytes) -> Iterator[Contents]:
    """Yield the contents of a part of the state, from a key on; nothing if it has none."""
    operator = next((each for each in plan.operators if each.name == root), None)
    part = None if operator is None else kind_of(operator).part(operator)
    if part is None or part.contents is None:
        return iter(())
    return part.contents(part.of(store, root), start)
