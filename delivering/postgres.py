"""A sink for PostgreSQL: each batch is one transaction of all its tables and its token.

The updates of a batch are copied into temporary tables, consolidated, and merged into the tables
by a few statements (`postgres_table`).  The table `ikebana_sinks` has a row for each sink: its
token, and its generation, which each start increments.  A transaction begins with an update of the
token in the row of the sink's own generation, so an older instance finds no row, and stops.  That
row is locked until the transaction ends, so never two instances apply a batch at once.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
import pyarrow as pa
from psycopg import errors
from pyarrow import csv

from ikebana.delivering.postgres_table import PostgresTable
from ikebana.delivering.sink import Batch, Table, TargetAwayError
from ikebana.errors import AccessError, ConfigError, FencedError, SourceError
from ikebana.processor.authoring.deliver_part import PostgresPart

CONTROL = "ikebana_sinks"
# The time that a start waits for a transaction of the previous instance.
_LOCK_S = 30
_SESSION: dict[str, Any] = {
    "connect_timeout": 10,
    # If the server is gone, a connection fails within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "ikebana deliver",
    # If a client is gone unnoticed, the server ends its transaction, and the next one can start.
    "options": f"-c timezone=UTC -c lock_timeout={_LOCK_S}s "
    f"-c idle_in_transaction_session_timeout={_LOCK_S}s",
}
_CSV = csv.WriteOptions(include_header=False)
_Cursor: TypeAlias = "psycopg.Cursor[Any]"


class PostgresSink:
    """Applies batches to tables of one database.

    `conninfo` is a connection string of libpq, such as `host=db dbname=shop`, or a URL; other
    parameters come from libpq's variables and files, such as PGPASSWORD.  The name of a table may
    have a schema, as in `shop.orders`.
    """

    def __init__(self, name: str, conninfo: str) -> None:
        self.name = name
        self._conninfo = conninfo
        self._connection: psycopg.Connection[Any] | None = None
        self._generation = 0
        self._tables: list[PostgresTable] = []

    def open(self, tables: Sequence[Table]) -> str | None:
        self.close()
        self._tables = [PostgresTable(number, table) for number, table in enumerate(tables)]
        with self._errors():
            self._connection = connection = psycopg.connect(self._conninfo, **_SESSION)
            with connection.transaction(), connection.cursor() as cursor:
                token, before = self._take_over(cursor)
                for statement in self._completion(cursor, token, before):
                    cursor.execute(statement)
            with connection.transaction(), connection.cursor() as cursor:
                for each in self._tables:
                    for statement in each.temporary():
                        cursor.execute(statement)
        return token

    def apply(self, batch: Batch) -> None:
        connection = self._connection
        assert connection is not None, "the sink is not open"
        with self._errors(), connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {CONTROL} SET token = %s, upper = %s, applied = now() "
                "WHERE name = %s AND generation = %s",
                (batch.token, batch.upper, self.name, self._generation),
            )
            if cursor.rowcount != 1:
                raise FencedError(
                    f'sink "{self.name}" stops: a newer instance of it has taken over'
                )
            for table in self._tables:
                if batch.count(table.table):
                    with self._errors(table.table.name):
                        _write(cursor, table, batch)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _take_over(self, cursor: _Cursor) -> tuple[str | None, dict[str, str]]:
        """Increment the generation; return the token, and the stored tables with their topics."""
        # The lock lets only one of two concurrent starts create tables.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (CONTROL,))
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {CONTROL} (name text PRIMARY KEY, generation bigint "
            "NOT NULL, tables jsonb NOT NULL, token text, upper bigint, applied timestamptz)"
        )
        listed = self._listed()
        cursor.execute(
            f"INSERT INTO {CONTROL} AS s (name, generation, tables) VALUES (%s, 1, %s) "
            "ON CONFLICT (name) DO UPDATE SET generation = s.generation + 1, "
            # The tables may change until something was delivered.
            "tables = CASE WHEN s.token IS NULL THEN excluded.tables ELSE s.tables END "
            "RETURNING generation, token, tables",
            (self.name, json.dumps(listed)),
        )
        [(self._generation, token, before)] = cursor.fetchall()
        return token, before

    def _listed(self) -> dict[str, str]:
        return {each.table.name: each.table.collection for each in self._tables}

    def _completion(self, cursor: _Cursor, token: str | None, before: dict[str, str]) -> list[str]:
        """Refuse tables that do not fit; return the statements that add what is missing."""
        missing: list[PostgresTable] = []
        statements: list[str] = []
        for each in self._tables:
            name = each.table.name
            columns = _columns(cursor, each.name)
            if columns is None:
                missing.append(each)
                statements += each.creation()
                continue
            _refuse(each, columns)
            statements += each.addition(column for column in each.types if column not in columns)
            if each.unique and not _is_unique(cursor, each):
                raise ConfigError(
                    f'table "{name}" has no primary key or unique index of exactly '
                    f"{', '.join(each.unique)}",
                )
            if token is None:
                cursor.execute(f"SELECT FROM {each.name} LIMIT 1")
                if cursor.fetchone() is not None:
                    raise ConfigError(
                        f'table "{name}" has rows, and sink "{self.name}" has delivered none yet',
                        hint="Empty the table, or name another one.",
                    )
        if before != (listed := self._listed()):
            raise ConfigError(
                f'sink "{self.name}" cannot go on: it has delivered {_in_words(before)}, and is '
                f"to deliver {_in_words(listed)}",
                hint="Deliver other tables by a sink of another name.",
            )
        if missing and token is not None:
            raise ConfigError(
                f'table "{missing[0].table.name}" is gone, into which sink "{self.name}" has '
                "delivered",
                hint="Deliver everything again by a sink of another name.",
            )
        return statements

    @contextmanager
    def _errors(self, table: str | None = None) -> Iterator[None]:
        """Within a `with` block, raise errors of the database as errors of ikebana."""
        try:
            yield
        except (errors.DataError, errors.IntegrityError, errors.CardinalityViolation) as error:
            raise SourceError(f'sink "{self.name}": table "{table}": {_words(error)}') from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise TargetAwayError(f'sink "{self.name}" waits: {_words(error)}') from error
        except errors.InsufficientPrivilege as error:
            raise AccessError(
                f'sink "{self.name}" may not do what it has to: {_words(error)}',
                hint="It needs CREATE on the schema, or all tables with SELECT, INSERT, UPDATE "
                f"and DELETE, {CONTROL} among them, and TEMPORARY on the database. To add a "
                "column it has to own the table.",
            ) from error
        except psycopg.ProgrammingError as error:
            raise ConfigError(f'sink "{self.name}": {_words(error)}') from error


def _write(cursor: _Cursor, table: PostgresTable, batch: Batch) -> None:
    with cursor.copy(table.copy()) as copy:
        for rows in batch.updates(table.table):
            copy.write(_as_csv(rows))
    for statement in table.consolidation():
        cursor.execute(statement)
    if (offence := table.offence()) is not None:
        cursor.execute(offence)
        if (key := cursor.fetchone()) is not None:
            named = ", ".join(f"{n} = {v}" for n, v in zip(table.table.key, key, strict=True))
            raise SourceError(
                f'table "{table.table.name}" cannot have one row for each key: the collection '
                f'"{table.table.collection}" has several, or the table was changed, where {named}',
                hint="Leave `key` out: then the table has all rows, with their counts.",
            )
    for statement in table.merge():
        cursor.execute(statement)


def _as_csv(rows: pa.RecordBatch) -> bytes:
    """Rows as CSV; bytes as PostgreSQL writes them."""
    columns = []
    for column in rows.columns:
        if pa.types.is_fixed_size_binary(column.type):
            columns.append(pa.array([each.hex() for each in column.to_pylist()], pa.string()))
        elif pa.types.is_binary(column.type):
            texts = [None if each is None else f"\\x{each.hex()}" for each in column.to_pylist()]
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(column)
    sink = io.BytesIO()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, rows.schema.names), sink, _CSV)
    return sink.getvalue()


def _columns(cursor: _Cursor, name: str) -> dict[str, tuple[str, bool]] | None:
    """The columns of a table: type, and whether a value is required; None without a table."""
    cursor.execute("SELECT to_regclass(%s)::oid", (name,))
    [(oid,)] = cursor.fetchall()
    if oid is None:
        return None
    cursor.execute(
        "SELECT attname, format_type(atttypid, atttypmod), "
        "attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        (oid,),
    )
    return {column: (kind, needed) for column, kind, needed in cursor.fetchall()}


def _refuse(table: PostgresTable, columns: dict[str, tuple[str, bool]]) -> None:
    name = table.table.name
    for column, kind in table.types.items():
        there, _ = columns.get(column, (None, False))
        if there is None and _may_be_added(table, column):
            continue
        if there != kind:
            said = f"is {there}" if there else "is missing, and tells rows apart"
            raise ConfigError(
                f'table "{name}" does not fit: its column "{column}" {said}; it has to be {kind}',
                hint="Change the column, or name a table that is not there yet.",
            )
    for column, (_, needed) in columns.items():
        if needed and column not in table.types:
            raise ConfigError(
                f'table "{name}" does not fit: its column "{column}" needs a value, and mode '
                f"{table.table.mode} has none for it"
            )


def _may_be_added(table: PostgresTable, column: str) -> bool:
    """Whether a table may get a column; one without a key tells rows apart by all columns."""
    return not (table.table.counted or column in table.table.key or column in table.table.added)


def _is_unique(cursor: _Cursor, table: PostgresTable) -> bool:
    cursor.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index AS i JOIN pg_attribute AS a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
        "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL "
        "GROUP BY i.indexrelid",
        (table.name,),
    )
    return any(sorted(names) == sorted(table.unique) for (names,) in cursor.fetchall())


def _in_words(tables: dict[str, str]) -> str:
    return ", ".join(f"{topic} into {name}" for name, topic in tables.items())


def _words(error: psycopg.Error) -> str:
    """The database's message, in one line."""
    return (error.diag.message_primary or str(error)).strip().splitlines()[0]


def sink(name: str, part: PostgresPart) -> PostgresSink:
    """Make the sink of a section `postgres`."""
    return PostgresSink(name, part.connection)
