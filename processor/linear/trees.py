"""Syntax trees taken apart and put together: nodes of expressions, as DuckDB serialises them.

A tree is a value: what changes it returns another one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ikebana.processor.linear.syntax import Node, select_of, written

_PLACES = ("query_location", "query_location_length", "alias")


def text_of(node: Node) -> str:
    """An expression as SQL, without its alias.  Raises: ExpressionError."""
    return written({**select_of("1"), "select_list": [{**node, "alias": ""}]})


def tree(text: str) -> Node:
    """The tree of one expression.  Raises: ExpressionError."""
    root: Node = select_of(text)["select_list"][0]
    return root


def column(*names: str) -> Node:
    """A reference to a column, behind its qualifier if there is one."""
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": 0,
        "query_location_length": 0,
        "column_names": list(names),
    }


def nodes(value: Any, without: str | None = None) -> Iterator[Node]:
    """All nodes within, outermost first, but for those in the fields called `without`."""
    if isinstance(value, list):
        for item in value:
            yield from nodes(item, without)
    elif isinstance(value, dict):
        if "class" in value:
            yield value
        for name, item in value.items():
            if name != without:
                yield from nodes(item, without)


def own_nodes(value: Any) -> Iterator[Node]:
    """All nodes within, but those of subqueries."""
    return nodes(value, without="subquery")


def columns(value: Any) -> list[tuple[str, ...]]:
    """The names of all columns that are read, but those of subqueries."""
    return [tuple(n["column_names"]) for n in own_nodes(value) if n["class"] == "COLUMN_REF"]


def changed(value: Any, change: Callable[[Node], Node | None]) -> Any:
    """The tree with nodes replaced, the outermost first; None leaves a node and goes into it.

    Subqueries are left as they are.
    """
    if isinstance(value, list):
        return [changed(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value and (new := change(value)) is not None:
        return new
    return {
        name: item if name == "subquery" else changed(item, change) for name, item in value.items()
    }


def renamed(value: Any, names: Mapping[tuple[str, str], tuple[str, ...]]) -> Any:
    """The tree with columns (qualifier, name) named anew."""

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        found = node["column_names"]
        new = names.get(tuple(found[:2]))
        return None if new is None else {**node, "column_names": [*new, *found[2:]]}

    return changed(value, change)


def bare(value: Any) -> Any:
    """The tree without places and aliases, so that equal expressions are equal."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if isinstance(value, dict):
        return {name: bare(item) for name, item in value.items() if name not in _PLACES}
    return value


def conjuncts(node: Node | None) -> Iterator[Node]:
    """The conditions that AND joins."""
    if node is None:
        return
    if node.get("type") == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from conjuncts(child)
    else:
        yield node
