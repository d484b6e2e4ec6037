"""What the values of columns mean: by a message's schema, or else by the columns' encodings.

For each semantic type of Kafka Connect's and Debezium's schemas there is the SQL type that takes
its values without loss, and the conversion of the values in messages to their normal form
(`codecs.encodings`).  Decoders convert by this table, and `ikebana new` proposes columns by it.

An encoding is declared in the pipeline file, or usual for a format.  It says what a value in a
message is, if neither JSON nor the message's schema says it: a count of microseconds, the text of
a JSON document.  It applies to messages without a schema, and to types of a schema that leave the
meaning open, such as `int64` or `string` without a name.  Its name ends in "[]" for each array
around the values.

A connector writes a JSON column as a text, and an interval as a count of microseconds, so the
formats of such connectors have an encoding for all declared columns of these types (`usual`).
That is a property of the column and the format: it depends neither on a message nor on who
reads the column.
"""

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.canonical import DEEPEST, too_deep
from ikebana.codecs.encodings import (
    COUNTED,
    DIGITS,
    Convert,
    decimal_of,
    duration,
    from_base64,
    from_bytes,
    iso_date,
    or_unchanged,
    scale_of,
    structured,
    unexpected_value,
    variable_decimal,
    zoned_time,
    zoned_timestamp,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.sql_type import Array, Decimal, List, SqlType, parsed

DECIMAL = "org.apache.kafka.connect.data.Decimal"
PRECISION = "connect.decimal.precision"
"""The parameter with the number of a decimal's digits in Debezium."""
WIDEST_DECIMAL = 38
"""The most digits of SQL's decimals."""


class Form(NamedTuple):
    """How compiled code writes the normal form of a value; it is left to Python if this is "".

    A count has `digits` of a second, and a decimal a scale; `utc` adds a "Z".
    """

    name: Literal["", "date", "time", "timestamp", "zoned", "decimal"] = ""
    digits: int = 0
    utc: bool = False


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
    form: Form = Form()


def form_of(count: str, *, utc: bool = False) -> Form:
    """The form of a count, by its name among `encodings.COUNTED`."""
    name, _, unit = count.partition("-")
    return Form(cast(Any, name), DIGITS.get(unit, 0), utc)


def _counted(kind: str, name: str) -> Meaning:
    return Meaning(kind, COUNTED[name], name, form_of(name))


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
    "io.debezium.time.ZonedTimestamp": Meaning(
        "TIMESTAMPTZ", zoned_timestamp, form=Form("zoned", utc=True)
    ),
    "io.debezium.time.IsoDate": Meaning("DATE", iso_date),
    "io.debezium.time.IsoTime": Meaning("TIME", partial(zoned_time, zone="")),
    "io.debezium.time.IsoTimestamp": Meaning(
        "TIMESTAMP", partial(zoned_timestamp, zone=""), form=Form("zoned")
    ),
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
    "io.debezium.data.Json": Meaning("JSON", None, "json"),
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
        return Meaning(kind, decimal_of(scale, binary), needed, Form("decimal", scale))
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
        raise canonical.decode_error("schema", error) from None


def _of_node(node: Schema, *, strict: bool) -> Convert | None:
    convert = of_name(node.name, node.parameters, from_base64) or _of_parts(node, strict=strict)
    return convert if strict or convert is None else or_unchanged(convert)


def _of_parts(node: Schema, *, strict: bool) -> Convert | None:
    if node.type == "struct":
        fields = of_columns(node, {}, lambda _: strict)
        return _struct(fields) if fields else None
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
            raise unexpected_value("an object", value)
        value.update({name: fields[name](value[name]) for name in fields if name in value})
        return value

    return convert


def _array(items: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise unexpected_value("an array", value)
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
        raise unexpected_value("an object or an array of pairs", value)

    return convert


def _as_it_is(value: Any) -> Any:
    return value


WhenUsual = Literal["always", "named", "never"]
"""Whether a format has the usual encodings of JSON and INTERVAL columns: `named` only if a
schema names these types."""

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "int", "long"})
_NUMBERS = _INTEGERS | {"float", "double"}
_BYTES = frozenset({"bytes", "fixed"})
_TEXTS = frozenset({"string"})
USUAL = {"JSON": "json", "INTERVAL": "interval-micros"}
"""The usual encodings of columns, by their types."""
_NAMES = {
    "json": frozenset({"io.debezium.data.Json"}),
    "interval-micros": frozenset({"io.debezium.time.MicroDuration"}),
}
_ITEMS = "[]"
# Behind the names of usual encodings.
_ASSUMED, _NAMED = ":assumed", ":named"
_SUFFIXES = {(how, bare) for how in ("assumed", "named") for bare in _NAMES}


class Encoding(NamedTuple):
    """The conversion of a column's values, and the types of a schema that it applies to."""

    convert: Convert
    types: frozenset[str]
    names: frozenset[str] | None = None
    """The names that such a type has to have; None for any."""
    assumed: bool = False
    """Whether it is not declared; then it does not apply to documents, which have JSON values."""
    items: "Encoding | None" = None
    """The encoding of the items, if values are arrays."""

    def fits(self, kind: str, name: str | None = None) -> bool:
        """Whether it applies to a type of a schema, which is not that of an array."""
        return kind in self.types and (self.names is None or name in self.names)


def encoding(name: str) -> Encoding:
    """Find an encoding by its full name; its conversion leaves null unchanged.

    Raises:
        ValueError: there is no such encoding.

    >>> encoding("timestamp-millis").convert(1706704496789)
    '2024-01-31T12:34:56.789'
    >>> encoding("decimal:2").convert("MDk=")
    123.45
    >>> encoding("json[]").convert(['{"a": 1}', None])
    [{'a': 1}, None]
    """
    if name.endswith(_ITEMS):
        items = encoding(name.removesuffix(_ITEMS))
        return Encoding(_array(items.convert), frozenset(), items.names, items.assumed, items)
    if name.startswith("decimal:") and (scale := scale_of(name[8:])) is not None:
        return Encoding(_decimal(scale), _BYTES)
    bare, _, suffix = name.partition(":")
    if (result := _BY_NAME.get(bare)) is None or (suffix and (suffix, bare) not in _SUFFIXES):
        raise ValueError(f'"{name}" is none of {", ".join(CHOICES)}')
    if suffix == "named":
        return result._replace(names=_NAMES[bare])
    return result._replace(assumed=bool(suffix))


def encodings(names: Mapping[str, str]) -> dict[str, Encoding]:
    """Find the encodings of columns by their full names; plain ones are left out."""
    return {
        column: encoding(name) for column, name in names.items() if not name.startswith("plain")
    }


def bare_conversions(declared: Mapping[str, Encoding]) -> dict[str, Convert]:
    """The conversions of columns of messages without a schema."""
    return {name: each.convert for name, each in declared.items() if each.names is None}


def full_name(kind: str, name: str) -> str:
    """The full name of an encoding of a column: with the scale of its type, and with its arrays.

    >>> full_name("DECIMAL(12,2)[]", "decimal")
    'decimal:2[]'
    """
    items, arrays = _items_and_depth(kind)
    if name == "decimal":
        name = f"decimal:{items.scale if isinstance(items, Decimal) else 0}"
    # The document in a text may be an array.
    whole = name.endswith(_ITEMS) or (name == "json" and str(items) != "JSON")
    return name + _ITEMS * (0 if whole else arrays)


def usual_name(kind: str, usual: WhenUsual) -> str | None:
    """The full name of the usual encoding of a column; None if it has none."""
    items, arrays = _items_and_depth(kind)
    name = USUAL.get(str(items))
    if usual == "never" or name is None:
        return None
    return name + (_NAMED if usual == "named" else _ASSUMED) + _ITEMS * arrays


def _items_and_depth(kind: str) -> tuple[SqlType, int]:
    """Split a type into the type of the items, and the number of arrays around them."""
    items, arrays = parsed(kind), 0
    while isinstance(items, List | Array):
        items, arrays = items.of, arrays + 1
    return items, arrays


def of_columns(
    schema: Schema, declared: Mapping[str, Encoding], judges: Callable[[str], bool]
) -> dict[str, Convert]:
    """Find the conversions of the columns of a row by its Kafka Connect JSON schema.

    A declared encoding applies if the schema leaves the meaning open.  Normal columns are left
    out.  A value that contradicts the schema is an error in a column for which `judges` holds, and
    stays unchanged in others.

    Raises:
        DecodeError: it is no schema.
    """
    converts = {}
    for field in schema.fields or ():
        name = field.field
        if name is None:
            continue
        convert = of_connect(field, strict=judges(name))
        if convert is None and (of_column := declared.get(name)) is not None:
            convert = _open(field, of_column)
        if convert is not None:
            converts[name] = convert
    return converts


def _open(node: Schema, of_column: Encoding) -> Convert | None:
    if of_column.items is not None:
        inner = _open(node.items, of_column.items) if node.type == "array" and node.items else None
        return of_column.convert if inner is not None else None
    return of_column.convert if of_column.fits(node.type, node.name) else None


def _decimal(scale: int) -> Convert:
    digits, variable = decimal_of(scale, from_base64), variable_decimal(from_base64)
    return lambda value: (variable if value.__class__ is dict else digits)(value)


_decode = canonical.decoder(Any)


def _json(value: Any) -> Any:
    if value.__class__ is not str:
        # Connectors write documents as texts; arrays and objects come from other columns.
        return value
    try:
        text = value.encode()
        # Its row is an object, and may have an array around it.
        if not too_deep(b"[[%b]]" % text):
            return _decode(text)
        reason = f"it is nested more than {DEEPEST} deep"
    except UnicodeError:
        reason = "it is not UTF-8"
    except canonical.REFUSALS as error:
        reason = canonical.decode_error("value", error).reason
    raise DecodeError("value", f"expected JSON, found another text: {reason}")


def _bytes_of(decode: Callable[[str], bytes], what: str) -> Convert:
    def convert(value: Any) -> str | None:
        if value is None:
            return None
        if value.__class__ is not str:
            raise unexpected_value(what, value)
        try:
            return b64encode(decode(value)).decode()
        except ValueError:
            raise unexpected_value(what, value) from None

    return convert


def _from_url_safe(text: str) -> bytes:
    if not _URL_SAFE(text):
        raise ValueError
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


_URL_SAFE = re.compile(r"[A-Za-z0-9_-]*={0,2}").fullmatch


def _from_hex(text: str) -> bytes:
    if not _HEX(text):
        raise ValueError
    # DMS writes a prefix, unless it has `NoHexPrefix`.
    return bytes.fromhex(text.removeprefix("0x"))


_HEX = re.compile(r"(?:0x)?[0-9A-Fa-f]*").fullmatch

_BY_NAME = {
    **{name: Encoding(convert, _INTEGERS) for name, convert in COUNTED.items()},
    "interval-micros": Encoding(duration, _NUMBERS),
    "json": Encoding(_json, _TEXTS),
    "base64": Encoding(_bytes_of(from_base64, "base64 text"), _TEXTS),
    "base64-url-safe": Encoding(_bytes_of(_from_url_safe, "URL-safe base64 text"), _TEXTS),
    "hex": Encoding(_bytes_of(_from_hex, "hexadecimal digits"), _TEXTS),
    "structured": Encoding(structured, frozenset()),
    "plain": Encoding(lambda value: value, frozenset()),
}
CHOICES = (*COUNTED, "decimal", *(name for name in _BY_NAME if name not in COUNTED))
"""The encodings that may be declared."""
