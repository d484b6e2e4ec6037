"""Answers as files of sqllogictest write them, and whether two of them are the same."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from sqllogictest.records import Query
from support.sql_oracle import plain

Row = Sequence[Any]
_HASH = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WORDS = {"true": "1", "false": "0", "infinity": "inf", "-infinity": "-inf"}


def agrees(query: Query, rows: Sequence[Row]) -> bool:
    """Whether rows are those that a file expects, in any order.

    A hash is of values in their order: of rows in the order that a query asks for.
    """
    if len(query.lines) == 1 and (found := _HASH.fullmatch(query.lines[0].strip())):
        return int(found[1]) == sum(map(len, rows)) and any(
            _hash(_sorted(query, [list(map(text, row)) for row in rows])) == found[2]
            for text in (_as_sqlite(query.types), shown_as_duckdb)
        )
    expected = _rows_of(query)
    own = [[shown(value) for value in row] for row in rows]
    if len(expected) == len(own) and all(map(_same_row, _in_order(own), _in_order(expected))):
        return True
    one, other = (sorted(value for row in each for value in row) for each in (own, expected))
    return query.sort == "valuesort" and len(one) == len(other) and all(map(_same, one, other))


def _rows_of(query: Query) -> list[list[str]]:
    """The rows that a file expects: one a line, with tabs between values, or one value a line."""
    many = len(query.types)
    if many == 1:
        return [[line] for line in query.lines]
    rows = [line.split("\t") for line in query.lines]
    if all(len(row) == many for row in rows):
        return rows
    return [list(query.lines[at : at + many]) for at in range(0, len(query.lines), many)]


def _in_order(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return sorted([_usual(value) for value in row] for row in rows)


def _usual(text: str) -> str:
    """A value by which rows are sorted: equal numbers have one text."""
    text = _WORDS.get(text.strip().lower(), text.strip())
    if _NUMBER.fullmatch(text):
        with_few = Decimal(text).quantize(Decimal("1e-3")) if len(text) < 25 else Decimal(text)
        return f"{with_few.normalize() + 0:f}"
    return text


def _same_row(own: Sequence[str], expected: Sequence[str]) -> bool:
    return len(own) == len(expected) and all(map(_same, own, expected))


def _same(own: str, expected: str) -> bool:
    if own == expected:
        return True
    if expected.startswith("<REGEX>:"):
        return re.fullmatch(expected.removeprefix("<REGEX>:"), own, re.DOTALL) is not None
    if expected.startswith("<!REGEX>:"):
        return re.fullmatch(expected.removeprefix("<!REGEX>:"), own, re.DOTALL) is None
    try:
        one, other = Decimal(own), Decimal(expected)
    except InvalidOperation:
        return _plain(own) == _plain(expected)
    if one.is_nan() or other.is_nan():
        return one.is_nan() and other.is_nan()
    # A file has numbers as a printer of another one has rounded them.
    return one == other or abs(one - other) <= max(Decimal("0.0011"), abs(other) / 10**6)


def _plain(text: str) -> str:
    return re.sub(r"[\s'\"]", "", text).replace("T", " ").replace(" ", "")


def shown(value: Any) -> str:
    """A value as DuckDB's tests write it.

    >>> [shown(each) for each in (None, "", True, 1.5, [1, None], {"a": "x"})]
    ['NULL', '(empty)', 'true', '1.5', '[1, NULL]', "{'a': x}"]
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{name}': {shown(each)}" for name, each in value.items()) + "}"
    return str(value) or "(empty)"


def shown_as_duckdb(value: Any) -> str:
    """The same, of a value in a hash."""
    return shown(value)


def _as_sqlite(types: str) -> Any:
    """How SQLite's tests write values of a row, by the types of a query."""
    column = iter(types * 100_000)

    def text(value: Any) -> str:
        kind = next(column)
        if value is None:
            return "NULL"
        if kind == "I":
            try:
                return str(int(value))
            except (TypeError, ValueError):
                return "0"
        if kind == "R":
            try:
                return f"{float(value):.3f}"
            except (TypeError, ValueError):
                return "0.000"
        return re.sub(r"[^ -~]", "@", str(value)) or "(empty)"

    return text


def _sorted(query: Query, rows: list[list[str]]) -> list[str]:
    if query.sort == "rowsort":
        rows = sorted(rows)
    values = [value for row in rows for value in row]
    return sorted(values) if query.sort == "valuesort" else values


def _hash(values: Iterable[str]) -> str:
    whole = "".join(f"{value}\n" for value in values)
    return hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest()


def comparable(value: Any) -> Any:
    """A value as answers of a view and of DuckDB are compared.

    Fields of objects are compared by name, bytes as base64, times without zeros at their end.
    """
    if isinstance(value, dict):
        return tuple(sorted((str(name), repr(comparable(each))) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    text = b64encode(value).decode() if isinstance(value, bytes) else plain(value)
    if not isinstance(text, str):
        return text
    text = text.removesuffix("Z").removesuffix("+00:00")
    return re.sub(r"(?<=:\d\d)\.(\d*?)0*$", lambda of: f".{of[1]}" if of[1] else "", text)
