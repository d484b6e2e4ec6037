"""Delta tables as targets, by delta-rs: one commit for each batch, with a `txn` action.

New rows are appended; if rows are removed, one `MERGE` deletes these and inserts the new ones.
The `txn` action has the frontier as its version, so Delta itself refuses a commit if another
instance has committed meanwhile; the token is beside it in the commit's metadata.

After each hundredth commit, the table is compacted and vacuumed: files that no version of the last
seven days has are deleted.
"""

# Decision (Delta by MERGE): One commit changes and deletes the rows of a batch.

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from ikebana.delivering.lake import (
    ConflictError,
    LakeSink,
    Mark,
    TableChanges,
    refuse_rows,
    with_all_columns,
)
from ikebana.delivering.sink import VALID_TO, TargetTable
from ikebana.processor.authoring.deliver_section import DeltaSection
from ikebana.processor.linear.json_text import quoted

_HOUSEKEEPING = 100
_OP = "ikebana_op"
_GO, _COME = 0, 1
# The number of commits to search for the last one with a token.
_HISTORY = 1000


def sink(name: str, section: DeltaSection) -> LakeSink:
    """Make the sink of a section `delta`, whose tables have folders of their names."""

    def open_table(table: TargetTable, sink: str) -> DeltaLakeTable:
        return DeltaLakeTable(
            f"{section.folder.rstrip('/')}/{table.name}", table, sink, section.storage
        )

    # A folder that cannot be made is reported as a table that is not there.
    return LakeSink(name, open_table, (OSError, TableNotFoundError))


class DeltaLakeTable:
    """One table; `name` is that of the sink."""

    def __init__(
        self, path: str, table: TargetTable, name: str, storage: Mapping[str, str]
    ) -> None:
        self._path = path
        self._spec = table
        self._storage = dict(storage)
        self._app = f"ikebana.{name}"
        self._schema = pa.schema(
            [field.with_type(_delta_type(field.type)) for field in table.stored]
        )
        self._opened: DeltaTable | None = None
        with suppress(TableNotFoundError):
            self.reload()

    def columns(self) -> pa.Schema | None:
        return None if self._opened is None else pa.schema(self._opened.schema())

    def fitted(self) -> pa.Schema:
        return self._schema

    def make(self, missing: Sequence[pa.Field] | None) -> None:
        if missing is None:
            DeltaTable.create(
                self._path, self._schema, mode="ignore", storage_options=self._storage
            )
        else:
            self._table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        self.reload()

    def mark(self) -> Mark | None:
        for commit in self._table.history(_HISTORY):
            if (content := commit.get(self._app)) is not None:
                return msgspec.json.decode(content, type=Mark)
        version = self._table.transaction_version(self._app)
        if version is not None or self._table.get_add_actions().num_rows:
            refuse_rows(self._spec)
        return None

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for rows in self._table.to_pyarrow_dataset().to_batches(columns=list(names)):
            yield pa.Table.from_batches([rows])

    def commit(self, changes: TableChanges | None, mark: Mark) -> None:
        properties = CommitProperties(
            custom_metadata={self._app: msgspec.json.encode(mark).decode()},
            max_commit_retries=0,
            app_transactions=[Transaction(self._app, mark.upper or 0)],
        )
        try:
            if changes is None:
                self._table.create_write_transaction(
                    [], "append", self._table.schema(), commit_properties=properties
                )
                self._table.update_incremental()
            elif changes.removes:
                self._merge(changes, properties)
            else:
                rows = pa.RecordBatchReader.from_batches(self._schema, self._added(changes))
                write_deltalake(
                    self._table,
                    rows,
                    mode="append",
                    schema_mode="merge",
                    commit_properties=properties,
                )
        except CommitFailedError as error:
            raise ConflictError(str(error)) from error
        if self._table.version() % _HOUSEKEEPING == 0:
            self._tidy()

    def reload(self) -> None:
        self._opened = DeltaTable(self._path, storage_options=self._storage)

    @property
    def _table(self) -> DeltaTable:
        assert self._opened is not None
        return self._opened

    def _added(self, changes: TableChanges) -> Iterator[pa.RecordBatch]:
        for rows in changes.added():
            yield rows.cast(self._schema)

    def _merge(self, changes: TableChanges, properties: CommitProperties) -> None:
        gone = changes.removed()
        same = []
        for name in self._spec.identity:
            # Joins are only fast by "=".
            equals = "IS NOT DISTINCT FROM" if gone.column(name).null_count else "="
            same.append(f"(t.{quoted(name)} {equals} s.{quoted(name)})")
        condition = " AND ".join([f"s.{_OP} = {_GO}", *same])
        if VALID_TO in self._schema.names:
            condition += f" AND t.{VALID_TO} IS NULL"
        schema = self._schema.append(pa.field(_OP, pa.int8()))
        rows = pa.RecordBatchReader.from_batches(schema, self._operations(gone, changes, schema))
        merge = self._table.merge(
            rows, condition, source_alias="s", target_alias="t", commit_properties=properties
        )
        inserted = {name: f"s.{name}" for name in map(quoted, self._schema.names)}
        merge = merge.when_matched_delete()
        merge.when_not_matched_insert(inserted, predicate=f"s.{_OP} = {_COME}").execute()

    def _operations(
        self, gone: pa.Table, changes: TableChanges, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for rows in gone.to_batches():
            yield _operation(rows, _GO, schema)
        for rows in self._added(changes):
            yield _operation(rows, _COME, schema)

    def _tidy(self) -> None:
        self._table.optimize.compact()
        self._table.vacuum(dry_run=False)


def _operation(rows: pa.RecordBatch, op: int, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with all columns, and the operation to do with them."""
    columns = with_all_columns(rows, schema)
    columns[-1] = pa.array([op] * rows.num_rows, pa.int8())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _delta_type(kind: pa.DataType) -> pa.DataType:
    """The stored type of a type: Delta has no times of day and no fixed lengths.

    >>> str(_delta_type(pa.list_(pa.time64("us"))))
    'list<item: string>'
    """
    if pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_delta_type(kind.key_type), _delta_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_delta_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_delta_type(field.type)) for field in kind])
    return kind
