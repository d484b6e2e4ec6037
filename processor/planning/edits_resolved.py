"""Give the parts of a new plan their names in the checkpoint of an old one.

An unchanged part keeps its name there, even if its user has renamed it.  A fresh operator with
the name of an earlier part gets a *generation* in its name, as in "totals@2", so that old and
new state are separate.  People see names without it (`texts.shown`).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import count, product

import msgspec

from ikebana.processor.base.texts import generation, shown
from ikebana.processor.planning import planner
from ikebana.processor.planning.backfill import plan_without_backfill, why_not
from ikebana.processor.planning.identity import without_free_settings
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    Linear,
    Operator,
    Output,
    Plan,
    StateMachine,
)


def resolved(before: Plan, after: Plan, used: Mapping[str, int]) -> Plan:
    """Give the parts of the new plan `after` their names in the checkpoint.

    `before` is the old plan with its names there.  `used` has the last generation ever used, by
    the name that users know, and the topics that have been written (`generations`).
    """
    insufficient: set[str] = set()
    while True:
        plan = _Resolving(before, after, used, insufficient).plan()
        more = _insufficient(before, plan)
        if more <= insufficient:
            return plan
        insufficient |= more


def generations(plan: Plan, used: Mapping[str, int]) -> dict[str, int]:
    """Add the generations of a plan to those that were used."""
    latest = dict(used)
    for part in (*plan.operators, *plan.outputs):
        base = shown(part.name)
        latest[base] = max(latest.get(base, 0), generation(part.name))
    return latest | {WRITTEN + output.topic: 1 for output in plan.outputs}


# A key of topics in `generations`; names of users have no space.
WRITTEN = "topic "


def as_written(plan: Plan) -> Plan:
    """Give the parts of a plan the names of its user, as without a checkpoint.

    Inputs that are read again for an edit are left out.  If several generations have one name,
    only the last one keeps it; earlier ones get names that no other part has.
    """
    plan = plan_without_backfill(plan)
    sources = _written([*plan.inputs, *plan.operators])
    outputs = _written(plan.outputs)
    return replace(
        plan,
        inputs=tuple(replace(each, name=sources[each.name]) for each in plan.inputs),
        operators=tuple(
            with_renamed_input(
                _renamed(kind_of(o).with_sources(o, sources.__getitem__), sources[o.name]), sources
            )
            for o in plan.operators
        ),
        outputs=tuple(
            replace(o, name=outputs[o.name], source=sources[o.source]) for o in plan.outputs
        ),
        readings=(),
    )


def _written(parts: Sequence[Input | Operator | Output]) -> dict[str, str]:
    """The users' names of parts, by their names in the checkpoint."""
    names: dict[str, str] = {}
    used = {shown(part.name) for part in parts}
    last = {shown(part.name): part.name for part in sorted(parts, key=_generation)}
    for part in parts:
        base = name = shown(part.name)
        if last[base] != part.name:
            numbers = count(generation(part.name))
            name = next(n for number in numbers if (n := f"{base}.{number}") not in used)
            used.add(name)
        names[part.name] = name
    return names


def _generation(part: Input | Operator | Output) -> int:
    return generation(part.name)


def _with_stored_readings(before: Plan, after: Plan) -> Plan:
    """Keep the old plan's decoding of inputs if their state stays and has enough."""
    old, new = planner.physical(before).readings, planner.physical(after).readings
    readings = tuple(
        (name, old[name])
        for name in sorted(inputs_of_state(before, after))
        if old[name] != new[name] and planner.has_enough(old[name], after, name)
    )
    return replace(after, readings=readings) if readings else after


def inputs_of_state(before: Plan, after: Plan) -> set[str]:
    """List the inputs that the state of staying operators was made from."""
    old_names = {operator.name for operator in before.operators}
    return {
        source
        for operator in after.operators
        if kind_of(operator).reads_rows and operator.name in old_names
        for source in kind_of(operator).sources(operator)
    }


def _insufficient(before: Plan, after: Plan) -> set[str]:
    """The staying inputs with too few rows or columns in the state for the new plan.

    The state has less of each row, or a fresh operator needs the rows from the beginning.
    """
    old, new = planner.physical(before).readings, planner.physical(after).readings
    old_names = {operator.name for operator in before.operators}
    fresh = {
        source
        for operator in after.operators
        if kind_of(operator).reads_rows and operator.name not in old_names
        for source in kind_of(operator).sources(operator)
    }
    return {n for n in inputs_of_state(before, after) if old[n] != new[n]} | (fresh & old.keys())


class _Resolving:
    """Finds for each part of a new plan the part of the old plan that it continues, if any.

    The inputs `insufficient` continue nothing: they are read again if possible.
    """

    def __init__(
        self, before: Plan, after: Plan, used: Mapping[str, int], insufficient: Set[str]
    ) -> None:
        self._before, self._after = before, after
        self._used = generations(before, used)
        self._insufficient = insufficient
        # Operators that an interrupted backfill fills come last.
        self._by_base: dict[str, list[Operator]] = {}
        for operator in before.operators:
            self._by_base.setdefault(shown(operator.name), []).append(operator)
        self._new: dict[str, Operator] = {o.name: o for o in after.operators}
        # Arrangements have the names of their relations, so another collection needs another name.
        self._arranged = {each.relation for join in after.joins for each in join.inputs}
        # State is named likewise, and the operator that has the name now may have no state.
        self._stateful = {o.name for o in before.operators if not kind_of(o).is_linear}
        self._done: dict[str, Operator] = {}
        self._open: set[str] = set()
        """Operators that are being resolved."""
        self._continued: set[str] = set()
        """Operators of the old plan that continue, by their names there."""
        self._stays: dict[str, bool] = {}
        """Whether an operator and all of its sources are unchanged, by name."""
        self._called: dict[str, str] = {}
        """The names of inputs in the checkpoint, by the names of their user."""
        self._lasts: dict[str, bool] = {}
        """Whether an input continues unchanged, by name."""
        self._find_inputs()

    def _find_inputs(self) -> None:
        """Find the name of each input in the checkpoint, and whether it continues there."""
        used = set[str]()
        again = self._before.backfills
        read = [each for each in self._before.inputs if each.name not in again]
        # Inputs of an interrupted backfill come last, also after renamed inputs.
        both = read, [self._before.input(name) for name in again]
        for old_inputs, renamed, source in product(both, (False, True), self._after.inputs):
            if source.name in self._called:
                continue
            free = [each for each in old_inputs if each.name not in used]
            if (old := self._goes_on(source, free, renamed=renamed)) is not None:
                used.add(old.name)
                self._called[source.name], self._lasts[source.name] = old.name, True
        for source in self._after.inputs:
            if source.name not in self._called:
                name, lasts = self._input(source, used)
                used.add(name)
                self._called[source.name], self._lasts[source.name] = name, lasts

    def _goes_on(
        self, source: Input, old_inputs: Sequence[Input], *, renamed: bool
    ) -> Input | None:
        """The input of the old plan that an input continues, under its name or another one."""
        for old in old_inputs:
            is_called = (shown(old.name) != source.name) == renamed
            if is_called and old.name not in self._insufficient and _lasts(old, source):
                return old
        return None

    def _input(self, source: Input, used: Set[str]) -> tuple[str, bool]:
        """Find a name for an input that continues nothing, and whether it is unchanged.

        A changed input that cannot be read again keeps its name, and the edit is refused for it.
        """
        free = [old for old in self._before.inputs if old.name not in used]
        candidates = [old for old in free if shown(old.name) == source.name]
        candidates = candidates or [old for old in free if _lasts(old, source)]
        old_topics = set(plan_without_backfill(self._before).topics)
        if candidates and (
            why_not(self._before, source) is not None or not old_topics.issuperset(source.topics)
        ):
            return candidates[0].name, _lasts(candidates[0], source)
        same = [old for old in self._before.inputs if shown(old.name) == source.name]
        last = max((generation(old.name) for old in (*candidates, *same)), default=0)
        return f"{source.name}@{last + 1}" if last else source.name, False

    def plan(self) -> Plan:
        operators = tuple(self._resolve(name) for name in self._new)
        outputs = tuple(self._output(output) for output in self._after.outputs)
        inputs = tuple(replace(i, name=self._called[i.name]) for i in self._after.inputs)
        plan = replace(self._after, inputs=inputs, operators=operators, outputs=outputs)
        return _with_stored_readings(self._before, plan)

    def _resolve(self, name: str) -> Operator:
        if name not in self._done:
            self._open.add(name)
            self._done[name] = self._resolved(self._new[name])
            self._open.remove(name)
        return self._done[name]

    def _same(self, collection: str) -> bool:
        """Whether a collection is unchanged; an input of updates is a collection, too."""
        if collection not in self._new:
            return self._lasts.get(collection, False)
        self._resolve(collection)
        return self._stays[collection]

    def _name_of(self, source: str) -> str:
        return (
            self._resolve(source).name if source in self._new else self._called.get(source, source)
        )

    def _resolved(self, operator: Operator) -> Operator:
        name, kind = operator.name, kind_of(operator)
        same = [
            self._lasts.get(source, False) if kind.reads_rows else self._same(source)
            for source in kind.sources(operator)
        ]
        moved: Operator = kind.with_sources(operator, self._name_of)
        moved = with_renamed_input(moved, self._called)
        candidates = [
            each for each in self._by_base.get(name, ()) if each.name not in self._continued
        ]
        old = next((each for each in candidates if _is_same(moved, each)), None)
        if old is None and not any(_migrates(o, _renamed(moved, o.name)) for o in candidates):
            old = self._renamed_to(moved)
        old = old or next(iter(candidates), None)
        as_it_was = moved if old is None else _renamed(moved, old.name)
        is_same = old is not None and _is_same(moved, old)
        self._stays[name] = (is_same or _migrates(old, as_it_was)) and all(same)
        if self._stays[name]:
            self._continued.add(as_it_was.name)
            return as_it_was
        if kind.is_linear and name not in self._arranged and name not in self._stateful:
            return moved
        last = self._used.get(name, 0)
        return _renamed(moved, f"{name}@{last + 1}" if last else name)

    def _renamed_to(self, moved: Operator) -> Operator | None:
        """Find the old operator with the same definition under another name.

        Another operator may now have its former name, unless that one is unchanged.
        """
        if kind_of(moved).is_linear:
            return None
        same = (old for old in self._before.operators if _is_same(moved, old))
        return next((old for old in same if not self._is_continued(old)), None)

    def _is_continued(self, old: Operator) -> bool:
        """Whether an old operator is continued by another operator than the current one."""
        base = shown(old.name)
        # An operator that still waits for the current one has another definition.
        if base in self._new and self._open.isdisjoint(self._behind(base)):
            self._resolve(base)
        return old.name in self._continued

    def _behind(self, name: str) -> set[str]:
        """An operator and everything that it reads, directly or indirectly."""
        names, left = set[str](), [name]
        while left:
            if (at := left.pop()) in self._new and at not in names:
                names.add(at)
                left += kind_of(self._new[at]).sources(self._new[at])
        return names

    def _output(self, output: Output) -> Output:
        moved = replace(output, source=self._name_of(output.source))
        for old in self._before.outputs:
            # Readers know an output by its topic, whatever its name is.
            if (old.topic, old.format) == (output.topic, output.format):
                return replace(moved, name=old.name)
        last = self._used.get(output.name, 0)
        return replace(moved, name=f"{output.name}@{last + 1}" if last else output.name)


def with_renamed_input(operator: Operator, named: Mapping[str, str]) -> Operator:
    """The operator with its input renamed, if it reads rows."""
    if not kind_of(operator).reads_rows:
        return operator
    (source,) = kind_of(operator).sources(operator)
    moved: Operator = msgspec.structs.replace(operator, input=named.get(source, source))
    return moved


def _lasts(old: Input, new: Input) -> bool:
    """Whether two inputs are the same except for their names and settings that may change."""
    return without_free_settings(old) == without_free_settings(replace(new, name=old.name))


def _migrates(old: Operator | None, new: Operator) -> bool:
    """Whether a machine keeps its states, which its `migrate` converts."""
    return (
        isinstance(old, StateMachine)
        and isinstance(new, StateMachine)
        and (old.input, old.name) == (new.input, new.name)
        and old.version < new.version
    )


def _is_same(operator: Operator, old: Operator) -> bool:
    """Whether two operators are the same except for their names, and claims about their rows."""
    if isinstance(operator, Linear | Concat) and isinstance(old, Linear | Concat):
        operator = msgspec.structs.replace(operator, unique=old.unique)
    return _renamed(operator, old.name) == old


def _renamed(operator: Operator, name: str) -> Operator:
    return msgspec.structs.replace(operator, name=name)
