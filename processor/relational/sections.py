"""Relational sections of a pipeline file, which are methods of a collection in Python.

Each function returns a `Derived`, which becomes operators when the types of its sources are known.
"""

from collections.abc import Callable, Sequence

from ikebana.processor.base.texts import instead
from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import conjuncts
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational import rows
from ikebana.processor.relational.deriving import Derived
from ikebana.processor.relational.known import KnownRelations, MakingError, Table, UnmadeError
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.matching import (
    Conditions,
    Outer,
    Side,
    met,
    outer_join,
    over,
    told_apart,
    unmet,
)
from ikebana.processor.relational.outer_inputs import ByAlias, outer_delta, outer_inputs
from ikebana.processor.relational.rows import Order, first_rows
from ikebana.processor.relational.sql_aggregates import direction
from ikebana.processor.relational.windows import hopping, sessions

Pairs = Sequence[tuple[str, str]]


def _derived(
    name: str, kind: str, reads: Sequence[str], last: Callable[[Making, list[Table]], Table]
) -> Derived:
    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        making = Making(pipeline, name)
        return making.finished(last(making, [source_of(pipeline, making, each) for each in reads]))

    return Derived(name, kind, make, lambda: reads)


def source_of(pipeline: KnownRelations, making: Making, name: str) -> Table:
    """The collection of a name, which may be an input.  Raises: MakingError, UnmadeError."""
    every = {**pipeline.inputs, **pipeline.operators, **dict.fromkeys(pipeline.pending)}
    if pipeline.hides(name):
        raise UnmadeError
    if name not in every:
        raise MakingError(f"there is no operator {name!r}{instead(name, every)}")
    if name in pipeline or name in pipeline.pending:
        return pipeline.relation(name)
    return making.rows_of(name)


def distinct(name: str, source: str, select: Pairs | None) -> Derived:
    """The distinct rows of a collection, or of what is selected from it."""

    def last(making: Making, sources: list[Table]) -> Table:
        (relation,) = sources
        listed = select or [(each, quoted(each)) for each in relation.types]
        return rows.distinct(making, making.select(relation, "rows", listed))

    return _derived(name, "distinct", (source,), last)


def set_operation(
    name: str, kind: str, operation: rows.SetOperation, sources: Sequence[str], *, every: bool
) -> Derived:
    """The union, difference or intersection of collections; `every` keeps repeated rows."""

    def last(making: Making, relations: list[Table]) -> Table:
        if len(relations) < 2:
            raise MakingError("at least two operators are needed")
        tables = [_own_columns(making, each) for each in relations]
        return rows.set_operation(making, operation, tables, every=every)

    return _derived(name, kind, sources, last)


def _own_columns(making: Making, relation: Table) -> Table:
    """The collection with its declared columns alone, since rows are compared by all columns."""
    listed = [(each, quoted(each)) for each in relation.types]
    return making.select(relation, "rows", listed)


def matching(name: str, kind: str, inputs: Pairs, on: Sequence[str]) -> Derived:
    """A semi-join or an anti-join (`kind`) of two inputs."""

    def last(making: Making, relations: list[Table]) -> Table:
        left, right = _sides(inputs, relations)
        take = met if kind == "semi_join" else unmet
        return take(making, left, right, _conditions(on, left, right), kind.partition("_")[0])

    return _derived(name, kind, [source for _, source in inputs], last)


def outer(
    name: str, kind: Outer, inputs: Pairs, on: Sequence[str], select: Pairs | None
) -> Derived:
    """A left, right or full outer join of two inputs."""

    def last(making: Making, relations: list[Table]) -> Table:
        left, right = _sides(inputs, relations)
        if not select:
            raise MakingError("at least one field is needed", "select")
        listed = [(field, _over(text, left, right, "select")) for field, text in select]
        return outer_join(making, left, right, _conditions(on, left, right), listed, kind)

    return _derived(name, f"{kind}_join", [source for _, source in inputs], last)


def delta(join: DeltaJoin, left: ByAlias, full: ByAlias) -> Derived:
    """A delta join in which the inputs under `left` and `full` need no match."""

    def last(making: Making, relations: list[Table]) -> Table:
        outer = outer_inputs(join, left, full)
        both = zip(join.inputs, relations, strict=True)
        return outer_delta(making, [Side(of.alias, each) for of, each in both], join, outer)

    return _derived(join.name, "delta_join", [each.relation for each in join.inputs], last)


def first(
    name: str, source: str, partition: Sequence[str], orders: Sequence[str], count: int
) -> Derived:
    """The first rows of each partition, in an order such as `amount DESC`."""

    def last(making: Making, sources: list[Table]) -> Table:
        (relation,) = sources
        if count < 1:
            raise MakingError("must be at least 1", "count")
        if not orders:
            raise MakingError("is missing, such as amount DESC", "order")
        by = [_order(text, relation) for text in orders]
        for column in partition:
            column_of(column, relation, "partition")
        return first_rows(making, relation, partition, by, count)

    return _derived(name, "first", (source,), last)


def windows(name: str, kind: str, source: str, over: str, *, every: float, size: float) -> Derived:
    """The rows of a collection with the tumbling or hopping windows that they are in."""

    def last(making: Making, sources: list[Table]) -> Table:
        return hopping(making, sources[0], over, *map(_microseconds, (every, size)))

    return _derived(name, kind, (source,), last)


def session(name: str, source: str, over: str, gap: float, partition: Sequence[str]) -> Derived:
    """The rows of a collection with their sessions."""

    def last(making: Making, sources: list[Table]) -> Table:
        return sessions(making, sources[0], over, _microseconds(gap), partition)

    return _derived(name, "session", (source,), last)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _order(text: str, relation: Table) -> Order:
    beginning = "SELECT 1 FROM t"
    try:
        node = query_tree(f"{beginning} ORDER BY {text}\n")
    except SqlQueryError as error:
        raise MakingError(f"{text}: {error.problem}", "order") from None
    orders = [each for modifier in node["modifiers"] for each in modifier.get("orders", [{}])]
    # The text must add one order and nothing else, such as a LIMIT.
    is_order = {**node, "modifiers": []} == query_tree(beginning) and len(orders) == 1
    each = orders[0].get("expression", {})
    if not is_order or each.get("class") != "COLUMN_REF" or len(each["column_names"]) != 1:
        raise MakingError(
            f'"{text}" must be a column, with DESC or NULLS FIRST behind it', "order"
        )
    (column,) = each["column_names"]
    column_of(column, relation, "order")
    return Order(column, *direction(orders[0]))


def column_of(name: str, relation: Table, part: str) -> None:
    """Refuse a name that is no column.  Raises: MakingError."""
    if name not in relation.types:
        raise MakingError(f'there is no column "{name}"{instead(name, relation.types)}', part)


def _sides(inputs: Pairs, relations: list[Table]) -> tuple[Side, Side]:
    if len(inputs) != 2:
        raise MakingError("must have two inputs: the left, and the right that it meets")
    left, right = (
        Side(alias, relation) for (alias, _), relation in zip(inputs, relations, strict=True)
    )
    return left, right


def _conditions(on: Sequence[str], left: Side, right: Side) -> Conditions:
    if not on:
        raise MakingError("is missing, such as o.customer = c.id", "on")
    conditions = [each for text in on for each in conjuncts(_over(text, left, right, "on"))]
    return told_apart(conditions, {left.alias}, {right.alias})


def _over(text: str, left: Side, right: Side, part: str) -> Node:
    return over(text, {side.alias: side.relation for side in (left, right)}, part)
