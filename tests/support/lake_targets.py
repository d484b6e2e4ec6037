"""Tables of files on the local disk or in an object store, for `sink_conformance`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deploy.object_store import BUCKET, REGION, USER, access
from ikebana.delivering import delta, iceberg, parquet
from ikebana.delivering.lake import LakeSink
from ikebana.delivering.sink import TargetTable
from ikebana.processor.authoring.deliver_section import (
    DeltaSection,
    IcebergSection,
    ParquetSection,
)

NAMESPACE = "shop"
Rows = list[dict[str, Any]]


class IcebergTarget:
    """A catalog in SQLite, and its warehouse, which may be in the object store at a URL."""

    def __init__(
        self, folder: Path, store: str = "", catalog: dict[str, str] | None = None
    ) -> None:
        """`catalog` has the properties of another one."""
        self.folder = folder
        self.catalog = catalog or {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        if store:
            user, secret = USER.values()
            self.catalog |= {
                "warehouse": f"s3://{BUCKET}{folder}",
                "s3.endpoint": store,
                "s3.access-key-id": user,
                "s3.secret-access-key": secret,
                "s3.region": REGION,
            }
        (folder / "catalog").mkdir(parents=True, exist_ok=True)

    def sink(self) -> LakeSink:
        return iceberg.sink("lake", IcebergSection(catalog=self.catalog, namespace=NAMESPACE))

    def rows(self, table: TargetTable) -> Rows:
        return self.as_of(table)[1]

    def as_of(self, table: TargetTable) -> tuple[int | None, Rows]:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table.snapshots import ancestors_of

        try:
            found = self.load(table)
        except NoSuchTableError:
            return None, []
        summaries = [
            snapshot.summary.additional_properties
            for snapshot in ancestors_of(found.current_snapshot(), found.metadata)
            if snapshot.summary is not None
        ]
        uppers = (text for each in summaries for name, text in each.items() if _is_upper(name))
        upper = next(uppers, None)
        return None if upper is None else int(upper), _rows(found.scan().to_arrow(), table)

    def load(self, table: TargetTable) -> Any:
        """Load the metadata of a table."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self.catalog).load_table(f"{NAMESPACE}.{table.name}")

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without the folder of the catalog's database nothing answers."""
        hidden = (self.folder / "catalog").rename(self.folder / "hidden")
        try:
            yield
        finally:
            hidden.rename(self.folder / "catalog")


class DeltaTarget:
    """A folder of tables, which may be in the object store at a URL.

    The judge may read at another URL, `read_at`.  A call for a table's history holds Python's
    lock, so it would wait for ever for a front of the store that stands in its own process.
    """

    def __init__(self, folder: Path, store: str = "", read_at: str = "") -> None:
        self.folder = folder / "tables"
        self.place, self.storage, self._reading = str(self.folder), {}, {}
        if store:
            self.place = f"s3://{BUCKET}{self.folder}"
            self.storage, self._reading = access(store), access(read_at or store)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)

    def sink(self) -> LakeSink:
        return delta.sink("lake", DeltaSection(folder=self.place, storage=self.storage))

    def rows(self, table: TargetTable) -> Rows:
        return self.as_of(table)[1]

    def as_of(self, table: TargetTable) -> tuple[int | None, Rows]:
        from deltalake.exceptions import TableNotFoundError

        try:
            found = self.load(table)
        except TableNotFoundError:
            return None, []
        # The history may be newer than the version that is loaded, so it only has the names.
        history = found.history()
        sinks = {name for commit in history for name in commit if name.startswith("ikebana.")}
        uppers = [found.transaction_version(sink) or 0 for sink in sinks]
        return max(uppers, default=0) or None, _rows(found.to_pyarrow_table(), table)

    def load(self, table: TargetTable) -> Any:
        """Load the newest version of a table."""
        from deltalake import DeltaTable

        return DeltaTable(f"{self.place}/{table.name}", storage_options=self._reading)

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
        return parquet.sink("lake", ParquetSection(folder=str(self.folder)))

    def rows(self, table: TargetTable) -> Rows:
        """Read all files with the ending, as DuckDB and others do."""
        files = sorted((self.folder / table.name).rglob("*.parquet"))
        schema = table.stored
        read = [pq.read_table(file, schema=schema, partitioning=None) for file in files]
        return _rows(pa.concat_tables([schema.empty_table(), *read]), table)

    def as_of(self, table: TargetTable) -> tuple[int | None, Rows]:
        """Read while nobody writes: the files of the newest batch get their ending by and by."""
        manifests = sorted((self.folder / table.name).glob("_*/*.json"))
        if not manifests:
            return None, []
        last = json.loads(manifests[-1].read_bytes())
        for name in last["files"]:
            file = self.folder / table.name / f"{name}.writing"
            if file.exists():
                file.rename(file.with_suffix(".parquet"))
        return last["mark"]["upper"], self.rows(table)

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


def _is_upper(name: str) -> bool:
    return name.startswith("ikebana.") and name.endswith(".upper")


def _rows(rows: pa.Table, table: TargetTable) -> Rows:
    """The rows with the types of the collection; a time of a day may have been stored as text."""
    schema = table.stored
    found = rows.select(schema.names)
    for at, field in enumerate(schema):
        column = found.column(at)
        if pa.types.is_time(field.type) and pa.types.is_string(column.type):
            times = [None if t is None else time.fromisoformat(t) for t in column.to_pylist()]
            column = pa.chunked_array([pa.array(times, field.type)])
        found = found.set_column(at, field.name, column.cast(field.type))
    listed: Rows = found.to_pylist()
    return listed
