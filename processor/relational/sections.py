"""Relational sections of a pipeline file, which are methods of a collection in Python.

Each function returns a `Derived`, which becomes operators when the types of the collections that
it reads are known.  Window functions and recursions say what a query says in other words: a query
is put together of their parts and translated as any other.  Each part is parsed alone first, so
that it is no more than that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.processor.base import log_lines
from ikebana.processor.base.texts import suggestion
from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import Node, conjuncts, unplaced
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ALL_READ, Input, Operator, PlanProblem, Unread
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import (
    KnownRelations,
    Making,
    MakingError,
    ReportedError,
    Table,
)
from ikebana.processor.relational.outer_joins import (
    ByAlias,
    Conditions,
    Item,
    Outer,
    anti_join,
    by_side,
    outer_delta,
    outer_inputs,
    outer_join,
    qualified,
    semi_join,
)
from ikebana.processor.relational.recursion import ROUNDS
from ikebana.processor.relational.rows import Order, first_rows
from ikebana.processor.relational.sql import sql_operators, tables_of
from ikebana.processor.relational.sql_aggregates import direction
from ikebana.processor.relational.sql_shape import notes
from ikebana.processor.relational.windows import hopping, sessions


@dataclass(frozen=True, slots=True)
class Derived:
    """A section that is translated into operators.

    `kind` is the section's key in the file, such as `sql`; `make` translates it.
    """

    name: str
    kind: str
    make: Callable[[KnownRelations], tuple[Operator, ...]]
    reads: Callable[[], Iterable[str]]
    """The names of the collections that it reads."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The operators of all sections, in file order; problems; and sections that have none."""

    operators: tuple[Operator, ...]
    problems: tuple[PlanProblem, ...]
    lost: frozenset[str]


def from_sql(name: str, text: str, key: str | None) -> Derived:
    """A view in SQL."""

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        try:
            operators = sql_operators(name, text, pipeline, key)
        except SqlQueryError as error:
            raise MakingError(error.with_place(text), "sql") from None
        for note in notes(text):
            log_lines.warning(f"operators.{name}.sql: {note}")
        return operators

    return Derived(name, "sql", make, lambda: tables_of(text))


def translate(
    inputs: Iterable[Input], parts: Sequence[Operator | Derived], unread: Unread = ALL_READ
) -> Resolved:
    """Translate all derived sections, each after the collections that it reads.

    `unread` lists parts of the file that could not be parsed.
    """
    waiting = {part.name: part for part in parts if isinstance(part, Derived)}
    plain = [part for part in parts if not isinstance(part, Derived)]
    pipeline = KnownRelations(inputs, plain, waiting, unread)
    derived: dict[str, tuple[Operator, ...]] = {}
    problems: list[PlanProblem] = []
    lost: set[str] = set()
    stuck = False
    while waiting and not stuck:
        stuck = True
        for name, part in list(waiting.items()):
            try:
                derived[name] = part.make(pipeline)
            except ReportedError:
                continue
            except (MakingError, ExpressionError) as error:
                place = getattr(error, "part", "") or part.kind
                problems.append((f"operators.{name}.{place}", str(error)))
                lost.add(name)
            else:
                pipeline.catalog.add(derived[name])
            stuck = False
            del waiting[name]
            if name in derived:
                pipeline.pending.discard(name)
    problems += _circles(waiting, plain)
    lost |= waiting.keys()
    in_order = [
        derived.get(part.name, ()) if isinstance(part, Derived) else (part,) for part in parts
    ]
    operators = tuple(operator for each in in_order for operator in each)
    return Resolved(operators, tuple(problems), frozenset(lost))


def _circles(waiting: dict[str, Derived], plain: Iterable[Operator]) -> Iterator[PlanProblem]:
    """A problem for each section that reads itself, directly or through others."""
    reads = {each.name: set(kind_of(each).sources(each)) for each in plain}
    reads |= {name: set(part.reads()) for name, part in waiting.items()}
    for name, part in waiting.items():
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            for source in reads.get(ahead.pop(), ()):
                if source not in seen:
                    seen.add(source)
                    ahead.append(source)
        if name in seen:
            yield f"operators.{name}.{part.kind}", "it reads itself, through what it reads"


NamePairs = Sequence[tuple[str, str]]


def _derived(
    name: str, kind: str, reads: Sequence[str], last: Callable[[Making, list[Table]], Table]
) -> Derived:
    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        making = Making(pipeline, name)
        return making.finished(last(making, [source_of(pipeline, making, each) for each in reads]))

    return Derived(name, kind, make, lambda: reads)


def source_of(pipeline: KnownRelations, making: Making, name: str) -> Table:
    """The collection of a name, which may be an input.  Raises: MakingError, ReportedError."""
    if pipeline.hides(name):
        raise ReportedError
    if name not in pipeline.names:
        raise MakingError(f"there is no operator {name!r}{suggestion(name, pipeline.names)}")
    return making.collection(name)


def distinct(name: str, source: str, select: NamePairs | None) -> Derived:
    """The distinct rows of a collection, or of what is selected from it."""

    def last(making: Making, sources: list[Table]) -> Table:
        (relation,) = sources
        listed = select or [(each, quoted(each)) for each in relation.types]
        return rows.distinct(making, making.select(relation, "rows", listed))

    return _derived(name, "distinct", (source,), last)


_SET_OPERATIONS: Mapping[str, rows.SetOperation] = {
    "union": "union",
    "minus": "except",
    "intersect": "intersect",
}


def set_operation(name: str, kind: str, sources: Sequence[str], *, every: bool) -> Derived:
    """The union, difference or intersection of collections; `every` keeps repeated rows."""

    def last(making: Making, relations: list[Table]) -> Table:
        if len(relations) < 2:
            raise MakingError("at least two operators are needed")
        tables = [_own_columns(making, each) for each in relations]
        return rows.set_operation(making, _SET_OPERATIONS[kind], tables, every=every)

    return _derived(name, kind, sources, last)


def _own_columns(making: Making, relation: Table) -> Table:
    """The collection with its declared columns alone, since rows are compared by all columns."""
    listed = [(each, quoted(each)) for each in relation.types]
    return making.select(relation, "rows", listed)


def matching(name: str, kind: str, inputs: NamePairs, on: Sequence[str]) -> Derived:
    """A semi-join or an anti-join (`kind`) of two inputs."""

    def last(making: Making, relations: list[Table]) -> Table:
        left, right = _sides(inputs, relations)
        take = semi_join if kind == "semi_join" else anti_join
        return take(making, left, right, _conditions(on, left, right), kind.partition("_")[0])

    return _derived(name, kind, [source for _, source in inputs], last)


def outer(
    name: str, kind: Outer, inputs: NamePairs, on: Sequence[str], select: NamePairs | None
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
        return outer_delta(making, [Item(of.alias, each) for of, each in both], join, outer)

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


def windows(
    name: str, kind: str, source: str, over: str, *, every: float, size: float, offset: float
) -> Derived:
    """The rows of a collection with the tumbling or hopping windows that they are in."""

    def last(making: Making, sources: list[Table]) -> Table:
        return hopping(making, sources[0], over, *map(_microseconds, (every, size, offset)))

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
        raise MakingError(f'there is no column "{name}"{suggestion(name, relation.types)}', part)


def _sides(inputs: NamePairs, relations: list[Table]) -> tuple[Item, Item]:
    if len(inputs) != 2:
        raise MakingError("must have two inputs: the left, and the right that it meets")
    left, right = (
        Item(alias, relation) for (alias, _), relation in zip(inputs, relations, strict=True)
    )
    return left, right


def _conditions(on: Sequence[str], left: Item, right: Item) -> Conditions:
    if not on:
        raise MakingError("is missing, such as o.customer = c.id", "on")
    conditions = [each for text in on for each in conjuncts(_over(text, left, right, "on"))]
    return by_side(conditions, {left.alias}, {right.alias})


def _over(text: str, left: Item, right: Item, part: str) -> Node:
    return qualified(text, {side.alias: side.relation for side in (left, right)}, part)


@dataclass(frozen=True, slots=True)
class Windowed:
    """The rows of a collection with window functions, all over one window.

    With conditions in `having`, which may read the functions, those alone for which they are true.
    """

    functions: NamePairs
    partition: Sequence[str]
    order: Sequence[str]
    frame: str
    having: Sequence[str]

    def query(self, source: str) -> str:
        """The rows of a source as a query.  Raises: MakingError."""
        if not self.functions:
            raise MakingError("at least one is needed, such as {place: rank()}", "functions")
        window = self._window()
        for _, text in self.functions:
            _refuse_more(f"SELECT {text} OVER () FROM t", "select_list", "functions", text)
        listed = [f"{text} OVER ({window}) AS {quoted(name)}" for name, text in self.functions]
        query = f"SELECT *, {', '.join(listed)} FROM {quoted(source)}"
        for text in self.having:
            _refuse_more(f"SELECT 1 FROM t QUALIFY {text}", "qualify", "having", text)
        if not self.having:
            return query
        return f"{query} QUALIFY {' AND '.join(f'({text})' for text in self.having)}"

    def _window(self) -> str:
        """What stands in the parentheses behind OVER."""
        by = ", ".join(map(quoted, self.partition))
        parts = [f"PARTITION BY {by}"] * bool(by)
        for text in self.order:
            _refuse_more(f"SELECT 1 FROM t ORDER BY {text}", "modifiers", "order", text)
        parts += [f"ORDER BY {', '.join(self.order)}"] * bool(self.order)
        if self.frame:
            whole = f"SELECT count(*) OVER (ORDER BY x {self.frame}) FROM t"
            _refuse_more(whole, "select_list", "frame", self.frame)
            parts.append(self.frame)
        return " ".join(parts)


def windowed(
    name: str,
    source: str,
    functions: NamePairs,
    partition: Sequence[str],
    order: Sequence[str],
    frame: str,
    having: Sequence[str],
) -> Derived:
    """A collection with window functions."""
    of = Windowed(functions, partition, order, frame, having)

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        try:
            columns = source_of(pipeline, Making(pipeline, name), source)
            for each in of.partition:
                column_of(each, columns, "partition")
            for each, _ in of.functions:
                if each in columns.types:
                    raise MakingError(f'"{source}" has a column "{each}" already', "functions")
            return sql_operators(name, of.query(source), pipeline)
        except SqlQueryError as error:
            raise MakingError(error.problem) from None

    return Derived(name, "window", make, lambda: (source,))


def iterated(name: str, query: str, columns: NamePairs, rounds: int = 0) -> Derived:
    """A collection of a query that reads it by its name: what comes of it in the end.

    It begins empty, and is computed again from what it was until nothing changes.
    """
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
    begin = f"WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT {rounds or ROUNDS}) "
    begin += f"{quoted(name)} ({listed}) AS ("
    text = f"{begin}{query}\n) SELECT * FROM {quoted(name)}"

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        if not columns:
            raise MakingError("are missing, with their types: {a: BIGINT}", "columns")
        try:
            query_tree(query)
            return sql_operators(name, text, pipeline)
        except SqlQueryError as error:
            is_within = error.at is not None and error.at >= len(begin)
            at = error.at - len(begin) if error.at is not None and is_within else error.at
            raise MakingError(SqlQueryError(error.problem, at).with_place(query)) from None

    return Derived(name, "iterate", make, lambda: tables_of(text))


_MEANT = {
    "functions": "one window function without OVER, such as sum(amount)",
    "having": "one condition, such as place <= 3",
    "order": "an order, such as amount DESC",
    "frame": "the frame of a window, such as ROWS BETWEEN 6 PRECEDING AND CURRENT ROW",
}


def _refuse_more(query: str, where: str, part: str, text: str) -> None:
    """Refuse a text that makes more of a query than a part of it.  Raises: MakingError."""
    try:
        node = query_tree(f"{query}\n")
    except SqlQueryError as error:
        raise MakingError(f"{text}: {error.problem}", part) from None
    other: Node = query_tree("SELECT 1 FROM t")
    part_node: Any = node[where]
    is_whole = unplaced({**node, where: other[where]}) == unplaced(other)
    if where == "select_list":
        (only, *more) = part_node
        is_whole = is_whole and not more and only["class"] == "WINDOW" and not only["alias"]
        is_whole = is_whole and (part == "frame" or not (only["partitions"] or only["orders"]))
    elif where == "modifiers":
        is_whole = is_whole and len(part_node) == 1 and len(part_node[0].get("orders", ())) == 1
    if not is_whole:
        raise MakingError(f'"{text}" must be {_MEANT[part]}', part)
