"""A sink for PostgreSQL: each batch is one transaction of all its tables and its token.

The updates of a batch are copied into temporary tables, consolidated, and merged into the tables
by a few statements.  The table `ikebana_sinks` has a row for each sink: its token, and its
generation, which each start increments.  A transaction begins with an update of the token in the
row of the sink's own generation, so an older instance finds no row, and stops.  That row is locked
until the transaction ends, so never two instances apply a batch at once.

The updates of a batch are in a temporary table; the temporary table `net` has their sum for each
row (and time, for a history), without zeros.  Then the statements are:

| mode | statements |
|---|---|
| `changes` | none: updates are copied into the table itself |
| `current` | add the counts of rows, and delete rows with count 0 |
| `current` with a key | delete keys without a row, and upsert the others |
| `history` | end the versions of rows or keys that change, and insert one for each change |
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeAlias

import psycopg
import pyarrow as pa
from psycopg import errors
from pyarrow import csv

from ikebana.codecs.sql_type import JSON, Decimal, Scalar, SqlType, parts
from ikebana.delivering.columns import in_sql
from ikebana.delivering.sink import (
    COUNT,
    DIFF,
    ID,
    TIME,
    VALID_FROM,
    VALID_TO,
    Batch,
    TargetAwayError,
    TargetTable,
)
from ikebana.errors import AccessError, ConfigError, FencedError, SourceError
from ikebana.processor.authoring.deliver_section import PostgresSection, cut_names
from ikebana.processor.base.arrow_json import is_readable
from ikebana.processor.linear.json_text import quoted

# Columns within statements; a table has none of such names.
_N, _PLUS, _ENDS = "ikebana_n", "ikebana_plus", "ikebana_ends"
_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "UTINYINT": "smallint",
    "INTEGER": "integer",
    "USMALLINT": "integer",
    "BIGINT": "bigint",
    "UINTEGER": "bigint",
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(38,0)",
    "UHUGEINT": "numeric(38,0)",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "BLOB": "bytea",
    "UUID": "uuid",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIME WITH TIME ZONE": "time with time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP_S": "timestamp without time zone",
    "TIMESTAMP_MS": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "INTERVAL": "interval",
    "JSON": "jsonb",
}


def postgres_type(kind: SqlType) -> str:
    """The type of PostgreSQL, by the name that PostgreSQL itself gives it.

    >>> from ikebana.codecs.sql_type import parsed
    >>> postgres_type(parsed("DECIMAL(9,2)")), postgres_type(parsed("BIGINT[]"))
    ('numeric(9,2)', 'jsonb')
    """
    if isinstance(kind, Decimal):
        return f"numeric({kind.width},{kind.scale})"
    if parts(kind):
        return "jsonb"
    return _TYPES.get(kind.name, "text") if isinstance(kind, Scalar) else "text"


class PostgresTable:
    """The SQL of one table; `number` makes the names of its temporary tables unique."""

    def __init__(self, number: int, table: TargetTable) -> None:
        # Nested values stay the JSON that they are in messages.
        self.table = replace(
            table,
            columns=tuple(
                replace(column, kind=JSON) if parts(column.kind) else column
                for column in table.columns
            ),
        )
        self.name = ".".join(map(quoted, table.name.split(".", 1)))
        self.types = {column.name: postgres_type(column.kind) for column in table.columns}
        self.types |= {name: "uuid" if name == ID else "bigint" for name in table.added}
        for problem in cut_names(table.name, self.types):
            raise ConfigError(
                f'table "{table.name}": {problem}',
                hint="Give it another name; a column has that of its source as `field`.",
            )
        self.copied = [column.name for column in table.columns]
        self.copied += [TIME, DIFF] if table.mode == "changes" else [ID, TIME, DIFF]
        self._staging, self._net = f"ikebana_staging_{number}", f"ikebana_net_{number}"
        self._columns = [quoted(column.name) for column in table.columns]
        self._key = [quoted(name) for name in table.key]
        self._identity = [quoted(name) for name in table.identity]

    @property
    def unique(self) -> tuple[str, ...]:
        """The columns of its primary key; empty in the mode `changes`."""
        if self.table.mode == "changes":
            return ()
        begins = (VALID_FROM,) if self.table.mode == "history" else ()
        return (*self.table.identity, *begins)

    def creation(self) -> Iterator[str]:
        """The statements that create it."""
        needed = {*self.unique, *self.table.added} - {VALID_TO}
        columns = [
            f"{quoted(name)} {kind}{' NOT NULL' if name in needed else ''}"
            for name, kind in self.types.items()
        ]
        if self.unique:
            columns.append(f"PRIMARY KEY ({_listed(map(quoted, self.unique))})")
        yield f"CREATE TABLE {self.name} ({_listed(columns)})"
        if self.table.mode == "history":
            keys = _listed(self._identity)
            yield f"CREATE UNIQUE INDEX ON {self.name} ({keys}) WHERE {VALID_TO} IS NULL"

    def addition(self, names: Iterable[str]) -> Iterator[str]:
        """The statements that add columns of the collection, null in the rows that are there."""
        for name in names:
            yield f"ALTER TABLE {self.name} ADD COLUMN {quoted(name)} {self.types[name]}"

    def temporary(self) -> Iterator[str]:
        """The statements that create the temporary tables of a session."""
        if self.table.mode == "changes":
            return
        columns = [
            f"{quoted(column.name)} {self.types[column.name]}" for column in self.table.columns
        ]
        columns += [f"{ID} uuid", f"{TIME} bigint", f"{DIFF} bigint"]
        for name in (self._staging, self._net):
            yield f"CREATE TEMPORARY TABLE {name} ({_listed(columns)}) ON COMMIT DELETE ROWS"

    def copy(self) -> str:
        """The COPY statement for the updates of a batch, as CSV of the columns `copied`."""
        into = self.name if self.table.mode == "changes" else self._staging
        columns = _listed(map(quoted, self.copied))
        return f"COPY {into} ({columns}) FROM STDIN WITH (FORMAT csv)"

    def consolidation(self) -> Iterator[str]:
        """The statements that sum the copied updates."""
        if self.table.mode == "changes":
            return
        # In the mode `current` the time of a sum is any of several, and is not used.
        by = f"{ID}, {TIME}" if self.table.mode == "history" else ID
        everything = _listed([*self._columns, ID, TIME])
        yield (
            f"INSERT INTO {self._net} SELECT {everything}, {_N} FROM (SELECT DISTINCT ON "
            f"({by}) *, sum({DIFF}) OVER (PARTITION BY {by}) AS {_N} FROM {self._staging}) AS s "
            f"WHERE {_N} <> 0"
        )
        yield f"ANALYZE {self._net}"

    def offence(self) -> str | None:
        """A query with a row for each key that would have neither one row nor none at a time."""
        if self.table.mode == "changes" or not self._key:
            return None
        key = _listed(self._key)
        standing = f" AND t.{VALID_TO} IS NULL" if self.table.mode == "history" else ""
        time = TIME if self.table.mode == "history" else "0::bigint"
        return (
            f"WITH changed AS (SELECT {key}, {time} AS {TIME}, sum({DIFF}) AS {DIFF}, "
            f"count(*) FILTER (WHERE {DIFF} > 0) AS {_PLUS} FROM {self._net} "
            f"GROUP BY {key}, {len(self._key) + 1}), "
            "counted AS (SELECT c.*, (SELECT count(*) FROM "
            f"{self.name} AS t WHERE {self._same('t', 'c')}{standing}) + sum(c.{DIFF}) OVER "
            f"(PARTITION BY {_listed(f'c.{each}' for each in self._key)} ORDER BY c.{TIME}) "
            f"AS {_N} FROM changed AS c) "
            f"SELECT {key} FROM counted WHERE {_N} NOT IN (0, 1) OR {_PLUS} > 1 LIMIT 1"
        )

    def merge(self) -> Iterator[str]:
        """The statements that apply the sums to the table."""
        if self.table.mode == "history":
            yield self._versions()
        elif self.table.mode == "current":
            yield from self._upsert() if self._key else self._count()

    def _upsert(self) -> Iterator[str]:
        key = _listed(self._key)
        yield (
            f"DELETE FROM {self.name} AS t USING {self._net} AS n WHERE n.{DIFF} < 0 AND "
            f"{self._same('t', 'n')} AND NOT EXISTS (SELECT FROM {self._net} AS p WHERE "
            f"p.{DIFF} > 0 AND {self._same('p', 'n')})"
        )
        others = [each for each in self._columns if each not in self._key]
        update = _listed(f"{each} = excluded.{each}" for each in others)
        action = f"UPDATE SET {update}" if others else "NOTHING"
        columns = _listed(self._columns)
        yield (
            f"INSERT INTO {self.name} ({columns}) SELECT {columns} FROM {self._net} "
            f"WHERE {DIFF} > 0 ON CONFLICT ({key}) DO {action}"
        )

    def _count(self) -> Iterator[str]:
        columns = _listed([*self._columns, ID])
        yield (
            f"INSERT INTO {self.name} AS t ({columns}, {COUNT}) SELECT {columns}, {DIFF} FROM "
            f"{self._net} ON CONFLICT ({ID}) DO UPDATE SET {COUNT} = t.{COUNT} + excluded.{COUNT}"
        )
        yield (
            f"DELETE FROM {self.name} AS t USING {self._net} AS n "
            f"WHERE {self._same('t', 'n')} AND t.{COUNT} = 0"
        )

    def _versions(self) -> str:
        counted, by, into = self.table.counted, _listed(self._identity), self.name
        columns = [*self._columns, *([ID] if counted else [])]
        counts = [COUNT] if counted else []
        # Of a deleted and an inserted row of a key at one time, the inserted one.
        changed = "SELECT *" if counted else f"SELECT DISTINCT ON ({by}, {TIME}) *"
        order = "" if counted else f" ORDER BY {by}, {TIME}, {DIFF} DESC"
        count = f"coalesce(e.{COUNT}, 0) + sum(c.{DIFF}) OVER w" if counted else f"c.{DIFF}"
        returned = _listed(f"t.{each}" for each in (*self._identity, *counts))
        return (
            f"WITH changed AS ({changed} FROM {self._net}{order}), "
            f"first AS (SELECT {by}, min({TIME}) AS {TIME} FROM changed GROUP BY {by}), "
            f"ended AS (UPDATE {into} AS t SET {VALID_TO} = first.{TIME} FROM first WHERE "
            f"{self._same('t', 'first')} AND t.{VALID_TO} IS NULL RETURNING {returned}) "
            f"INSERT INTO {into} ({_listed([*columns, VALID_FROM, VALID_TO, *counts])}) "
            f"SELECT {_listed([*columns, TIME, _ENDS, *([_N] if counted else [])])} FROM "
            f"(SELECT c.*, {count} AS {_N}, lead(c.{TIME}) OVER w AS {_ENDS} FROM changed AS c "
            f"LEFT JOIN ended AS e ON {self._same('e', 'c')} WINDOW w AS (PARTITION BY "
            f"{_listed(f'c.{each}' for each in self._identity)} ORDER BY c.{TIME})) AS v "
            f"WHERE {_N} {'<>' if counted else '>'} 0"
        )

    def _same(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{each} = {other}.{each}" for each in self._identity)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


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

    def open(self, tables: Sequence[TargetTable]) -> str | None:
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
            raise SourceError(
                f'sink "{self.name}": table "{table}"{_place(error)}: {_words(error)}',
                hint="PostgreSQL cannot hold a value there, or a null in a key: give the column "
                "another type, leave `key` out, or let the pipeline change the value.",
            ) from error
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
            columns.append(column if is_readable(column) else in_sql(column))
    sink = io.BytesIO()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, rows.schema.names), sink, _CSV)
    return sink.getvalue()


def _columns(cursor: _Cursor, name: str) -> dict[str, tuple[str, bool, bool]] | None:
    """The columns of a table: type, whether it needs a value, whether PostgreSQL makes one.

    None without a table.
    """
    cursor.execute("SELECT to_regclass(%s)::oid", (name,))
    [(oid,)] = cursor.fetchall()
    if oid is None:
        return None
    cursor.execute(
        "SELECT attname, format_type(atttypid, atttypmod), "
        "attnotnull, atthasdef OR attidentity <> '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        (oid,),
    )
    return {
        column: (kind, needed, defaults) for column, kind, needed, defaults in cursor.fetchall()
    }


def _refuse(table: PostgresTable, columns: dict[str, tuple[str, bool, bool]]) -> None:
    name = table.table.name
    for column, kind in table.types.items():
        there, *_ = columns.get(column, (None,))
        if there is None and _may_be_added(table, column):
            continue
        if there != kind:
            said = f"is {there}" if there else "is missing, and tells rows apart"
            raise ConfigError(
                f'table "{name}" does not fit: its column "{column}" {said}; it has to be {kind}',
                hint="Change the column, or name a table that is not there yet.",
            )
    for column, (_, needed, defaults) in columns.items():
        if column in table.types or defaults:
            continue
        if needed:
            raise ConfigError(
                f'table "{name}" does not fit: its column "{column}" needs a value, and mode '
                f"{table.table.mode} has none for it"
            )
        if table.table.counted:
            raise ConfigError(
                f'table "{name}" does not fit: the collection has no column "{column}", and rows '
                "without a key are told apart by all columns",
                hint="Name a table that is not there yet.",
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
    """The database's message, in one line, without the value that it quotes at its end."""
    line = (error.diag.message_primary or str(error)).strip().splitlines()[0]
    return re.sub(r': ".*"$', "", line)


def _place(error: psycopg.Error) -> str:
    """The column that could not be copied, if the database names it."""
    match = re.search(r"^COPY .*, column (.+?)(: \"|$)", error.diag.context or "", re.MULTILINE)
    return "" if match is None else f', column "{match[1]}"'


def sink(name: str, section: PostgresSection) -> PostgresSink:
    """Make the sink of a section `postgres`."""
    return PostgresSink(name, section.connection)
