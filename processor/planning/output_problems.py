"""Problems of outputs: their names, and formats that cannot write their collections."""

from collections.abc import Iterator, Sequence

from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Negate
from ikebana.processor.planning import promises
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
    if any(scope.types[part] == BLOB for scope in scopes for part in (KEY, VALUE)):
        yield path, f"{output.format} needs keys and values that are JSON, not bytes"
    ways = graph_of(plan).ways(output.source)
    if output.traits.single_value and (why := _why_several(plan, ways)):
        reason, remedy = why
        yield (
            path,
            f"{output.format} needs at most one value a key, and {reason}: {remedy}, or write a "
            "diff topic",
        )


def _why_several(plan: Plan, found: Sequence[Way]) -> tuple[str, str] | None:
    """Why keys have several values, or none, with a remedy; None if that is to be seen."""
    appended = {source.name for source in plan.inputs if source.mode == "append"}
    for way in found:
        if (name := promises.what_revises(plan, way)) is not None:
            return f"retractions of {name!r} meet another right than they came with", (
                "set its retract: locked"
            )
        if way.root in appended and keeps_key(way):
            return f"rows of {way.root!r} stay", "read it by an upsert, or reduce it by the key"
    if len(found) == 1:
        for name, step in found[0].steps:
            if isinstance(step, Negate):
                return f"{name!r} changes diffs", "reduce it by the key"
    return None
