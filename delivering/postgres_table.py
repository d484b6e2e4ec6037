"""The SQL of a PostgreSQL table: its creation, and the statements of a batch.  Pure.

The updates of a batch are in a temporary table; the temporary table `net` has their sum for each
row (and time, for a history), without zeros.  Then the statements are:

| mode | statements |
|---|---|
| `changes` | none: updates are copied into the table itself |
| `current` | add the counts of rows, and delete rows with count 0 |
| `current` with a key | delete keys without a row, and upsert the others |
| `history` | end the versions of rows that change, and insert one for each change of a count |
| `history` with a key | the same for each key |
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ikebana.codecs.sql_type import JSON, Decimal, Scalar, SqlType, parts
from ikebana.delivering.sink import COUNT, DIFF, ID, TIME, VALID_FROM, VALID_TO, Table
from ikebana.processor.linear.json_text import quoted

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

    @property
    def unique(self) -> tuple[str, ...]:
        """The columns of its primary key; empty in the mode `changes`."""
        if self.table.mode == "changes":
            return ()
        columns = self.table.key or (ID,)
        return (*columns, VALID_FROM) if self.table.mode == "history" else columns

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
            keys = _listed(self._key or [ID])
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
            f"INSERT INTO {self._net} SELECT {everything}, total FROM (SELECT DISTINCT ON "
            f"({by}) *, sum({DIFF}) OVER (PARTITION BY {by}) AS total FROM {self._staging}) AS s "
            "WHERE total <> 0"
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
            f"WITH changed AS (SELECT {key}, {time} AS time, sum({DIFF}) AS diff, "
            f"count(*) FILTER (WHERE {DIFF} > 0) AS plus FROM {self._net} "
            f"GROUP BY {key}, {len(self._key) + 1}), "
            "counted AS (SELECT c.*, (SELECT count(*) FROM "
            f"{self.name} AS t WHERE {self._same('t', 'c')}{standing}) + sum(c.diff) OVER "
            f"(PARTITION BY {_listed(f'c.{each}' for each in self._key)} ORDER BY c.time) AS rows "
            f"FROM changed AS c) SELECT {key} FROM counted WHERE rows NOT IN (0, 1) OR plus > 1 "
            "LIMIT 1"
        )

    def merge(self) -> Iterator[str]:
        """The statements that apply the sums to the table."""
        match self.table.mode, bool(self._key):
            case "current", True:
                yield from self._upsert()
            case "current", False:
                yield from self._count()
            case "history", True:
                yield self._versions_of_keys()
            case "history", False:
                yield self._versions_of_rows()

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
            f"WHERE t.{ID} = n.{ID} AND t.{COUNT} = 0"
        )

    def _versions_of_rows(self) -> str:
        columns = _listed([*self._columns, ID])
        qualified = _listed(f"n.{each}" for each in (*self._columns, ID))
        return (
            f"WITH first AS (SELECT {ID}, min({TIME}) AS time FROM {self._net} GROUP BY {ID}), "
            f"ended AS (UPDATE {self.name} AS t SET {VALID_TO} = first.time FROM first WHERE "
            f"t.{ID} = first.{ID} AND t.{VALID_TO} IS NULL RETURNING t.{ID}, t.{COUNT}) "
            f"INSERT INTO {self.name} ({columns}, {COUNT}, {VALID_FROM}, {VALID_TO}) "
            f"SELECT {columns}, count, begun, ends FROM (SELECT {qualified}, n.{TIME} AS begun, "
            f"coalesce(e.{COUNT}, 0) + sum(n.{DIFF}) OVER changes AS count, "
            f"lead(n.{TIME}) OVER changes AS ends FROM {self._net} AS n LEFT JOIN ended AS e "
            f"ON e.{ID} = n.{ID} WINDOW changes AS (PARTITION BY n.{ID} ORDER BY n.{TIME})) AS v "
            "WHERE count <> 0"
        )

    def _versions_of_keys(self) -> str:
        key, columns = _listed(self._key), _listed(self._columns)
        # Of a deleted and an inserted row of a key at one time, the inserted one.
        return (
            f"WITH changed AS (SELECT DISTINCT ON ({key}, {TIME}) * FROM {self._net} "
            f"ORDER BY {key}, {TIME}, {DIFF} DESC), "
            f"first AS (SELECT {key}, min({TIME}) AS time FROM changed GROUP BY {key}), "
            f"ended AS (UPDATE {self.name} AS t SET {VALID_TO} = first.time FROM first WHERE "
            f"{self._same('t', 'first')} AND t.{VALID_TO} IS NULL "
            f"RETURNING {_listed(f't.{each}' for each in self._key)}) "
            f"INSERT INTO {self.name} ({columns}, {VALID_FROM}, {VALID_TO}) "
            f"SELECT {columns}, {TIME}, ends FROM (SELECT c.*, lead(c.{TIME}) OVER "
            f"(PARTITION BY {_listed(f'c.{each}' for each in self._key)} ORDER BY c.{TIME}) "
            f"AS ends FROM changed AS c LEFT JOIN ended AS e ON {self._same('e', 'c')}) AS v "
            f"WHERE {DIFF} > 0"
        )

    def _same(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{each} = {other}.{each}" for each in self._key)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
