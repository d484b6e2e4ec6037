"""A new plan with the names that its parts have in the checkpoint of an old one.

What is as it was keeps its name there, also if its user calls it otherwise now.  Where a fresh
operator has the name of a part that was there before, it gets a *generation* in its name, as in
"totals@2", so that old and new state lie apart; what is shown to people is without it
(`generations.shown`).
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from ikebana.processor.ground.generations import generation, shown
from ikebana.processor.planning import planner
from ikebana.processor.planning.identity import lasting
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import KeptReading, Operator, Output, Plan, StateMachine


def resolved(before: Plan, after: Plan, used: Mapping[str, int]) -> Plan:
    """The new plan with the names that its parts have in the checkpoint.

    `before` is the old plan with the names that it has there; `used` has, by the name that
    users know, the last generation that there ever was of it, and the topics that have been
    written (`generations`).
    """
    return _Resolving(before, after, used).plan()


def generations(plan: Plan, used: Mapping[str, int]) -> dict[str, int]:
    """The last generations, with those of a plan."""
    found = dict(used)
    for part in (*plan.operators, *plan.outputs):
        base = shown(part.name)
        found[base] = max(found.get(base, 0), generation(part.name))
    return found | {WRITTEN + output.topic: 1 for output in plan.outputs}


# Names of users hold no space.
WRITTEN = "topic "


def as_written(plan: Plan) -> Plan:
    """The plan with the names that its user has given, as it would be without a checkpoint."""

    return replace(
        plan,
        operators=tuple(
            _renamed(kind_of(o).with_sources(o, shown), shown(o.name)) for o in plan.operators
        ),
        outputs=tuple(
            replace(o, name=shown(o.name), source=shown(o.source)) for o in plan.outputs
        ),
        readings=(),
    )


def _kept_readings(before: Plan, after: Plan) -> Plan:
    """The new plan, which reads what goes on as the old one does, where that is enough."""
    old, new = planner.physical(before).readings, planner.physical(after).readings
    kept = tuple(
        (name, KeptReading(old[name].columns, old[name].key_filters, old[name].pushed))
        for name in sorted(inputs_kept(before, after))
        if old[name] != new[name] and planner.has_enough(old[name], after, name)
    )
    return replace(after, readings=kept) if kept else after


def inputs_kept(before: Plan, after: Plan) -> set[str]:
    """The inputs of whose rows the state that goes on has been made."""
    known = {operator.name for operator in before.operators}
    return {
        source
        for operator in after.operators
        if kind_of(operator).reads_rows and operator.name in known
        for source in kind_of(operator).sources(operator)
    }


class _Resolving:
    """Finds for each part of a new plan the one of the old plan that it is, if any."""

    def __init__(self, before: Plan, after: Plan, used: Mapping[str, int]) -> None:
        self._before, self._after = before, after
        self._used = generations(before, used)
        self._inputs = {source.name: source for source in before.inputs}
        self._by_base = {shown(o.name): o for o in before.operators}
        self._new: dict[str, Operator] = {o.name: o for o in after.operators}
        self._done: dict[str, Operator] = {}
        self._followed: set[str] = set()
        """Operators of before that have another name now."""
        self._stays: dict[str, bool] = {}
        """Whether an operator is as it was, and all that it is made of."""
        self._lasts: dict[str, bool] = {
            source.name: source.name in self._inputs
            and lasting(self._inputs[source.name]) == lasting(source)
            for source in after.inputs
        }

    def plan(self) -> Plan:
        operators = tuple(self._resolve(name) for name in self._new)
        outputs = tuple(self._output(output) for output in self._after.outputs)
        found = replace(self._after, operators=operators, outputs=outputs)
        return _kept_readings(self._before, found)

    def _resolve(self, name: str) -> Operator:
        if name not in self._done:
            self._done[name] = self._resolved(self._new[name])
        return self._done[name]

    def _same(self, collection: str) -> bool:
        """Whether a collection is what it was; an input of updates is one by itself."""
        if collection not in self._new:
            return self._lasts.get(collection, False)
        self._resolve(collection)
        return self._stays[collection]

    def _name_of(self, source: str) -> str:
        return self._resolve(source).name if source in self._new else source

    def _resolved(self, operator: Operator) -> Operator:
        name, kind = operator.name, kind_of(operator)
        same = [
            self._lasts.get(source, False) if kind.reads_rows else self._same(source)
            for source in kind.sources(operator)
        ]
        moved: Operator = kind.with_sources(operator, self._name_of)
        old = self._by_base.get(name) or self._renamed_to(moved)
        as_it_was = moved if old is None else _renamed(moved, old.name)
        self._stays[name] = (as_it_was == old or _migrates(old, as_it_was)) and all(same)
        if self._stays[name]:
            return as_it_was
        if kind.is_linear:
            return moved
        last = self._used.get(name, 0)
        return _renamed(moved, f"{name}@{last + 1}" if last else name)

    def _renamed_to(self, moved: Operator) -> Operator | None:
        """What an operator of a new name was called, if one that is gone was defined like it."""
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
            # Readers know an output by its topic, whatever it is called here.
            if (old.topic, old.format) == (output.topic, output.format):
                return replace(moved, name=old.name)
        last = self._used.get(output.name, 0)
        return replace(moved, name=f"{output.name}@{last + 1}" if last else output.name)


def _migrates(old: Operator | None, new: Operator) -> bool:
    """Whether a machine goes on with its states, which become those of another version."""
    return (
        isinstance(old, StateMachine)
        and isinstance(new, StateMachine)
        and (old.input, old.name) == (new.input, new.name)
        and old.version < new.version
    )


def _renamed(operator: Operator, name: str) -> Operator:
    return msgspec.structs.replace(operator, name=name)
