"""Read and rewrite syntax trees: nodes of expressions, as DuckDB serialises them.

A tree is a value: functions that change it return a new one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ikebana.codecs.sql_type import TypeTextError, parsed
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import TOO_DEEP, Node, text_of, tree

_PLACES = ("query_location", "query_location_length", "alias")


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
    """All nodes within, outermost first, except those in fields called `without`."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from nodes(item, without)
    elif isinstance(value, dict):
        if "class" in value:
            yield value
        for name, item in value.items():
            if name != without:
                yield from nodes(item, without)


def own_nodes(value: Any) -> Iterator[Node]:
    """All nodes within, except those of subqueries."""
    return nodes(value, without="subquery")


def has_subquery(value: Any) -> bool:
    """Whether there is a subquery within."""
    return any(node["class"] == "SUBQUERY" for node in own_nodes(value))


def columns(value: Any, *, with_parts: bool = False) -> list[tuple[str, ...]]:
    """The names of all columns that are read, except in subqueries.

    Parameters of lambdas are no columns.  `with_parts` includes qualified names that may be a part
    of a parameter: they are one only if no table has a column of that name.
    """
    names: list[tuple[str, ...]] = []

    def look(node: Node) -> None:
        if node["class"] == "COLUMN_REF":
            names.append(tuple(node["column_names"]))

    changed(value, look, parts_too=with_parts)
    return names


def changed(value: Any, change: Callable[[Node], Node | None], *, parts_too: bool = False) -> Any:
    """The tree with nodes replaced, outermost first; for None the node stays, its children follow.

    Subqueries stay unchanged, and so do the parameters of lambdas: a parameter that would capture
    a column inserted into its lambda gets another name.  With `parts_too`, qualified names that
    may be a part of a parameter are passed to `change` as well.
    """
    if isinstance(value, list | tuple):
        return [changed(item, change, parts_too=parts_too) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value and (new := change(value)) is not None:
        return new
    if is_lambda(value):
        return _changed_lambda(value, change, parts_too=parts_too)
    return {
        name: changed(item, change, parts_too=parts_too)
        if isinstance(item, list | dict) and name != "subquery"
        else item
        for name, item in value.items()
    }


def is_lambda(node: Node) -> bool:
    """Whether a node is a lambda; `x -> y` is parsed as one, and takes a part out of JSON."""
    return node.get("class") == "LAMBDA" and node.get("syntax_type") != "SINGLE_ARROW"


def _changed_lambda(node: Node, change: Callable[[Node], Node | None], *, parts_too: bool) -> Node:
    parameters = {names[0].lower() for names in columns(node["lhs"])}
    come: set[str] = set()

    def change_within(inner: Node) -> Node | None:
        if inner["class"] == "COLUMN_REF":
            first, *parts = inner["column_names"]
            if first.lower() in parameters and not (parts and parts_too):
                return inner
        new = change(inner)
        if new is not None and new is not inner:
            come.update(name.lower() for names in columns(new) for name in names)
        return new

    body = changed(node["expr"], change_within, parts_too=parts_too)
    if captured := parameters & come:
        read = {name.lower() for names in columns(node["expr"]) for name in names}
        anew = {name: _free(name, {*come, *parameters, *read}) for name in sorted(captured)}
        unmistaken = _with_parameters(node, anew, change if parts_too else None)
        return _changed_lambda(unmistaken, change, parts_too=parts_too)
    return {**node, "expr": body}


def _with_parameters(
    node: Node, names: Mapping[str, str], change: Callable[[Node], Node | None] | None
) -> Node:
    """A lambda with other names of parameters, except names that `change` replaces as columns."""

    def named(inner: Node) -> Node | None:
        if inner["class"] != "COLUMN_REF":
            return None
        first, *parts = inner["column_names"]
        new = change(inner) if parts and change is not None else None
        if new is not None and new is not inner:
            return None
        return {**inner, "column_names": [names.get(first.lower(), first), *parts]}

    return {**node, "lhs": changed(node["lhs"], named), "expr": changed(node["expr"], named)}


def _free(name: str, others: Collection[str]) -> str:
    while name in others:
        name += "_"
    return name


def renamed(value: Any, names: Mapping[tuple[str, str], tuple[str, ...]]) -> Any:
    """The tree with columns (qualifier, name) renamed."""

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        names_now = node["column_names"]
        new = names.get(tuple(names_now[:2]))
        return None if new is None else {**node, "column_names": [*new, *names_now[2:]]}

    return changed(value, change)


def equated(condition: Node) -> tuple[Node, Node] | None:
    """The sides of an equality; None if the condition is none."""
    if condition.get("type") != "COMPARE_EQUAL":
        return None
    return condition["left"], condition["right"]


def bare(value: Any) -> Any:
    """The tree without places and aliases, so that equal expressions are equal.

    A type has its full name, however it is spelt.
    """
    if isinstance(value, list):
        return [bare(item) for item in value]
    if isinstance(value, dict):
        if value.get("class") == "TYPE":
            value = _in_full(value)
        return {name: bare(item) for name, item in value.items() if name not in _PLACES}
    return value


def with_full_types(value: Any) -> Any:
    """The tree with each type by its full name, however it is spelt."""
    return changed(value, lambda node: _in_full(node) if node["class"] == "TYPE" else None)


def _in_full(node: Node) -> Node:
    try:
        cast = text_of({**tree("CAST(NULL AS BIGINT)"), "type_expr": node})
        kind = parsed(cast.removeprefix("CAST(NULL AS ").removesuffix(")"))
    except (ExpressionError, TypeTextError):
        # The type does not exist; binding will report it.
        return node
    named: Node = tree(f"CAST(NULL AS {kind})")["type_expr"]
    return named


def conjuncts(node: Node | None) -> Iterator[Node]:
    """The conditions that AND joins."""
    if node is None:
        return
    if node.get("type") == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from conjuncts(child)
    else:
        yield node


def conjunction(conditions: Sequence[Node]) -> Node | None:
    """The conditions joined by AND; None for none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return {**tree("true AND true"), "children": [*conditions]}


def conditions(text: str) -> list[tuple[str, Node]]:
    """The conditions that AND joins in a condition, as SQL and as trees.

    Raises: ExpressionError.
    """
    whole = tree(text)
    try:
        return [(text if each is whole else text_of(each), each) for each in conjuncts(whole)]
    except RecursionError:
        raise ExpressionError(TOO_DEEP) from None


def condition_texts(text: str) -> list[str]:
    """The conditions that AND joins, as SQL; an invalid text is returned unchanged."""
    try:
        return [each for each, _ in conditions(text)]
    except ExpressionError:
        return [text]
