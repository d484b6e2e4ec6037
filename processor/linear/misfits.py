"""Find parts of expressions that always fail: constants of the wrong type, and casts.

DuckDB casts the text of `id > 'x'` to the type of `id` when the expression runs, and fails for
every row.  Here each part with a constant or a cast is evaluated alone when the plan is made, with
nulls and with samples in place of everything else.  A part is refused if it fails whatever the
row is; parts that may not be evaluated, as in `coalesce(id, 'x')` or a CASE, are judged only
where they are reached.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from ikebana.codecs.sql_type import (
    Array,
    Decimal,
    Enum,
    List,
    Map,
    Scalar,
    SqlType,
    Struct,
    type_of,
)
from ikebana.processor.linear.bound_query import types_of
from ikebana.processor.linear.database import asked, first_line
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.scope import ExpressionError, plain
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import column, columns

# The messages of a cast between types that works for no value.
_SOURCE = " when casting from source column"
_NO_CAST = "Conversion Error: Unimplemented type for cast"


def misfits(root: Node, types: Mapping[str, str]) -> tuple[str, ...]:
    """The problems of an expression over columns of these types."""
    # Plans parse an expression many times.
    return _misfits(text_of(root), tuple(types.items()))


@functools.lru_cache(maxsize=4096)
def _misfits(text: str, types: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    problems = ((node, _problem(node, dict(types))) for node in _evaluated(tree(text)))
    return tuple(
        f"{plain(text_of(node))} can never be evaluated: {problem}"
        for node, problem in problems
        if problem is not None
    )


def _evaluated(node: Node) -> Iterator[Node]:
    """The parts to test; not those in TRY, which catches failures, nor parameters of lambdas."""
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
    """The direct child expressions of a node, each with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict) and item.get("class") == "TYPE":
            continue
        if isinstance(item, dict) and "class" in item:
            yield (*path, name), item
        elif isinstance(item, dict | list):
            yield from _children(item, (*path, name))


def _problem(node: Node, types: Mapping[str, str]) -> str | None:
    """Why a part fails, whatever its other operands are; None if it may succeed."""
    others: list[tuple[str, SqlType]] = []
    conditions: list[str] = []
    try:
        for path, child in _children(node):
            if child["class"] == "LAMBDA" or not columns(child):
                continue
            name = f"c{len(others)}"
            others.append((name, type_of(_type(child, types))))
            if path[-1] == "when_expr":
                conditions.append(name)
            node = _with(node, path, column(name))
        sql = text_of(node)
        nulls = _failure(sql, tuple((name, "NULL", str(kind)) for name, kind in others))
        failures = [_failure(sql, row) for row in _samples(others, conditions)]
    except ExpressionError:
        # A problem of binding is reported where the whole statement is bound.
        return None
    if nulls is None:
        return next((each for each in failures if each is not None and _is_no_cast(each)), None)
    return nulls if None not in failures else None


def _is_no_cast(failure: str) -> bool:
    # Values of the type of NULL are null, whatever the sample is.
    return failure.startswith(_NO_CAST) and not failure.endswith('-> "NULL")')


def _samples(
    others: Sequence[tuple[str, SqlType]], conditions: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str], ...]]:
    """Rows without nulls, as far as there are samples; for a CASE one for each condition."""
    if others:
        for true in conditions or [""]:
            yield tuple(
                (
                    name,
                    "false" if name in conditions and name != true else _sample(kind),
                    str(kind),
                )
                for name, kind in others
            )


def _type(node: Node, types: Mapping[str, str]) -> str:
    if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1:
        (name,) = node["column_names"]
        if name in types:
            return types[name]
    (kind,) = types_of([text_of(node)], types)
    return kind


def _with(value: Any, path: tuple[Any, ...], new: Node) -> Any:
    """A tree with another node at a path."""
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
        # Two rows, since DuckDB does not evaluate an expression over a constant null.
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
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "'2000-01-01'"),
    **dict.fromkeys(("TIME WITH TIME ZONE", "TIME_NS"), "'00:00:00'"),
    **dict.fromkeys(("JSON", "BIT", "UTINYINT", "BIGNUM"), "'1'"),
}


def _sample(kind: SqlType) -> str:
    """A value of a type as SQL; null if there is no sample."""
    match kind:
        case Decimal():
            return "0"
        case Enum(values):
            return literal(values[0])
        case List(of):
            return f"[{_sample(of)}]"
        case Array(of, size):
            return f"[{', '.join([_sample(of)] * size)}]"
        case Map():
            return "MAP {}"
        case Struct(fields) if fields:
            return f"{{{', '.join(f'{quoted(name)}: {_sample(of)}' for name, of in fields)}}}"
        case Scalar(name):
            return _SAMPLES.get(name, "NULL")
    return "NULL"
