"""The database in memory that parses, binds and evaluates SQL; it reaches nothing outside."""

# Decision (statements are planned once): Planning the casts that keep every digit was most of the
# cost of SQL steps. A statement is prepared once in a process, and reads values of the usual form
# without casts; a property test compares both forms.

import functools
import hashlib
import mmap
import os
import re
import resource
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from ikebana.processor.base import calls
from ikebana.processor.linear import sql_functions

_MOST_PLANNED = 256
MOST_MEMORY = 2 << 30
"""How many bytes a process may grow by while a statement runs."""


class _Source:
    """The table that planned statements read; each run sets another one."""

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
            # A statement runs as it is written: casts for every row, conditions in order.
            "PRAGMA disable_optimizer",
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            f"SET memory_limit = '{MOST_MEMORY}B'",
        ):
            self.connection.execute(setting).fetchall()
        self._sources: dict[str, _Source] = {}
        # By SQL, the name of the statement and its execution; the most recently used is last.
        self._planned: dict[str, tuple[str, duckdb.Statement]] = {}
        self._count = 0
        self.functions = 0
        """How many of the declared functions it has."""

    def take_functions(self) -> None:
        """Register the Python functions that expressions have named since the last call."""
        for name, function in list(sql_functions.DECLARED.items())[self.functions :]:
            self.functions += 1
            if function.of.is_aggregate:
                # Reductions call it; see `bound_query.bindable`.
                continue
            self.connection.create_function(
                name,
                function.call,
                list(function.of.parameters),
                function.of.returns,
                null_handling="special" if function.of.takes_null else "default",
            )

    def source(self, schema: pa.Schema) -> _Source:
        """The table that statements read under the name `source_of(schema)`."""
        name = source_of(schema)
        if name not in self._sources:
            self._sources[name] = _Source(schema)
            self.connection.register(name, self._sources[name])
        return self._sources[name]

    def planned(self, sql: str) -> duckdb.Statement:
        """The execution of a statement, which is planned once."""
        entry = self._planned.pop(sql, None) or self._prepared(sql)
        self._planned[sql] = entry
        return entry[1]

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
    """This thread's database, made at the first call."""
    if not hasattr(_local, "database"):
        _local.database = _Database()
    database: _Database = _local.database
    if database.functions < len(sql_functions.DECLARED):
        database.take_functions()
    return database


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's database in memory, which reaches no file and no network."""
    return _database().connection


@functools.lru_cache(maxsize=1024)
def source_of(schema: pa.Schema) -> str:
    """The name under which a statement reads a table of these columns."""
    return f"batch_{hashlib.sha256(str(schema).encode()).hexdigest()[:16]}"


def _interrupt(database: "weakref.ref[_Database]") -> None:
    if (alive := database()) is not None:
        alive.connection.interrupt()


BROKEN = (duckdb.FatalException, duckdb.InternalException)
"""A bug of DuckDB, which some values reach: its database refuses all later statements."""


def _forget() -> None:
    """Let the next statement of this thread have a new database."""
    _local.__dict__.pop("database", None)


class MemoryLimitError(Exception):
    """A statement needed more than `MOST_MEMORY`, although the machine has more."""


def rows_over(
    sql: str, table: pa.Table, operator: str = "", what: str = "an expression"
) -> list[tuple[Any, ...]]:
    """All rows of the answer of a statement that reads `source_of(table.schema)`.

    `operator` and `what` name it in the error if it does not return.

    Raises:
        MemoryLimitError: it wants more memory than it may have.
        StuckError: it did not return in time.
    """
    database = _database()
    source = database.source(table.schema)
    planned = database.planned(sql)
    source.table = table
    # The watcher must not keep the database alive.
    calls.begin((operator, what, functools.partial(_interrupt, weakref.ref(database))))
    try:
        with _limited():
            rows: list[tuple[Any, ...]] = database.connection.execute(planned).fetchall()
    except duckdb.InvalidInputException:
        ended = sql_functions.ended()
        if calls.was_stopped():
            raise calls.stuck() from None
        if ended is not None:
            raise ended from None
        raise
    except BROKEN:
        _forget()
        raise
    except UnicodeDecodeError as error:
        raise _with_all_of(error) from None
    except duckdb.InterruptException:
        if not calls.was_stopped():
            raise
        raise calls.stuck() from None
    except (duckdb.OutOfMemoryException, MemoryError):
        if not _has_memory():
            raise
        raise MemoryLimitError from None
    finally:
        calls.end()
        source.table = None
    return rows


_PAGE = resource.getpagesize()
# Statements that run at the same time in other threads share the limit of the first.
_limits = threading.Lock()


@contextmanager
def _limited() -> Iterator[None]:
    """Let this process grow by no more than `MOST_MEMORY` in a `with` block, on Linux.

    DuckDB has a separate limit, which does not count the results of functions of texts and lists.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if not _limits.acquire(blocking=False):
        yield
        return
    try:
        with suppress(OSError, ValueError):
            most = _data_bytes() + MOST_MEMORY
            if before[0] == resource.RLIM_INFINITY or most < before[0]:
                resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        _limits.release()


def _data_bytes() -> int:
    """The bytes of this process that the limit counts.  Raises: OSError."""
    # A small batch takes only half a millisecond, so files are not opened by pathlib.
    file = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(file, 200).split()[5]) * _PAGE
    finally:
        os.close(file)


def _has_memory() -> bool:
    """Whether the machine has as much free memory as a statement may use."""
    try:
        mmap.mmap(-1, MOST_MEMORY).close()
    except (OSError, ValueError, MemoryError):
        return False
    return True


def relation_of(sql: str, schema: pa.Schema) -> duckdb.DuckDBPyRelation:
    """The relation of a statement over a table of these columns, which is not executed."""
    _database().source(schema)
    return connection().sql(sql)


def rows_of(sql: str, *parameters: str | Sequence[str | None]) -> list[tuple[Any, ...]]:
    """All rows of a statement's answer."""
    try:
        rows: list[tuple[Any, ...]] = connection().execute(sql, list(parameters)).fetchall()
    except BROKEN:
        _forget()
        raise
    except UnicodeDecodeError as error:
        raise _with_all_of(error) from None
    return rows


def _with_all_of(error: UnicodeDecodeError) -> duckdb.ConversionException:
    """DuckDB's error about a value that its message quotes: bytes, or a part of a long text."""
    return duckdb.ConversionException(error.object.decode(errors="replace"))


def without_data(error: Exception) -> str:
    """The database's error message, without the values of the row that it quotes.

    Empty if our own SQL made it fail, by an exclamation mark in a text (`typed_json`).
    """
    line = first_line(error)
    if sql_functions.MARK_OF_ERROR in line:
        # The message of a user's function is kept whole.
        return line.partition(sql_functions.MARK_OF_ERROR)[2]
    said = _INTERNAL.split(line)[0].rstrip()
    if _SPOILT.search(said):
        return ""
    return _NUMBER.sub(lambda match: match["type"] or "…", _QUOTED.sub(r"\1…\1", said))


# From the first quote to the last one: the quoted text may have quotes in it.
_QUOTED = re.compile(r"""(?<!\w)(['"]).*\1(?!\w)""")
# Parts that DuckDB quotes of the statement, which depend on its other parts, and remedies.
_INTERNAL = re.compile(r" when casting from source column | in expression |\. Use TRY")
_SPOILT = re.compile(r"""['"]!|!['"]""")
_NUMBER = re.compile(r"(?P<type>DECIMAL\(\d+,\d+\))|(?<![\w.-])-?\d[\d.]*(?:[eE][+-]?\d+)?(?!\w)")


def first_line(error: Exception | str) -> str:
    """The first line of the database's error message, without the SQL text that it quotes."""
    line = sql_functions.with_short_names(str(error).strip().partition("\n")[0])
    # Its remedy is a setting of DuckDB, which pipelines do not have.
    return "it is nested too deeply" if line.startswith("Max expression depth") else line
