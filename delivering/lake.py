"""Tables of files as targets: the sink that all of their formats share.

Each table has the token of the last batch in the metadata of the commit that applied it, so both
are there or neither is.  There is no transaction over several tables: after a crash between two
commits, one table has a batch that the other lacks.  The sink then continues at the earlier token,
and skips, by their times, the updates that a table has already.

A new instance commits its name to every table, without changing rows.  A commit of an earlier
instance then conflicts with it, and the earlier instance stops.  A commit that conflicts with
another writer's, such as a compaction, is repeated over the present table.

Tables of files (Iceberg, Delta, Parquet) have no keys and no cheap lookups.  The changes of a
batch are first summed up in a DuckDB database that spills to disk, so it may be larger than
memory.  A row's identity is the key of its table, or its id if there is no key:

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
from contextlib import closing, contextmanager
from typing import Any, Protocol
from uuid import uuid4

import duckdb
import msgspec
import pyarrow as pa

from ikebana.codecs.encodings import INTEGERS
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
from ikebana.processor.base.arrow_json import is_readable
from ikebana.processor.linear.json_text import quoted

ScanTarget = Callable[[Sequence[str]], Iterable[pa.Table]]
"""Reads some columns of the table in the target."""
# Columns of temporary tables; a table has none of such names.
_N, _N0, _SUM, _FIRST, _BEFORE = (f"ikebana_{name}" for name in ("n", "n0", "sum", "first", "c0"))
_ROWS = 65_536
_MEMORY = "1GiB"


class TableChanges:
    """The changes of one table by one batch, in memory and files until `close`.

    Raises:
        SourceError: the updates give several rows for a key.
    """

    def __init__(
        self,
        table: TargetTable,
        updates: Iterable[pa.RecordBatch],
        since: int | None,
        scan: ScanTarget,
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
            self._refuse_unreadable(chunk)
            self._database.register("arriving", pa.Table.from_batches([chunk]))
            _run(self._database, f"INSERT INTO updates SELECT * FROM arriving{condition}")

    def _refuse_unreadable(self, chunk: pa.RecordBatch) -> None:
        for name, column in zip(chunk.schema.names, chunk.columns, strict=True):
            if not is_readable(column):
                raise SourceError(
                    f'cannot deliver "{self.table.collection}" to table "{self.table.name}": a '
                    f'value of column "{name}" is infinite, 24:00:00, or not of the years 1 to '
                    "9999",
                    hint="Tables of files cannot hold it: give the column the type VARCHAR.",
                )

    def _gone(self) -> str:
        valid = f" AND s.{VALID_TO} IS NULL" if VALID_TO in self.schema.names else ""
        return f"removed r ON {_same(self.table, 's', 'r')}{valid}"


class _Sums:
    """Makes the tables `removed` and `added` of the table `updates`, in a database."""

    def __init__(self, database: duckdb.DuckDBPyConnection, table: TargetTable) -> None:
        self.table = table
        self._database = database
        self._schema = table.stored
        self._identity = _listed(table.identity)
        self._columns = _listed([column.name for column in table.columns])

    def make(self, scan: ScanTarget) -> None:
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
        if self.table.counted:
            self._refuse_large()

    def _keyed(self, scan: ScanTarget) -> None:
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

    def _counted(self, scan: ScanTarget) -> None:
        self._sum("")
        self._look_up(scan, [ID, COUNT], "sums")
        self._make("removed", f"SELECT {ID} FROM found")
        count = f"coalesce(f.{COUNT}, 0) + {_N}"
        self._make(
            "added",
            f"SELECT s.*, {count} AS {COUNT} FROM sums s LEFT JOIN found f "
            f"ON {_same(self.table, 's', 'f')} WHERE {count} <> 0",
        )

    def _history(self, scan: ScanTarget) -> None:
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

    def _look_up(self, scan: ScanTarget, names: Sequence[str], source: str) -> None:
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

    def _refuse_large(self) -> None:
        large = f"added WHERE {COUNT} NOT BETWEEN {INTEGERS[0]} AND {INTEGERS[-1]}"
        if _run(self._database, f"SELECT 1 FROM {large} LIMIT 1"):
            raise SourceError(
                f'cannot deliver "{self.table.collection}" to table "{self.table.name}": a count '
                "is beyond 64 bits",
                hint="Take the mode changes, whose diffs have 64 bits each, or let the pipeline "
                "leave such rows out.",
            )

    def _make(self, name: str, select: str) -> None:
        _make(self._database, name, select)


def _same(table: TargetTable, one: str, other: str) -> str:
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


# Decision (no commit is repeated): Both libraries would repeat a refused commit, and double a
# batch of an instance that was overtaken. Each table has a token of its own: to roll one back
# would show old times.

FILE_BYTES = 128 << 20
"""The most rows of a file, by their size in memory."""
_ATTEMPTS = 20
_ADDED = (ID, COUNT, TIME, DIFF, VALID_FROM, VALID_TO)


class Mark(msgspec.Struct, frozen=True):
    """The metadata of a sink in its commits."""

    instance: str
    upper: int | None = None
    """The frontier of the table; None before the first batch."""
    token: str | None = None


class ConflictError(Exception):
    """A commit was not made, because another one was made since the table was read."""


class LakeTable(Protocol):
    """One table in a format, in its state at the last open, reload or commit."""

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table in the target; None if there is no table."""
        ...

    def fitted(self) -> pa.Schema:
        """Return the columns to deliver, with the types that the format gives them when read."""
        ...

    def make(self, missing: Sequence[pa.Field] | None) -> None:
        """Add columns; with None make the table."""
        ...

    def mark(self) -> Mark | None:
        """Return the mark of the last commit of a sink of this name; None if there is none.

        Raises:
            ConfigError: the table has rows, and none of its commits has a mark.
        """
        ...

    def scan(self, names: Sequence[str]) -> Iterable[pa.Table]:
        """Read some columns."""
        ...

    def commit(self, changes: TableChanges | None, mark: Mark) -> None:
        """Make changes, if any, and the mark, in one commit.

        Raises:
            ConflictError: another commit was made since.
        """
        ...

    def reload(self) -> None:
        """Read the table's metadata again."""
        ...


class LakeSink:
    """A sink of lake tables; `open_table` opens one, given a table and the name of the sink.

    `away` are the errors of a target that does not answer, and `denied` those of missing rights.
    """

    def __init__(
        self,
        name: str,
        open_table: Callable[[TargetTable, str], LakeTable],
        away: tuple[type[Exception], ...],
        denied: tuple[type[Exception], ...] = (),
    ) -> None:
        self.name = name
        self._open_table = open_table
        self._away = away
        self._denied = denied
        self._instance = uuid4().hex
        self._tables: list[tuple[TargetTable, LakeTable]] = []
        self.uppers: dict[str, int | None] = {}
        """The frontier of each table: after a crash one may be ahead of the token."""

    def open(self, tables: Sequence[TargetTable]) -> str | None:
        self._instance = uuid4().hex
        with self._reaching():
            self._tables = [(table, self._open_table(table, self.name)) for table in tables]
            missing = [missing_columns(*each) for each in self._tables]
            for (_, lake), fields in zip(self._tables, missing, strict=True):
                if fields is None or fields:
                    lake.make(fields)
            marks = [self._claimed_table(*each) for each in self._tables]
        self.uppers = {
            table.name: mark.upper for (table, _), mark in zip(self._tables, marks, strict=True)
        }
        applied = [mark for mark in marks if mark.upper is not None]
        if len(applied) < len(marks):
            return None
        return min(applied, key=lambda mark: mark.upper or 0).token

    def apply(self, batch: Batch) -> None:
        for table, lake in self._tables:
            upper = self.uppers[table.name]
            if upper is None or upper < batch.upper:
                with self._reaching():
                    self._apply(batch, table, lake, upper)
                self.uppers[table.name] = batch.upper

    def close(self) -> None:
        self._tables = []

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except self._denied as error:
            raise AccessError(
                f'sink "{self.name}" may not do what it has to: {error}',
                hint="Check its credentials, and the rights that they have in the catalog.",
            ) from error
        except self._away as error:
            raise TargetAwayError(f'the target of sink "{self.name}" is away: {error}') from error

    def _apply(self, batch: Batch, table: TargetTable, lake: LakeTable, since: int | None) -> None:
        mark = Mark(self._instance, batch.upper, batch.token)
        for _ in range(_ATTEMPTS):
            try:
                if not batch.count(table):
                    lake.commit(None, mark)
                    return
                with closing(
                    TableChanges(table, batch.updates(table), since, lake.scan)
                ) as changes:
                    lake.commit(changes, mark)
                return
            except ConflictError:
                lake.reload()
                last = lake.mark()
                if last is None or last.instance != self._instance:
                    raise FencedError(
                        f'a newer instance of the sink "{self.name}" writes table "{table.name}"'
                    ) from None
                if last == mark:
                    return  # The commit was made, and only its answer was lost.
        raise _unsettled(table.name)

    def _claimed_table(self, table: TargetTable, lake: LakeTable) -> Mark:
        """Commit this instance's name to a table, with the token that the table has."""
        for _ in range(_ATTEMPTS):
            mark = Mark(self._instance)
            if (last := lake.mark()) is not None:
                mark = msgspec.structs.replace(last, instance=self._instance)
            try:
                lake.commit(None, mark)
                return mark
            except ConflictError:
                lake.reload()
        raise _unsettled(table.name)


def refuse_rows(table: TargetTable) -> None:
    """Refuse a table that has rows, but no mark of this sink."""
    raise ConfigError(
        f'table "{table.name}" has rows that this sink has not written, or the commit that says '
        "what it has written was expired",
        hint="Deliver to a table without rows, or under the name of the sink that wrote it.",
    )


def missing_columns(table: TargetTable, lake: LakeTable) -> list[pa.Field] | None:
    """List the columns that a table in the target lacks; None if there is no table.

    Raises:
        ConfigError: the table is of another mode or key, a column has another type, or a column
            that the sink does not write is not nullable.
    """
    if (there := lake.columns()) is None:
        return None
    types = {field.name: field for field in there}
    schema = lake.fitted()
    for field in schema:
        if field.name in types and types[field.name].type != field.type:
            raise _unfit(
                table,
                f'its column "{field.name}" is {types[field.name].type}, and that of the '
                f"collection is {field.type}",
            )
    for name in _ADDED:
        if (name in schema.names) != (name in types):
            state = "has" if name in types else "lacks"
            raise _unfit(table, f'it {state} the column "{name}"')
    for field in there:
        if field.name not in schema.names and not field.nullable:
            raise _unfit(table, f'its column "{field.name}" is written by nobody, and not null')
        if field.name not in schema.names and table.counted:
            raise _unfit(
                table,
                f'it has the column "{field.name}", and its rows are told apart by all columns',
            )
    missing = [field for field in schema if field.name not in types]
    if missing and table.counted:
        raise _unfit(
            table,
            f'it lacks the column "{missing[0].name}", and its rows are told apart by all columns',
        )
    return missing


def _unfit(table: TargetTable, why: str) -> ConfigError:
    return ConfigError(
        f'table "{table.name}" does not fit "{table.collection}": {why}',
        hint="Change the columns of the sink, or name another table.",
    )


def with_all_columns(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> list[pa.Array]:
    """The columns of a schema; columns that the rows lack are null."""
    names = set(rows.schema.names)
    return [
        rows.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]


def full_tables(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put tables together until they fill a file."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(each.nbytes for each in some) >= FILE_BYTES:
            yield pa.concat_tables(some)
            some = []
    if any(table.num_rows for table in some):
        yield pa.concat_tables(some)


def _unsettled(table: str) -> TargetAwayError:
    return TargetAwayError(
        f'table "{table}" was changed by others in each of {_ATTEMPTS} attempts to commit'
    )
