"""Iceberg tables as targets, by PyIceberg: copy on write, one snapshot for each batch.

PyIceberg writes no delete files, so a snapshot replaces the data files that have removed rows.
These files are found exactly, because the updates name the removed rows: first by the bounds of
the key in the manifests, then by the identities in the file.  If there are many small files, they
are rewritten along.  The token is in the summary of the snapshot; the newest snapshot with a token
is the last batch.

Snapshots beyond the newest hundred expire, and files of these alone are deleted.
"""

# Decision (Iceberg by copy on write): PyIceberg writes no delete files and reads no equality
# deletes; `upsert` cannot delete. The sink chooses the files itself, because updates say which
# rows go, and makes one snapshot a batch.

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, count
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from sqlalchemy.exc import SQLAlchemyError

from ikebana.delivering.lake import (
    FILE_BYTES,
    ConflictError,
    LakeSink,
    Mark,
    TableChanges,
    full_tables,
    refuse_rows,
    with_all_columns,
)
from ikebana.delivering.sink import VALID_TO, TargetTable
from ikebana.errors import ConfigError
from ikebana.processor.authoring.deliver_section import IcebergSection

# From this number of small files on, a snapshot rewrites them.
_SMALL_FILES = 16
_SNAPSHOTS = 100
_PROPERTIES = {
    "write.target-file-size-bytes": str(FILE_BYTES),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(_SNAPSHOTS),
}
# Types with bounds in manifests that have the order of the values.
_ORDERED = (IntegerType, LongType, StringType)
_AWAY = (RESTError, SQLAlchemyError, OSError)
_DENIED = (ForbiddenError, OAuthError, UnauthorizedError)


def sink(name: str, section: IcebergSection) -> LakeSink:
    """Make the sink of a section `iceberg`, into the tables of a namespace."""

    @cache
    def loaded() -> Catalog:
        # Loaded on first use, since the target may be away.
        try:
            return load_catalog(**{"name": name, **section.catalog})
        except (ValueError, NoSuchPropertyException, NotInstalledError) as error:
            raise ConfigError(
                f'the catalog of sink "{name}" cannot be opened: {error}',
                hint="`catalog` has the properties of PyIceberg, such as type, uri and warehouse.",
            ) from error

    def open_table(table: TargetTable, sink: str) -> IcebergTable:
        return IcebergTable(loaded(), section.namespace, table, sink)

    return LakeSink(name, open_table, _AWAY, _DENIED)


class IcebergTable:
    """One table; `name` is that of the sink."""

    def __init__(self, catalog: Catalog, namespace: str, table: TargetTable, name: str) -> None:
        self._catalog = catalog
        self._spec = table
        self._schema = table.stored
        self._identifier = f"{namespace}.{table.name}"
        self._prefix = f"ikebana.{name}."
        self._opened: IcebergMetadata | None = None
        self._namespace = namespace
        with suppress(NoSuchTableError):
            self.reload()

    def columns(self) -> pa.Schema | None:
        return None if self._opened is None else self._arrow()

    def fitted(self) -> pa.Schema:
        fresh = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(self._schema))
        return schema_to_pyarrow(fresh, include_field_ids=False)

    def make(self, missing: Sequence[pa.Field] | None) -> None:
        if missing is None:
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(self._namespace)
            with suppress(TableAlreadyExistsError):
                self._catalog.create_table(self._identifier, self._schema, properties=_PROPERTIES)
        else:
            fields = [self._schema.field(field.name) for field in missing]
            with self._table.update_schema() as update:
                update.union_by_name(pa.schema(fields))
        self.reload()

    def mark(self) -> Mark | None:
        current = self._table.current_snapshot()
        if current is None:
            return None
        for snapshot in ancestors_of(current, self._table.metadata):
            if (mark := _mark_of(snapshot, self._prefix)) is not None:
                return mark
        if list(self._files()):
            refuse_rows(self._spec)
        return None

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for task in self._files():
            yield self._read(task, names)

    def commit(self, changes: TableChanges | None, mark: Mark) -> None:
        replaced = [] if changes is None else self._replaced(changes)
        entries = {"instance": mark.instance}
        if mark.upper is not None and mark.token is not None:
            entries |= {"upper": str(mark.upper), "token": mark.token}
        properties = {self._prefix + key: value for key, value in entries.items()}
        transaction = self._table.transaction()
        update = transaction.update_snapshot(snapshot_properties=properties)
        try:
            with update.overwrite() if replaced else update.fast_append() as snapshot:
                for file in self._written(changes, replaced):
                    snapshot.append_data_file(file)
                for task in replaced:
                    snapshot.delete_data_file(task.file)
            self._opened = _once(transaction.commit_transaction())
        except CommitFailedException as error:
            raise ConflictError(str(error)) from error
        if len(self._table.metadata.snapshots) >= 2 * _SNAPSHOTS:
            self._opened = _expire(self._table)

    def reload(self) -> None:
        self._opened = _once(self._catalog.load_table(self._identifier))

    @property
    def _table(self) -> IcebergMetadata:
        assert self._opened is not None
        return self._opened

    def _arrow(self) -> pa.Schema:
        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def _files(self) -> Iterable[FileScanTask]:
        return self._table.scan().plan_files()

    def _read(self, task: FileScanTask, names: Sequence[str] | None = None) -> pa.Table:
        """Read a file's rows, without rows that delete files of other writers remove."""
        schema = self._table.schema()
        chosen = schema if names is None else schema.select(*names)
        scan = ArrowScan(self._table.metadata, self._table.io, chosen, AlwaysTrue())
        rows = scan.to_table([task])
        return rows if names is None else rows.select(list(names))

    def _replaced(self, changes: TableChanges) -> list[FileScanTask]:
        """List the files with removed rows, and small files if there are many."""
        hit: list[FileScanTask] = []
        small: list[FileScanTask] = []
        bounds = changes.bounds() if changes.removes and changes.table.key else None
        for task in self._files():
            if changes.removes and self._is_hit(task, changes, bounds):
                hit.append(task)
            elif task.file.file_size_in_bytes < FILE_BYTES // 8:
                small.append(task)
        return hit + small if len(small) >= _SMALL_FILES else hit

    def _is_hit(
        self, task: FileScanTask, changes: TableChanges, bounds: tuple[Any, Any] | None
    ) -> bool:
        """Whether a file has removed rows; `bounds` are those of their first column, if any."""
        names = changes.table.identity
        if VALID_TO in self._schema.names:
            names = (*names, VALID_TO)
        field = self._table.schema().find_field(names[0])
        return _may_hit(task, field, bounds) and bool(changes.hit(self._read(task, names)))

    def _written(
        self, changes: TableChanges | None, replaced: Iterable[FileScanTask]
    ) -> Iterator[DataFile]:
        """Write new rows, and the remaining rows of replaced files; yield the files."""
        if changes is None:
            return
        schema = self._arrow()
        stay = (changes.left(self._read(task)) for task in replaced)
        tables = chain(stay, (pa.Table.from_batches([rows]) for rows in changes.added()))
        commit, numbers = uuid4(), count()
        whole = (
            pa.Table.from_arrays(with_all_columns(rows, schema), schema=schema) for rows in tables
        )
        for rows in full_tables(whole):
            yield from _dataframe_to_data_files(
                self._table.metadata, rows, self._table.io, commit, numbers
            )


def _once(table: IcebergMetadata) -> IcebergMetadata:
    """Let commits of a table fail on conflicts, instead of being repeated over other commits."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _mark_of(snapshot: Snapshot, prefix: str) -> Mark | None:
    properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
    if (instance := properties.get(f"{prefix}instance")) is None:
        return None
    upper = properties.get(f"{prefix}upper")
    return Mark(instance, None if upper is None else int(upper), properties.get(f"{prefix}token"))


def _may_hit(task: FileScanTask, field: NestedField, bounds: tuple[Any, Any] | None) -> bool:
    """Whether a file may have values of a field within bounds, by its manifest."""
    if bounds is None:
        return True
    lower = (task.file.lower_bounds or {}).get(field.field_id)
    upper = (task.file.upper_bounds or {}).get(field.field_id)
    if lower is None or upper is None or not isinstance(field.field_type, _ORDERED):
        return True
    least, greatest = (from_bytes(field.field_type, each) for each in (lower, upper))
    return bool(least <= bounds[1] and greatest >= bounds[0])


def _expire(table: IcebergMetadata) -> IcebergMetadata:
    """Expire all but the newest snapshots, and delete the files that only they have."""
    io, metadata = table.io, table.metadata
    newest = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    live = {ref.snapshot_id for ref in metadata.refs.values()}
    live |= {each.snapshot_id for each in newest[-_SNAPSHOTS:]}
    old = [each for each in metadata.snapshots if each.snapshot_id not in live]
    files: dict[bool, set[str]] = {True: set(), False: set()}
    for snapshot in metadata.snapshots:
        paths = files[snapshot.snapshot_id in live]
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path not in paths:
                paths.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
                paths |= {entry.data_file.file_path for entry in entries}
    try:
        ids = [each.snapshot_id for each in old]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    except CommitFailedException:
        return table  # Another writer has changed it; the next commit tries again.
    for path in files[False] - files[True]:
        with suppress(OSError):
            io.delete(path)
    return _once(table)
