"""Rewrites of a query's tree, and of all queries within it, into forms that the translator knows.

* ORDER BY without LIMIT is dropped: a collection has no order.
* The LIMIT of a set operation, or of a parenthesized query that has one already, moves to a SELECT
  around it: `(…) ORDER BY x LIMIT 3` becomes `SELECT * FROM (…) ORDER BY x LIMIT 3`.
* An equality of rows compares their values, and null equals null: `(a, b) = (c, d)` becomes
  `a IS NOT DISTINCT FROM c AND b IS NOT DISTINCT FROM d`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.syntax import Node
from ikebana.processor.relational.sql_patterns import without_calls

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


def shaped(value: Any) -> Any:
    """The tree with all rewrites applied."""
    if isinstance(value, list):
        return [shaped(item) for item in value]
    if not isinstance(value, dict):
        return value
    node = {name: shaped(item) for name, item in value.items()}
    if node.get("type") in _QUERIES:
        return _of_query(node)
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


def _of_query(node: Node) -> Node:
    groups = [each for group in _groups(node["modifiers"]) if (each := _with_effect(group))]
    first = groups.pop(0) if groups and node["type"] == "SELECT_NODE" else []
    query = {**node, "modifiers": first}
    for group in groups:
        over = query_tree("SELECT * FROM (SELECT 1)")
        source = over["from_table"]
        subquery = {**source["subquery"], "node": query}
        over = {**over, "from_table": {**source, "subquery": subquery}}
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


def _without_effect(value: Any) -> Iterator[int | None]:
    """The places of each ORDER BY that is dropped, in the order of the text."""
    if isinstance(value, list):
        for item in value:
            yield from _without_effect(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != "modifiers":
                yield from _without_effect(item)
        if value.get("type") in _QUERIES:
            for group in _groups(value["modifiers"]):
                effective = _with_effect(group)
                for each in group:
                    if each not in effective:
                        yield each["orders"][0]["expression"].get("query_location")
