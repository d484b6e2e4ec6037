"""Dependent joins: the result of a subquery for each row of the query around it.

The method is Thomas Neumann and Alfons Kemper, "Unnesting Arbitrary Queries" (BTW 2015).  The
columns that a subquery reads from the query around it have a *domain*: their distinct values.  The
subquery is translated once, over its own tables joined with the domain, and has the columns of the
domain beside its own: it groups by them too, ranks within each of their values, and so on.  The
outer rows are then joined with the result by these columns, where null equals null.

No domain is needed if equalities in WHERE determine the outer columns: the inner sides of these
equalities take their place.  The result then has values that no outer row has, and these match
nothing.

`OuterNames` finds the names that a subquery reads from the queries around it, before it is
translated.  A name belongs to the innermost query that has a table with such a column.  So the
names of columns of tables and of queries in FROM are enough to decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.scope import KEY, SHORT
from ikebana.processor.linear.syntax import (
    Node,
    column,
    columns,
    conjunction,
    conjuncts,
    equality_sides,
    has_subquery,
    own_nodes,
)
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import (
    ColumnList,
    Listed,
    Table,
    compared_as,
    kind_in,
    unused_name,
)
from ikebana.processor.relational.outer_joins import Item, aliases_of, null_safe, own_columns
from ikebana.processor.relational.sql_aggregates import calls
from ikebana.processor.relational.sql_over import windows_of
from ikebana.processor.relational.sql_refusals import has_groups, whole_number
from ikebana.processor.relational.sql_scope import Froms, Names, relation_item
from ikebana.processor.relational.sql_whole import (
    By,
    QueryTranslation,
    Subquery,
    SubqueryTotals,
    is_unnest,
)

Name = tuple[str, ...]
FromScope = list[tuple[str, tuple[str, ...]]]
"""The tables of a FROM: the qualifier of their columns, and the columns, in lower case."""


class OuterNames:
    """Finds names that no table of a query has; `tables` are the tables that are no views."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}

    def of_query(self, query: Subquery, around: Sequence[FromScope] = ()) -> Iterator[Name]:
        """The names in a query that are neither columns of its tables nor in `around`."""
        node = query.node
        for part in query.parts():
            yield from self.of_query(part, around)
        if node["type"] != "SELECT_NODE":
            return
        yield from self.of_from(node["from_table"], query, around)
        scopes = [*around, self.scope(node["from_table"], query), _aliases(node)]
        parts = {
            name: part for name, part in node.items() if name not in ("from_table", "cte_map")
        }
        yield from self.of_parts(parts, query, scopes)

    def outer_aggregates(self, query: Subquery) -> Iterator[tuple[Node, list[Name]]]:
        """The aggregates of a query that read no column of its own, each with what it reads."""
        node = query.node
        for part in query.parts():
            yield from self.outer_aggregates(part)
        if node["type"] != "SELECT_NODE":
            return
        scope = [self.scope(node["from_table"], query)]
        parts = ("select_list", "where_clause", "having", "modifiers")
        for call in calls([node[part] for part in parts]):
            every = self.of_parts(call["arguments"], query, scope)
            names = [each for each in every if not has_column(scope[0], each)]
            if names and len(names) == len(list(columns(call["arguments"], with_parts=True))):
                yield call, names

    def of_parts(self, parts: Any, query: Subquery, around: Sequence[FromScope]) -> Iterator[Name]:
        """The names in expressions that are no column in `around`, or may be none.

        `x.a` is of a table x around if a column x has no fields.
        """
        for names in columns(parts, with_parts=True):
            if not any(has_column(scope, names, is_sure=True) for scope in around):
                yield names
        for each in own_nodes(parts):
            if each["class"] == "SUBQUERY":
                yield from self.of_query(query.within(each["subquery"]["node"]), around)

    def of_from(
        self, node: Node, query: Subquery, around: Sequence[FromScope] = ()
    ) -> Iterator[Name]:
        """The same for an item of FROM; its queries may read tables to their left."""
        match node["type"]:
            case "SUBQUERY":
                yield from self.of_query(query.within(node["subquery"]["node"]), around)
            case "BASE_TABLE":
                view = query.views.get(node["table_name"].lower())
                if view is not None and view.relation is None:
                    yield from self.of_query(view.query, around)
            case "TABLE_FUNCTION":
                yield from self.of_parts(node["function"], query, around)
            case "PIVOT":
                yield from self.of_from(node["source"], query, around)
            case "JOIN":
                left, right = (self.scope(node[side], query) for side in ("left", "right"))
                yield from self.of_from(node["left"], query, around)
                yield from self.of_from(node["right"], query, [*around, left])
                yield from self.of_parts(node["condition"], query, [*around, left, right])

    def scope(self, node: Node, query: Subquery) -> FromScope:
        """The tables and columns of an item of FROM."""
        match node["type"]:
            case "JOIN":
                return [*self.scope(node["left"], query), *self.scope(node["right"], query)]
            case "SUBQUERY":
                names = self._names_of(query.within(node["subquery"]["node"]))
            case "BASE_TABLE":
                names = self._names_in(node["table_name"].lower(), query)
            case "EXPRESSION_LIST":
                names = [f"col{at}" for at, _ in enumerate(node["values"][0])]
            case "TABLE_FUNCTION":
                called = node["alias"] or node["function"]["function_name"]
                names = [called, "ordinality"]
            case "PIVOT":
                fields = (each for _, each in self.scope(node["source"], query))
                names = [name for each in fields if each is not _KEYS for name in each]
                names += [*node["pivots"][0]["unpivot_names"], *node["unpivot_names"]]
            case _:
                names = []
        aliases = node.get("column_name_alias") or []
        called = node.get("alias") or node.get("table_name") or _USUAL.get(node["type"], "")
        renamed = [*aliases, *names[len(aliases) :]]
        table = (called.lower(), tuple(name.lower() for name in renamed))
        return [table, (table[0], _KEYS)] if node["type"] == "BASE_TABLE" else [table]

    def _names_in(self, name: str, query: Subquery) -> list[str]:
        """The columns of a table, or of a view."""
        if (view := query.views.get(name)) is not None:
            relation = view.relation
            if relation is not None:
                return [*relation.types]
            return [*view.names, *self._names_of(view.query)[len(view.names) :]]
        table = self._tables.get(name)
        return [] if table is None else [*table.types]

    def _names_of(self, query: Subquery) -> list[str]:
        """The names of a query's result columns."""
        for part in query.parts():
            return self._names_of(part)
        node = query.node
        names: list[str] = []
        for at, each in enumerate(node.get("select_list", ())):
            if each["class"] == "STAR":
                of = each["relation_name"].lower()
                scope = self.scope(node["from_table"], query)
                listed = (fields for by, fields in scope if of in ("", by) and fields is not _KEYS)
                names += [name for fields in listed for name in fields]
            elif each.get("alias") or each["class"] != "COLUMN_REF":
                names.append(each.get("alias") or each.get("function_name") or f"column{at}")
            else:
                names.append(each["column_names"][-1])
        return names


_USUAL = {
    "EXPRESSION_LIST": "valueslist",
    "TABLE_FUNCTION": "unnest",
    "PIVOT": "__unnamed_pivot",
}
_KEYS = (KEY, *(name for name, whole in SHORT.items() if whole == KEY))


def has_column(scope: FromScope, names: Name, *, is_sure: bool = False) -> bool:
    """Whether a scope has the column or table that names mean, or a column with such a field.

    If it `is_sure`, a column counts without a field alone.
    """
    first, *more = (name.lower() for name in names)
    if more and any(of == first and more[0] in fields for of, fields in scope):
        return True
    if more and is_sure:
        return False
    return any(first in fields or (first == of and not more) for of, fields in scope)


def _aliases(node: Node) -> FromScope:
    """The aliases of the select list, which other clauses of the query may use."""
    named = (each.get("alias") for each in node["select_list"])
    return [("", tuple(name.lower() for name in named if name))]


_OUTER_AGGREGATE = (
    "an aggregate in a subquery that reads columns of the query around alone is an aggregate of "
    "that query; compute it there, and read its column in a query around both"
)


@dataclass(frozen=True, slots=True)
class SubqueryResult:
    """The result of a subquery as an item to be joined with the query around it.

    `around` are expressions over the outer query, and `fields` the item's columns that equal them.
    If it `is_total`, an outer row without a match has a result too: `shown` over nulls.
    """

    item: Item
    around: tuple[Node, ...]
    fields: tuple[str, ...]
    shown: Listed
    is_null_safe: bool = False
    is_total: bool = False

    @property
    def on(self) -> tuple[tuple[Node, Node], ...]:
        """The equalities that join the outer query with the item."""
        inner = [column(self.item.alias, name) for name in self.fields]
        pairs = tuple(zip(self.around, inner, strict=True))
        return null_safe(pairs) if self.is_null_safe else pairs


def translate_dependent(
    query: QueryTranslation, subquery: Subquery, names: Names, *, may_be_totals: bool = True
) -> SubqueryResult:
    """Translate a subquery for each row of the outer query, whose names are `names`.

    The collections of `names` may become one; expressions resolved before are no longer valid.
    Raises: SqlQueryError.
    """
    _add_aliases(query, subquery, names)
    read = outer_names(query, subquery, names)
    if not read:
        return _result(query, query.query(subquery), ())
    for call, of in OuterNames(query.tables).outer_aggregates(subquery):
        if all(names.meant(each) is not None for each in of):
            raise SqlQueryError(_OUTER_AGGREGATE, call.get("query_location"))
    supplied = _supplied(query, subquery, names)
    if supplied is not None and (may_be_totals or not is_one_row(subquery.node)):
        result = _by_equalities(query, supplied, names)
        if _is_by_data(result, names):
            return result
    domain, around = domain_of(query, names, read)
    return _result(query, query.query(subquery, domain=domain), around)


def _add_aliases(query: QueryTranslation, subquery: Subquery, names: Names) -> None:
    """Add hidden columns with the expressions of the select list that a subquery names."""
    unbound = dict.fromkeys(OuterNames(query.tables).of_query(subquery))
    read = [each for each in unbound if not each[1:] and names.meant(each) is None]
    if any(names.shown(column(*each)) is not None for each in read):
        names.froms = query.one(names.froms, "around")
        shown = [("", name, names.shown(column(name))) for (name,) in read]
        hidden = [(of, name, node) for of, name, node in shown if node is not None]
        (item,) = names.froms.items
        names.froms = names.froms.of_one(with_columns(query, item, hidden))


def with_columns(
    query: QueryTranslation, item: Item, hidden: Sequence[tuple[str, str, Node]]
) -> Item:
    """The item with further hidden columns, each with a qualifier and a name."""
    used = {name.lower() for name in item.relation.types}
    fields = [unused_name(name, used) for _, name, _ in hidden]
    listed = [*own_columns(item), *zip(fields, (node for *_, node in hidden), strict=True)]
    relation = query.selected(Froms([item]), listed, "more")
    more = [(of, name, field) for field, (of, name, _) in zip(fields, hidden, strict=True)]
    return replace(item, relation=relation, hidden=(*item.hidden, *more))


def outer_names(query: QueryTranslation, subquery: Subquery, names: Names) -> list[Name]:
    """The names in a subquery that mean columns of the query around it."""
    unbound = OuterNames(query.tables).of_query(subquery)
    return [each for each in dict.fromkeys(unbound) if names.meant(each) is not None]


def is_one_row(node: Node) -> bool:
    """Whether a query always has one row: aggregates without GROUP BY, and no filter of them."""
    if node["type"] != "SELECT_NODE" or has_groups(node) or node["having"] or node["qualify"]:
        return False
    listed = node["select_list"]
    is_plain = not has_lists(listed) and not windows_of(listed)
    return bool(calls(listed)) and is_plain and leaves_none_out(node)


def has_lists(value: object) -> bool:
    """Whether an expression unnests a list, so that a row becomes several rows or none."""
    return any(map(is_unnest, own_nodes(value)))


def leaves_none_out(node: Node) -> bool:
    """Whether LIMIT and OFFSET keep at least one row of any result that has rows."""
    for modifier in node["modifiers"]:
        if modifier["type"] == "LIMIT_MODIFIER":
            limit = modifier["limit"] and whole_number(modifier["limit"])
            is_counted = modifier["limit_type"] == "ROW_COUNT"
            if modifier["offset"] is not None or not limit or not is_counted:
                return False
    return True


def _result(query: QueryTranslation, relation: Table, around: tuple[Node, ...]) -> SubqueryResult:
    """The result of a query that has the columns of its domain as its last ones."""
    listed = list(relation.types)
    at = len(listed) - len(around)
    item = relation_item(query.free_alias("s"), relation, "")
    shown = [(name, column(item.alias, name)) for name in listed[:at]]
    return SubqueryResult(item, around, tuple(listed[at:]), shown, is_null_safe=True)


@dataclass(frozen=True, slots=True)
class _Supplied:
    """A query without the equalities that determine outer columns; and both sides of these."""

    query: Subquery
    around: tuple[Node, ...]
    inner: tuple[Node, ...]


def _supplied(query: QueryTranslation, subquery: Subquery, names: Names) -> _Supplied | None:
    """The parts of a query that reads outer columns in equalities of WHERE alone; else None."""
    node = subquery.node
    if node["type"] != "SELECT_NODE" or (_is_grouped(node) and not _is_plain(node)):
        return None
    if len(node["group_sets"]) > 1 and not all(node["group_sets"]):
        # A set of nothing has a row even for outer values without rows.
        return None
    scope = OuterNames(query.tables).scope(node["from_table"], subquery)
    pairs: list[tuple[Node, Node]] = []
    rest: list[Node] = []
    for condition in conjuncts(node["where_clause"]):
        pair = None if has_subquery(condition) else _pair(condition, scope, names)
        if pair is None:
            rest.append(condition)
        else:
            pairs.append(pair)
    reduced = subquery._replace(node={**node, "where_clause": conjunction(rest)})
    if not pairs or outer_names(query, reduced, names):
        return None
    around, sides = zip(*pairs, strict=True)
    return _Supplied(reduced, tuple(around), tuple(sides))


def _is_grouped(node: Node) -> bool:
    parts = [node["select_list"], node["qualify"], node["modifiers"]]
    return bool(node["having"] or calls(parts)) and not has_groups(node)


def _is_plain(node: Node) -> bool:
    return is_one_row(node) and not node["modifiers"]


def _pair(condition: Node, scope: FromScope, names: Names) -> tuple[Node, Node] | None:
    """The outer and the inner side of an equality; None if a side mixes both."""
    sides = equality_sides(condition)
    for one, other in (sides, sides[::-1]) if sides else ():
        around, inner = (columns(side, with_parts=True) for side in (one, other))
        if (
            around
            and inner
            and not any(has_column(scope, each) for each in around)
            and all(has_column(scope, each) for each in inner)
            and all(names.meant(each) is not None for each in around)
            # An alias may be that of a constant.
            and columns(names.resolved(one))
        ):
            return one, other
    return None


def _by_equalities(query: QueryTranslation, supplied: _Supplied, names: Names) -> SubqueryResult:
    around = tuple(map(names.resolved, supplied.around))
    result = query.select(supplied.query, By(expressions=supplied.inner))
    if isinstance(result, SubqueryTotals):
        return SubqueryResult(result.item, around, result.fields, result.shown, is_total=True)
    return replace(_result(query, result, around), is_null_safe=False)


def _is_by_data(result: SubqueryResult, names: Names) -> bool:
    """Whether different values of a subquery differ as SQL compares them with those around.

    The texts 1 and 01 are equal as numbers, so a number around has the rows of both.
    """
    tables = {item.alias: item.relation for item in names.froms.items}
    kinds = result.item.relation.types
    return all(
        (kind := kind_in(one, tables)) is None
        or compared_as(kind, kinds[field]) in (None, kinds[field])
        for one, field in zip(result.around, result.fields, strict=True)
    )


def domain_of(
    query: QueryTranslation, names: Names, read: Sequence[Name]
) -> tuple[Item, tuple[Node, ...]]:
    """The domain of names: distinct values of the columns they mean, and these columns.

    All must be columns of one item, so several items are joined to one first.
    """
    meant = names.all_meant(read)
    if len({item.alias for item, _ in meant}) > 1:
        names.froms = query.one(names.froms, "around")
        meant = names.all_meant(read)
    item, _ = meant[0]
    hidden = tuple(dict.fromkeys(each for _, each in meant))
    fields = tuple(dict.fromkeys(field for *_, field in hidden))
    around = tuple(column(item.alias, field) for field in fields)
    relation = distinct_values(query, names.froms, item, around)
    column_of = dict(zip(fields, relation.types, strict=True))
    columns = tuple((of, name, column_of[field]) for of, name, field in hidden)
    return Item(query.free_alias("d"), relation, (), columns), around


def distinct_values(
    query: QueryTranslation, froms: Froms, item: Item, of: Sequence[Node]
) -> Table:
    """The distinct values of expressions over an item, filtered by the item's own conditions."""
    conditions = [each for each in froms.conditions if aliases_of(each) == {item.alias}]
    keys = ColumnList([])
    for each in of:
        keys.of(each, "k")
    values = query.selected(Froms([item], conditions), keys.listed, "around")
    if values.facts.sure.is_unique(values.types):
        return values
    # Rows with negative counts have values too, so signs stay.
    return rows.distinct(query.making, values, "around.once", signed=True)
