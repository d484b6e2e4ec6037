"""Dependent joins: what a query gives for each row of what stands around it.

The method is that of Thomas Neumann and Alfons Kemper, "Unnesting Arbitrary Queries" (BTW 2015).
The columns that a query takes from around it have a *domain*: the distinct values that they have
there.  The query is made once, over its own tables and the domain, with the columns of the domain
beside its own: groups are by them, too, first rows are first for each of them, and so on.  The
rows around then meet the result by these columns, where null is equal to null.

A domain is left out where equalities in WHERE say what the columns are: then the other sides of
the equalities stand for them.  So what is equal to nothing around is made as well, and meets
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from ikebana.processor.relational.known import Table
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


@dataclass(frozen=True, slots=True)
class Given:
    """What a query gives for what stands around it, as a collection to be joined.

    `around` are expressions over what stands around, and `fields` the columns of the item that
    have their values.  Of totals there is a result for all that stands around, which `shown` says
    over nulls where the item has no row.
    """

    item: Item
    around: tuple[Node, ...]
    fields: tuple[str, ...]
    shown: Listed
    is_null_safe: bool = False
    is_total: bool = False

    @property
    def on(self) -> tuple[tuple[Node, Node], ...]:
        """The equalities by which what stands around meets the item."""
        inner = [column(self.item.alias, name) for name in self.fields]
        pairs = tuple(zip(self.around, inner, strict=True))
        return null_safe(pairs) if self.is_null_safe else pairs


def dependent(
    query: Query, views: Views, node: Node, names: Names, *, may_be_totals: bool = True
) -> Given:
    """What a query gives for each row of what `names` has brought together.

    Its collections may become one, so that what was resolved before has no meaning any more.
    Raises: QueryError.
    """
    read = reads(query, views, node, names)
    if not read:
        return _given(query, query.query(node, views), ())
    supplied = _supplied(query, views, node, names)
    if supplied is not None and (may_be_totals or not is_one_row(node)):
        return _by_equalities(query, views, supplied, names)
    domain, around = domain_of(query, names, read)
    return _given(query, query.query(node, views, domain=domain), around)


def reads(query: Query, views: Views, node: Node, names: Names) -> list[Name]:
    """The names by which a query reads what stands around it."""
    unbound = Reads(query.tables).of_query(node, views)
    return [each for each in dict.fromkeys(unbound) if names.meant(each) is not None]


def is_one_row(node: Node) -> bool:
    """Whether a query has one row always: aggregates without groups, of which none is left out."""
    if node["type"] != "SELECT_NODE" or has_groups(node) or node["having"] or node["qualify"]:
        return False
    listed = node["select_list"]
    is_plain = not has_lists(listed) and not windows_of(listed)
    return bool(calls(listed)) and is_plain and leaves_none_out(node)


def has_lists(value: object) -> bool:
    """Whether an expression takes a list apart, so that a row becomes several, or none."""
    return any(map(is_unnest, own_nodes(value)))


def leaves_none_out(node: Node) -> bool:
    """Whether what follows a SELECT leaves a row, if there is any."""
    for modifier in node["modifiers"]:
        if modifier["type"] == "LIMIT_MODIFIER":
            limit = modifier["limit"] and whole_number(modifier["limit"])
            is_counted = modifier["limit_type"] == "ROW_COUNT"
            if modifier["offset"] is not None or not limit or not is_counted:
                return False
    return True


def _given(query: Query, relation: Table, around: tuple[Node, ...]) -> Given:
    """What a collection gives, whose last columns are those of a domain."""
    listed = list(relation.types)
    at = len(listed) - len(around)
    item = relation_item(query.free_alias("s"), relation, "")
    shown = [(name, column(item.alias, name)) for name in listed[:at]]
    return Given(item, around, tuple(listed[at:]), shown, is_null_safe=True)


@dataclass(frozen=True, slots=True)
class _Supplied:
    """A query without the equalities that say what it reads: sides around, and its own."""

    node: Node
    around: tuple[Node, ...]
    inner: tuple[Node, ...]


def _supplied(query: Query, views: Views, node: Node, names: Names) -> _Supplied | None:
    """A query that reads what stands around it by equalities in WHERE alone; None of others."""
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
    """The sides of an equality, of what stands around and of a query's own."""
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


def _by_equalities(query: Query, views: Views, supplied: _Supplied, names: Names) -> Given:
    node = supplied.node
    around = tuple(map(names.resolved, supplied.around))
    result = query.select(node, with_views(node, views), By(expressions=supplied.inner))
    if isinstance(result, Totals):
        return Given(result.item, around, result.fields, result.shown, is_total=True)
    return replace(_given(query, result, around), is_null_safe=False)


def domain_of(query: Query, names: Names, read: Sequence[Name]) -> tuple[Item, tuple[Node, ...]]:
    """The distinct values of the columns that names mean, and these columns.

    They are taken from the one collection that has these columns; several become one.
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
    """The distinct values of expressions over an item, after the conditions over it alone."""
    conditions = [each for each in froms.conditions if aliases_of(each) == {item.alias}]
    listed = [(f"k{at}", each) for at, each in enumerate(of)]
    values = query.selected(Froms([item], conditions), listed, "around")
    if values.facts.sure.is_unique(values.types):
        return values
    # What counts less than nothing has values, too.
    return rows.distinct(query.making, values, "around.once", signed=True)
