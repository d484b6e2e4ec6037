"""Problems of outputs: their names, and formats that cannot write their collections."""

from collections.abc import Iterator, Sequence

from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning import planner
from ikebana.processor.planning.graph import graph_of, keeps_key
from ikebana.processor.planning.operators.kind import Around, Problem, Way
from ikebana.processor.planning.plan import ERRORS, Output, Plan


def output_problems(plan: Plan, around: Around) -> Iterator[Problem]:
    """What is wrong with the outputs, whatever their collections are."""
    for output in plan.outputs:
        path = f"outputs.{output.name}"
        if output.name == ERRORS:
            yield path, "the name is taken by the error topic"
        yield from around.missing_collection(f"{path}.from", output.source)
        if output.partitions is not None and output.partitions < 1:
            yield f"{path}.partitions", "must be at least 1"
        if not output.tombstones and not output.traits.tombstones:
            yield f"{path}.tombstones", f"{output.format} has none of its own to leave out"


def format_problems(plan: Plan, output: Output, scopes: Sequence[Scope]) -> Iterator[Problem]:
    """Why an output's format cannot write its collection, whose data have one of these scopes."""
    if output.traits.as_updates:
        return
    path = f"outputs.{output.name}.format"
    found = graph_of(plan).ways(output.source)
    if any(scope.types[part] == BLOB for scope in scopes for part in (KEY, VALUE)):
        yield path, f"{output.format} needs keys and values that are JSON, not bytes"
    if not all(map(keeps_key, found)):
        yield (
            path,
            f"{output.format} needs the key of the input to stay: where a step makes other "
            "keys, equal data may lie in different shards. Reduce it by its new key, or write a "
            "diff topic",
        )
    if output.traits.single_value and (why := _why_several(plan, found)):
        reason, remedy = why
        yield (
            path,
            f"{output.format} needs at most one value a key, and {reason}: {remedy}, or write a "
            "diff topic",
        )


def _why_several(plan: Plan, found: Sequence[Way]) -> tuple[str, str] | None:
    """Why keys may have several values, with a remedy; None if nothing indicates it."""
    if len(found) > 1:
        return "this is several collections together", "reduce it by the key"
    (way,) = found
    if (name := planner.why_negative(plan, way)) is not None:
        if any(join.name == name for join in plan.joins):
            return f"retractions of {name!r} meet another right than they came with", (
                "set its retract: locked"
            )
        return f"{name!r} changes diffs", "reduce it by the key"
    for source in plan.inputs:
        if source.name == way.root and source.mode == "append":
            return f"rows of {source.name!r} stay", "read it by an upsert, or reduce it by the key"
    return None
