"""The semantic types of Kafka Connect's and Debezium's schemas: the meaning of their values.

For each there is the SQL type that takes its values without loss, and the conversion of the
values in messages to their normal form (`codecs.encodings`).  Decoders convert by this table, and
`ikebana new` proposes columns by it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.encodings import (
    COUNTED,
    Convert,
    decimal_of,
    expected,
    from_base64,
    from_bytes,
    iso_date,
    scale_of,
    tolerant,
    variable_decimal,
    zoned_time,
    zoned_timestamp,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.structured_times import structured

DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION = "connect.decimal.precision"
"""The parameter with the number of a decimal's digits in Debezium."""
WIDEST_DECIMAL = 38
"""The most digits of SQL's decimals."""


class Meaning(NamedTuple):
    """The meaning that a semantic type gives to a value.

    * `type`: the SQL type that takes the normal form without loss.
    * `convert`: the conversion to the normal form; None if values have it.
    * `encoding`: the encoding that a column declares if messages have no schema; None if none is
      needed, or none helps.
    """

    type: str
    convert: Convert | None = None
    encoding: str | None = None


def _counted(kind: str, name: str) -> Meaning:
    return Meaning(kind, COUNTED[name], name)


# The types io.debezium.time.Iso… have no zone, although Debezium writes "Z".  A TIME of SQL has
# no nanoseconds.
_MEANINGS: dict[str, Meaning] = {
    "io.debezium.time.Date": _counted("DATE", "date"),
    "io.debezium.time.Time": _counted("TIME", "time-millis"),
    "io.debezium.time.MicroTime": _counted("TIME", "time-micros"),
    "io.debezium.time.NanoTime": _counted("VARCHAR", "time-nanos"),
    "io.debezium.time.ZonedTime": Meaning("TIMETZ", zoned_time),
    "io.debezium.time.Timestamp": _counted("TIMESTAMP", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": _counted("TIMESTAMP", "timestamp-micros"),
    "io.debezium.time.NanoTimestamp": _counted("TIMESTAMP_NS", "timestamp-nanos"),
    "io.debezium.time.ZonedTimestamp": Meaning("TIMESTAMPTZ", zoned_timestamp),
    "io.debezium.time.IsoDate": Meaning("DATE", iso_date),
    "io.debezium.time.IsoTime": Meaning("TIME", partial(zoned_time, zone="")),
    "io.debezium.time.IsoTimestamp": Meaning("TIMESTAMP", partial(zoned_timestamp, zone="")),
    "org.apache.kafka.connect.data.Date": _counted("DATE", "date"),
    "org.apache.kafka.connect.data.Time": _counted("TIME", "time-millis"),
    "org.apache.kafka.connect.data.Timestamp": _counted("TIMESTAMP", "timestamp-millis"),
    "io.debezium.time.StructuredDate": Meaning("DATE", structured, "structured"),
    "io.debezium.time.StructuredTime": Meaning("TIME", structured, "structured"),
    "io.debezium.time.StructuredTimestamp": Meaning("TIMESTAMP", structured, "structured"),
    "io.debezium.time.StructuredZonedTime": Meaning("TIMETZ", structured, "structured"),
    "io.debezium.time.StructuredZonedTimestamp": Meaning("TIMESTAMPTZ", structured, "structured"),
    "io.debezium.time.StructuredDuration": Meaning("INTERVAL", structured, "structured"),
    "io.debezium.time.MicroDuration": Meaning("INTERVAL", None, "interval-micros"),
    "io.debezium.time.Interval": Meaning("INTERVAL"),
    "io.debezium.data.Json": Meaning("JSON"),
    "io.debezium.data.Uuid": Meaning("UUID"),
}


def meaning_of_name(
    name: str | None,
    parameters: Mapping[str, str] | None = None,
    binary: Callable[[Any], bytes] = from_bytes,
) -> Meaning | None:
    """Find the meaning of a semantic type; None if the schema's type says all.

    `parameters` has those of the type's schema, such as a decimal's scale; `binary` decodes
    bytes.

    Raises:
        DecodeError: a decimal's scale is no integer, or too large.
    """
    if name == DECIMAL:
        values = parameters or {}
        if (scale := scale_of(str(values.get("scale")))) is None:
            raise DecodeError("schema", "the scale of a decimal is no integer, or too large")
        precision = scale_of(str(values.get(PRECISION)))
        kind = decimal_type(precision, scale)
        # Without a scale, "decimal" takes that of the column's type.
        needed = "decimal" if scale >= 0 and kind != "VARCHAR" else f"decimal:{scale}"
        return Meaning(kind, decimal_of(scale, binary), needed)
    if name == "io.debezium.data.VariableScaleDecimal":
        # Texts are exact for any number of digits.
        return Meaning("VARCHAR", variable_decimal(binary))
    return _MEANINGS.get(name) if name else None


def decimal_type(precision: int | None, scale: int) -> str:
    """The SQL type of decimals: a text if they may be too long, 38 digits if unknown.

    >>> decimal_type(12, 2), decimal_type(5, -2), decimal_type(40, 2), decimal_type(None, 3)
    ('DECIMAL(12,2)', 'DECIMAL(7,0)', 'VARCHAR', 'DECIMAL(38,3)')
    """
    # A negative scale rounds to hundreds, and a scale may be larger than the precision.
    places = max(scale, 0)
    width = WIDEST_DECIMAL if precision is None else max(precision - min(scale, 0), places, 1)
    if width > WIDEST_DECIMAL or places > WIDEST_DECIMAL:
        return "VARCHAR"
    return f"DECIMAL({width},{places})"


def of_name(
    name: str | None,
    parameters: Mapping[str, str] | None = None,
    binary: Callable[[Any], bytes] = from_bytes,
) -> Convert | None:
    """Find the conversion of a semantic type to the normal form, as `meaning_of_name` finds it."""
    meaning = meaning_of_name(name, parameters, binary)
    return None if meaning is None else meaning.convert


class Schema(msgspec.Struct):
    """A node of a Kafka Connect JSON schema."""

    type: str
    name: str | None = None
    parameters: Mapping[str, str] | None = None
    field: str | None = None
    fields: "list[Schema] | None" = None
    items: "Schema | None" = None
    keys: "Schema | None" = None
    values: "Schema | None" = None


def of_connect(schema: Schema | Mapping[str, Any], *, strict: bool = True) -> Convert | None:
    """Find the conversion of a Kafka Connect JSON schema; None if values are normal.

    Structs, arrays and maps are converted in place.  If it is not `strict`, values that contradict
    the schema stay unchanged.

    Raises:
        DecodeError: it is no schema.
    """
    try:
        node = schema if isinstance(schema, Schema) else msgspec.convert(schema, Schema)
        return _of_node(node, strict=strict)
    except canonical.REFUSALS as error:
        raise canonical.refused("schema", error) from None


def of_fields(schema: Schema, *, strict: bool = True) -> dict[str, Convert]:
    """Find the conversions of the fields of a struct; normal fields are left out.

    Raises:
        DecodeError: it is no schema.
    """
    converts = {}
    for field in schema.fields or ():
        if field.field is not None and (convert := of_connect(field, strict=strict)):
            converts[field.field] = convert
    return converts


def _of_node(node: Schema, *, strict: bool) -> Convert | None:
    convert = of_name(node.name, node.parameters, from_base64) or _of_parts(node, strict=strict)
    return convert if strict or convert is None else tolerant(convert)


def _of_parts(node: Schema, *, strict: bool) -> Convert | None:
    if node.type == "struct":
        return _struct(fields) if (fields := of_fields(node, strict=strict)) else None
    if node.type == "array" and node.items:
        return _array(items) if (items := _of_node(node.items, strict=strict)) else None
    if node.type == "map" and node.values:
        keys = _of_node(node.keys, strict=strict) if node.keys else None
        values = _of_node(node.values, strict=strict)
        return _map(keys or _as_it_is, values or _as_it_is) if keys or values else None
    return None


def _struct(fields: Mapping[str, Convert]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise expected("an object", value)
        value.update({name: fields[name](value[name]) for name in fields if name in value})
        return value

    return convert


def _array(items: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise expected("an array", value)
        return [items(item) for item in value]

    return convert


def _map(keys: Convert, values: Convert) -> Convert:
    """Convert a map: an object if its keys are texts, otherwise an array of pairs."""

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {name: values(item) for name, item in value.items()}
        if isinstance(value, list) and all(isinstance(x, list) and len(x) == 2 for x in value):
            return [[keys(key), values(item)] for key, item in value]
        raise expected("an object or an array of pairs", value)

    return convert


def _as_it_is(value: Any) -> Any:
    return value
