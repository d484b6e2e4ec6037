"""Queries that DuckDB parses and binds over tables without rows: trees, types and problems."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import duckdb
import msgspec

from ikebana.processor.linear.database import connection, first_line, rows_of
from ikebana.processor.linear.duckdb_messages import TableTypes, in_words, names_in
from ikebana.processor.linear.functions import FunctionError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError, is_ours
from ikebana.processor.linear.sql_functions import (
    as_written,
    declare,
    has_user_aggregate,
    place_as_written,
    user_aggregate,
)
from ikebana.processor.linear.syntax import TOO_DEEP, Node, Token, remedy, text_of, tokens


class SqlQueryError(Exception):
    """A query is refused; `at` is the place of the fault in its text, in characters."""

    def __init__(self, problem: str, at: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at

    def with_place(self, text: str) -> str:
        """The problem with its place in the query."""
        if self.at is None or not 0 <= self.at <= len(text):
            return self.problem
        at = place_as_written(text, self.at)
        before = as_written(text)[:at]
        line, start = before.count("\n") + 1, before.rfind("\n") + 1
        return f"line {line}, column {at - start + 1}: {self.problem}"


class BindingError(SqlQueryError):
    """DuckDB does not take the query either."""


def closing(lexemes: Sequence[Token], begin: int) -> int:
    """The index of the token that closes the parenthesis opened at `begin`.

    Raises: SqlQueryError.
    """
    depth = 0
    for at in range(begin, len(lexemes)):
        depth += (lexemes[at].text == "(") - (lexemes[at].text == ")")
        if not depth:
            return at
    raise SqlQueryError("a parenthesis is not closed", lexemes[begin].at)


def query_tree(text: str) -> Node:
    """The syntax tree of one query, with places in characters.  Raises: SqlQueryError."""
    if "\0" in text:
        raise SqlQueryError("it holds a character that SQL cannot")
    try:
        declare(text)
        ((tree,),) = connection().execute("SELECT json_serialize_sql(?)", [text]).fetchall()
        parsed: dict[str, Any] = msgspec.json.decode(str(tree).encode())
    except RecursionError:
        raise SqlQueryError(TOO_DEEP) from None
    except (duckdb.Error, FunctionError) as error:
        raise SqlQueryError(first_line(error)) from None
    if parsed["error"]:
        # For a statement that changes something, DuckDB only says that it is no SELECT.
        position = str(parsed.get("position", ""))
        at = _characters(text.encode(), int(position)) if position.isdigit() else None
        problem = first_line(parsed["error_message"])
        if "Only SELECT" in problem:
            words = (each.at for each in tokens(text) if "PIVOT" in each.text.upper())
            if (pivot := next(words, None)) is not None:
                raise SqlQueryError(PIVOT, pivot)
            raise SqlQueryError(_ONE_SELECT, at)
        raise SqlQueryError(in_words(problem) + remedy(problem, text), at)
    if len(parsed["statements"]) != 1:
        raise SqlQueryError("it must be one query")
    node: Node = parsed["statements"][0]["node"]
    return node if text.isascii() else _in_characters(text.encode(), node)


def _characters(text: bytes, place: int) -> int:
    """A place in characters; DuckDB counts the bytes of UTF-8, and none is beyond the text."""
    before = text[:place]
    return len(before.decode()) if len(before) == place else place


def _in_characters(text: bytes, value: Any) -> Any:
    """The tree with places in characters."""
    if isinstance(value, list):
        return [_in_characters(text, each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _characters(text, each) if name == "query_location" else _in_characters(text, each)
        for name, each in value.items()
    }


def columns_of(
    text: str, tables: TableTypes, functions: Mapping[str, str] = {}
) -> list[tuple[str, str]]:
    """The columns of a query over tables, with their types.

    `functions` has further functions without arguments, with the types of their results.
    Raises: SqlQueryError.
    """
    database = connection().cursor()
    try:
        database.execute("BEGIN")
        for name, columns in tables.items():
            listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
            database.execute(f"CREATE TEMP TABLE {quoted(name)} ({listed or '__none INTEGER'})")
        for name, kind in functions.items():
            database.execute(f"CREATE TEMP MACRO {quoted(name)}() AS NULL::{kind}")
        rows = database.execute(f"DESCRIBE\n{bindable(text)}\n").fetchall()
    except duckdb.Error as error:
        raise BindingError(in_words(error, tables), _place(error, text)) from None
    finally:
        database.execute("ROLLBACK")
        database.close()
    return [(str(name), str(kind)) for name, kind, *_ in rows]


def bindable(text: str) -> str:
    """SQL with an aggregate of DuckDB of the same type in place of each user-defined one.

    DuckDB has no aggregates in Python.
    """
    if not has_user_aggregate(text):
        return text
    words = tokens(text)
    parts, end = [], 0
    # The text that replaces the end of each open parenthesis.
    ends: list[str] = []
    for at, token in enumerate(words):
        if token.text == ")" and ends:
            parts += [text[end : token.at], ends.pop()]
            end = token.end
        elif token.text == "(":
            of = user_aggregate(words[at - 1].text[1:-1].replace('""', '"')) if at else None
            if of is None:
                ends.append(")")
                continue
            is_distinct = words[at + 1].text.upper() == "DISTINCT"
            distinct, many = "DISTINCT " * is_distinct, len(of.parameters) > 1
            begin = f"arg_max({distinct}NULL::{of.returns}, {'row(' * many}"
            parts += [text[end : words[at - 1].at], begin]
            end = words[at + is_distinct].end
            ends.append(")" * (1 + many))
    return "".join([*parts, text[end:]])


def types_of(expressions: Iterable[str], columns: Mapping[str, str]) -> list[str]:
    """The types of expressions, which may have aggregates.  Raises: ExpressionError."""
    listed = ", ".join(f"({each})" for each in expressions)
    if not listed:
        return []
    table = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in columns.items())
    try:
        rows = connection().execute(
            f"DESCRIBE SELECT {bindable(listed)} FROM (SELECT {table or 'NULL AS __none'})"
        )
        return [str(row[1]) for row in rows.fetchall()]
    except duckdb.Error as error:
        named = {name: kind for name, kind in columns.items() if not is_ours(name)}
        raise ExpressionError(in_words(error, {"": named})) from None


def type_of(node: Node, columns: Mapping[str, str]) -> str:
    """The type of an expression.  Raises: ExpressionError."""
    if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1:
        (name,) = node["column_names"]
        if name in columns:
            return columns[name]
    (kind,) = types_of([text_of(node)], columns)
    return kind


def constant(expression: str) -> Any:
    """The value of an expression without columns.  Raises: ExpressionError."""
    try:
        ((value,),) = rows_of(f"SELECT {expression}")
    except duckdb.Error as error:
        raise ExpressionError(in_words(error)) from None
    return value


def of_no_rows(aggregate: str, columns: Mapping[str, str]) -> str | None:
    """The result of an aggregate over no rows, as text; None if it is null."""
    table = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in columns.items())
    sql = f"SELECT CAST({bindable(aggregate)} AS VARCHAR) FROM (SELECT {table}) WHERE false"
    ((value,),) = connection().execute(sql).fetchall()
    return None if value is None else str(value)


def is_null_of_nulls(expression: str, columns: Mapping[str, str]) -> bool:
    """Whether an expression is null if all columns are."""
    table = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in columns.items())
    try:
        rows = connection().execute(f"SELECT ({expression}) IS NULL FROM (SELECT {table})")
        return bool(rows.fetchall()[0][0])
    except duckdb.Error:
        return False


def common_type(kinds: Iterable[str]) -> str:
    """The type of a column of a union, from those of its parts.  Raises: ExpressionError."""
    both = " UNION ALL ".join(f"SELECT NULL::{kind}" for kind in dict.fromkeys(kinds))
    try:
        ((_, kind, *_),) = connection().execute(f"DESCRIBE {both}").fetchall()
    except duckdb.Error as error:
        raise ExpressionError(in_words(error)) from None
    return str(kind)


_ONE_SELECT = "it must be one query that begins with SELECT or WITH"
PIVOT = (
    "PIVOT needs the list of its values, as in PIVOT t ON kind IN ('a', 'b') USING sum(x), since "
    "columns do not change with the rows"
)


def _place(error: Exception, text: str) -> int | None:
    """Where the fault is: DuckDB shows the line, and carets below the place, or quotes a name."""
    for shown, caret in pairwise(str(error).split("\n")):
        number, _, excerpt = shown.removeprefix("LINE ").partition(": ")
        if not shown.startswith("LINE ") or set(caret.strip()) != {"^"} or not number.isdigit():
            continue
        column = caret.index("^") - len(f"LINE {number}: ")
        # The first line does not belong to the query; only a part of a long line is shown.
        line, parts = int(number) - 2, text.split("\n")
        cut = excerpt.removeprefix("...")
        column -= len(excerpt) - len(cut)
        if 0 <= line < len(parts) and (at := parts[line].find(cut.removesuffix("..."))) >= 0:
            return sum(len(each) + 1 for each in parts[:line]) + at + column
    for name in names_in(error):
        places = [
            each.at for each in tokens(text) if each.text.strip("\"'").lower() == name.lower()
        ]
        if len(places) == 1:
            return places[0]
    return None
