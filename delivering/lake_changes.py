"""The changes of a batch to a table of files: removed rows, by their identity, and added rows.

Tables of files (Iceberg, Delta, Parquet) have no keys and no cheap lookups.  A batch is first
summed up in a DuckDB database that spills to disk, so it may be larger than memory.  A row's
identity is the key of its table, or its id if there is no key:

| mode | removed rows | added rows |
|---|---|---|
| `current` with a key | rows with a negative sum | rows with a positive sum |
| `current` | all rows with a sum | the same rows with their old count plus the sum |
| `changes` | none | the updates |
| `history` | valid rows that end | the same rows with their end, and each new interval |

In a history only valid rows, which have no end, are looked up and removed.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from ikebana.delivering.sink import COUNT, DIFF, ID, TIME, VALID_FROM, VALID_TO, Table
from ikebana.errors import SourceError
from ikebana.processor.linear.json_text import quoted

Scan = Callable[[Sequence[str]], Iterable[pa.Table]]
"""Reads some columns of the table in the target."""
# Columns of temporary tables, with names that no collection has.
_N, _N0, _SUM, _FIRST, _BEFORE = (f"ikebana_{name}" for name in ("n", "n0", "sum", "first", "c0"))
_ROWS = 65_536
_MEMORY = "1GiB"


class Changes:
    """The changes of one table by one batch, in memory and files until `close`.

    Raises:
        SourceError: the updates give several rows for a key.
    """

    def __init__(
        self, table: Table, updates: Iterable[pa.RecordBatch], since: int | None, scan: Scan
    ) -> None:
        """Sum up the updates at or after `since`; the target has the earlier ones already."""
        self.table = table
        self.schema = table.stored
        self._folder = tempfile.TemporaryDirectory(prefix="ikebana-lake-")
        config = {"temp_directory": self._folder.name, "memory_limit": _MEMORY, "threads": 2}
        self._database = duckdb.connect(":memory:", config=config)
        try:
            _run(self._database, "SET TimeZone = 'UTC'")
            self._load(updates, since)
            _Sums(self._database, table).make(scan)
        except BaseException:
            self.close()
            raise

    @property
    def removes(self) -> bool:
        """Whether any rows are removed."""
        return bool(_run(self._database, "SELECT 1 FROM removed LIMIT 1"))

    def removed(self) -> pa.Table:
        """The identities of the removed rows, each once."""
        return self._database.sql("SELECT * FROM removed").to_arrow_table()

    def bounds(self) -> tuple[Any, Any] | None:
        """The bounds of the first column of removed identities; None if one is null."""
        first = quoted(self.table.identity[0])
        [(least, greatest, whole)] = _run(
            self._database,
            f"SELECT min({first}), max({first}), count(*) = count({first}) FROM removed",
        )
        return (least, greatest) if whole else None

    def added(self) -> Iterator[pa.RecordBatch]:
        """Yield the added rows."""
        names = _listed(self.schema.names)
        reader = self._database.sql(f"SELECT {names} FROM added").to_arrow_reader(_ROWS)
        for rows in reader:
            yield rows.cast(self.schema)

    def hit(self, rows: pa.Table) -> int:
        """Count removed rows among some rows, which need the identity columns and `VALID_TO`."""
        self._database.register("scanned", rows)
        [(count,)] = _run(
            self._database, f"SELECT count(*) FROM scanned s SEMI JOIN {self._gone()}"
        )
        return int(count)

    def left(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are not removed; all of them in the mode `changes`."""
        if not self.removes:
            return rows
        self._database.register("scanned", rows)
        rest = self._database.sql(f"SELECT s.* FROM scanned s ANTI JOIN {self._gone()}")
        return rest.to_arrow_table().cast(rows.schema)

    def close(self) -> None:
        """Delete everything."""
        self._database.close()
        self._folder.cleanup()

    def _load(self, updates: Iterable[pa.RecordBatch], since: int | None) -> None:
        self._database.register("arriving", self.table.schema.empty_table())
        _make(self._database, "updates", "SELECT * FROM arriving")
        condition = "" if since is None else f" WHERE {TIME} >= {since}"
        for chunk in updates:
            self._database.register("arriving", pa.Table.from_batches([chunk]))
            _run(self._database, f"INSERT INTO updates SELECT * FROM arriving{condition}")

    def _gone(self) -> str:
        valid = f" AND s.{VALID_TO} IS NULL" if VALID_TO in self.schema.names else ""
        return f"removed r ON {_same(self.table, 's', 'r')}{valid}"


class _Sums:
    """Makes the tables `removed` and `added` of the table `updates`, in a database."""

    def __init__(self, database: duckdb.DuckDBPyConnection, table: Table) -> None:
        self.table = table
        self._database = database
        self._schema = table.stored
        self._identity = _listed(table.identity)
        self._columns = _listed([column.name for column in table.columns])

    def make(self, scan: Scan) -> None:
        """Make both tables, by the table's mode."""
        if self.table.mode == "changes":
            self._make("removed", "SELECT 0 AS nothing WHERE false")
            _run(self._database, "ALTER TABLE updates RENAME TO added")
        elif self.table.mode == "history":
            self._history(scan)
        elif self.table.counted:
            self._counted(scan)
        else:
            self._keyed(scan)

    def _keyed(self, scan: Scan) -> None:
        self._sum("")
        self._look_up(scan, self.table.key, "sums")
        # A key has a removed row exactly if the target has a row of it.
        self._make("there", f"SELECT *, true AS {_BEFORE} FROM found")
        self._refuse_several(
            f"(SELECT s.*, {_BEFORE} FROM sums s LEFT JOIN there f "
            f"ON {_same(self.table, 's', 'f')}) "
            f"GROUP BY ALL HAVING sum(greatest({_N}, 0)) > 1 OR "
            f"sum(least({_N}, 0)) <> CASE WHEN bool_or({_BEFORE}) THEN -1 ELSE 0 END"
        )
        self._make("removed", f"SELECT {self._identity} FROM sums WHERE {_N} < 0")
        self._make("added", f"SELECT {self._columns} FROM sums WHERE {_N} > 0")

    def _counted(self, scan: Scan) -> None:
        self._sum("")
        self._look_up(scan, [ID, COUNT], "sums")
        self._make("removed", f"SELECT {ID} FROM found")
        count = f"coalesce(f.{COUNT}, 0) + {_N}"
        self._make(
            "added",
            f"SELECT s.*, {count} AS {COUNT} FROM sums s LEFT JOIN found f "
            f"ON {_same(self.table, 's', 'f')} WHERE {count} <> 0",
        )

    def _history(self, scan: Scan) -> None:
        """Split the time of each row at its updates into intervals with one count each."""
        counted = self.table.counted
        self._sum(f", {TIME}")
        self._make(
            "steps",
            f"SELECT *, sum({_N}) OVER w AS {_SUM}, lead({TIME}) OVER w AS {VALID_TO}, "
            f"row_number() OVER w = 1 AS {_FIRST}, first_value({_N}) OVER w AS {_N0} "
            f"FROM sums WINDOW w AS (PARTITION BY {ID} ORDER BY {TIME})",
        )
        fields = [*self.table.identity, *([COUNT] if counted else []), VALID_FROM]
        self._look_up(scan, fields, "steps")
        # A key's row exists or not before the batch, as the sign of its first update shows.
        before = f"coalesce(f.{COUNT}, 0)" if counted else f"CASE WHEN {_N0} < 0 THEN 1 ELSE 0 END"
        self._make(
            "joined",
            f"SELECT s.*, {before} AS {_BEFORE}, f.{VALID_FROM} FROM steps s "
            f"LEFT JOIN found f ON {_same(self.table, 's', 'f')}",
        )
        if not counted:
            # A key has a removed row exactly if the target has a valid row of it.
            self._refuse_several(
                f"joined GROUP BY ALL HAVING bool_or({_BEFORE} + {_SUM} NOT IN (0, 1)) OR "
                f"bool_or({_BEFORE} > 0) <> bool_or({VALID_FROM} IS NOT NULL)"
            )
        self._make("removed", f"SELECT DISTINCT {self._identity} FROM joined WHERE {_BEFORE} <> 0")
        names = f"{self._columns}, {ID}" if counted else self._columns
        was, now = (f", {_BEFORE} AS {COUNT}", f", {_BEFORE} + {_SUM}") if counted else ("", "")
        self._make(
            "added",
            f"SELECT {names}{was}, {VALID_FROM}, {TIME} AS {VALID_TO} FROM joined "
            f"WHERE {_FIRST} AND {_BEFORE} <> 0 UNION ALL "
            f"SELECT {names}{now}, {TIME}, {VALID_TO} FROM joined WHERE {_BEFORE} + {_SUM} <> 0",
        )
        if not counted:
            valid = f"added WHERE {VALID_TO} IS NULL"
            self._refuse_several(f"{valid} GROUP BY ALL HAVING count(*) > 1")

    def _sum(self, by: str) -> None:
        """Make the table `sums`: the sum of each row's updates, if it is not zero."""
        columns = [quoted(column.name) for column in self.table.columns]
        any_of = ", ".join(f"any_value({name}) AS {name}" for name in columns)
        self._make(
            "sums",
            f"SELECT {any_of}, {ID}{by}, sum({DIFF}) AS {_N} FROM updates "
            f"GROUP BY {ID}{by} HAVING {_N} <> 0",
        )

    def _look_up(self, scan: Scan, names: Sequence[str], source: str) -> None:
        """Make the table `found`: the target's valid rows with identities in table `source`."""
        fields = [self._schema.field(name) for name in names]
        self._database.register("scanned", pa.schema(fields).empty_table())
        self._make("found", "SELECT * FROM scanned")
        ends = [VALID_TO] if VALID_TO in self._schema.names else []
        valid = f" WHERE {VALID_TO} IS NULL" if ends else ""
        for rows in scan([*names, *ends]):
            self._database.register("scanned", rows)
            _run(
                self._database,
                f"INSERT INTO found SELECT {_listed(names)} FROM scanned s "
                f"SEMI JOIN {source} w ON {_same(self.table, 's', 'w')}{valid}",
            )

    def _refuse_several(self, rows: str) -> None:
        offences = _run(self._database, f"SELECT {self._identity} FROM {rows} LIMIT 1")
        if offences:
            named = ", ".join(map(repr, offences[0]))
            raise SourceError(
                f'cannot deliver "{self.table.collection}" to table "{self.table.name}": the key '
                f"({', '.join(self.table.key)}) = ({named}) has several rows",
                hint="Name more columns as the key, or none: equal rows are then counted.",
            )

    def _make(self, name: str, select: str) -> None:
        _make(self._database, name, select)


def _same(table: Table, one: str, other: str) -> str:
    return " AND ".join(
        f"{one}.{quoted(name)} IS NOT DISTINCT FROM {other}.{quoted(name)}"
        for name in table.identity
    )


def _make(database: duckdb.DuckDBPyConnection, name: str, select: str) -> None:
    _run(database, f"CREATE TEMP TABLE {name} AS {select}")


def _run(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = database.execute(sql).fetchall()
    return rows


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
