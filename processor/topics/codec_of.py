"""The codec of each input, and the options that it gets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ikebana.codecs.change import Change, Codec, DeclaredColumns, Headers, Ignored, Needs
from ikebana.codecs.formats import EMPTY_VALUES, IN_REGISTRY
from ikebana.codecs.sql_type import parsed
from ikebana.processor.planning.input_rows import encodings_of
from ikebana.processor.planning.plan import Input
from ikebana.processor.planning.planner import Reading
from ikebana.processor.topics.column_types import Usual, checked_columns, usual_of

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


def codec_of(source: Input, reading: Reading, schemas: "Schemas | None") -> Codec:
    """Make the codec of an input; `schemas` is the registry, for the formats that need one."""
    narrow = wanted_of(source, reading)
    columns = checked_of(source, reading)
    wide = msgspec.structs.replace(narrow, columns=columns)
    traits = source.traits
    assert traits.codec is not None, f"{source.value_format} has updates, not changes"
    assert schemas is not None or not traits.in_registry, (
        f"input {source.name} is read without a schema registry"
    )
    codec = traits.codec(wide, source.key_format, schemas)
    if not traits.quick or columns == narrow.columns or (usual := usual_of(source)) is None:
        return codec
    return Vouched(traits.codec(narrow, source.key_format, schemas), codec, usual)


def wanted_of(source: Input, reading: Reading) -> Needs:
    """Derive from an input and its `reading` what the codec has to decode."""
    cdc = source.traits.kind != "rows"
    diffs = cdc and source.mode == "diffs"
    schema = {} if source.schema is None else {"reader_schema": source.schema}
    return Needs(
        columns=columns_of_rows(source, reading),
        key=source.key,
        before=diffs or (cdc and source.drift),
        tables=source.tables,
        encodings=encodings_of(source),
        options={**dict(source.options), **schema},
        declared=declared_by(source),
        diffs=diffs,
    )


def checked_of(source: Input, reading: Reading) -> tuple[str, ...] | None:
    """List the columns to decode: those that are read, and those whose type is checked.

    None stands for all columns.
    """
    if reading.columns is None:
        return None
    return tuple(sorted({*(columns_of_rows(source, reading) or ()), *checked_columns(source)}))


def columns_of_rows(source: Input, reading: Reading) -> tuple[str, ...] | None:
    """List the columns that are read, without metadata columns, which no message's value has."""
    if reading.columns is None or not source.metadata:
        return reading.columns
    return tuple(name for name in reading.columns if name not in dict(source.metadata))


def declared_by(source: Input) -> DeclaredColumns:
    """List the columns that an input declares, with their types as DuckDB names them."""
    if not source.columns:
        return DeclaredColumns()
    return DeclaredColumns({column.name: str(parsed(column.type)) for column in source.columns})


def takes_empty_for_null(source: Input) -> bool:
    """Whether a value of zero bytes counts as a null value."""
    if source.traits.kind != "changes":
        return False
    return dict(source.options).get("empty_value", EMPTY_VALUES[0]) == EMPTY_VALUES[0]


def needs_registry(source: Input) -> bool:
    """Whether an input's messages can be read only with a schema registry."""
    return source.traits.in_registry or source.key_format in IN_REGISTRY


def needs_headers(source: Input) -> bool:
    """Whether decoding needs the headers of messages."""
    of_metadata = any(kind == "headers" for _, kind in source.metadata)
    return needs_registry(source) or source.traits.kind == "updates" or of_metadata


def needs_timestamps(source: Input) -> bool:
    """Whether decoding needs the timestamps of messages."""
    of_metadata = any(kind == "timestamp" for _, kind in source.metadata)
    return source.event_time is not None or of_metadata


# Check the types of columns that nobody reads, mostly without decoding them.
#
# A full check needs a column's value, and canonical values of all declared columns would cost as
# much as reading few columns saves.  So each message first goes through a decoder that accepts
# only the usual forms of each type and builds no values.  If it accepts a message, only the
# columns that are read are decoded; otherwise all declared columns are decoded, and checked.


class Wide(Change):
    """A change with all checked columns, which has yet to be narrowed to those that are read."""

    __slots__ = ()


class Vouched:
    """A codec of Debezium's JSON that decodes unread columns only if it must check them.

    `narrow` decodes the columns that are read, `wide` also those that are checked.
    """

    def __init__(self, narrow: Codec, wide: Codec, usual: Usual) -> None:
        self._narrow = narrow
        self._wide = wide
        self._usual = usual
        image = usual.row | None
        # Events inside a payload or a text have no "op" at the top, so they go the wide way.
        event: Any = msgspec.defstruct(
            "Event", [("op", str), ("before", image, None), ("after", image, None)]
        )
        self._decode = msgspec.json.Decoder(event).decode

    def key(self, key: bytes | None) -> bytes | None:
        """Decode the Kafka key alone into the canonical key."""
        return self._narrow.key(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message into changes with the columns that are read, or more (`Wide`)."""
        if value is None or self._vouches(value):
            return self._narrow.changes(key, value, headers)
        changes = self._wide.changes(key, value, headers)
        return changes if isinstance(changes, Ignored) else [Wide(*change) for change in changes]

    def _vouches(self, value: bytes) -> bool:
        """Whether all declared columns of both images have the usual forms."""
        try:
            event = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._usual.fit([row for row in (event.before, event.after) if row is not None])
