"""Give the parts of a new plan their names in the checkpoint of an old one.

An unchanged part keeps its name there, even if its user has renamed it.  A fresh operator with
the name of an earlier part gets a *generation* in its name, as in "totals@2", so that old and
new state are separate.  People see names without it (`generations.shown`).
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
    """Give the parts of the new plan `after` their names in the checkpoint.

    `before` is the old plan with its names there.  `used` has the last generation ever used of
    each name that users know, and the topics that have been written (`generations`).
    """
    return _Resolving(before, after, used).plan()


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
    """Give the parts of a plan the names of its user, as without a checkpoint."""

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


class _Resolving:
    """Finds for each part of a new plan the part of the old plan that it continues, if any."""

    def __init__(self, before: Plan, after: Plan, used: Mapping[str, int]) -> None:
        self._before, self._after = before, after
        self._used = generations(before, used)
        self._inputs = {source.name: source for source in before.inputs}
        self._by_base = {shown(o.name): o for o in before.operators}
        self._new: dict[str, Operator] = {o.name: o for o in after.operators}
        self._done: dict[str, Operator] = {}
        self._followed: set[str] = set()
        """Operators of the old plan that have another name now."""
        self._stays: dict[str, bool] = {}
        """Whether an operator and all of its sources are unchanged, by name."""
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
        """Whether a collection is unchanged; an input of updates is a collection by itself."""
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
