"""Propose the type of a cast for a column of JSON, from the other operands.

The proposal appears in error messages only.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ikebana.processor.linear.database import asked
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import UNKNOWN, ExpressionError, Scope
from ikebana.processor.linear.syntax import Node

# The types of arguments, those that data most often have first.
_LIKELY = ("VARCHAR", "TIMESTAMP", "BIGINT", "DOUBLE", "DATE", "BOOLEAN", "BLOB")
_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_LITERALS = {"INTEGER": "BIGINT", "STRING": "VARCHAR", "BOOLEAN": "BOOLEAN"}
TypeOf = Callable[[Node], str]


def within(node: Node, child: Node, scope: Scope, type_of_cast: TypeOf) -> str | None:
    """The type that a child of a node should have; None if nothing suggests one."""
    if node.get("class") == "CONJUNCTION" or node.get("type") == "OPERATOR_NOT":
        return "BOOLEAN"
    if node.get("class") == "FUNCTION" and node["function_name"] not in _ARITHMETIC:
        arguments = [argument["expression"] for argument in node["arguments"]]
        likely = _taken_by(node["function_name"].lower(), len(arguments))
        places = zip(arguments, likely, strict=True)
        return next((kind for each, kind in places if each is child), None)
    if any(check["when_expr"] is child for check in node.get("case_checks", ())):
        return "BOOLEAN"
    kinds = (_obvious_type(other, scope, type_of_cast) for other in _children(node))
    return next(filter(None, kinds), None)


def _children(value: Any) -> Iterator[Node]:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict) and "class" in item:
            yield item
        elif isinstance(item, list | dict):
            yield from _children(item)


def _obvious_type(node: Node, scope: Scope, type_of_cast: TypeOf) -> str | None:
    """The type of an expression, if it is obvious."""
    match node.get("class"):
        case "CONSTANT":
            literal = node.get("literal") or {}
            if literal.get("kind") == "NUMERIC":
                digits = len(literal["text"].partition(".")[2])
                return "DOUBLE" if "e" in literal["text"].lower() else f"DECIMAL(18,{digits})"
            return _LITERALS.get(str(literal.get("kind")))
        case "CAST":
            try:
                return type_of_cast(node)
            except ExpressionError:
                return None
        case "COLUMN_REF":
            kind = scope.types.get(node["column_names"][0])
            return None if kind in (JSON, UNKNOWN) else kind
        case "FUNCTION" if node["function_name"] in _ARITHMETIC:
            kinds = (_obvious_type(child, scope, type_of_cast) for child in _children(node))
            return next(filter(None, kinds), None)
        case "FUNCTION":
            return _given_by(node["function_name"].lower())
        case "COMPARISON" | "CONJUNCTION" | "BETWEEN":
            return "BOOLEAN"
    return None


@functools.lru_cache(maxsize=256)
def _taken_by(name: str, count: int) -> list[str | None]:
    """The likeliest types of a function's arguments."""
    rows = asked(
        "SELECT parameter_types FROM duckdb_functions() WHERE lower(function_name) = ? "
        "AND function_type = 'scalar'",
        name,
    )
    forms = [types for (types,) in rows if len(types) == count]
    return [_likeliest({types[at] for types in forms}) for at in range(count)]


def _likeliest(kinds: set[str]) -> str | None:
    return next((kind for kind in _LIKELY if kind in kinds), None)


@functools.lru_cache(maxsize=256)
def _given_by(name: str) -> str | None:
    """The type of a function's results, if it has one."""
    rows = asked(
        "SELECT DISTINCT return_type FROM duckdb_functions() WHERE lower(function_name) = ? "
        "AND function_type = 'scalar'",
        name,
    )
    kinds = {kind for (kind,) in rows}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {*_LIKELY} else None
