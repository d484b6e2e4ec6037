"""Decode keys and rows in Protobuf by the schemas of a registry, as JSON data.

* Integers, floats, texts and booleans are as in JSON, bytes are base64, enumerations the names of
  their values.  A field without presence that a message lacks has the default of its type; one
  with presence, such as an `optional` one, and one of a `oneof`, is null.
* A repeated field is an array, a map an object, a message an object or null.
* `google.protobuf.Timestamp`, `google.type.Date` and `google.type.TimeOfDay` are texts of
  timestamps in UTC, dates and times, and `confluent.type.Decimal` is a number.  Of
  `google.protobuf`, wrappers are their values or null, `Duration` is an interval, and `Struct`,
  `Value` and `ListValue` are JSON.

Messages are named by the id of their schema; a header that names it is refused, as it does not
say which message of the schema it is.
"""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import CONVERTS, Part, SchemaUnknown, locate
from ikebana.codecs.change import Change, Headers, Needs
from ikebana.codecs.encodings import decimals, duration, time_of, timestamp_of
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.plain import KeyedUpserts
from ikebana.codecs.protobuf_files import (
    Descriptions,
    indexes_of,
    library,
    message_at,
    pool_of,
)
from ikebana.codecs.row_images import RowImages

Convert = Callable[[Any], Any]
_SPACE = "google.protobuf."


class ProtobufDecoder:
    """Decodes the keys, or the values, of a topic.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(self, schemas: Descriptions, part: Part = "value") -> None:
        self._of = library()
        self._schemas, self._part = schemas, part
        self._codec = f"Protobuf {part}"
        self._pools: dict[int | str, tuple[Any, str]] = {}
        self._types: dict[tuple[int | str, tuple[int, ...]], tuple[Any, Convert]] = {}

    def decode(self, message: bytes, headers: Headers = None) -> Any:
        """Decode a message into JSON data with canonical numbers.

        Raises:
            DecodeError: the message cannot be decoded.
        """
        return self.named(message, headers)[1]

    def named(self, message: bytes, headers: Headers = None) -> tuple[str, Any]:
        """Decode a message; return the full name of its type, too.

        Raises:
            DecodeError: the message cannot be decoded.
        """
        try:
            schema, start = locate("confluent", self._part, message, headers)
            if not start:
                raise DecodeError(self._codec, "a header names its schema, and not its message")
            indexes, start = indexes_of(message, start)
            kind, convert = self._type(schema, indexes)
            data = convert(kind.FromString(message[start:]))
            return str(kind.DESCRIPTOR.full_name), data
        except DecodeError as error:
            raise DecodeError(self._codec, error.reason) from None
        except self._of.message.DecodeError:
            raise DecodeError(self._codec, "its body does not fit its schema") from None
        except SchemaUnknown as error:
            raise DecodeError(self._codec, error.reason) from None
        except RecursionError:
            raise DecodeError(self._codec, "it is nested too deeply") from None

    def _type(self, schema: int | str, indexes: tuple[int, ...]) -> tuple[Any, Convert]:
        entry = self._types.get((schema, indexes))
        if entry is None:
            if schema not in self._pools:
                files = self._schemas.described(schema)
                self._pools[schema] = pool_of(files), files[-1][0]
            kind = message_at(*self._pools[schema], indexes)
            entry = self._types[schema, indexes] = kind, Messages().of(kind.DESCRIPTOR)
        return entry


class Messages:
    """Converts messages to JSON data by their types; a type may have fields of the same type."""

    def __init__(self) -> None:
        self._converts: dict[str, Convert] = {}

    def of(self, descriptor: Any) -> Convert:
        """The conversion of messages of a type to JSON data."""
        name = descriptor.full_name
        if (convert := _WELL_KNOWN.get(name)) is not None:
            return convert
        if name not in self._converts:
            fields: list[tuple[str, Convert]] = []
            self._converts[name] = lambda message: {name: get(message) for name, get in fields}
            fields += [(field.name, self._field(field)) for field in descriptor.fields]
        return self._converts[name]

    def _field(self, field: Any) -> Convert:
        """The conversion of a field of a message to JSON data."""
        name = field.name
        if field.is_repeated:
            entry = field.message_type
            if entry is not None and entry.GetOptions().map_entry:
                each = self._value(entry.fields_by_name["value"])
                return lambda m: {_key(k): each(v) for k, v in getattr(m, name).items()}
            each = self._value(field)
            return lambda m: [each(item) for item in getattr(m, name)]
        value = self._value(field)
        if not field.has_presence:
            return lambda m: value(getattr(m, name))
        if field.has_default_value:
            return lambda m: value(getattr(m, name))
        return lambda m: value(getattr(m, name)) if m.HasField(name) else None

    def _value(self, field: Any) -> Convert:
        if field.message_type is not None:
            return self.of(field.message_type)
        match field.type:
            case field.TYPE_BYTES:
                return _base64
            case field.TYPE_STRING:
                return _text
            case field.TYPE_FLOAT:
                return CONVERTS["float"]
            case field.TYPE_DOUBLE:
                return CONVERTS["double"]
            case field.TYPE_ENUM:
                # Of several names of a number the first one counts, as in other languages.
                names = {value.number: value.name for value in reversed(field.enum_type.values)}
                return lambda number: names.get(number, number)
        return lambda value: value


def _key(key: Any) -> str:
    """The key of a map as a name of JSON."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DecodeError("Protobuf", "a text is not UTF-8")
    return value


_seconds, _time = timestamp_of(0), time_of(9)
_BILLION = 1_000_000_000


def _timestamp(message: Any) -> str:
    # The count of nanoseconds may need more than 64 bits.
    over, nanos = divmod(message.nanos, _BILLION)
    return f"{_seconds(message.seconds + over)}{decimals(nanos, 9)}Z"


def _date(message: Any) -> Any:
    with suppress(ValueError):
        return date(message.year, message.month, message.day).isoformat()
    # A part of a date, such as a year alone, is no date.
    return {"year": message.year, "month": message.month, "day": message.day}


def _time_of_day(message: Any) -> Any:
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    return _time(seconds * _BILLION + message.nanos)


def _decimal(message: Any) -> Any:
    unscaled = int.from_bytes(message.value, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return canonical.exact(Decimal((int(unscaled < 0), digits, -message.scale)))


def _length(message: Any) -> Any:
    return duration(Decimal(message.seconds * _BILLION + message.nanos) / 1000)


def _wrapped(message: Any) -> Any:
    return message.value


def _json(message: Any) -> Any:
    """The JSON of a `Value`."""
    match message.WhichOneof("kind"):
        case "struct_value":
            return _struct(message.struct_value)
        case "list_value":
            return _list(message.list_value)
        case "number_value":
            return CONVERTS["double"](message.number_value)
        case "string_value" | "bool_value" as name:
            return getattr(message, name)
    return None


def _struct(message: Any) -> Any:
    return {name: _json(value) for name, value in message.fields.items()}


def _list(message: Any) -> Any:
    return [_json(value) for value in message.values]


_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String")
_WELL_KNOWN: dict[str, Convert] = {
    f"{_SPACE}Timestamp": _timestamp,
    f"{_SPACE}Duration": _length,
    "google.type.Date": _date,
    "google.type.TimeOfDay": _time_of_day,
    "confluent.type.Decimal": _decimal,
    **{f"{_SPACE}{name}Value": _wrapped for name in _WRAPPERS},
    f"{_SPACE}FloatValue": lambda message: CONVERTS["float"](message.value),
    f"{_SPACE}DoubleValue": lambda message: CONVERTS["double"](message.value),
    f"{_SPACE}BytesValue": lambda message: _base64(message.value),
    f"{_SPACE}Value": _json,
    f"{_SPACE}Struct": _struct,
    f"{_SPACE}ListValue": _list,
}


class ProtobufUpserts(KeyedUpserts):
    """Decodes keyed upserts with values in Protobuf; `needs.key` has the key columns.

    A key in Protobuf or JSON may be any data; a key in bytes is taken as it is.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(self, schemas: Descriptions, needs: Needs, key_format: str) -> None:
        super().__init__(needs.key)
        self._key_format = key_format
        self._keys = ProtobufDecoder(schemas, "key")
        self._values = ProtobufDecoder(schemas)
        self._images = RowImages("Protobuf value", needs, exact=False)

    def key(self, key: bytes | None) -> bytes | None:
        return None if self._key_columns else self._of_kafka(key, None)

    def _row(self, row_key: bytes | None, value: bytes, headers: Headers) -> Change:
        try:
            data = self._values.decode(value, headers)
            if not isinstance(data, dict):
                raise DecodeError("Protobuf value", "its message is no row")
            if self._key_columns:
                row_key = self._images.key(data, self._key_columns)
            return Change("upsert", row_key, self._images.row(self._images.converted(data)))
        except DecodeError as error:
            raise DecodeError(error.codec, error.reason, key=row_key) from None
        except canonical.REFUSALS as error:
            reason = canonical.refused("Protobuf value", error).reason
            raise DecodeError("Protobuf value", reason, key=row_key) from None

    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes:
        if key is None:
            raise DecodeError("key", "it is null")
        if self._key_format == "bytes":
            return key
        try:
            if self._key_format == "json":
                data: Any = canonical.decoder(Any)(key)
            else:
                data = self._keys.decode(key, headers)
            return self._written(data)
        except canonical.REFUSALS as error:
            raise canonical.refused("key", error) from None

    def _written(self, data: Any) -> bytes:
        if not self._key_columns:
            return canonical.write(data)
        if not isinstance(data, dict):
            raise DecodeError("key", "it lacks a column of the key")
        key = self._images.key(data, self._key_columns)
        assert key is not None, "the key has columns"
        return key
