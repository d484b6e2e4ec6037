"""Count the costs of a plan by part: exchanges, arrangements and passes."""

from collections.abc import Iterator
from typing import NamedTuple

from ikebana.processor.explain import joining
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Plan
from ikebana.processor.planning.planner import Physical

MEANINGS = {
    "exchange": "a further micro-batch until an update shows",
    "arrangement": "state by key; what a hold keeps waiting is not counted",
    "pass": "one run over a micro-batch's updates, however many operators it fuses",
}

ALL = "in all"
"""The name of the row with the sums."""


class Cost(NamedTuple):
    """The costs of one part of the plan."""

    part: str
    arrangements: int
    exchanges: int
    passes: int

    @classmethod
    def heads(cls) -> tuple[str, ...]:
        """The heads of the columns of numbers."""
        return cls._fields[1:]


def costs(plan: Plan, physical: Physical) -> Iterator[Cost]:
    """Yield the costs of each part, and then their sum."""
    rows = []
    edges = progress.edges(plan)
    kinds = ((operator, kind_of(operator)) for operator in plan.operators)
    labels = {o.name: kind.label for o, kind in kinds if kind.part(o) is not None}
    for source in plan.inputs:
        diffs = source.is_collection
        passes = _passes(physical, source.name) if diffs else 0
        passes += bool(physical.readings[source.name].pushed)
        rows.append(Cost(f"decoding {source.name}", 0, 0, passes))
    for root, edge in edges.items():
        if root in labels:
            part = f"{labels[root]} {root}"
            rows.append(Cost(part, 1, len(edge.hops), _passes(physical, root)))
    rows += [Cost(part, 1, 0, 0) for part in joining.join_arrangements(plan)]
    for join in plan.joins:
        passes = _passes(physical, join.name)
        state = int(joining.remembers(join))
        rows.append(Cost(f"join {join.name}", state, joining.depth(plan, join), passes))
    rows += [Cost(f"output {name}", 0, 1, 0) for name in planner.gathered(plan)]
    yield from rows
    _, *columns = zip(*rows, strict=True)
    yield Cost(ALL, *(sum(column) for column in columns))


def _passes(physical: Physical, root: str) -> int:
    return sum(1 for branch in physical.branches[root] if branch.steps)
