"""The translation of a whole SQL query: its tables, views and set operations.

Rows may come from no collection.  The one row of a query without FROM is the count of no rows: a
total, which exists from the first closed time on.  VALUES, `unnest(…)` and series of numbers and
times are lists that a linear step unnests: each element becomes a row, beside the other columns of
its row.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ikebana.codecs.sql_type import JSON, VARCHAR, Array, List, SqlType, Struct, parts, type_of
from ikebana.processor.linear.bound_query import (
    SqlQueryError,
    columns_of,
    common_type,
)
from ikebana.processor.linear.expressions import misfits
from ikebana.processor.linear.json_text import field_of, quoted
from ikebana.processor.linear.scope import KEY, SHORT, ExpressionError
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    equality_sides,
    nodes,
    objects_with,
    own_nodes,
    shown,
    text_of,
    tree,
)
from ikebana.processor.planning.joins.binding import overlapping
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import (
    ColumnList,
    KnownRelations,
    Listed,
    Making,
    MakingError,
    ReportedError,
    Table,
    Translate,
    struct,
    unused_name,
)
from ikebana.processor.relational.outer_joins import (
    Item,
    QualifiedColumn,
    aliases_of,
    without_alias,
)
from ikebana.processor.relational.recursion import RecursionLimits, recurring, recursive
from ikebana.processor.relational.sql_refusals import refuse_before, refuse_now
from ikebana.processor.relational.sql_scope import Froms, Names, no_table, read_whole, views_of
from ikebana.processor.relational.windows import FromCall, WindowCall

NamedQueries = Mapping[str, "NamedQuery"]
NO_VIEWS: NamedQueries = {}
GreatestValues = Mapping[str, int]
"""Greatest values of columns, by names in lower case: rows beyond them are not needed."""
NOT_BOUND: GreatestValues = {}
_Select = Callable[["QueryTranslation", "Subquery", "By"], "Table | SubqueryTotals"]
_SET_OPERATIONS: Mapping[str, rows.SetOperation] = {
    "UNION": "union",
    "UNION_BY_NAME": "union",
    "EXCEPT": "except",
    "INTERSECT": "intersect",
}


@dataclass(frozen=True, slots=True)
class By:
    """Columns by which a subquery has results: those of a domain, or expressions of its own.

    A domain has the distinct values of the outer columns, as hidden columns.
    """

    domain: Item | None = None
    expressions: tuple[Node, ...] = ()
    bounds: GreatestValues = field(default_factory=dict)

    def columns(self, names: Names) -> list[Node]:
        """The columns, resolved over the items of the query."""
        if self.domain is None:
            return [names.resolved(each) for each in self.expressions]
        named = {field: (of, name) for of, name, field in reversed(self.domain.hidden)}
        return [names.hidden(*named[field]) for field in self.domain.relation.types]


class Selection(NamedTuple):
    """A select list over several items, and the columns of the one item that it makes."""

    listed: Listed
    columns: tuple[QualifiedColumn, ...]
    hidden: tuple[QualifiedColumn, ...]


class SubqueryTotals(NamedTuple):
    """Aggregates by the subquery's own columns, with a result even for values without rows.

    `shown` computes the result from the item's columns, or from nulls if there is no row.
    """

    item: Item
    fields: tuple[str, ...]
    shown: Listed


@dataclass(slots=True)
class NamedQuery:
    """A named query of WITH, translated when it is first read."""

    query: "Subquery"
    names: Sequence[str]
    relation: Table | None = None


class Subquery(NamedTuple):
    """A query, and the views that it may name: its own hide those of the queries around it."""

    node: Node
    views: NamedQueries = NO_VIEWS

    def within(self, node: Node, more: NamedQueries = NO_VIEWS) -> "Subquery":
        """A query that may name the same views, and more."""
        query = Subquery(node, {**self.views, **more})
        for each in views_of(node):
            # A view may read the views before it.
            view = NamedQuery(query.within(each["value"]["query_node"]), each["value"]["aliases"])
            query = Subquery(node, {**query.views, each["key"].lower(): view})
        return query

    def parts(self) -> list["Subquery"]:
        """The branches of a set operation, or the parts of a recursion; none of other queries."""
        node = self.node
        if node["type"] != "RECURSIVE_CTE_NODE":
            return [self.within(child) for child in children(node)]
        first = self.within(node["left"])
        names = (node["cte_name"].lower(), recurring(node["cte_name"]))
        recurrent = dict.fromkeys(names, NamedQuery(first, node["aliases"]))
        return [first, self.within(node["right"], recurrent)]


@dataclass(frozen=True, slots=True)
class Recursion:
    """Variables, which a query may read like tables, and the limits of recursions."""

    tables: Mapping[str, Table]
    limits: RecursionLimits


class QueryTranslation:
    """The translation of a whole query.

    `select` translates each SELECT.
    """

    def __init__(
        self,
        making: Making,
        pipeline: KnownRelations,
        node: Node,
        select: _Select,
        windows: Mapping[str, FromCall],
        recursion: Recursion,
        translate: Translate,
    ) -> None:
        self.making = making
        self._translate = translate
        self._recursion = recursion
        self._windows = windows
        self._pipeline = pipeline
        self._node = node
        self._select = select
        self._aliases: set[str] = set()
        self._one: Table | None = None
        named = [each["column_names"] for each in nodes(node) if each["class"] == "COLUMN_REF"]
        self._whole: set[str] = set()
        self._mentioned = {name.lower() for names in named for name in names}
        for using in objects_with(node, "using_columns"):
            self._mentioned |= {name.lower() for name in using["using_columns"]}
        self.mentions_key = any(SHORT.get(name, name) == KEY for name in self._mentioned)
        for each in objects_with(node, "type"):
            refuse_before(each)
        self.tables: Mapping[str, Table] = {}
        self._values = 0

    def bind(self, text: str, written: Node, functions: Mapping[str, str]) -> None:
        """Let DuckDB bind the query over the columns of all tables.  Raises: QueryError.

        A part that is dropped is bound too, so the tables are those of the tree of the text.

        If the query mentions keys, tables have key columns.  As `*` then includes them, and a
        column may be called `key` too, binding is tried without key columns as well.
        """
        self.tables = dict(self._tables(written))
        self._whole = set(read_whole(self._node, self.tables))
        self._refuse_alike()
        problems = []
        for with_keys in [True, False] if self.mentions_key else [False]:
            tables = {
                name: self._read(each, with_key=with_keys) for name, each in self.tables.items()
            }
            try:
                columns_of(text, tables, functions)
            except SqlQueryError as error:
                problems.append(error)
            else:
                return
        raise self._of_windows(self._placed(problems[0]))

    @property
    def has_stars(self) -> bool:
        """Whether it reads all columns of a table."""
        return bool(self._whole)

    def _placed(self, error: SqlQueryError) -> SqlQueryError:
        """The error of a frame with the place of the call, which DuckDB does not say."""
        calls = (
            each
            for each in objects_with(self._node, "start_expr")
            if _DISTANCES & {each["start"], each["end"]}
        )
        if error.at is None and error.problem.startswith("a RANGE frame"):
            error.at = next((each.get("query_location") for each in calls), None)
        return error

    def _of_windows(self, error: SqlQueryError) -> SqlQueryError:
        """Reword an error about a collection that is only read through a window function."""
        for call in self._windows.values():
            if isinstance(call, WindowCall) and error.problem.startswith(
                f'FROM names no "{call.source}"'
            ):
                name = f"{call.function}({call.source}, …)"
                problem = f'{name} has no name in the query; write {name} AS "{call.source}"'
                return SqlQueryError(problem, error.at)
        return error

    def _refuse_alike(self) -> None:
        """Refuse to read columns with names that differ in case alone."""
        for called, table in self.tables.items():
            for lower, names in table.alike().items():
                if self.has_stars or lower in self._mentioned:
                    first, *_, last = names
                    field = field_of("value", last)
                    raise SqlQueryError(
                        f'"{first}" and "{last}" of "{called}" differ in case alone, which '
                        f"SQL does not see: read a linear operator with select: "
                        f"{{{first}: {shown(first)}, other: {field}}} in its place"
                    )

    def _read(self, table: Table, *, with_key: bool) -> dict[str, str]:
        """The columns of a table for DuckDB, and with `with_key` its key if it is mentioned."""
        alike = table.alike()
        columns = {name: kind for name, kind in table.types.items() if name.lower() not in alike}
        keyed = table.keyed().items() if with_key else ()
        return columns | {
            n: kind for n, kind in keyed if n in self._mentioned and n not in columns
        }

    def result(self) -> Table:
        """Translate the query.  Raises: QueryError."""
        tables, none = self._recursion.tables.items(), Subquery(self._node)
        views = {name.lower(): NamedQuery(none, (), of) for name, of in tables}
        return self.query(none.within(self._node, views))

    def query(
        self,
        subquery: Subquery,
        bounds: GreatestValues = NOT_BOUND,
        *,
        domain: Item | None = None,
    ) -> Table:
        """Translate a query within; rows beyond the bounds of its columns may be left out.

        With a domain, the domain's columns are the last ones of the result.  Raises: QueryError.
        """
        node = subquery.node
        if node["type"] == "SET_OPERATION_NODE":
            return self._set_operation(subquery, domain)
        if node["type"] == "RECURSIVE_CTE_NODE":
            view = NamedQuery(subquery, node["aliases"])
            return recursive(self, view, node["cte_name"], self._recursion.limits, domain)
        table = self.select(subquery, By(domain, bounds=bounds))
        assert isinstance(table, Table)
        return table

    def select(self, subquery: Subquery, by: By) -> Table | SubqueryTotals:
        """Translate a SELECT; the columns of `by` are the last ones of the result.

        Raises: QueryError.
        """
        node = subquery.node
        if node["type"] != "SELECT_NODE":
            named = node["type"].removesuffix("_NODE").replace("_", " ").lower()
            raise SqlQueryError(f"a {named} is not supported")
        try:
            return self._select(self, subquery, by)
        except (MakingError, ExpressionError, SqlQueryError) as error:
            # A column that a rewrite has made stands at 0.
            if getattr(error, "at", None):
                raise
            raise SqlQueryError(str(error), _begin(node)) from None

    def table(self, node: Node, around: Subquery, bounds: GreatestValues = NOT_BOUND) -> Table:
        """The collection that a name in the FROM of a query means."""
        name = node["table_name"].lower()
        view = around.views.get(name)
        if view is None:
            return next(each for called, each in self.tables.items() if called.lower() == name)
        if view.relation is None:
            # Bounds of one reader apply only if the view has no other reader.
            is_single = len(list(named(self._node, name))) == 1 and not view.names
            view.relation = self.query(view.query, bounds if is_single else NOT_BOUND)
            fields = list(view.relation.types)
            if len(view.names) > len(fields):
                problem = (
                    f'"{name}" names {len(view.names)} columns, and its query has {len(fields)}'
                )
                raise SqlQueryError(problem, node.get("query_location"))
            if view.names and fields[: len(view.names)] != [*view.names]:
                columns = zip(
                    [*view.names, *fields[len(view.names) :]], map(quoted, fields), strict=True
                )
                view.relation = self.making.select(view.relation, "named", columns)
        return view.relation

    def one_row(self) -> Table:
        """A collection of one row from the first time on.  Raises: QueryError."""
        if self._one is None:
            making, source = self.making, next(self._sources(), None)
            if source is None:
                raise SqlQueryError(
                    "rows of no table are there from the first time on that inputs have: the "
                    "pipeline needs an input of which the columns are declared"
                )
            nothing = making.linear(source, "nothing", Sql(where=("false",)))
            count = making.reduced(nothing, "one", (), [("n", "count(*)")], total=True)
            self._one = making.linear(count, "row", Sql(select=(("one", "true"),)))
        return self._one

    def _sources(self) -> Iterator[Table]:
        """Collections that can give `one_row` its times; those that the query reads come first."""
        others = {each.name for each in self._recursion.tables.values()}
        yield from (each for each in self.tables.values() if each.name not in others)
        for name in self._pipeline.inputs:
            with suppress(MakingError, ReportedError):
                is_there = name in self._pipeline
                yield self._pipeline.relation(name) if is_there else self.making.rows_of(name)

    def free_alias(self, name: str) -> str:
        """An unused alias of letters, digits and "_"."""
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        return unused_name(plain if plain[:1].isalpha() else f"t{plain}", self._aliases)

    def free_value(self) -> str:
        """An unused name for the value of a subquery."""
        self._values += 1
        return f"s{self._values}"

    def selection(
        self, items: Sequence[Item], only: Collection[tuple[str, ...]] | None = None
    ) -> Selection:
        """A select list of all columns of items that the query mentions.

        `only` limits it to these pairs (alias, field).
        """
        listed: Listed = []
        columns: list[QualifiedColumn] = []
        hidden: list[QualifiedColumn] = []
        used: set[str] = set()
        for item in items:
            for of, name, each in item.columns:
                is_key, words = name == KEY, {of.lower(), name.lower(), ""}
                is_whole = not self._whole.isdisjoint(words) or name.lower() in self._mentioned
                is_read = self.mentions_key if is_key else is_whole
                if not is_read or (only is not None and (item.alias, each) not in only):
                    continue
                plain = "key" if is_key else name
                plain = f"{of}_{plain}" if is_key or name.lower() in used else plain
                fresh = unused_name(plain, used)
                listed.append((fresh, column(item.alias, each)))
                columns.append((of, name, fresh))
            for of, name, each in item.hidden:
                fresh = unused_name(f"{of}_{name}" if name == KEY else name, used)
                listed.append((fresh, column(item.alias, each)))
                hidden.append((of, name, fresh))
        # Rows count even if none of their columns is read, so there is one column.
        return Selection(listed or [("there", tree("true"))], tuple(columns), tuple(hidden))

    def item(
        self, froms: Froms, what: str, only: Collection[tuple[str, ...]] | None = None
    ) -> Item:
        """Join items by their conditions to one item, with all columns that may be read."""
        if len(froms.items) == 1 and not froms.conditions:
            return froms.items[0]
        selection = self.selection(froms.items, only)
        relation = self.selected(froms, selection.listed, what)
        return Item(self.free_alias(what), relation, selection.columns, selection.hidden)

    def one(
        self, froms: Froms, what: str, only: Collection[tuple[str, ...]] | None = None
    ) -> Froms:
        """The one item that `item` makes of items, in place of them."""
        return froms.of_one(self.item(froms, what, only))

    def selected(self, froms: Froms, listed: Listed, what: str) -> Table:
        """Select expressions from the join of items by their conditions."""
        if len(froms.items) == 1:
            (item,) = froms.items
            as_it_is = [(name, column(item.alias, name)) for name in item.relation.types]
            if not froms.conditions and listed == as_it_is and self.making.is_whole(item.relation):
                return item.relation
            conditions = tuple(
                text_of(without_alias(item.alias, each)) for each in froms.conditions
            )
            select = tuple(
                (name, text_of(without_alias(item.alias, node))) for name, node in listed
            )
            return self.making.linear(item.relation, what, Sql(where=conditions, select=select))
        return self.making.join(
            what,
            [(item.alias, item.relation) for item in froms.items],
            map(text_of, froms.conditions),
            [(name, text_of(node)) for name, node in listed],
            cartesian=not _is_connected(froms),
        )

    def _set_operation(self, subquery: Subquery, domain: Item | None) -> Table:
        node = subquery.node
        operation = _SET_OPERATIONS[node["setop_type"]]
        sources = [self.query(each, domain=domain) for each in subquery.parts()]
        if node["setop_type"] == "UNION_BY_NAME":
            sources = self._by_name(sources, 0 if domain is None else len(domain.relation.types))
        if len({len(each.types) for each in sources}) == 1:
            sources = self._of_common_types(sources, [*map(_begin_of_query, children(node))])
        return rows.set_operation(self.making, operation, sources, every=node["setop_all"])

    def _by_name(self, sources: Sequence[Table], keys: int) -> list[Table]:
        """The sources with the columns of all of them; missing columns are null.

        The last columns of each, so many as `keys` says, are those of a domain.
        """
        shown = [list(each.types)[: len(each.types) - keys] for each in sources]
        every = {name.lower(): name for names in reversed(shown) for name in names}
        order = dict.fromkeys(name.lower() for names in shown for name in names)
        used = set(order)
        last = [unused_name("k", used) for _ in range(keys)]
        tables = []
        for source, names in zip(sources, shown, strict=True):
            by_name = {name.lower(): quoted(name) for name in names}
            columns = [(every[name], by_name.get(name, "NULL")) for name in order]
            columns += zip(last, map(quoted, list(source.types)[len(names) :]), strict=True)
            tables.append(self.making.select(source, "by_name", columns))
        return tables

    def _of_common_types(
        self, sources: Sequence[Table], places: Sequence[int | None]
    ) -> list[Table]:
        columns = zip(*(each.types.values() for each in sources), strict=True)
        kinds = [common_type(each) for each in columns]
        tables = []
        for source, place in zip(sources, places, strict=True):
            for (name, actual), kind in zip(source.types.items(), kinds, strict=True):
                if _parses(type_of(actual), type_of(kind)):
                    raise SqlQueryError(
                        f'"{name}" is {actual}, and in its place stands {kind}: its texts '
                        f"would be read as JSON; write to_json({name}) here, or cast the other "
                        f"to {actual}",
                        place,
                    )
                if misfits(tree(f"CAST(x AS {kind})"), {"x": actual}):
                    raise SqlQueryError(
                        f'"{name}" is {actual}, and in its place in another part of the set '
                        f"operation stands {kind}; cast both to one type, as in {name}::VARCHAR",
                        place,
                    )
            if list(source.types.values()) == kinds:
                tables.append(source)
                continue
            casts = [
                (name, quoted(name) if actual == kind else f"CAST({quoted(name)} AS {kind})")
                for (name, actual), kind in zip(source.types.items(), kinds, strict=True)
            ]
            tables.append(self.making.select(source, "cast", casts))
        return tables

    def _tables(self, node: Node) -> Iterator[tuple[str, Table]]:
        """All collections that FROM clauses of the query name, except its own views."""
        seen: set[str] = set()
        for each in named_tables(node):
            name, place = each["table_name"], each.get("query_location")
            if each["schema_name"] or each["catalog_name"]:
                raise SqlQueryError(
                    "names in FROM are those of inputs and operators; put one with dots in quotes",
                    place,
                )
            if name.lower() in seen:
                continue
            seen.add(name.lower())
            window = self._windows.get(name)
            extra = {each.lower(): of for each, of in self._recursion.tables.items()}
            if name.lower() in extra:
                yield name, extra[name.lower()]
            elif window is None:
                yield name, self._collection(name, place)
            else:
                source = self._collection(window.source, window.place)
                yield name, self._window(window, source)

    def _window(self, window: FromCall, source: Table) -> Table:
        try:
            return window.table(self.making, source, self._translate)
        except MakingError as error:
            raise SqlQueryError(str(error), window.place) from None

    def _collection(self, name: str, place: int | None) -> Table:
        alike = [each for each in self._pipeline.names if each.lower() == name.lower()]
        if self._pipeline.hides(name):
            raise ReportedError
        if not alike:
            raise no_table(name, self._pipeline.names, place)
        try:
            return self.making.collection(name if name in alike else alike[0])
        except MakingError as error:
            raise SqlQueryError(str(error), place) from None


def _begin_of_query(node: Node) -> int | None:
    """The place of the first select list of a query."""
    first = next(objects_with(node, "select_list"), None)
    return None if first is None else _begin(first)


def _begin(node: Node) -> int | None:
    """The place of the select list; None if it is not of the text."""
    places = (each.get("query_location") for each in nodes(node["select_list"]))
    return min((each for each in places if each), default=None)


def _parses(actual: SqlType, kind: SqlType) -> bool:
    """Whether a cast from one type to another parses texts as JSON."""
    if kind == JSON:
        return actual == VARCHAR
    return any(map(_parses, parts(actual), parts(kind)))


def children(node: Node) -> list[Node]:
    """The branches of a set operation; empty for any other query."""
    if node["type"] != "SET_OPERATION_NODE":
        return []
    return node.get("children") or [node["left"], node["right"]]


def named_tables(value: Any, views: Collection[str] = ()) -> Iterator[Node]:
    """Table references anywhere in a query, in the order of the text, without those to views.

    A view hides a table of the same name in all queries after its own.
    """
    if isinstance(value, list):
        for item in value:
            yield from named_tables(item, views)
    elif isinstance(value, dict):
        there = set(views)
        for view in views_of(value):
            itself = {view["key"].lower(), recurring(view["key"])}
            is_recursive = view["value"]["query_node"]["type"] == "RECURSIVE_CTE_NODE"
            yield from named_tables(view["value"], there | itself if is_recursive else there)
            there |= itself
        if "table_name" in value:
            path = [value["schema_name"], value["table_name"]]
            if ".".join(filter(None, path)).lower() not in there:
                yield value
        for name, item in value.items():
            if name != "cte_map":
                yield from named_tables(item, there)


def named(value: Any, name: str) -> Iterator[Node]:
    """References to a table or view of this name."""
    return (n for n in objects_with(value, "table_name") if n["table_name"].lower() == name)


def _is_connected(froms: Froms) -> bool:
    """Whether equalities between items connect all of them."""
    both = [[*map(aliases_of, equality_sides(each) or ())] for each in froms.conditions]
    joined = [set[str]().union(*sides) for sides in both if all(len(side) == 1 for side in sides)]
    return len(overlapping({froms.items[0].alias}, joined)) == len(froms.items)


_NULL = '"NULL"'
_DISTANCES = {"EXPR_PRECEDING_RANGE", "EXPR_FOLLOWING_RANGE"}


def values(query: QueryTranslation, node: Node) -> Table:
    """The rows of VALUES, as columns `col0`, `col1` and so on.  Raises: QueryError."""
    refuse_now(node["values"])
    listed = [[text_of(each) for each in row] for row in node["values"]]
    text = ", ".join(f"({', '.join(row)})" for row in listed)
    kinds = [kind for _, kind in columns_of(f"SELECT * FROM (VALUES {text})", {})]
    rows = ", ".join(
        struct((f"c{at}", _cast(sql, kinds[at])) for at, sql in enumerate(row)) for row in listed
    )
    select = tuple((f"col{at}", f"r.c{at}") for at, _ in enumerate(kinds))
    step = Sql(flat_map=("r", f"[{rows}]"), select=select)
    return query.making.linear(query.one_row(), "values", step)


def _cast(sql: str, kind: str) -> str:
    return sql if kind == _NULL else f"CAST({sql} AS {kind})"


@dataclass(frozen=True, slots=True)
class Series:
    """A list in FROM: its tree, and the names of the item, its column and its ordinality."""

    list: Node
    called: str
    column: str
    ordinality: str | None
    place: int | None
    keeps: bool = False
    """Whether a row with an empty list stays, with null as its element."""


def series_of(node: Node, *, keeps: bool = False) -> Series:
    """The list of a function in FROM.  Raises: QueryError."""
    place, function = node.get("query_location"), node["function"]
    name = function["function_name"].lower()
    arguments = [each["expression"] for each in function["arguments"]]
    if name == "unnest" and len(arguments) != 1:
        raise SqlQueryError("unnest() in FROM takes one list; write list_zip(…) of several", place)
    # By default the column has the name of the item.
    called = node["alias"] or name
    names = [*node["column_name_alias"]]
    is_numbered = str(node.get("with_ordinality", "")).upper() == "WITH_ORDINALITY"
    return Series(
        arguments[0] if name == "unnest" else function,
        called,
        names[0] if names else called,
        (names[1] if len(names) > 1 else "ordinality") if is_numbered else None,
        place,
        keeps,
    )


def reads_columns(node: Node) -> bool:
    """Whether a function in FROM reads columns of items before it."""
    return bool(columns(node["function"], with_parts=True))


def with_elements(query: QueryTranslation, left: Froms | None, series: Series) -> Froms:
    """Join each row of the items so far with the elements of a list over its columns.

    Without items so far, the result is the elements alone.  Raises: QueryError.
    """
    if left is None:
        left = Froms([Item(query.free_alias(series.called), query.one_row())])
    tree = Names(left).resolved(series.list)
    read = aliases_of(tree)
    # The columns of * are in the order of FROM, so these come behind all others.
    is_between = query.has_stars and left.items[-1].alias not in read
    if len(left.items) > 1 and (len(read) > 1 or series.keeps or is_between):
        left = query.one(left, "joined")
        tree = Names(left).resolved(series.list)
        read = aliases_of(tree)
    item = next((each for each in left.items if each.alias in read), left.items[0])
    elements = _elements(query, item, tree, series)
    items = [elements if each is item else each for each in left.items]
    return Froms(items, left.conditions, left.merged)


def _elements(query: QueryTranslation, item: Item, tree: Node, series: Series) -> Item:
    listed = text_of(without_alias(item.alias, tree))
    relation = item.relation
    names = [series.column, *([series.ordinality] if series.ordinality is not None else [])]
    fields = _further(relation, names)
    element = relation.free_column("element")
    parts = [quoted(element)]
    if series.ordinality is not None:
        listed = f"list_transform({listed}, lambda e_, i_: {{'e': e_, 'i': i_::BIGINT}})"
        parts = [f"{quoted(element)}.e", f"{quoted(element)}.i"]
    if series.keeps:
        listed = f"CASE WHEN len({listed}) > 0 THEN {listed} ELSE [NULL] END"
    columns = [(name, quoted(name)) for name in relation.types]
    step = Sql(flat_map=(element, listed), select=(*columns, *zip(fields, parts, strict=True)))
    table = query.making.linear(relation, "elements", step)
    shown = [(series.called, name, each) for name, each in zip(names, fields, strict=True)]
    return replace(item, relation=table, columns=(*item.columns, *shown))


def _further(relation: Table, names: Sequence[str]) -> list[str]:
    """Unique names for further columns of a collection, none of which means its key."""
    used = {name.lower() for name in relation.types} | SHORT.keys()
    fields = []
    for name in names:
        while name.lower() in used:
            name += "_"
        used.add(name.lower())
        fields.append(name)
    return fields


def selected(query: QueryTranslation, froms: Froms, listed: Listed, what: str) -> Table:
    """Select expressions over items; lists of `unnest(…)` in them are unnested side by side.

    Raises: QueryError.
    """
    if not any(map(is_unnest, own_nodes([tree for _, tree in listed]))):
        return query.selected(froms, listed, what)
    # The columns of the collection before lists are unnested.
    inner = ColumnList([], [name for name, _ in listed])
    lists: dict[str, Node] = {}
    element = inner.unused("element")

    def change(node: Node) -> Node | None:
        if is_unnest(node):
            if len(node["arguments"]) != 1:
                problem = "unnest() in a select list takes one list"
                raise SqlQueryError(problem, node.get("query_location"))
            name = inner.of(node["arguments"][0]["expression"], "list")
            lists.setdefault(name, node)
            return column(element, name)
        if node["class"] != "COLUMN_REF" or len(node["column_names"]) < 2:
            return None
        alias, field, *more = node["column_names"]
        return {**node, "column_names": [inner.of(column(alias, field), "part"), *more]}

    select = [(name, text_of(changed(tree, change))) for name, tree in listed]
    relation = query.selected(froms, inner.listed, f"{what}.lists")
    for name, node in lists.items():
        if not isinstance(type_of(kind := relation.types[name]), List | Array):
            problem = f"unnest() in a select list takes a list; this is {kind}"
            if isinstance(type_of(kind), Struct):
                problem += ", whose fields are selected by name.*"
            raise SqlQueryError(problem, node.get("query_location"))
    most = ", ".join(f"len({quoted(name)})" for name in lists)
    of_one = struct((name, f"{quoted(name)}[i_]") for name in lists)
    # Shorter lists are padded with nulls.
    rows = f"list_transform(range(1, greatest({most}) + 1), lambda i_: {of_one})"
    step = Sql(flat_map=(element, rows), select=tuple(select))
    return query.making.linear(relation, what, step)


def is_unnest(node: Node) -> bool:
    """Whether a node is a call of `unnest`."""
    return bool(node["class"] == "FUNCTION" and node["function_name"].lower() == "unnest")
