"""Finds the names that a subquery reads from the queries around it, before it is translated.

A name belongs to the innermost query that has a table with such a column.  So the names of columns
of tables and of queries in FROM are enough to decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ikebana.processor.linear.scope import KEY, SHORT
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import columns, own_nodes
from ikebana.processor.relational.making import Table
from ikebana.processor.relational.recursion import recurring
from ikebana.processor.relational.sql_aggregates import calls
from ikebana.processor.relational.sql_whole import View, Views, children, with_views

Name = tuple[str, ...]
Scope = list[tuple[str, tuple[str, ...]]]
"""The tables of a FROM: the qualifier of their columns, and the columns, in lower case."""


class Reads:
    """Finds names that no table of a query has; `tables` are the tables that are no views."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}

    def of_query(self, node: Node, views: Views, around: Sequence[Scope] = ()) -> Iterator[Name]:
        """The names in a query that are neither columns of its tables nor in `around`."""
        views = with_views(node, views)
        for child, views_there in _parts(node, views):
            yield from self.of_query(child, views_there, around)
        if node["type"] != "SELECT_NODE":
            return
        yield from self.of_from(node["from_table"], views, around)
        scopes = [*around, self.scope(node["from_table"], views), _aliases(node)]
        parts = {
            name: part for name, part in node.items() if name not in ("from_table", "cte_map")
        }
        yield from self.of_parts(parts, views, scopes)

    def outer_aggregates(self, node: Node, views: Views) -> Iterator[tuple[Node, list[Name]]]:
        """The aggregates of a query that read no column of its own, each with what it reads."""
        views = with_views(node, views)
        for child, views_there in _parts(node, views):
            yield from self.outer_aggregates(child, views_there)
        if node["type"] != "SELECT_NODE":
            return
        scope = [self.scope(node["from_table"], views)]
        for call in calls([node["select_list"], node["having"], node["modifiers"]]):
            names = [*self.of_parts(call["arguments"], views, scope)]
            if names and len(names) == len(list(columns(call["arguments"], with_parts=True))):
                yield call, names

    def of_parts(self, parts: Any, views: Views, around: Sequence[Scope]) -> Iterator[Name]:
        """The names in expressions that are no column in `around`."""
        for names in columns(parts, with_parts=True):
            if not any(has(scope, names) for scope in around):
                yield names
        for each in own_nodes(parts):
            if each["class"] == "SUBQUERY":
                yield from self.of_query(each["subquery"]["node"], views, around)

    def of_from(self, node: Node, views: Views, around: Sequence[Scope] = ()) -> Iterator[Name]:
        """The same for an item of FROM; its queries may read tables to their left."""
        match node["type"]:
            case "SUBQUERY":
                yield from self.of_query(node["subquery"]["node"], views, around)
            case "BASE_TABLE":
                view = views.get(node["table_name"].lower())
                if view is not None and view.relation is None:
                    yield from self.of_query(view.node, view.views, around)
            case "TABLE_FUNCTION":
                yield from self.of_parts(node["function"], views, around)
            case "JOIN":
                left, right = (self.scope(node[side], views) for side in ("left", "right"))
                yield from self.of_from(node["left"], views, around)
                yield from self.of_from(node["right"], views, [*around, left])
                yield from self.of_parts(node["condition"], views, [*around, left, right])

    def scope(self, node: Node, views: Views) -> Scope:
        """The tables and columns of an item of FROM."""
        match node["type"]:
            case "JOIN":
                return [*self.scope(node["left"], views), *self.scope(node["right"], views)]
            case "SUBQUERY":
                names = self._names_of(node["subquery"]["node"], views)
            case "BASE_TABLE":
                names = self._names_in(node["table_name"].lower(), views)
            case "EXPRESSION_LIST":
                names = [f"col{at}" for at, _ in enumerate(node["values"][0])]
            case "TABLE_FUNCTION":
                called = node["alias"] or node["function"]["function_name"]
                names = [called, "ordinality"]
            case _:
                names = []
        aliases = node.get("column_name_alias") or []
        called = node.get("alias") or node.get("table_name") or _USUAL.get(node["type"], "")
        renamed = [*aliases, *names[len(aliases) :]]
        table = (called.lower(), tuple(name.lower() for name in renamed))
        return [table, (table[0], _KEYS)] if node["type"] == "BASE_TABLE" else [table]

    def _names_in(self, name: str, views: Views) -> list[str]:
        """The columns of a table, or of a view."""
        if (view := views.get(name)) is not None:
            relation = view.relation
            names = (
                self._names_of(view.node, view.views) if relation is None else [*relation.types]
            )
            return names if relation is not None else [*view.names, *names[len(view.names) :]]
        table = self._tables.get(name)
        return [] if table is None else [*table.types]

    def _names_of(self, node: Node, views: Views) -> list[str]:
        """The names of a query's result columns."""
        views = with_views(node, views)
        for child, views_there in _parts(node, views):
            return self._names_of(child, views_there)
        names: list[str] = []
        for at, each in enumerate(node.get("select_list", ())):
            if each["class"] == "STAR":
                of = each["relation_name"].lower()
                scope = self.scope(node["from_table"], views)
                listed = (fields for by, fields in scope if of in ("", by) and fields is not _KEYS)
                names += [name for fields in listed for name in fields]
            elif each.get("alias") or each["class"] != "COLUMN_REF":
                names.append(each.get("alias") or each.get("function_name") or f"column{at}")
            else:
                names.append(each["column_names"][-1])
        return names


_USUAL = {"EXPRESSION_LIST": "valueslist", "TABLE_FUNCTION": "unnest"}
_KEYS = (KEY, *(name for name, whole in SHORT.items() if whole == KEY))


def _parts(node: Node, views: Views) -> list[tuple[Node, Views]]:
    """The branches of a set operation, or the parts of a recursion, each with its views."""
    if node["type"] != "RECURSIVE_CTE_NODE":
        return [(child, views) for child in children(node)]
    recurrent = View(node["left"], node["aliases"], views)
    names = (node["cte_name"].lower(), recurring(node["cte_name"]))
    return [(node["left"], views), (node["right"], {**views, **dict.fromkeys(names, recurrent)})]


def has(scope: Scope, names: Name) -> bool:
    """Whether a scope has the column that names mean, or a column with the field they mean."""
    first, *more = (name.lower() for name in names)
    if more and any(of == first and more[0] in fields for of, fields in scope):
        return True
    return any(first in fields for _, fields in scope)


def _aliases(node: Node) -> Scope:
    """The aliases of the select list, which other clauses of the query may use."""
    named = (each.get("alias") for each in node["select_list"])
    return [("", tuple(name.lower() for name in named if name))]
