"""LATERAL queries: queries in FROM that read items to their left, as dependent joins."""

from collections.abc import Sequence
from dataclasses import replace

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.relational.matching import Side, equal
from ikebana.processor.relational.sql_attaching import Gathered
from ikebana.processor.relational.sql_dependent import SubqueryResult, dependent
from ikebana.processor.relational.sql_scope import Column, Froms, Item, Names
from ikebana.processor.relational.sql_whole import Query, Views

_BESIDE = (
    "tables in parentheses that read what stands to their left are not supported; write them as "
    "one query: LATERAL (SELECT … FROM … JOIN …)"
)
AROUND = (
    "a {} JOIN that reads what stands to its left, or a query around it, is not supported; write "
    "a LEFT JOIN of the other side"
)


def query_of(node: Node, views: Views) -> tuple[Node, Views, list[Sequence[str]]]:
    """The query of an item of FROM, its views, and other names of its columns.

    Raises: QueryError.
    """
    match node["type"]:
        case "SUBQUERY":
            return node["subquery"]["node"], views, [node["column_name_alias"]]
        case "BASE_TABLE":
            view = views[node["table_name"].lower()]
            return view.node, view.views, [view.names, node["column_name_alias"]]
    raise SqlQueryError(_BESIDE, node.get("query_location"))


def inner(
    query: Query, views: Views, node: Node, called: str, left: Froms
) -> tuple[Froms, Froms, Froms]:
    """The items to the left, the result of the query, and their join.  Raises: QueryError."""
    names = Names(left)
    result, columns = _result(query, views, node, called, names, may_be_totals=True)
    if not result.is_total:
        right = replace(result.item, columns=columns)
        conditions = [*names.froms.conditions, *(equal(*pair) for pair in result.on)]
        both = Froms([*names.froms.items, right], conditions, names.froms.merged)
        return names.froms, Froms([right]), both
    side = Side(result.item.alias, result.item.relation)
    fields = Gathered(query, names).attach(side, result.on, result.shown)
    pairs = zip(columns, fields, strict=True)
    columns = tuple((of, name, field) for (of, name, _), field in pairs)
    (item,) = names.froms.items
    every = replace(item, columns=(*item.columns, *columns))
    both = Froms([every], [], names.froms.merged)
    return names.froms, Froms([replace(item, columns=columns)]), both


def outer(
    query: Query, views: Views, node: Node, called: str, left: Froms
) -> tuple[Froms, Froms, list[Node]]:
    """The left as one collection, the result of the query, and the conditions that join them.

    Raises: QueryError.
    """
    names = Names(Froms([query.item(left, "joined")], [], left.merged))
    result, columns = _result(query, views, node, called, names, may_be_totals=False)
    right: Item = replace(result.item, columns=columns)
    return names.froms, Froms([right]), [equal(*pair) for pair in result.on]


def _result(
    query: Query, views: Views, node: Node, called: str, names: Names, *, may_be_totals: bool
) -> tuple[SubqueryResult, tuple[Column, ...]]:
    """The result of a query for each row to its left, and its columns."""
    within, own_views, renames = query_of(node, views)
    result = dependent(query, own_views, within, names, may_be_totals=may_be_totals)
    shown = [name for name, _ in result.shown]
    for others in renames:
        shown = [*others, *shown[len(others) :]]
    # Columns of totals are still expressions; they get fields in the join.
    fields = shown if result.is_total else [each["column_names"][1] for _, each in result.shown]
    return result, tuple((called, name, each) for name, each in zip(shown, fields, strict=True))
