"""State forms: versions of the layout of what an operator keeps.

A checkpoint's metadata lists the forms of its state.  If this version of ikebana needs
another form of an operator's state than the checkpoint has, the operator is refused by name.
Operators whose layout has never changed have no form, so their checkpoints continue.
"""

from collections.abc import Mapping, Sequence

from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.planning import promises, ways
from ikebana.processor.planning.plan import Plan

ORDERED, WATCHED, REACHED = "ordered by type", "watched", "looked up by unique keys"
SINGLE = "added as doubles"
# What a version that knows nothing of a form has done in its place.
_BEFORE = {
    ORDERED: "has the values of min, max or top in the order of their JSON, which is not that of "
    "their type",
    SINGLE: "has added numbers of FLOAT as they are written, and not as the doubles that they are",
    REACHED: "looks its inputs up in another order, or by other keys",
    WATCHED: "knows nothing of the rows that each key has",
}


def state_forms(plan: Plan) -> dict[str, str]:
    """The forms by the path of the operator; most plans have none."""
    found = {
        f"operators.{reduction.name}": form
        for reduction in plan.reductions
        if reduction.function is None
        and (form := _of_aggregates(ways.aggregates_of(plan, reduction)))
    }
    shown = dict.fromkeys(watched_outputs(plan), WATCHED)
    joined = {
        f"operators.{join.name}": REACHED
        for join in plan.joins
        if ways.join_of(plan, join.name).by_unique_keys
    }
    return {**found, **shown, **joined}


def watched_outputs(plan: Plan) -> set[str]:
    """The paths of the outputs whose keys may have several rows, of which the state knows."""
    return {f"outputs.{each.name}" for each in plan.outputs if promises.watches(plan, each)}


def _of_aggregates(aggregates: Sequence[Aggregate]) -> str:
    if any(each.is_single for each in aggregates):
        return SINGLE
    return ORDERED if any(each.order for each in aggregates) else ""


def differing(before: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """Of a checkpoint with the forms `before`: the parts whose state it lacks, and what it has."""
    return {
        path: f"what it keeps of {path} {_BEFORE[form]}"
        for path, form in state_forms(plan).items()
        if before.get(path) != form
    }
