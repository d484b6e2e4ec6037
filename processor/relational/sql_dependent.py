"""Dependent joins: the result of a subquery for each row of the query around it.

The method is Thomas Neumann and Alfons Kemper, "Unnesting Arbitrary Queries" (BTW 2015).  The
columns that a subquery reads from the query around it have a *domain*: their distinct values.  The
subquery is translated once, over its own tables joined with the domain, and has the columns of the
domain beside its own: it groups by them too, ranks within each of their values, and so on.  The
outer rows are then joined with the result by these columns, where null equals null.

No domain is needed if equalities in WHERE determine the outer columns: the inner sides of these
equalities take their place.  The result then has values that no outer row has, and these match
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import (
    column,
    columns,
    conjunction,
    conjuncts,
    equated,
    has_subquery,
    own_nodes,
)
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import Table
from ikebana.processor.relational.matching import aliases_of, null_safe
from ikebana.processor.relational.sql_aggregates import calls
from ikebana.processor.relational.sql_over import windows_of
from ikebana.processor.relational.sql_reads import Name, Reads, Scope, has
from ikebana.processor.relational.sql_refusals import has_groups, whole_number
from ikebana.processor.relational.sql_rows import is_unnest
from ikebana.processor.relational.sql_scope import Froms, Item, Names, relation_item
from ikebana.processor.relational.sql_whole import (
    By,
    Listed,
    Query,
    Totals,
    Views,
    with_views,
)

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


def dependent(
    query: Query, views: Views, node: Node, names: Names, *, may_be_totals: bool = True
) -> SubqueryResult:
    """Translate a subquery for each row of the outer query, whose names are `names`.

    The collections of `names` may become one; expressions resolved before are no longer valid.
    Raises: SqlQueryError.
    """
    read = reads(query, views, node, names)
    if not read:
        return _result(query, query.query(node, views), ())
    for call, of in Reads(query.tables).outer_aggregates(node, views):
        if all(names.meant(each) is not None for each in of):
            raise SqlQueryError(_OUTER_AGGREGATE, call.get("query_location"))
    supplied = _supplied(query, views, node, names)
    if supplied is not None and (may_be_totals or not is_one_row(node)):
        return _by_equalities(query, views, supplied, names)
    domain, around = domain_of(query, names, read)
    return _result(query, query.query(node, views, domain=domain), around)


def reads(query: Query, views: Views, node: Node, names: Names) -> list[Name]:
    """The names in a subquery that mean columns of the query around it."""
    unbound = Reads(query.tables).of_query(node, views)
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


def _result(query: Query, relation: Table, around: tuple[Node, ...]) -> SubqueryResult:
    """The result of a query that has the columns of its domain as its last ones."""
    listed = list(relation.types)
    at = len(listed) - len(around)
    item = relation_item(query.free_alias("s"), relation, "")
    shown = [(name, column(item.alias, name)) for name in listed[:at]]
    return SubqueryResult(item, around, tuple(listed[at:]), shown, is_null_safe=True)


@dataclass(frozen=True, slots=True)
class _Supplied:
    """A query without the equalities that determine outer columns; and both sides of these."""

    node: Node
    around: tuple[Node, ...]
    inner: tuple[Node, ...]


def _supplied(query: Query, views: Views, node: Node, names: Names) -> _Supplied | None:
    """The parts of a query that reads outer columns in equalities of WHERE alone; else None."""
    if node["type"] != "SELECT_NODE" or (_is_grouped(node) and not _is_plain(node)):
        return None
    scope = Reads(query.tables).scope(node["from_table"], with_views(node, views))
    pairs: list[tuple[Node, Node]] = []
    rest: list[Node] = []
    for condition in conjuncts(node["where_clause"]):
        pair = None if has_subquery(condition) else _pair(condition, scope, names)
        if pair is None:
            rest.append(condition)
        else:
            pairs.append(pair)
    reduced = {**node, "where_clause": conjunction(rest)}
    if not pairs or reads(query, views, reduced, names):
        return None
    around, sides = zip(*pairs, strict=True)
    return _Supplied(reduced, tuple(around), tuple(sides))


def _is_grouped(node: Node) -> bool:
    parts = [node["select_list"], node["qualify"], node["modifiers"]]
    return bool(node["having"] or calls(parts)) and not has_groups(node)


def _is_plain(node: Node) -> bool:
    return is_one_row(node) and not node["modifiers"]


def _pair(condition: Node, scope: Scope, names: Names) -> tuple[Node, Node] | None:
    """The outer and the inner side of an equality; None if a side mixes both."""
    sides = equated(condition)
    for one, other in (sides, sides[::-1]) if sides else ():
        around, inner = (columns(side, with_parts=True) for side in (one, other))
        if (
            around
            and inner
            and not any(has(scope, each) for each in around)
            and all(has(scope, each) for each in inner)
            and all(names.meant(each) is not None for each in around)
        ):
            return one, other
    return None


def _by_equalities(
    query: Query, views: Views, supplied: _Supplied, names: Names
) -> SubqueryResult:
    node = supplied.node
    around = tuple(map(names.resolved, supplied.around))
    result = query.select(node, with_views(node, views), By(expressions=supplied.inner))
    if isinstance(result, Totals):
        return SubqueryResult(result.item, around, result.fields, result.shown, is_total=True)
    return replace(_result(query, result, around), is_null_safe=False)


def domain_of(query: Query, names: Names, read: Sequence[Name]) -> tuple[Item, tuple[Node, ...]]:
    """The domain of names: distinct values of the columns they mean, and these columns.

    All must be columns of one item, so several items are joined to one first.
    """
    meant = names.all_meant(read)
    if len({item.alias for item, _ in meant}) > 1:
        names.froms = Froms([query.item(names.froms, "around")], [], names.froms.merged)
        meant = names.all_meant(read)
    item, _ = meant[0]
    hidden = tuple(dict.fromkeys(each for _, each in meant))
    fields = tuple(dict.fromkeys(field for *_, field in hidden))
    around = tuple(column(item.alias, field) for field in fields)
    relation = distinct_values(query, names.froms, item, around)
    column_of = dict(zip(fields, relation.types, strict=True))
    columns = tuple((of, name, column_of[field]) for of, name, field in hidden)
    return Item(query.free_alias("d"), relation, (), columns), around


def distinct_values(query: Query, froms: Froms, item: Item, of: Sequence[Node]) -> Table:
    """The distinct values of expressions over an item, filtered by the item's own conditions."""
    conditions = [each for each in froms.conditions if aliases_of(each) == {item.alias}]
    listed = [(f"k{at}", each) for at, each in enumerate(of)]
    values = query.selected(Froms([item], conditions), listed, "around")
    if values.facts.sure.is_unique(values.types):
        return values
    # Rows with negative counts have values too, so signs stay.
    return rows.distinct(query.making, values, "around.once", signed=True)
