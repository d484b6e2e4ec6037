"""Folders of Parquet files as targets, for the mode `changes`: files are added, and never changed.

All files `*.parquet` in a table's folder together have all applied updates.  A commit is a
numbered manifest, which is created atomically, and by one instance only: it has the token and
the names of its files, which are renamed to `*.parquet` after it.  A new instance renames the
files of the last manifest again, and deletes files of batches that were never committed.

The folder must be local: object stores have no rename.
"""

# Decision (Parquet for changes alone): DuckLake would have transactions, but DuckDB downloads its
# extensions itself, and those on PyPI are of an earlier version.

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ikebana.delivering.lake import (
    ConflictError,
    LakeSink,
    Mark,
    TableChanges,
    full_tables,
    refuse_rows,
)
from ikebana.delivering.sink import TIME, TargetTable
from ikebana.errors import ConfigError
from ikebana.processor.authoring.deliver_section import ParquetSection

_OPEN, _CLOSED = ".writing", ".parquet"
_DAY = 86_400_000
# The number of manifests to keep; only the last one is read.
_MANIFESTS = 100


class TableManifest(msgspec.Struct, frozen=True):
    """A commit: its mark, its files without suffix, and the table's schema."""

    mark: Mark
    files: list[str]
    schema: bytes


def sink(name: str, section: ParquetSection) -> LakeSink:
    """Make the sink of a section `parquet`, whose tables have folders of their names."""

    def open_table(table: TargetTable, sink: str) -> ParquetTable:
        return ParquetTable(Path(section.folder) / table.name, table, sink, by_day=section.by_day)

    return LakeSink(name, open_table, (OSError,))


class ParquetTable:
    """One folder; `name` is that of the sink."""

    def __init__(self, folder: Path, table: TargetTable, name: str, *, by_day: bool) -> None:
        if table.mode != "changes":
            raise ConfigError(
                f'table "{table.name}" has the mode {table.mode}: files of Parquet are added only',
                hint="Take the mode changes, or Iceberg or Delta.",
            )
        self._spec = table
        self._folder = folder
        self._manifests = folder / f"_{name}"
        self._schema = table.stored
        self._by_day = by_day
        self._number = 0
        self._last: TableManifest | None = None
        self.reload()

    def columns(self) -> pa.Schema | None:
        if self._last is None:
            return None
        return pa.ipc.read_schema(pa.py_buffer(self._last.schema))

    def fitted(self) -> pa.Schema:
        return self._schema

    def make(self, missing: Sequence[pa.Field] | None) -> None:
        """Make the folder; each file has its own schema, so there are no columns to add."""
        self._manifests.mkdir(parents=True, exist_ok=True)

    def mark(self) -> Mark | None:
        if self._last is not None:
            return self._last.mark
        # The files of another sink, or its manifests, which come before its first file.
        if any(path != self._manifests for path in self._folder.iterdir()):
            refuse_rows(self._spec)
        return None

    def scan(self, names: Sequence[str]) -> Iterable[pa.Table]:
        """Read nothing: changes are added without a look at earlier rows."""
        return ()

    def commit(self, changes: TableChanges | None, mark: Mark) -> None:
        files = [] if changes is None else list(self._written(changes, mark.upper or 0))
        manifest = TableManifest(mark, files, self._schema.serialize().to_pybytes())
        self._link(self._number + 1, manifest)
        self._number, self._last = self._number + 1, manifest
        self._close_files()
        if changes is None:
            self._delete_open()
        with suppress(FileNotFoundError):
            self._path(self._number - _MANIFESTS).unlink()

    def reload(self) -> None:
        numbers = [int(path.stem) for path in self._manifests.glob("*.json")]
        if numbers:
            self._number = max(numbers)
            text = self._path(self._number).read_bytes()
            self._last = msgspec.json.decode(text, type=TableManifest)
            self._close_files()

    def _path(self, number: int) -> Path:
        return self._manifests / f"{number:012d}.json"

    def _link(self, number: int, manifest: TableManifest) -> None:
        """Create a manifest atomically, unless one of its number exists."""
        written = self._manifests / f"{uuid4().hex}.new"
        with written.open("xb") as file:
            file.write(msgspec.json.encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(written, self._path(number))
        except FileExistsError:
            raise ConflictError(f"there is a manifest {number}") from None
        finally:
            written.unlink()
        _sync(self._manifests)

    def _close_files(self) -> None:
        """Rename the files of the last manifest to `*.parquet`."""
        assert self._last is not None
        for name in self._last.files:
            with suppress(FileNotFoundError):
                (self._folder / (name + _OPEN)).rename(self._folder / (name + _CLOSED))

    def _written(self, changes: TableChanges, upper: int) -> Iterator[str]:
        """Write files; yield their names."""
        commit = f"{upper:020d}-{uuid4().hex[:8]}"
        tables = full_tables(pa.Table.from_batches([rows]) for rows in changes.added())
        parts = enumerate(section for rows in tables for section in self._parts(rows))
        for number, (day, rows) in parts:
            name = f"{day}{commit}-{number:03d}"
            path = self._folder / (name + _OPEN)
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as file:
                pq.write_table(rows, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            _sync(path.parent)
            yield name

    def _parts(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each day, with the name of its folder."""
        if not self._by_day:
            yield "", rows
            return
        days = pc.divide(rows.column(TIME), _DAY)
        for day in pc.unique(days).to_pylist():
            folder = datetime.fromtimestamp(day * _DAY // 1000, UTC).strftime("day=%Y-%m-%d/")
            yield folder, rows.filter(pc.equal(days, day))

    def _delete_open(self) -> None:
        """Delete files of batches that were never committed."""
        for path in (*self._folder.glob(f"*{_OPEN}"), *self._folder.glob(f"day=*/*{_OPEN}")):
            path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
