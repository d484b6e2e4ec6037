"""State forms: versions of the layout of what an operator keeps.

A checkpoint's metadata lists the forms of its state.  If this version of ikebana needs
another form of an operator's state than the checkpoint has, the operator is refused by name.
Operators whose layout has never changed have no form, so their checkpoints continue.
"""

from collections.abc import Mapping, Sequence

from ikebana.processor.joins.paths import Planned
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.scope import OURS
from ikebana.processor.planning import promises
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.plan import Plan

ORDERED, WATCHED, SINGLE = "ordered by type", "watched", "added as doubles"
NAMED = "whole keys and values by names of their own"
REACHED = f"looked up by unique keys, {NAMED}"
# What a version that knows nothing of a form has done in its place.
_BEFORE = {
    ORDERED: "has the values of min, max or top in the order of their JSON, which is not that of "
    "their type",
    SINGLE: "has added numbers of FLOAT as they are written, and not as the doubles that they are",
    REACHED: "looks its inputs up in another order, or by other keys",
    NAMED: "has arrangements by whole keys or values, which it calls otherwise",
    WATCHED: "knows nothing of the rows that each key has",
}


def state_forms(plan: Plan) -> dict[str, str]:
    """The forms by the path of the operator; most plans have none."""
    found = {
        f"operators.{reduction.name}": form
        for reduction in plan.reductions
        if reduction.function is None
        and (form := _of_aggregates(catalog_of(plan).aggregates(reduction)))
    }
    shown = dict.fromkeys(watched_outputs(plan), WATCHED)
    joined = {
        f"operators.{join.name}": form
        for join in plan.joins
        if (form := _of_join(catalog_of(plan).join(join.name)))
    }
    return {**found, **shown, **joined}


def watched_outputs(plan: Plan) -> set[str]:
    """The paths of the outputs whose keys may have several rows, of which the state knows."""
    return {f"outputs.{each.name}" for each in plan.outputs if promises.watches(plan, each)}


def _of_join(join: Planned) -> str:
    """The form of a join's arrangements, which the texts of their keys and filters name."""
    if join.by_unique_keys:
        return REACHED
    arrangements = (arrangement for path in join.paths for _, arrangement in path.reads())
    texts = (text for each in arrangements for text in (*each.keys, *each.filters))
    return NAMED if any(OURS in text for text in texts) else ""


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
