"""The SQL of a PostgreSQL table: its creation, and the statements of a batch.  Pure.

The updates of a batch are in a temporary table; the temporary table `net` has their sum for each
row (and time, for a history), without zeros.  Then the statements are:

| mode | statements |
|---|---|
| `changes` | none: updates are copied into the table itself |
| `current` | add the counts of rows, and delete rows with count 0 |
| `current` with a key | delete keys without a row, and upsert the others |
| `history` | end the versions of rows or keys that change, and insert one for each change |
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ikebana.codecs.sql_type import JSON, Decimal, Scalar, SqlType, parts
from ikebana.delivering.sink import COUNT, DIFF, ID, TIME, VALID_FROM, VALID_TO, Table
from ikebana.processor.linear.json_text import quoted

# Columns within statements, with names that no collection has.
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

    def __init__(self, number: int, table: Table) -> None:
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
