"""Give the parts of a new plan their names in the checkpoint of an old one.

An unchanged part keeps its name there, even if its user has renamed it.  A fresh operator with
the name of an earlier part gets a *generation* in its name, as in "totals@2", so that old and
new state are separate.  People see names without it (`generations.shown`).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import count, product

import msgspec

from ikebana.processor.base.generations import generation, shown
from ikebana.processor.planning import planner
from ikebana.processor.planning.backfill import core, why_not
from ikebana.processor.planning.identity import lasting
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    KeptReading,
    Linear,
    Operator,
    Output,
    Plan,
    StateMachine,
)


def resolved(before: Plan, after: Plan, used: Mapping[str, int]) -> Plan:
    """Give the parts of the new plan `after` their names in the checkpoint.

    `before` is the old plan with its names there.  `used` has the last generation ever used of
    each name that users know, and the topics that have been written (`generations`).
    """
    insufficient: set[str] = set()
    while True:
        found = _Resolving(before, after, used, insufficient).plan()
        more = _insufficient(before, found)
        if more <= insufficient:
            return found
        insufficient |= more


def generations(plan: Plan, used: Mapping[str, int]) -> dict[str, int]:
    """Add the generations of a plan to those that were used."""
    found = dict(used)
    for part in (*plan.operators, *plan.outputs):
        base = shown(part.name)
        found[base] = max(found.get(base, 0), generation(part.name))
    return found | {WRITTEN + output.topic: 1 for output in plan.outputs}


# A key of topics in `generations`; names of users have no space.
WRITTEN = "topic "


def as_written(plan: Plan) -> Plan:
    """Give the parts of a plan the names of its user, as without a checkpoint.

    What is read again for an edit is left out.  Of parts with one name in several generations
    only the last one is called so; those that were renamed before have names of no other part.
    """
    plan = core(plan)
    sources = _written([*plan.inputs, *plan.operators])
    outputs = _written(plan.outputs)
    return replace(
        plan,
        inputs=tuple(replace(each, name=sources[each.name]) for each in plan.inputs),
        operators=tuple(
            over(
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
    """The names of users of parts, by those that the checkpoint knows."""
    found: dict[str, str] = {}
    taken = {shown(part.name) for part in parts}
    last = {shown(part.name): part.name for part in sorted(parts, key=_generation)}
    for part in parts:
        base = name = shown(part.name)
        if last[base] != part.name:
            numbers = count(generation(part.name))
            name = next(n for number in numbers if (n := f"{base}.{number}") not in taken)
            taken.add(name)
        found[part.name] = name
    return found


def _generation(part: Input | Operator | Output) -> int:
    return generation(part.name)


def _kept_readings(before: Plan, after: Plan) -> Plan:
    """Keep the old plan's decoding for inputs with state that is kept, if it is sufficient."""
    old, new = planner.physical(before).readings, planner.physical(after).readings
    kept = tuple(
        (name, KeptReading(old[name].columns, old[name].key_filters, old[name].pushed))
        for name in sorted(inputs_kept(before, after))
        if old[name] != new[name] and planner.has_enough(old[name], after, name)
    )
    return replace(after, readings=kept) if kept else after


def inputs_kept(before: Plan, after: Plan) -> set[str]:
    """List the inputs with rows from which the state that is kept was made."""
    known = {operator.name for operator in before.operators}
    return {
        source
        for operator in after.operators
        if kind_of(operator).reads_rows and operator.name in known
        for source in kind_of(operator).sources(operator)
    }


def _insufficient(before: Plan, after: Plan) -> set[str]:
    """The inputs that go on although a plan needs more of their rows than there is.

    The state has less of each row, or a fresh operator needs the rows from the beginning.
    """
    old, new = planner.physical(before).readings, planner.physical(after).readings
    known = {operator.name for operator in before.operators}
    fresh = {
        source
        for operator in after.operators
        if kind_of(operator).reads_rows and operator.name not in known
        for source in kind_of(operator).sources(operator)
    }
    return {n for n in inputs_kept(before, after) if old[n] != new[n]} | (fresh & old.keys())


class _Resolving:
    """Finds for each part of a new plan the part of the old plan that it continues, if any.

    Of the inputs `insufficient` none goes on: they are read again if they can be.
    """

    def __init__(
        self, before: Plan, after: Plan, used: Mapping[str, int], insufficient: Set[str]
    ) -> None:
        self._before, self._after = before, after
        self._used = generations(before, used)
        self._insufficient = insufficient
        # What is read again for another plan comes last.
        self._by_base: dict[str, list[Operator]] = {}
        for operator in before.operators:
            self._by_base.setdefault(shown(operator.name), []).append(operator)
        self._new: dict[str, Operator] = {o.name: o for o in after.operators}
        # Arrangements have the names of their relations, so another collection needs another.
        self._arranged = {each.relation for join in after.joins for each in join.inputs}
        # So has state, of which what has the name now may be none.
        self._stateful = {o.name for o in before.operators if not kind_of(o).is_linear}
        self._done: dict[str, Operator] = {}
        self._open: set[str] = set()
        """Operators that are being resolved."""
        self._taken: set[str] = set()
        """Operators of the old plan that go on, by their names there."""
        self._stays: dict[str, bool] = {}
        """Whether an operator and all of its sources are unchanged, by name."""
        self._called: dict[str, str] = {}
        """The names of inputs in the checkpoint, by those that their user has given."""
        self._lasts: dict[str, bool] = {}
        """Whether an input goes on as it was."""
        self._find_inputs()

    def _find_inputs(self) -> None:
        """Find the name of each input in the checkpoint, and whether it continues there."""
        taken = set[str]()
        again = self._before.backfills
        read = [each for each in self._before.inputs if each.name not in again]
        # What is read again for another plan comes last, also after what has another name now.
        both = read, [self._before.input(name) for name in again]
        for known, renamed, source in product(both, (False, True), self._after.inputs):
            if source.name in self._called:
                continue
            free = [each for each in known if each.name not in taken]
            if (old := self._goes_on(source, free, renamed=renamed)) is not None:
                taken.add(old.name)
                self._called[source.name], self._lasts[source.name] = old.name, True
        for source in self._after.inputs:
            if source.name not in self._called:
                name, lasts = self._input(source, taken)
                taken.add(name)
                self._called[source.name], self._lasts[source.name] = name, lasts

    def _goes_on(self, source: Input, known: Sequence[Input], *, renamed: bool) -> Input | None:
        """The input of the old plan that an input continues, under its name or another one."""
        for old in known:
            is_called = (shown(old.name) != source.name) == renamed
            if is_called and old.name not in self._insufficient and _lasts(old, source):
                return old
        return None

    def _input(self, source: Input, taken: Set[str]) -> tuple[str, bool]:
        """Find a name for an input that does not go on, and whether it is as it was.

        One that does not fit and cannot be read again keeps its name, by which it is refused.
        """
        free = [old for old in self._before.inputs if old.name not in taken]
        candidates = [old for old in free if shown(old.name) == source.name]
        candidates = candidates or [old for old in free if _lasts(old, source)]
        known = set(core(self._before).topics)
        if candidates and (
            why_not(self._before, source) is not None or not known.issuperset(source.topics)
        ):
            return candidates[0].name, _lasts(candidates[0], source)
        same = [old for old in self._before.inputs if shown(old.name) == source.name]
        last = max((generation(old.name) for old in (*candidates, *same)), default=0)
        return f"{source.name}@{last + 1}" if last else source.name, False

    def plan(self) -> Plan:
        operators = tuple(self._resolve(name) for name in self._new)
        outputs = tuple(self._output(output) for output in self._after.outputs)
        inputs = tuple(replace(i, name=self._called[i.name]) for i in self._after.inputs)
        found = replace(self._after, inputs=inputs, operators=operators, outputs=outputs)
        return _kept_readings(self._before, found)

    def _resolve(self, name: str) -> Operator:
        if name not in self._done:
            self._open.add(name)
            self._done[name] = self._resolved(self._new[name])
            self._open.remove(name)
        return self._done[name]

    def _same(self, collection: str) -> bool:
        """Whether a collection is unchanged; an input of updates is a collection by itself."""
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
        moved = over(moved, self._called)
        candidates = [each for each in self._by_base.get(name, ()) if each.name not in self._taken]
        old = next((each for each in candidates if _is_same(moved, each)), None)
        if old is None and not any(_migrates(o, _renamed(moved, o.name)) for o in candidates):
            old = self._renamed_to(moved)
        old = old or next(iter(candidates), None)
        as_it_was = moved if old is None else _renamed(moved, old.name)
        is_same = old is not None and _is_same(moved, old)
        self._stays[name] = (is_same or _migrates(old, as_it_was)) and all(same)
        if self._stays[name]:
            self._taken.add(as_it_was.name)
            return as_it_was
        if kind.is_linear and name not in self._arranged and name not in self._stateful:
            return moved
        last = self._used.get(name, 0)
        return _renamed(moved, f"{name}@{last + 1}" if last else name)

    def _renamed_to(self, moved: Operator) -> Operator | None:
        """Find an operator of before with the definition of one that has another name now.

        Another operator may have its former name, unless that one is what it was.
        """
        if kind_of(moved).is_linear:
            return None
        same = (old for old in self._before.operators if _is_same(moved, old))
        return next((old for old in same if not self._is_taken(old)), None)

    def _is_taken(self, old: Operator) -> bool:
        """Whether an operator of before is continued by another one than the present one."""
        base = shown(old.name)
        # What waits for the present one is none of the same definition.
        if base in self._new and self._open.isdisjoint(self._behind(base)):
            self._resolve(base)
        return old.name in self._taken

    def _behind(self, name: str) -> set[str]:
        """An operator and all that it is made of."""
        found, left = set[str](), [name]
        while left:
            if (at := left.pop()) in self._new and at not in found:
                found.add(at)
                left += kind_of(self._new[at]).sources(self._new[at])
        return found

    def _output(self, output: Output) -> Output:
        moved = replace(output, source=self._name_of(output.source))
        for old in self._before.outputs:
            # Readers know an output by its topic, whatever its name is.
            if (old.topic, old.format) == (output.topic, output.format):
                return replace(moved, name=old.name)
        last = self._used.get(output.name, 0)
        return replace(moved, name=f"{output.name}@{last + 1}" if last else output.name)


def over(operator: Operator, named: Mapping[str, str]) -> Operator:
    """The operator over the rows of an input of another name, if it reads rows."""
    if not kind_of(operator).reads_rows:
        return operator
    (source,) = kind_of(operator).sources(operator)
    moved: Operator = msgspec.structs.replace(operator, input=named.get(source, source))
    return moved


def _lasts(old: Input, new: Input) -> bool:
    """Whether two inputs are the same but for their names, and what may always change."""
    return lasting(old) == lasting(replace(new, name=old.name))


def _migrates(old: Operator | None, new: Operator) -> bool:
    """Whether a machine keeps its states, which its `migrate` converts."""
    return (
        isinstance(old, StateMachine)
        and isinstance(new, StateMachine)
        and (old.input, old.name) == (new.input, new.name)
        and old.version < new.version
    )


def _is_same(operator: Operator, old: Operator) -> bool:
    """Whether an operator is one of before but for its name, whatever is known of its rows."""
    if isinstance(operator, Linear | Concat) and isinstance(old, Linear | Concat):
        operator = msgspec.structs.replace(operator, unique=old.unique)
    return _renamed(operator, old.name) == old


def _renamed(operator: Operator, name: str) -> Operator:
    return msgspec.structs.replace(operator, name=name)
