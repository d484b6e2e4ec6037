"""Tables of files as targets: the sink that all of their formats share.

Each table has the token of the last batch in the metadata of the commit that applied it, so both
are there or neither is.  There is no transaction over several tables: after a crash between two
commits, one table has a batch that the other lacks.  The sink then continues at the earlier token,
and skips, by their times, the updates that a table has already.

A new instance commits its name to every table, without changing rows.  A commit of an earlier
instance then conflicts with it, and the earlier instance stops.  A commit that conflicts with
another writer's, such as a compaction, is repeated over the present table.
"""

# Decision (no commit is repeated): Both libraries would repeat a refused commit, and double a
# batch of an instance that was overtaken. Each table has a token of its own: to roll one back
# would show old times.

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa

from ikebana.delivering.lake_changes import Changes
from ikebana.delivering.sink import (
    COUNT,
    DIFF,
    ID,
    TIME,
    VALID_FROM,
    VALID_TO,
    Batch,
    Table,
    TargetAwayError,
)
from ikebana.errors import AccessError, ConfigError, FencedError

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

    def commit(self, changes: Changes | None, mark: Mark) -> None:
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
        open_table: Callable[[Table, str], LakeTable],
        away: tuple[type[Exception], ...],
        denied: tuple[type[Exception], ...] = (),
    ) -> None:
        self.name = name
        self._open_table = open_table
        self._away = away
        self._denied = denied
        self._instance = uuid4().hex
        self._tables: list[tuple[Table, LakeTable]] = []
        self.uppers: dict[str, int | None] = {}
        """The frontier of each table: after a crash one may be ahead of the token."""

    def open(self, tables: Sequence[Table]) -> str | None:
        self._instance = uuid4().hex
        with self._reaching():
            self._tables = [(table, self._open_table(table, self.name)) for table in tables]
            missing = [missing_columns(*each) for each in self._tables]
            for (_, lake), fields in zip(self._tables, missing, strict=True):
                if fields is None or fields:
                    lake.make(fields)
            marks = [self._taken_over(*each) for each in self._tables]
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

    def _apply(self, batch: Batch, table: Table, lake: LakeTable, since: int | None) -> None:
        mark = Mark(self._instance, batch.upper, batch.token)
        for _ in range(_ATTEMPTS):
            try:
                if not batch.count(table):
                    lake.commit(None, mark)
                    return
                with closing(Changes(table, batch.updates(table), since, lake.scan)) as changes:
                    lake.commit(changes, mark)
                return
            except ConflictError:
                lake.reload()
                last = lake.mark()
                if last is None or last.instance != self._instance:
                    raise FencedError(
                        f'a newer instance of the sink "{self.name}" writes table "{table.name}"'
                    ) from None
        raise _unsettled(table.name)

    def _taken_over(self, table: Table, lake: LakeTable) -> Mark:
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


def refuse_rows(table: Table) -> None:
    """Refuse a table that has rows, but no mark of this sink."""
    raise ConfigError(
        f'table "{table.name}" has rows that this sink has not written, or the commit that says '
        "what it has written was expired",
        hint="Deliver to a table without rows, or under the name of the sink that wrote it.",
    )


def missing_columns(table: Table, lake: LakeTable) -> list[pa.Field] | None:
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
    missing = [field for field in schema if field.name not in types]
    if missing and table.counted:
        raise _unfit(
            table,
            f'it lacks the column "{missing[0].name}", and its rows are told apart by all columns',
        )
    return missing


def _unfit(table: Table, why: str) -> ConfigError:
    return ConfigError(
        f'table "{table.name}" does not fit "{table.collection}": {why}',
        hint="Change the columns of the sink, or name another table.",
    )


def widened(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> list[pa.Array]:
    """The columns of a schema; columns that the rows lack are null."""
    names = set(rows.schema.names)
    return [
        rows.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]


def filled(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
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
