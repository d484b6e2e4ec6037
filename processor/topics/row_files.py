"""The history of an input: rows of files that are read before its topics.

A history stands beside the topics under a name of its own: each file is a partition of it, and a
row has the offset of its place.  So offsets, batches and limits are those of topics.  While any of
it is unread, the input's topics stay where they are.  Rows come as keyed messages in JSON,
whatever the format of the topics: `rows_of` is the input that reads them.

A file is one of Parquet, or has a row of JSON on each line, which may be compressed.  The end of
its name says which.  A file that has changed since it was listed is refused: its rows are known by
their numbers.

A table of a lake at one version (an Iceberg snapshot, or a version of Delta) is a set of Parquet
files that never change, so they are read as others are, and a restart reads the same rows whatever
is committed later.  Columns by which a table is partitioned may be in its metadata alone, and are
constants of a file.  Refused are versions whose files do not say by themselves what the rows are:
with rows deleted by delete files or deletion vectors, or with columns that have another name in a
file.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyarrow import fs, parquet

from ikebana.arrangements.files import file_system
from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.errors import CheckpointError, ConfigError, SourceError
from ikebana.processor.base.arrow_json import objects
from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning.plan import LINES, PARQUET, History, Input, Plan, is_pattern
from ikebana.processor.topics.input_times import Base, InputTimes, RowFile
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.source_offset import SourceOffset

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask


_ROWS = 10_000
_PIECE = 1 << 20


def list_files(name: str, paths: Sequence[str]) -> list[RowFile]:
    """The files of an input's history, in the order of the paths, each with the number of rows.

    Raises:
        SourceError: there is none at a path, or one cannot be read.
    """
    files: list[RowFile] = []
    for path in paths:
        try:
            system, within = file_system(path)
            matching = _matching(system, within)
            # The address as it was given, so that others find the file, too.
            root = path.removesuffix(within)
            files += [described(system, root + each.path, each) for each in matching]
        except (CheckpointError, OSError, pa.ArrowException) as error:
            raise SourceError(
                f'cannot read the history of input "{name}": {path}: {error}'
            ) from error
        if not matching:
            raise SourceError(
                f'cannot read the history of input "{name}": there is no file at {path}',
                hint="Check inputs." + name + ".history.files; a pattern has * in its last part.",
            )
    return files


def _matching(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    """The files at a path: it itself, those of a folder, or those whose names fit a pattern."""
    folder, _, pattern = path.rpartition("/")
    if not is_pattern(pattern):
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [info]
        if info.type != fs.FileType.Directory:
            return []
        folder, pattern = path, "*"
    infos = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    files = [each for each in infos if each.type == fs.FileType.File]
    return sorted(
        (
            each
            for each in files
            if fnmatchcase(each.base_name, pattern) and each.base_name.endswith((*PARQUET, *LINES))
        ),
        key=lambda each: str(each.path),
    )


def described(system: fs.FileSystem, address: str, info: fs.FileInfo) -> RowFile:
    """A file with the number of its rows."""
    inner = info.path
    if inner.endswith(PARQUET):
        with system.open_input_file(inner) as file:
            rows = parquet.ParquetFile(file).metadata.num_rows
    else:
        rows = sum(1 for _ in _lines(system, inner))
    return RowFile(address, rows, info.size, info.mtime_ns or 0)


def read(
    file: RowFile, start: int, end: int, key: Sequence[str], *, bare: bool
) -> Iterator[list[Message]]:
    """The rows `start <= number < end` of a file as messages, each with its number as its offset.

    Raises:
        SourceError: the file is gone, has changed, or a row has no column of the key.
    """
    number = start
    try:
        system, within = file_system(file.path)
        info = system.get_file_info(within)
        if (info.size, info.mtime_ns or 0) != (file.size, file.mtime_ns):
            raise SourceError(
                f"cannot read {file.path}: it has changed since the checkpoint was made",
                hint="Put the file back as it was, or start with a new checkpoint.",
            )
        rows = _rows_of_lines(system, within, start, end)
        if file.path.endswith(PARQUET):
            rows = _rows_of_parquet(system, within, start, end, file.constants)
        for some in rows:
            messages = []
            for value in some:
                of_key = _key(value, key, bare=bare) if key else None
                messages.append(Message(number, of_key, value))
                number += 1
            yield messages
    except (CheckpointError, OSError, pa.ArrowException) as error:
        raise SourceError(f"cannot read {file.path}: {error}") from error
    except KeyError as error:
        raise SourceError(
            f"cannot read {file.path}: row {number} has no column {error} of the key"
        ) from error
    if number != end:
        raise SourceError(f"cannot read {file.path}: it has {number} rows, not {end}")


def _key(value: bytes, columns: Sequence[str], *, bare: bool) -> bytes:
    row = _decode(value)
    return canonical.write(row[columns[0]]) if bare else canonical.key(row, columns)


_decode = canonical.decoder(dict[str, Any])


def _rows_of_parquet(
    system: fs.FileSystem, path: str, start: int, end: int, constants: Mapping[str, object]
) -> Iterator[list[bytes]]:
    with system.open_input_file(path) as opened:
        file = parquet.ParquetFile(opened)
        groups, first, skipped = [], 0, 0
        for at in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(at).num_rows
            if first + rows > start and first < end:
                groups.append(at)
            elif first + rows <= start:
                skipped += rows
            first += rows
        left, begin = end - start, start - skipped
        for batch in file.iter_batches(_ROWS, row_groups=groups):
            part = batch.slice(begin, left)
            begin = max(0, begin - batch.num_rows)
            left -= part.num_rows
            for name, value in constants.items():
                part = part.append_column(name, pa.array([value] * part.num_rows))
            if part.num_rows:
                yield objects(part, part.schema.names)


def _rows_of_lines(
    system: fs.FileSystem, path: str, start: int, end: int
) -> Iterator[list[bytes]]:
    lines = itertools.islice(_lines(system, path), start, end)
    while some := list(itertools.islice(lines, _ROWS)):
        try:
            yield [canonical.canonical(line) for line in some]
        except DecodeError as error:
            raise SourceError(
                f"cannot read {path}: a line is no row of JSON: {error.reason}"
            ) from None


def _lines(system: fs.FileSystem, path: str) -> Iterator[bytes]:
    """The lines of a file, but for those that are empty."""
    with system.open_input_stream(path, compression="detect") as stream:
        rest = b""
        while piece := stream.read(_PIECE):
            *whole, rest = (rest + piece).split(b"\n")
            yield from filter(bytes.strip, whole)
        if rest.strip():
            yield rest


_FIELD_ID = b"PARQUET:field_id"
_PARTITION = "partition."


def table_files(name: str, history: History) -> list[RowFile]:
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


def rows_of(source: Input) -> Input:
    """The input that reads the rows of a history."""
    # Encodings are of messages: files have values as they are.
    columns = tuple(msgspec.structs.replace(column, encoding=None) for column in source.columns)
    plain = replace(source, columns=columns, schema=None, tables=None, history=None)
    options = dict(source.options)
    if "sequence" not in options or "deleted" not in source.traits.options:
        return replace(plain, value_format="json", key_format="json", options=())
    # Rows have a place in the order of the source as messages of `changes` have.
    order = {name: options[name] for name in ("sequence", "deleted") if name in options}
    order.setdefault("deleted", "deleted")
    return replace(plain, value_format="changes", key_format="json", options=tuple(order.items()))


def key_columns(source: Input) -> tuple[tuple[str, ...], bool]:
    """The columns of the key of a history's rows, and whether it is the value of the only one."""
    history = source.history
    if source.key or history is None:
        return source.key, False
    return history.key, history.bare


def files_of(plan: Plan) -> dict[str, list[RowFile]]:
    """The files of the inputs that have a history, as they are now.

    Raises:
        SourceError: there are none, or one cannot be read.
    """
    return {
        source.name: list_files(source.name, history.files)
        if history.files
        else table_files(source.name, history)
        for source in plan.inputs
        if (history := source.history) is not None
    }


def with_histories(plan: Plan, last: SourceOffset, ends: Positions) -> Positions:
    """The ends of histories as well, and those of topics that wait for one where they are."""
    ends_of_all = dict(ends)
    for source, base in _unread(plan, last.input_times, last.positions):
        ends_of_all[base.topic] = dict(base.ends)
        for topic in source.topics:
            at = last.positions.get(topic, {})
            ends_of_all[topic] = {p: at[p] for p in ends.get(topic, {}) if p in at}
    return ends_of_all


def without_histories(
    plan: Plan, last: SourceOffset, by_input: Mapping[str, InputTimes]
) -> dict[str, InputTimes]:
    """What is known of inputs, without the histories that were read up to the batch `last`."""
    unread = {source.name for source, _ in _unread(plan, by_input, last.positions)}
    return {
        name: times
        if times.base is None or not times.base.files or name in unread
        else msgspec.structs.replace(times, base=None)
        for name, times in by_input.items()
    }


def _unread(
    plan: Plan, by_input: Mapping[str, InputTimes], positions: Positions
) -> Iterator[tuple[Input, Base]]:
    for source in plan.inputs:
        base = by_input[source.name].base if source.name in by_input else None
        if base is None or not base.files:
            continue
        read = positions.get(base.topic, {})
        if any(read.get(at, 0) < end for at, end in base.ends.items()):
            yield source, base
