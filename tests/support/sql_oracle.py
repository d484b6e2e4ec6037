"""Views in SQL against DuckDB: what it answers over the tables as they are at a time."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Context, Decimal
from itertools import product
from math import isfinite
from random import Random
from typing import Any

import duckdb

from ikebana import Column, Input, Output, Plan, Upsert, evaluate
from ikebana.arrangements.update import Update
from ikebana.codecs.canonical import spelling
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import KnownRelations
from ikebana.processor.relational.sql import sql_operators
from support.sums import summed

Tables = Mapping[str, Mapping[str, str]]
"""The types of columns, by table."""
Change = tuple[Any, Mapping[str, Any] | None, int]
"""The key of a row, what it becomes (None: it is deleted), and when."""
Row = tuple[Any, ...]

# What DuckDB makes of infinity in Python.
_INFINITE = {
    **dict.fromkeys(["9999-12-31", "9999-12-31 23:59:59.999999"], "infinity"),
    **dict.fromkeys(["0001-01-01", "0001-01-01 00:00:00"], "-infinity"),
}


# Averages have fifteen; the last one of a double is rounded otherwise.
_DIGITS = Context(prec=14)


def plan_of(tables: Tables, queries: Mapping[str, str], key: str | None = None) -> Plan:
    """A plan with an upsert of each table and a view of each query, which may have a key."""
    inputs = tuple(
        Input(f"{name}_changes", (name,), columns=tuple(Column(*each) for each in columns.items()))
        for name, columns in tables.items()
    )
    operators: list[Operator] = [Upsert(name, f"{name}_changes") for name in tables]
    for name, query in queries.items():
        operators += sql_operators(name, query, KnownRelations(inputs, operators), key)
    outputs = tuple(Output(name, name, f"out.{name}") for name in queries)
    return checked(Plan("views", inputs, tuple(operators), outputs))


def history_of(
    row: Callable[[Random, str, int], Mapping[str, Any]],
    sizes: Mapping[str, int],
    lasting: Mapping[str, int],
    choice: Random,
    times: int,
) -> dict[str, list[Change]]:
    """All tables at time 0; then rows, but for those that last, change, go, and come back."""
    found: dict[str, list[Change]] = {
        table: [(key, row(choice, table, key), 0) for key in range(size)]
        for table, size in {**lasting, **sizes}.items()
    }
    for time in range(1, times):
        for table, size in sizes.items():
            for key in choice.sample(range(size), max(1, size // 8)):
                new = None if choice.random() < 0.3 else row(choice, table, key)
                found[table].append((key, new, time))
    return found


def records_of(changes: Mapping[str, Iterable[Change]]) -> dict[str, list[Any]]:
    """Changes of tables as records of the inputs."""
    return {f"{name}_changes": list(each) for name, each in changes.items()}


def tables_at(changes: Mapping[str, Sequence[Change]], time: int) -> dict[str, list[Any]]:
    """The rows of tables at a time, after all changes up to it."""
    found = {}
    for name, each in changes.items():
        rows: dict[Any, Any] = {}
        for key, row, at in each:
            if at > time:
                continue
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
        found[name] = list(rows.values())
    return found


def answer(
    tables: Tables, contents: Mapping[str, Iterable[Mapping[str, Any]]], query: str, now: int = 0
) -> tuple[list[str], Counter[Row]]:
    """What DuckDB answers over the rows of tables: the columns, and the rows with their counts.

    `now` is the time that the query may ask for, in milliseconds.
    """
    database = _filled(tables, {name: [*contents[name]] for name in tables})
    for name in ("ikebana_now", "mz_now", "now"):
        database.execute(f"CREATE OR REPLACE MACRO {name}() AS make_timestamp({now * 1000})")
    relation = database.execute(query)
    names = [each[0] for each in relation.description or ()]
    return names, Counter(tuple(map(plain, row)) for row in relation.fetchall())


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database


# The schemas that were asked last, by what they have: several views are asked over one.
_SCHEMAS: dict[str, str] = {}
_MOST = 4


def _filled(
    tables: Tables, contents: Mapping[str, list[Mapping[str, Any]]]
) -> duckdb.DuckDBPyConnection:
    """The database, where names are those of these tables."""
    database, told = _database(), repr((tables, contents))
    if (schema := _SCHEMAS.pop(told, None)) is not None:
        database.execute(f"SET schema = '{schema}'")
    else:
        schema = f"filled_{len(_SCHEMAS)}"
        if len(_SCHEMAS) == _MOST:
            schema = _SCHEMAS.pop(next(iter(_SCHEMAS)))
        database.execute(
            f"SET schema = 'main'; DROP SCHEMA IF EXISTS {schema} CASCADE; "
            f"CREATE SCHEMA {schema}; SET schema = '{schema}'"
        )
        for name, columns in tables.items():
            listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            database.execute(f'CREATE TABLE "{name}" ({listed})')
            if rows := contents[name]:
                # In one statement: one for each row takes ten times as long.
                places = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
                values = [row.get(column) for row in rows for column in columns]
                database.execute(f'INSERT INTO "{name}" VALUES {places}', values)
    _SCHEMAS[told] = schema
    return database


def assert_answered(
    tables: Tables, queries: Sequence[str], changes: Mapping[str, Sequence[Change]], times: int
) -> None:
    """The views of queries have at each time what DuckDB answers over the tables of then."""
    views = {f"view{at}": query for at, query in enumerate(queries)}
    found = evaluate(plan_of(tables, views), records_of(changes), times, shards=2)

    assert found["errors"] == []
    for time, (name, query) in product(range(times), views.items()):
        names, expected = answer(tables, tables_at(changes, time), query, time)
        assert shown_at(found[name], names, time) == expected, (query, time, changes)
        assert all(set(value) == {*names} for (_, value), _, _ in found[name])


def shown_at(updates: Iterable[Update[Any]], names: Sequence[str], time: int) -> Counter[Row]:
    """The rows of a view at a time, with their counts."""
    return summed(
        (tuple(plain(value[name]) for name in names), diff)
        for (_, value), at, diff in updates
        if at <= time
    )


def rows_at(updates: Iterable[Update[Any]], time: int) -> list[Any]:
    """The values that are there at a time, in the order of their texts."""
    found: dict[str, Any] = {}
    for (_, value), at, diff in updates:
        if at <= time:
            count, _ = found.get(repr(value), (0, value))
            found[repr(value)] = (count + diff, value)
    return [value for _, (count, value) in sorted(found.items()) for _ in range(count)]


def plain(value: Any) -> Any:
    """A value as it is compared: numbers as 14 digits tell them, times as their text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float) and not isfinite(value):
        return spelling(value)
    if isinstance(value, int | float | Decimal):
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if number != number.to_integral_value():
            number = _DIGITS.plus(number)
        rounded = +number.quantize(Decimal("1e-9")) if abs(number) < 10**15 else number
        return rounded.normalize() if rounded else Decimal(0)
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    if isinstance(value, date):
        return _INFINITE.get(str(value), str(value))
    return str(value).replace("T", " ") if not isinstance(value, str) else value.replace("T", " ")
