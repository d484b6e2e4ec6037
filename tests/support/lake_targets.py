"""Tables of files on the local disk, for `sink_conformance`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ikebana.delivering.delta import delta_sink
from ikebana.delivering.iceberg import iceberg_sink
from ikebana.delivering.lake import LakeSink
from ikebana.delivering.lake_changes import stored_schema
from ikebana.delivering.parquet import parquet_sink
from ikebana.delivering.sink import Table

NAMESPACE = "shop"


class IcebergTarget:
    """A catalog in SQLite, and its warehouse."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        (folder / "catalog").mkdir(parents=True, exist_ok=True)

    def sink(self) -> LakeSink:
        return iceberg_sink("lake", self.catalog, NAMESPACE)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        return _rows(self.read(table), table)

    def read(self, table: Table) -> pa.Table:
        from pyiceberg.catalog import load_catalog

        found = load_catalog("lake", **self.catalog).load_table(f"{NAMESPACE}.{table.name}")
        return found.scan().to_arrow()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without the folder of the catalog's database nothing answers."""
        hidden = (self.folder / "catalog").rename(self.folder / "hidden")
        try:
            yield
        finally:
            hidden.rename(self.folder / "catalog")


class DeltaTarget:
    """A folder of tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tables"
        self.folder.mkdir(parents=True, exist_ok=True)

    def sink(self) -> LakeSink:
        return delta_sink("lake", str(self.folder))

    def rows(self, table: Table) -> list[dict[str, Any]]:
        return _rows(self.read(table), table)

    def read(self, table: Table) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder / table.name)).to_pyarrow_table()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Files instead of the tables' folders: nothing can be read or made there."""
        hidden = self.folder.rename(self.folder.with_name("hidden"))
        self.folder.write_text("not a folder")
        try:
            yield
        finally:
            self.folder.unlink()
            hidden.rename(self.folder)


class ParquetTarget:
    """A folder of folders of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "files"
        self.folder.mkdir(parents=True, exist_ok=True)

    def sink(self) -> LakeSink:
        return parquet_sink("lake", self.folder)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        return _rows(self.read(table), table)

    def read(self, table: Table) -> pa.Table:
        """Read all files with the ending, as DuckDB and others do."""
        files = sorted((self.folder / table.name).rglob("*.parquet"))
        schema = stored_schema(table)
        read = [pq.read_table(file, schema=schema, partitioning=None) for file in files]
        return pa.concat_tables([schema.empty_table(), *read])

    @contextmanager
    def away(self) -> Iterator[None]:
        """A file instead of the folder."""
        hidden = self.folder.rename(self.folder.with_name("hidden"))
        self.folder.write_text("not a folder")
        try:
            yield
        finally:
            self.folder.unlink()
            hidden.rename(self.folder)


TARGETS: dict[str, Callable[[Path], IcebergTarget | DeltaTarget | ParquetTarget]] = {
    "iceberg": IcebergTarget,
    "delta": DeltaTarget,
    "parquet": ParquetTarget,
}


def _rows(rows: pa.Table, table: Table) -> list[dict[str, Any]]:
    """The rows with the types of the collection; a time of a day may have been stored as text."""
    schema = stored_schema(table)
    found = rows.select(schema.names)
    for at, field in enumerate(schema):
        column = found.column(at)
        if pa.types.is_time(field.type) and pa.types.is_string(column.type):
            times = [None if t is None else time.fromisoformat(t) for t in column.to_pylist()]
            column = pa.chunked_array([pa.array(times, field.type)])
        found = found.set_column(at, field.name, column.cast(field.type))
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed
