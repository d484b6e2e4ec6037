"""Promises: what readers of an output may rely on, and whether it needs watching."""

import functools
from collections.abc import Iterator

from ikebana.codecs.progress import Promise
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql, moves_time
from ikebana.processor.linear.syntax import called
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.operators.kind import Way
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Output, Plan


@functools.lru_cache(maxsize=64)
def watches(plan: Plan, output: Output) -> bool:
    """Whether an output keeps state to find keys with several values, for its format."""
    return output.traits.single_value and promise(plan, output) != "upserts"


@functools.lru_cache(maxsize=256)
def promise(plan: Plan, output: Output) -> Promise:
    """The changelog mode of an output: what its readers may rely on."""
    # Two bad values in different places can have the same error record, and the error of a negated
    # datum has a negative count.
    if not output.source:
        revised = any(join.revises for join in plan.joins)
        signed = any(signs(step) for o in plan.operators for _, step in kind_of(o).steps(o))
        return "changes" if signed or revised else "collection"
    if catalog_of(plan).keyed(output.source).keys.is_unique([KEY]):
        return "upserts"
    negative = any(_may_be_negative(plan, way) for way in graph_of(plan).ways(output.source))
    return "changes" if negative else "collection"


def _may_be_negative(plan: Plan, way: Way) -> bool:
    """Whether counts at the end of a way may be negative."""
    if why_negative(plan, way) is not None:
        return True
    return any(
        source.name == root and source.mode == "diffs"
        for root in _roots_behind(plan, way)
        for source in plan.inputs
    )


def why_negative(plan: Plan, way: Way) -> str | None:
    """The operator that may give a datum of a way a negative count, whatever the inputs are.

    Counts of inputs in `mode: diffs` depend on their messages alone.
    """
    for name, step in way.steps:
        if signs(step):
            return name
    if (revises := what_revises(plan, way)) is not None:
        return revises
    return next(filter(None, (why_negative(plan, other) for other in _behind(plan, way))), None)


def what_revises(plan: Plan, way: Way) -> str | None:
    """An as-of join behind a way, if its retractions may match another right than insertions."""
    for join in plan.joins:
        if join.name == way.root and join.revises:
            lefts = graph_of(plan).ways(join.inputs[0].relation)
            if not all(_only_grows(plan, left) for left in lefts):
                return join.name
    return next(filter(None, (what_revises(plan, other) for other in _behind(plan, way))), None)


def signs(step: AnyStep) -> bool:
    """Whether a step may change the sign of a diff."""
    match step:
        case Negate():
            return True
        case Call():
            return step.kind in ("explode", "join_function")
        case Arrange():
            return False
        case Sql():
            if step.flat_map is None:
                return step.diff is not None
            repeats = called(step.flat_map[1])
            return step.diff is not None or bool(repeats and repeats[0] == "repeat_row")


def _behind(plan: Plan, way: Way) -> Iterator[Way]:
    """The ways to the inputs of a join, if the root of a way is a join."""
    for join in plan.joins:
        if join.name == way.root:
            for source in graph_of(plan).nodes[join.name].sources:
                yield from graph_of(plan).ways(source)


def _roots_behind(plan: Plan, way: Way) -> Iterator[str]:
    """The root of a way, and the roots of all inputs of joins behind it."""
    yield way.root
    for other in _behind(plan, way):
        yield from _roots_behind(plan, other)


def _only_grows(plan: Plan, way: Way) -> bool:
    """Whether a way has insertions only."""
    appended = {source.name for source in plan.inputs if source.mode == "append"}
    return way.root in appended and not any(signs(s) or moves_time(s) for _, s in way.steps)
