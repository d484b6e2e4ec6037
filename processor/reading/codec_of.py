"""Which codec reads an input, and what it is told to read."""

from typing import TYPE_CHECKING

import msgspec

from ikebana.codecs.change import Codec, Declared, Wanted
from ikebana.codecs.plain import Plain
from ikebana.processor.planning.input_options import EMPTY_VALUES, full_encoding
from ikebana.processor.planning.plan import PLAIN_FORMATS, UPDATE_FORMATS, Input
from ikebana.processor.planning.planner import Reading
from ikebana.processor.reading.column_types import checked_columns, usual_of

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas


def codec_of(source: Input, reading: Reading, schemas: "Schemas | None") -> Codec:
    """The codec of an input; `schemas` is the registry, for the formats that need one."""
    narrow = wanted_of(source, reading)
    columns = _checked(source, reading)
    wanted = msgspec.structs.replace(narrow, columns=columns)
    match source.value_format:
        case "json" | "bytes":
            assert source.key_format != "avro"
            return Plain(source.key_format, source.value_format, wanted)
        case "debezium-json":
            from ikebana.codecs.debezium import Debezium
            from ikebana.processor.reading.vouched import Vouched

            if columns == narrow.columns or (usual := usual_of(source)) is None:
                return Debezium(wanted)
            return Vouched(Debezium(narrow), Debezium(wanted), usual)
        case "debezium-flat-json":
            from ikebana.codecs.debezium_flat import DebeziumFlat

            return DebeziumFlat(wanted)
        case "maxwell":
            from ikebana.codecs.maxwell import Maxwell

            return Maxwell(wanted)
        case "canal":
            from ikebana.codecs.canal import Canal

            return Canal(wanted)
        case "goldengate":
            from ikebana.codecs.goldengate import GoldenGate

            return GoldenGate(wanted)
        case "dms":
            from ikebana.codecs.dms import Dms

            return Dms(wanted)
        case "avro" | "debezium-avro":
            return _avro(source, wanted, schemas)
        case _:
            raise AssertionError(f"{source.value_format} has updates, not changes")


def wanted_of(source: Input, reading: Reading) -> Wanted:
    """What is wanted of an input's messages."""
    cdc = source.value_format not in PLAIN_FORMATS
    diffs = cdc and source.mode == "diffs"
    schema = {} if source.schema is None else {"reader_schema": source.schema}
    return Wanted(
        columns=reading.columns,
        key=source.key,
        before=diffs or (cdc and source.drift),
        tables=source.tables,
        encodings={
            c.name: full_encoding(c.type, c.encoding) for c in source.columns if c.encoding
        },
        options={**dict(source.options), **schema},
        declared=declared_by(source),
        diffs=diffs,
    )


def _checked(source: Input, reading: Reading) -> tuple[str, ...] | None:
    """The columns that are read, and those whose type is checked whoever reads them."""
    if reading.columns is None:
        return None
    return tuple(sorted({*reading.columns, *checked_columns(source)}))


def declared_by(source: Input) -> Declared:
    """The columns that an input declares, with their types as DuckDB names them."""
    if not source.columns:
        return Declared()
    from ikebana.processor.linear.expressions import type_named

    return Declared({column.name: type_named(column.type) for column in source.columns})


def takes_empty_for_null(source: Input) -> bool:
    """Whether a message whose value has no bytes is taken for one that has none."""
    if source.value_format in (*PLAIN_FORMATS, *UPDATE_FORMATS):
        return False
    return dict(source.options).get("empty_value", EMPTY_VALUES[0]) == EMPTY_VALUES[0]


def needs_registry(source: Input) -> bool:
    """Whether an input's messages can be read only with a schema registry."""
    return source.value_format in ("avro", "debezium-avro") or source.key_format == "avro"


def needs_headers(source: Input) -> bool:
    """Whether a message's headers say anything that decoding needs."""
    return needs_registry(source) or source.value_format == "diff"


def _avro(source: Input, wanted: Wanted, schemas: "Schemas | None") -> Codec:
    from ikebana.codecs.avro import AvroUpserts
    from ikebana.codecs.debezium_avro import DebeziumAvro

    assert schemas is not None, f"input {source.name} is read without a schema registry"
    if source.value_format == "debezium-avro":
        return DebeziumAvro(schemas, wanted)
    return AvroUpserts(schemas, wanted, key_format=source.key_format)
