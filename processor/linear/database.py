"""The database in memory that parses, binds and evaluates SQL; it reaches nothing outside."""

import functools
import hashlib
import threading
from typing import Any

import duckdb
import pyarrow as pa

_MOST_PLANNED = 256


class _Source:
    """The table that planned statements read, which is another one each time they are run."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.table: pa.Table | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table = self._schema.empty_table() if self.table is None else self.table
        return table.__arrow_c_stream__(requested_schema)


class _Database:
    """A thread's database in memory, which reaches no file and no network.

    Planning takes DuckDB up to a hundred times as long as running a statement over a few rows, so
    a statement is planned once; the plans that were used last are kept.
    """

    def __init__(self) -> None:
        self.connection = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": "false"}
        )
        for setting in (
            "SET TimeZone = 'UTC'",
            # A statement is run as it is written: casts for every row, conditions in order.
            "PRAGMA disable_optimizer",
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
        ):
            self.connection.execute(setting).fetchall()
        self._sources: dict[str, _Source] = {}
        # By SQL, that used last at the end: the statement's name, and its execution.
        self._planned: dict[str, tuple[str, duckdb.Statement]] = {}
        self._count = 0

    def source(self, schema: pa.Schema) -> _Source:
        """What statements read under the name `source_of(schema)`."""
        name = source_of(schema)
        if name not in self._sources:
            self._sources[name] = _Source(schema)
            self.connection.register(name, self._sources[name])
        return self._sources[name]

    def planned(self, sql: str) -> duckdb.Statement:
        """The execution of a statement, which is planned the first time."""
        found = self._planned.pop(sql, None) or self._prepared(sql)
        self._planned[sql] = found
        return found[1]

    def _prepared(self, sql: str) -> tuple[str, duckdb.Statement]:
        if len(self._planned) >= _MOST_PLANNED:
            oldest, _ = self._planned.pop(next(iter(self._planned)))
            self.connection.execute(f"DEALLOCATE {oldest}")
        self._count += 1
        name = f"statement_{self._count}"
        self.connection.execute(f"PREPARE {name} AS {sql}")
        (statement,) = self.connection.extract_statements(f"EXECUTE {name}")
        return name, statement


_local = threading.local()


def _database() -> _Database:
    """This thread's database, which is made when it is asked for."""
    if not hasattr(_local, "database"):
        _local.database = _Database()
    found: _Database = _local.database
    return found


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's database in memory, which reaches no file and no network."""
    return _database().connection


@functools.lru_cache(maxsize=1024)
def source_of(schema: pa.Schema) -> str:
    """The name under which a statement reads a table of these columns."""
    return f"batch_{hashlib.sha256(str(schema).encode()).hexdigest()[:16]}"


def answer(sql: str, table: pa.Table) -> list[tuple[Any, ...]]:
    """All rows of the answer of a statement that reads `source_of(table.schema)`."""
    database = _database()
    source = database.source(table.schema)
    source.table = table
    try:
        rows: list[tuple[Any, ...]] = database.connection.execute(database.planned(sql)).fetchall()
    finally:
        source.table = None
    return rows


def described(sql: str, schema: pa.Schema) -> duckdb.DuckDBPyRelation:
    """The answer of a statement over a table of these columns, which is not run."""
    _database().source(schema)
    return connection().sql(sql)


def asked(sql: str, *parameters: str) -> list[tuple[Any, ...]]:
    """All rows of a statement's answer."""
    rows: list[tuple[Any, ...]] = connection().execute(sql, list(parameters)).fetchall()
    return rows


def first_line(error: Exception | str) -> str:
    """What the database says is wrong, without the text that it is wrong in."""
    return str(error).strip().partition("\n")[0]
