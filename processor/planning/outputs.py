"""The outputs of a plan: what their readers may rely on, and the types of their messages.

Formats with schemas in a registry have types.  Those of columns come from the catalog.  The type
of the key follows from its origin: the expression of the last step with a key, the columns that
an input names, or the key of another collection.
"""

import functools
from collections.abc import Iterator

from ikebana.codecs.diff import Promise
from ikebana.codecs.output_messages import OutputShape, namespace_of
from ikebana.codecs.sql_type import JSON, SqlType, Struct, type_of
from ikebana.processor.linear.chain import result_of
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, Scope
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql, Step, moves_time
from ikebana.processor.linear.syntax import call_of
from ikebana.processor.planning.catalog import Catalog, catalog_of
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.planning.kind import Way
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    Linear,
    Loop,
    Output,
    Plan,
    PlanProblem,
    Reduce,
    ReduceRows,
    Upsert,
)
from ikebana.processor.planning.relations import derivation_of


@functools.lru_cache(maxsize=64)
def watches_values(plan: Plan, output: Output) -> bool:
    """Whether an output keeps state to find keys with several values, for its format."""
    return output.traits.single_value and promise(plan, output) != "upserts"


@functools.lru_cache(maxsize=256)
def promise(plan: Plan, output: Output) -> Promise:
    """The changelog mode of an output: what its readers may rely on."""
    # Two bad values in different places can have the same error record, and the error of a negated
    # datum has a negative count.
    if not output.source:
        revised = any(join.revises for join in plan.joins)
        signed = any(
            may_change_sign(step) for o in plan.operators for _, step in kind_of(o).steps(o)
        )
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
        if may_change_sign(step):
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


def may_change_sign(step: AnyStep) -> bool:
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
            repeats = call_of(step.flat_map[1])
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
    return way.root in appended and not any(
        may_change_sign(s) or moves_time(s) for _, s in way.steps
    )


_NOTHING_KNOWN = JSON


@functools.lru_cache(maxsize=64)
def shape_of(plan: Plan, output: Output) -> OutputShape:
    """The types of an output's messages; its format has schemas in a registry."""
    catalog = catalog_of(plan)
    space = output.record or namespace_of(output.topic)
    columns = tuple(_columns(catalog.relation(output.source).scope))
    return OutputShape(space, key_type(catalog, output.source), columns, output.traits.envelope)


def _columns(scope: Scope) -> Iterator[tuple[str, SqlType]]:
    for name, kind in scope.types.items():
        if name not in (KEY, VALUE):
            yield name, type_of(kind)


def problems_of_types(plan: Plan, output: Output, catalog: Catalog) -> Iterator[PlanProblem]:
    """Why the messages of an output cannot have schemas."""
    path = f"outputs.{output.name}.format"
    assert output.traits.schemas is not None, f"{output.format} has no schemas"
    codec = output.traits.schemas()
    for scope in catalog.relation(output.source).scopes:
        columns = dict(_columns(scope))
        if UNKNOWN in scope.types.values():
            continue
        if scope.open or not columns:
            yield (
                path,
                f"{output.format} needs columns with types, and what {output.source!r} has is not "
                "known: declare the columns of its input, or select some",
            )
            continue
        if codec.carries(Struct(tuple(columns.items()))):
            continue
        wrong = [name for name, of in columns.items() if not codec.carries(Struct(((name, of),)))]
        for name in wrong or columns:
            yield path, f"column {name!r} {codec.name_problem}: select it under another one"
    kind = key_type(catalog, output.source)
    if not codec.carries(kind):
        yield path, f"the key is {kind}, and {codec.name_problem}"
    elif output.subjects != "topic" and not isinstance(kind, Struct):
        yield (
            f"outputs.{output.name}.subjects",
            f"is {output.subjects}, which names schemas by their records, and the key has none: "
            "make it an object of columns, as in key: \"{'id': id}\"",
        )


def key_type(catalog: Catalog, name: str) -> SqlType:
    """The type of a collection's key; JSON if it is unknown."""
    operator, source = catalog.operators.get(name), catalog.inputs.get(name)
    match operator:
        case Upsert():
            return _of_input(catalog.inputs.get(operator.input))
        case Linear():
            return _key_after(catalog, operator.source, operator.steps)
        case Concat():
            kinds = {key_type(catalog, each) for each in operator.sources}
            return kinds.pop() if len(kinds) == 1 else _NOTHING_KNOWN
        case Reduce(key=key) | ReduceRows(by=key) | Loop(by=key):
            if key is None:
                return key_type(catalog, operator.source)
            return _of_expression(catalog, operator.source, (), key)
        case DeltaJoin() | AsOfJoin():
            return _of_join(catalog, operator)
    return _of_input(source) if operator is None else _NOTHING_KNOWN


def _of_input(source: Input | None) -> SqlType:
    if source is None or not source.key:
        return _NOTHING_KNOWN
    declared = {column.name: column.type for column in source.columns}
    fields = ((name, type_of(declared[name]) if name in declared else JSON) for name in source.key)
    return Struct(tuple(fields))


def _key_after(catalog: Catalog, source: str, steps: tuple[Step, ...]) -> SqlType:
    """The type of the key after steps."""
    for at in range(len(steps) - 1, -1, -1):
        match steps[at]:
            case Sql(key=str() as key, flat_map=flat_map):
                return _of_expression(catalog, source, steps[:at], key, flat_map)
            case Sql() | Negate() | Call(kind="filter"):
                pass
            case _:
                return _NOTHING_KNOWN
    return key_type(catalog, source)


def _of_expression(
    catalog: Catalog,
    source: str,
    before: tuple[Step, ...],
    text: str,
    flat_map: tuple[str, str] | None = None,
) -> SqlType:
    """The type of an expression over a collection after steps."""
    scope = catalog.relation(source).scope
    if before:
        scope = result_of(before, scope).scope
    of = derivation_of(text, names=[*scope.types])
    if of.is_same and KEY in of.of:
        return _key_after(catalog, source, before)
    result = result_of((Sql(flat_map=flat_map, select=(("key", text),)),), scope)
    return type_of(result.scope.types["key"]) if not result.problems else _NOTHING_KNOWN


def _of_join(catalog: Catalog, join: DeltaJoin | AsOfJoin) -> SqlType:
    key = catalog.examined(join).key
    if key is None:
        return _NOTHING_KNOWN
    for each in join.inputs:
        if key.sql == quoted(f"{each.alias}.{KEY}"):
            return key_type(catalog, each.relation)
    return type_of(key.type)
