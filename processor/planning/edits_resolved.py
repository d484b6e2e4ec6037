"""Give the parts of a new plan their names in the checkpoint of an old one.

An unchanged part keeps its name there, even if its user has renamed it.  A fresh operator with
the name of an earlier part gets a *generation* in its name, as in "totals@2", so that old and
new state are separate.  People see names without it (`generations.shown`).
"""

from collections.abc import Mapping, Set
from dataclasses import replace

import msgspec

from ikebana.processor.ground.generations import generation, shown
from ikebana.processor.planning import planner
from ikebana.processor.planning.backfill import core, why_not
from ikebana.processor.planning.identity import lasting
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import (
    Input,
    KeptReading,
    Operator,
    Output,
    Plan,
    StateMachine,
    Upsert,
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

    What is read again for an edit is left out.
    """
    plan = core(plan)
    written = {source.name: shown(source.name) for source in plan.inputs}
    return replace(
        plan,
        inputs=tuple(replace(each, name=shown(each.name)) for each in plan.inputs),
        operators=tuple(
            over(_renamed(kind_of(o).with_sources(o, shown), shown(o.name)), written)
            for o in plan.operators
        ),
        outputs=tuple(
            replace(o, name=shown(o.name), source=shown(o.source)) for o in plan.outputs
        ),
        readings=(),
    )


def _kept_readings(before: Plan, after: Plan) -> Plan:
    """Keep the old plan's decoding for inputs whose state goes on, if that is sufficient."""
    old, new = planner.physical(before).readings, planner.physical(after).readings
    kept = tuple(
        (name, KeptReading(old[name].columns, old[name].key_filters, old[name].pushed))
        for name in sorted(inputs_kept(before, after))
        if old[name] != new[name] and planner.has_enough(old[name], after, name)
    )
    return replace(after, readings=kept) if kept else after


def inputs_kept(before: Plan, after: Plan) -> set[str]:
    """List the inputs from whose rows the state that goes on was made."""
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
        self._done: dict[str, Operator] = {}
        self._followed: set[str] = set()
        """Operators of the old plan that have another name now."""
        self._stays: dict[str, bool] = {}
        """Whether an operator and all of its sources are unchanged, by name."""
        self._called: dict[str, str] = {}
        """The names of inputs in the checkpoint, by those that their user has given."""
        self._lasts: dict[str, bool] = {}
        """Whether an input goes on as it was."""
        for source in after.inputs:
            self._called[source.name], self._lasts[source.name] = self._input(source)

    def _input(self, source: Input) -> tuple[str, bool]:
        """Find the name of an input in the checkpoint, and whether it goes on under it.

        One that does not fit and cannot be read again keeps its name, by which it is refused.
        """
        inputs = self._before.inputs
        candidates = [old for old in inputs if shown(old.name) == source.name]
        if not candidates:
            names = {each.name for each in self._after.inputs}
            candidates = [old for old in inputs if shown(old.name) not in names]
            candidates = [old for old in candidates if _lasts(old, source)]
        for old in candidates:
            if _lasts(old, source) and old.name not in self._insufficient:
                return old.name, True
        if not candidates:
            return source.name, False
        known = set(core(self._before).topics)
        if why_not(self._before, source) is not None or not known.issuperset(source.topics):
            return candidates[0].name, _lasts(candidates[0], source)
        last = max(generation(old.name) for old in candidates)
        return f"{source.name}@{last + 1}", False

    def plan(self) -> Plan:
        operators = tuple(self._resolve(name) for name in self._new)
        outputs = tuple(self._output(output) for output in self._after.outputs)
        inputs = tuple(replace(i, name=self._called[i.name]) for i in self._after.inputs)
        found = replace(self._after, inputs=inputs, operators=operators, outputs=outputs)
        return _kept_readings(self._before, found)

    def _resolve(self, name: str) -> Operator:
        if name not in self._done:
            self._done[name] = self._resolved(self._new[name])
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
        candidates = self._by_base.get(name, [])
        old = next((each for each in candidates if _renamed(moved, each.name) == each), None)
        old = old or next(iter(candidates), None) or self._renamed_to(moved)
        as_it_was = moved if old is None else _renamed(moved, old.name)
        self._stays[name] = (as_it_was == old or _migrates(old, as_it_was)) and all(same)
        if self._stays[name]:
            return as_it_was
        if kind.is_linear and name not in self._arranged:
            return moved
        last = self._used.get(name, 0)
        return _renamed(moved, f"{name}@{last + 1}" if last else name)

    def _renamed_to(self, moved: Operator) -> Operator | None:
        """Find the removed operator with the same definition as one under a new name."""
        if kind_of(moved).is_linear:
            return None
        for old in self._before.operators:
            is_free = shown(old.name) not in self._new and old.name not in self._followed
            if is_free and _renamed(moved, old.name) == old:
                self._followed.add(old.name)
                return old
        return None

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
    if isinstance(operator, Upsert | StateMachine):
        return msgspec.structs.replace(operator, input=named.get(operator.input, operator.input))
    return operator


def _lasts(old: Input, new: Input) -> bool:
    """Whether two inputs are the same but for their names, and what may always change."""
    return lasting(old) == lasting(replace(new, name=old.name))


def _migrates(old: Operator | None, new: Operator) -> bool:
    """Whether a machine goes on with its states, which its `migrate` converts."""
    return (
        isinstance(old, StateMachine)
        and isinstance(new, StateMachine)
        and (old.input, old.name) == (new.input, new.name)
        and old.version < new.version
    )


def _renamed(operator: Operator, name: str) -> Operator:
    return msgspec.structs.replace(operator, name=name)
