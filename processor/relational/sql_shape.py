"""Rewrites of a query's tree, and of all queries within it, into forms that the translator knows.

* ORDER BY without LIMIT is dropped: a collection has no order.
* The LIMIT of a set operation, or of a parenthesized query that has one already, moves to a SELECT
  around it: `(…) ORDER BY x LIMIT 3` becomes `SELECT * FROM (…) ORDER BY x LIMIT 3`.
* An equality of rows compares their values, and null equals null: `(a, b) = (c, d)` becomes
  `a IS NOT DISTINCT FROM c AND b IS NOT DISTINCT FROM d`.
* A row that is no value of the result has names: `PARTITION BY (a, b)` becomes
  `PARTITION BY {'v0': a, 'v1': b}`, also in ORDER BY and DISTINCT ON.
* UNION BY NAME of columns without names has DuckDB's, which are their texts.
* `JOIN t NEAREST 2 BY DISTANCE x` becomes
  `JOIN LATERAL (SELECT * FROM t WHERE x IS NOT NULL ORDER BY x LIMIT 2) AS t ON true`.
* `t PIVOT (sum(x) FOR c IN ('a', 'b') GROUP BY g)` becomes
  `(SELECT g, sum(x) FILTER (WHERE c = 'a') AS a, … FROM t GROUP BY g)`; the texts of values are
  compared.
* `VALUES (t.a), (1)` becomes `SELECT t.a UNION ALL SELECT 1`.
* A call of a macro of DuckDB that aggregates, such as `weighted_avg(x, y)`, becomes its
  definition.
* `first_value(x ORDER BY y)` of a group becomes `first(x ORDER BY y)`, and `last_value` `last`.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ikebana.processor.linear.bound_query import SqlQueryError, constant, query_tree
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    columns,
    conjunction,
    has_subquery,
    nodes,
    objects_with,
    replaced,
    text_of,
    tree,
)
from ikebana.processor.relational.recursion import recurring
from ikebana.processor.relational.sql_aggregates import calls, is_aggregate, with_fields
from ikebana.processor.relational.sql_patterns import without_calls
from ikebana.processor.relational.sql_whole import children

_NO_ORDER = (
    "a collection has no order, so this ORDER BY says nothing; with a LIMIT it says which rows "
    "are the first"
)
# The order of modifiers in one SELECT, each at most once.
_RANKS = {
    "DISTINCT_MODIFIER": 0,
    "ORDER_MODIFIER": 1,
    "LIMIT_MODIFIER": 2,
    "LIMIT_PERCENT_MODIFIER": 2,
}
_QUERIES = ("SELECT_NODE", "SET_OPERATION_NODE")


def rewritten(value: Any) -> Any:
    """The tree with all rewrites applied."""
    if isinstance(value, list):
        return [rewritten(item) for item in value]
    if not isinstance(value, dict):
        return value
    node = {name: _with_fields(name, rewritten(item)) for name, item in value.items()}
    if node.get("setop_type") == "UNION_BY_NAME":
        node = {**node, "children": [*map(_with_names, children(node))]}
    if node.get("type") in _QUERIES:
        return _of_query(node)
    if node.get("ref_type") == "NEAREST" and node["right"]["type"] != "JOIN":
        return _of_nearest(node)
    if node.get("type") == "PIVOT" and all(each["entries"] for each in node["pivots"]):
        return _of_pivot(node) if node["aggregates"] else node
    if node.get("class") == "FUNCTION":
        return _of_macro(_of_end(node) if _is_end(node) else node)
    if node.get("type") == "EXPRESSION_LIST" and not _is_constant(node["values"]):
        return _of_values(node)
    if node.get("schema_name") == "recurring" and "table_name" in node:
        name = node["table_name"]
        alias = node["alias"] or name
        return {**node, "schema_name": "", "table_name": recurring(name), "alias": alias}
    return _of_rows(node) if node.get("type") == "COMPARE_EQUAL" else node


def notes(text: str) -> list[str]:
    """Notes on parts of a query that have no effect, each with its place in the text."""
    try:
        text, _ = without_calls(text)
        return [
            SqlQueryError(_NO_ORDER, at).with_place(text)
            for at in _without_effect(query_tree(text))
        ]
    except SqlQueryError:
        return []


def _of_rows(node: Node) -> Node:
    """An equality of rows as equalities of their values."""
    sides = [
        [each["expression"] for each in side["arguments"]]
        for side in (node["left"], node["right"])
        if side["class"] == "FUNCTION" and side["function_name"] == "row"
    ]
    if len(sides) != 2 or len(sides[0]) != len(sides[1]):
        return node
    conditions = [
        {**node, "alias": "", "type": "COMPARE_NOT_DISTINCT_FROM", "left": one, "right": other}
        for one, other in zip(*sides, strict=True)
    ]
    every: Node = {name: node[name] for name in ("alias", "query_location") if name in node}
    return {**every, "class": "CONJUNCTION", "type": "CONJUNCTION_AND", "children": conditions}


# What rows are divided and ordered by.
_PLACES = ("partitions", "distinct_on_targets", "orders")


def _with_fields(place: str, value: Any) -> Any:
    """The expressions of a place; rows of those that rows are divided or ordered by have names."""
    if place not in _PLACES:
        return value
    if isinstance(value, list):
        return [_with_fields(place, each) for each in value]
    if "null_order" in value:
        return {**value, "expression": _with_fields(place, value["expression"])}
    return with_fields(value)


def _with_names(query: Node) -> Node:
    """A SELECT whose columns without names have those of DuckDB."""
    listed = [
        each
        if each["alias"] or each["class"] in ("COLUMN_REF", "STAR")
        else {**each, "alias": text_of(each)}
        for each in query.get("select_list", ())
    ]
    return {**query, "select_list": listed} if listed else query


def _of_nearest(node: Node) -> Node:
    """A join of each row with those of the right that are nearest, as a lateral one."""
    right, by = node["right"], node["ranking_expression"]
    called = right["alias"] or right.get("table_name", "")
    (direction,) = (way for way in ("ASC", "DESC") if node["nearest_order_type"].startswith(way))
    text = f"(SELECT * FROM r WHERE x IS NOT NULL ORDER BY x {direction} LIMIT 1)"
    join: Node = query_tree(f"SELECT * FROM l JOIN LATERAL {text} ON true")["from_table"]
    nearest = join["right"]["subquery"]["node"]
    order, limit = nearest["modifiers"]
    order = {**order, "orders": [{**order["orders"][0], "expression": by}]}
    limit = {**limit, "limit": tree(str(node["nearest_count"]))}
    where = {**nearest["where_clause"], "children": [by]}
    nearest = {**nearest, "from_table": right, "where_clause": where, "modifiers": [order, limit]}
    subquery = {**join["right"]["subquery"], "node": nearest}
    lateral = {**join["right"], "alias": called, "subquery": subquery}
    place = {"query_location": node.get("query_location"), "join_type": node["join_type"]}
    return {**join, **place, "left": node["left"], "right": lateral}


def _of_pivot(node: Node) -> Node:
    """A PIVOT as a query with aggregates of the rows that have each of its values."""
    groups = ", ".join(map(quoted, node["groups"]))
    read = columns([node["aggregates"], [each["pivot_expressions"] for each in node["pivots"]]])
    others = ", ".join(map(quoted, {names[-1].lower(): names[-1] for names in read}.values()))
    text = f"SELECT {groups or f'* EXCLUDE ({others})'} FROM t GROUP BY {groups or 'ALL'}"
    source: Node = query_tree(f"SELECT * FROM ({text}) AS p")["from_table"]
    query = {**source["subquery"]["node"], "from_table": node["source"]}
    query["select_list"] = [
        *({**each, "query_location": node.get("query_location")} for each in query["select_list"]),
        *(
            _cell(aggregate, cell, is_named=len(node["aggregates"]) > 1)
            for cell in product(*map(_values_of, node["pivots"]))
            for aggregate in node["aggregates"]
        ),
    ]
    of = {"alias": node["alias"] or "__unnamed_pivot"}
    of |= {name: node[name] for name in ("column_name_alias", "query_location")}
    return {**source, **of, "subquery": {**source["subquery"], "node": query}}


_PivotValue = tuple[str, Sequence[Node]]
"""The name of a value, and the conditions that a row has it."""


def _values_of(pivot: Node) -> Iterator[_PivotValue]:
    """The values behind IN.  Raises: SqlQueryError."""
    for entry in pivot["entries"]:
        # A name alone is a text.
        texts = [each["value"] for each in entry["values"]]
        if (whole := entry["star_expr"]) is not None:
            is_row = whole.get("function_name") == "row"
            parts = [each["expression"] for each in whole["arguments"]] if is_row else [whole]
            texts = [_pivot_text(each) for each in parts]
        named = "_".join("NULL" if text is None else text for text in texts)
        conditions = []
        for of, text in zip(pivot["pivot_expressions"], texts, strict=True):
            value = "NULL" if text is None else literal(text)
            condition = tree(f"CAST(x AS VARCHAR) IS NOT DISTINCT FROM {value}")
            conditions.append({**condition, "left": {**condition["left"], "child": of}})
        yield entry["alias"] or named, conditions


def _pivot_text(node: Node) -> str | None:
    """The text of a value behind IN.  Raises: SqlQueryError."""
    try:
        value = constant(f"CAST({text_of(node)} AS VARCHAR)")
    except ExpressionError as error:
        raise SqlQueryError(str(error), node.get("query_location")) from None
    return None if value is None else str(value)


def _cell(aggregate: Node, cell: Sequence[_PivotValue], *, is_named: bool) -> Node:
    """An aggregate of the rows that have the values of a cell.  Raises: SqlQueryError."""
    condition = conjunction([each for _, conditions in cell for each in conditions])

    def filtered(node: Node) -> Node | None:
        if not is_aggregate(node):
            return None
        if node["filter"]:
            problem = "an aggregate of PIVOT has no FILTER; filter the rows in a query in FROM"
            raise SqlQueryError(problem, node.get("query_location"))
        return {**node, "filter": condition}

    named = [name for name, _ in cell]
    if is_named or aggregate["alias"]:
        named.append(aggregate["alias"] or text_of(aggregate))
    result: Node = changed(aggregate, filtered)
    return {**result, "alias": "_".join(named)}


def _is_constant(value: Any) -> bool:
    return not columns(value, with_parts=True) and not has_subquery(value)


def _of_values(node: Node) -> Node:
    """The rows of a VALUES that reads columns or queries, as queries."""
    text = " UNION ALL ".join("SELECT 1" for _ in node["values"])
    source: Node = query_tree(f"SELECT * FROM ({text}) AS v")["from_table"]
    values = iter(node["values"])

    def filled(query: Node) -> Node:
        if query["type"] == "SELECT_NODE":
            listed = [{**each, "alias": f"col{at}"} for at, each in enumerate(next(values))]
            return {**query, "select_list": listed}
        return {**query, "children": [filled(each) for each in children(query)]}

    subquery = {**source["subquery"], "node": filled(source["subquery"]["node"])}
    return {**source, "alias": node["alias"], "subquery": subquery}


_ENDS = {"first_value": "first", "last_value": "last"}


def _is_end(call: Node) -> bool:
    """Whether a call is of the first or last value of a group; a window's is no function node."""
    return call["function_name"].lower() in _ENDS and bool(call["order_bys"]["orders"])


def _of_end(call: Node) -> Node:
    name = _ENDS[call["function_name"].lower()]
    alias = call["alias"] or call["function_name"]
    return {**call, "function_name": name, "qualified_name": {"path": [name]}, "alias": alias}


def as_duckdb(text: str, node: Node) -> str:
    """The text of a query with DuckDB's names of the first and last value of a group."""
    for call in nodes(node):
        if call["class"] == "FUNCTION" and _is_end(call):
            name, begin = call["function_name"], call["query_location"]
            end = begin + len(name)
            # In quotes it stays, and DuckDB refuses it.
            if text[begin:end].lower() == name.lower():
                text = replaced(text, begin, end, _ENDS[name.lower()])
    return text


def _of_macro(call: Node) -> Node:
    """The definition of a macro with the arguments of a call; other calls stay."""
    return _applied(call, _macros())


_Macros = Mapping[str, tuple[Sequence[str], Node]]


def _applied(call: Node, macros: _Macros) -> Node:
    names, definition = macros.get(call["function_name"].lower(), ((), None))
    arguments = [each["expression"] for each in call["arguments"]]
    if definition is None or len(arguments) != len(names):
        return call
    meant = dict(zip(names, arguments, strict=True))

    def change(node: Node) -> Node | None:
        return meant.get(node["column_names"][0]) if node["class"] == "COLUMN_REF" else None

    result: Node = changed(definition, change)
    return {**result, "alias": call["alias"] or call["function_name"]}


@functools.cache
def _macros() -> _Macros:
    """The macros of DuckDB that are expressions over aggregates: parameters and definitions."""
    rows = rows_of(
        "SELECT function_name, parameters, macro_definition FROM duckdb_functions() "
        "WHERE function_type = 'macro' AND internal"
    )
    every = {name: (parameters, tree(text)) for name, parameters, text in rows}
    direct = {name: each for name, each in every.items() if calls(each[1])}

    def applied(node: Node) -> Node | None:
        """Replace a call of another macro that aggregates."""
        is_call = node["class"] == "FUNCTION" and node["function_name"] in direct
        return _applied(node, direct) if is_call else None

    whole = {name: (names, changed(each, applied)) for name, (names, each) in every.items()}
    return {name: each for name, each in whole.items() if calls(each[1])}


def _of_query(node: Node) -> Node:
    groups = [each for group in _groups(node["modifiers"]) if (each := _with_effect(group))]
    first = groups.pop(0) if groups and node["type"] == "SELECT_NODE" else []
    query = {**node, "modifiers": first}
    for group in groups:
        over = query_tree("SELECT * FROM (SELECT 1)")
        source = over["from_table"]
        subquery = {**source["subquery"], "node": query}
        star = {**over["select_list"][0], "query_location": None}
        over = {**over, "from_table": {**source, "subquery": subquery}, "select_list": [star]}
        query = {**over, "modifiers": group}
    return query


def _groups(modifiers: Sequence[Node]) -> Iterator[list[Node]]:
    """The modifiers of each pair of parentheses, from the inside out."""
    group: list[Node] = []
    for each in modifiers:
        if group and _RANKS[each["type"]] <= _RANKS[group[-1]["type"]]:
            yield group
            group = []
        group.append(each)
    yield group


def _with_effect(group: Sequence[Node]) -> list[Node]:
    """The modifiers without an ORDER BY that has no effect."""
    matters = any(
        each["type"].startswith("LIMIT") or each.get("distinct_on_targets") for each in group
    )
    return [each for each in group if matters or each["type"] != "ORDER_MODIFIER"]


def _without_effect(tree: Node) -> list[int | None]:
    """The places of each ORDER BY that is dropped, in the order of the text."""
    places: list[int | None] = [
        each["orders"][0]["expression"].get("query_location")
        for query in objects_with(tree, "modifiers")
        for group in _groups(query["modifiers"])
        for each in group
        if each not in _with_effect(group)
    ]
    return sorted(places, key=lambda at: at or 0)
