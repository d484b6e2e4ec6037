"""The database in memory that parses, binds and evaluates SQL; it reaches nothing outside."""

import threading
from typing import Any

import duckdb


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's database in memory, which reaches no file and no network."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if found is None:
        found = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": "false"}
        )
        found.execute("SET TimeZone = 'UTC'").fetchall()
        # A statement is run as it is written: casts for every row, conditions in order.
        found.execute("PRAGMA disable_optimizer").fetchall()
        found.execute("SET autoinstall_known_extensions = false").fetchall()
        found.execute("SET autoload_known_extensions = false").fetchall()
        _local.connection = found
    return found


def parsed(sql: str) -> duckdb.Statement:
    """A statement for this thread's database, parsed once."""
    database = connection()
    known: dict[str, duckdb.Statement] = _local.__dict__.setdefault("statements", {})
    if sql not in known:
        (known[sql],) = database.extract_statements(sql)
    return known[sql]


_local = threading.local()


def asked(sql: str, *parameters: str) -> list[tuple[Any, ...]]:
    """All rows of a statement's answer."""
    rows: list[tuple[Any, ...]] = connection().execute(sql, list(parameters)).fetchall()
    return rows


def first_line(error: Exception | str) -> str:
    """What the database says is wrong, without the text that it is wrong in."""
    return str(error).strip().partition("\n")[0]
