"""The files of a table of a lake at one version: an Iceberg snapshot, or a version of Delta.

A version is a set of Parquet files that never change, so they are read as other files of a history
are, and a restart reads the same rows whatever is committed later.  Columns by which a table is
partitioned may be in its metadata alone, and are constants of a file.

Refused are versions whose files do not say by themselves what the rows are: with rows deleted by
delete files or deletion vectors, or with columns that have another name in a file.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyarrow import parquet

from ikebana.arrangements.files import file_system
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base.arrow_json import objects
from ikebana.processor.planning.histories import PARQUET
from ikebana.processor.planning.plan import History
from ikebana.processor.topics.input_times import RowFile
from ikebana.processor.topics.row_files import described

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask

_FIELD_ID = b"PARQUET:field_id"
_PARTITION = "partition."


def list_files(name: str, history: History) -> list[RowFile]:
    """The files of the table of an input's history, each with the number of its rows.

    Raises:
        ConfigError: the library of the table's format is not installed.
        SourceError: the table or a file cannot be read, or the version is refused.
    """
    [table] = history.names
    with _errors(name, table):
        files = list(_of_delta(history) if history.delta else _of_iceberg(name, history))
    if not files:
        raise SourceError(
            f'cannot read the history of input "{name}": {table} has no rows',
            hint="Leave the history out, or name a version that has rows.",
        )
    return files


@contextmanager
def _errors(name: str, table: str) -> Iterator[None]:
    """Within a `with` block, raise all errors as errors of the history."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = "iceberg" if table.startswith("Iceberg") else "delta"
        raise ConfigError(
            f'the history of input "{name}" needs {error.name}, which is not installed',
            hint=f'Install it: pip install "ikebana[{extra}]".',
        ) from error
    except SourceError as error:
        raise SourceError(
            f'cannot read the history of input "{name}": {table}: {error.message}', hint=error.hint
        ) from error
    except Exception as error:
        raise SourceError(
            f'cannot read the history of input "{name}": {table}: {error}'
        ) from error


def _of_delta(history: History) -> Iterator[RowFile]:
    from deltalake import DeltaTable

    table = DeltaTable(history.delta, version=history.version)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError("its columns have other names in files, by delta.columnMapping.mode")
    actions = pa.table(table.get_add_actions(flatten=True))
    if pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().num_rows:
        hint = _rewrite("REORG TABLE … APPLY (PURGE)")
        raise SourceError("it has deletion vectors", hint=hint)
    partitions = [name for name in actions.column_names if name.startswith(_PARTITION)]
    columns = [name.removeprefix(_PARTITION) for name in partitions]
    values = actions.select(partitions).rename_columns(columns)
    texts = [text for rows in values.to_batches() for text in objects(rows, columns)]
    texts = texts if columns else [b"{}"] * len(actions)
    for path, text in zip(actions.column("path").to_pylist(), texts, strict=True):
        file, schema = _described(f"{history.delta.rstrip('/')}/{unquote(path)}")
        constants = msgspec.json.decode(text, type=dict[str, Any])
        lacking = {name: value for name, value in constants.items() if name not in schema.names}
        yield msgspec.structs.replace(file, constants=lacking)


def _of_iceberg(name: str, history: History) -> Iterator[RowFile]:
    from pyiceberg.catalog import load_catalog

    catalog = {"name": name, **dict(history.catalog)}
    table = load_catalog(**catalog).load_table(history.iceberg)
    scan = table.scan(snapshot_id=history.version)
    for task in scan.plan_files():
        file, schema = _described(task.file.file_path)
        spec = table.specs()[task.file.spec_id]
        if why := _why_not(task, schema, scan.projection(), spec):
            raise SourceError(f"{file.path} {why}", hint=_rewrite("rewrite_data_files"))
        yield file


def _why_not(
    task: "FileScanTask", written: pa.Schema, schema: "Schema", spec: "PartitionSpec"
) -> str | None:
    """Why a file does not say by itself what its rows are; None if it does."""
    from pyiceberg.transforms import IdentityTransform

    if task.delete_files:
        return "has delete files"
    for part in spec.fields:
        column = schema.find_column_name(part.source_id)
        if isinstance(part.transform, IdentityTransform) and column not in written.names:
            return f'lacks the column "{column}", by which the table is partitioned'
    for number, name in _named(written):
        column = schema.find_column_name(number)
        if column is not None and column.rpartition(".")[2] != name:
            return f'has the column "{column}" under the name "{name}"'
        if column is None and name in schema.column_names:
            return f'has another column "{name}", which the table has no more'
    return None


def _named(fields: Iterable[pa.Field]) -> Iterator[tuple[int, str]]:
    """The names of columns and of fields of structs, by Iceberg's ids."""
    for field in fields:
        if field.metadata and _FIELD_ID in field.metadata:
            yield int(field.metadata[_FIELD_ID]), field.name
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from _named(kind)


def _described(path: str) -> tuple[RowFile, pa.Schema]:
    """A file with the number of its rows, and its schema."""
    if not path.endswith(PARQUET):
        raise SourceError(f"{path} is no Parquet file")
    system, within = file_system(path)
    with system.open_input_file(within) as opened:
        schema = parquet.read_schema(opened)
    return described(system, path, system.get_file_info(within)), schema


def _rewrite(command: str) -> str:
    return f"Rewrite the table's files, for example by {command}, and start again."
