"""Finds what can never be evaluated: constants that are not of the type they stand for, and casts.

DuckDB casts the text of `id > 'x'` to the type of `id` when the expression runs, and fails for
every row.  Here each part that has a constant, or is a cast, is evaluated by itself when the plan
is made, over null in place of all else.  What is refused fails whatever the row has.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from ikebana.codecs.sql_type import Decimal, Enum, Scalar, SqlType, type_of
from ikebana.processor.linear.bound_query import types_of
from ikebana.processor.linear.database import asked, first_line
from ikebana.processor.linear.json_text import literal
from ikebana.processor.linear.scope import ExpressionError, plain
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import column

# A cast from one type to another that there is for no value.
_SOURCE = " when casting from source column"
_NO_CAST = "Conversion Error: Unimplemented type for cast"


def misfits(root: Node, types: Mapping[str, str]) -> tuple[str, ...]:
    """The problems of an expression over columns of these types."""
    # Plans parse an expression many times.
    return _misfits(text_of(root), tuple(types.items()))


@functools.lru_cache(maxsize=4096)
def _misfits(text: str, types: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    found = ((node, _problem(node, dict(types))) for node in _evaluated(tree(text)))
    return tuple(
        f"{plain(text_of(node))} can never be evaluated: {problem}"
        for node, problem in found
        if problem is not None
    )


def _evaluated(node: Node) -> Iterator[Node]:
    """The parts that may not fit; TRY makes null of its own, and parameters have no types here."""
    if node["class"] == "LAMBDA" or node["type"] == "OPERATOR_TRY":
        return
    children = [child for _, child in _children(node)]
    match node["class"]:
        case "CAST" if not node["try_cast"]:
            yield node
        case "COMPARISON" | "BETWEEN" | "OPERATOR":
            yield node
        case "FUNCTION" | "CASE" if any(map(_is_text, children)):
            yield node
    for child in children:
        yield from _evaluated(child)


def _is_text(node: Node) -> bool:
    return node["class"] == "CONSTANT" and (node.get("literal") or {}).get("kind") == "STRING"


def _children(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Node]]:
    """The expressions right within a node, each with its place there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict) and item.get("class") == "TYPE":
            continue
        if isinstance(item, dict) and "class" in item:
            yield (*path, name), item
        elif isinstance(item, dict | list):
            yield from _children(item, (*path, name))


def _problem(node: Node, types: Mapping[str, str]) -> str | None:
    children = [(path, child) for path, child in _children(node) if child["class"] != "LAMBDA"]
    try:
        kinds = [_type(child, types) for _, child in children]
        if node["class"] == "CASE":
            # Of all that it may come to, whatever is true.
            values = [each for each in children if each[0][-1] != "when_expr"]
            kinds = [kind for each, kind in zip(children, kinds, strict=True) if each in values]
            node = tree(f"[{', '.join('NULL' for _ in values)}]")
            places = [path for path, _ in _children(node)]
            children = [(path, child) for path, (_, child) in zip(places, values, strict=True)]
        columns = []
        for at, ((path, child), kind) in enumerate(zip(children, kinds, strict=True)):
            is_constant = child["class"] == "CONSTANT"
            node = _with(node, path, child if is_constant else column(f"c{at}"))
            columns += [] if is_constant else [(f"c{at}", kind)]
        sql = text_of(node)
        failure = _failure(sql, tuple((name, "NULL", kind) for name, kind in columns))
        if failure is None and columns:
            samples = tuple((name, _sample(type_of(kind)), kind) for name, kind in columns)
            failure = _failure(sql, samples)
            return failure if failure and failure.startswith(_NO_CAST) else None
        return failure
    except ExpressionError:
        # What DuckDB cannot bind is told where the whole is bound.
        return None


def _type(node: Node, types: Mapping[str, str]) -> str:
    if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1:
        (name,) = node["column_names"]
        if name in types:
            return types[name]
    (kind,) = types_of([text_of(node)], types)
    return kind


def _with(value: Any, path: tuple[Any, ...], new: Node) -> Any:
    """A tree with another node at a place."""
    if not path:
        return new
    first, *rest = path
    if isinstance(value, list):
        return [_with(e, tuple(rest), new) if at == first else e for at, e in enumerate(value)]
    return {**value, first: _with(value[first], tuple(rest), new)}


@functools.lru_cache(maxsize=4096)
def _failure(sql: str, columns: tuple[tuple[str, str, str], ...]) -> str | None:
    """Why an expression over such columns (name, value, type) fails, if types are the reason."""
    row = ", ".join(f"CAST({value} AS {kind})" for _, value, kind in columns) or "NULL"
    names = ", ".join(name for name, *_ in columns) or "c0"
    try:
        # Two rows, since what is null in all rows of a constant is not evaluated.
        asked(f"SELECT {sql} FROM (VALUES ({row}), ({row})) each_({names})")
    except duckdb.ConversionException as error:
        return first_line(error).partition(_SOURCE)[0]
    except duckdb.Error:
        pass
    return None


_SAMPLES = {
    "VARCHAR": "'x'",
    "BOOLEAN": "true",
    "DATE": "'2000-01-01'",
    "TIME": "'00:00:00'",
    "INTERVAL": "'1 day'",
    "UUID": "'00000000-0000-0000-0000-000000000000'",
    "BLOB": "'x'",
    **dict.fromkeys(("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT"), "1"),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UBIGINT", "UINTEGER", "USMALLINT"), "1"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "'2000-01-01'"),
}


def _sample(kind: SqlType) -> str:
    """A value of a type as SQL; null if none is known."""
    match kind:
        case Decimal():
            return "0"
        case Enum(values):
            return literal(values[0])
        case Scalar(name):
            return _SAMPLES.get(name, "NULL")
    return "NULL"
