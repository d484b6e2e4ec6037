"""Rows that come from no collection: one row, VALUES, and the elements of lists.

The one row of a query without FROM is the count of no rows: a total, which exists from the first
closed time on.  VALUES, `unnest(…)` and series of numbers and times are lists that a linear step
unnests: each element becomes a row, beside the other columns of its row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ikebana.codecs.sql_type import Array, List, type_of
from ikebana.processor.linear.bound_query import SqlQueryError, bound
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import SHORT
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    bare,
    changed,
    column,
    columns,
    own_nodes,
    text_of,
)
from ikebana.processor.relational.making import Table, struct
from ikebana.processor.relational.matching import aliases_of, without
from ikebana.processor.relational.sql_refusals import refuse_now
from ikebana.processor.relational.sql_scope import Froms, Item, Names
from ikebana.processor.relational.sql_whole import Listed, Query, free

_NULL = '"NULL"'


def values(query: Query, node: Node) -> Table:
    """The rows of VALUES, as columns `col0`, `col1` and so on.  Raises: QueryError."""
    refuse_now(node["values"])
    listed = [[text_of(each) for each in row] for row in node["values"]]
    text = ", ".join(f"({', '.join(row)})" for row in listed)
    kinds = [kind for _, kind in bound(f"SELECT * FROM (VALUES {text})", {})]
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


def taken_apart(query: Query, left: Froms | None, series: Series) -> Froms:
    """Join each row of the items so far with the elements of a list over its columns.

    Without items so far, the result is the elements alone.  Raises: QueryError.
    """
    if left is None:
        left = Froms([Item(query.free_alias(series.called), query.one_row())])
    tree = Names(left).resolved(series.list)
    read = aliases_of(tree)
    if len(left.items) > 1 and (len(read) > 1 or series.keeps):
        left = Froms([query.item(left, "joined")], [], left.merged)
        tree = Names(left).resolved(series.list)
        read = aliases_of(tree)
    item = next((each for each in left.items if each.alias in read), left.items[0])
    elements = _elements(query, item, tree, series)
    items = [elements if each is item else each for each in left.items]
    return Froms(items, left.conditions, left.merged)


def _elements(query: Query, item: Item, tree: Node, series: Series) -> Item:
    listed = text_of(without(item.alias, tree))
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


def selected(query: Query, froms: Froms, listed: Listed, what: str) -> Table:
    """Select expressions over items; lists of `unnest(…)` in them are unnested side by side.

    Raises: QueryError.
    """
    if not any(map(is_unnest, own_nodes([tree for _, tree in listed]))):
        return query.selected(froms, listed, what)
    inner: Listed = []
    used = {name.lower() for name, _ in listed}

    def name_of(tree: Node, stem: str) -> str:
        """The column of an expression in the collection before lists are unnested."""
        for name, other in inner:
            if bare(other) == bare(tree):
                return name
        inner.append((free(stem, used), tree))
        return inner[-1][0]

    lists: dict[str, Node] = {}
    element = free("element", used)

    def change(node: Node) -> Node | None:
        if is_unnest(node):
            if len(node["arguments"]) != 1:
                problem = "unnest() in a select list takes one list"
                raise SqlQueryError(problem, node.get("query_location"))
            name = name_of(node["arguments"][0]["expression"], "list")
            lists.setdefault(name, node)
            return column(element, name)
        if node["class"] != "COLUMN_REF" or len(node["column_names"]) < 2:
            return None
        alias, field, *more = node["column_names"]
        return {**node, "column_names": [name_of(column(alias, field), "part"), *more]}

    select = [(name, text_of(changed(tree, change))) for name, tree in listed]
    relation = query.selected(froms, inner, f"{what}.lists")
    for name, node in lists.items():
        if not isinstance(type_of(kind := relation.types[name]), List | Array):
            problem = f"unnest() in a select list takes a list; this is {kind}"
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
