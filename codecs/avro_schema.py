"""Avro schemas of a registry: found by the ids in messages, resolved, and what their types mean.

A message may be framed in three ways.  `confluent`: a zero byte and the id in four bytes,
big-endian; or a byte of 1 and the schema's GUID in 16 bytes.  `apicurio`: a zero byte and the id
in eight bytes.  `headers`: the message is only the body.  With each framing an id in the headers
takes precedence: Confluent's header has the same bytes as the prefix above, Apicurio's has eight
bytes.  Of several headers with one name the last counts.

Apicurio numbers schemas twice, by content and globally, and its Confluent-compatible API answers
to only one kind: content ids, unless `legacy-id-mode` is on.  Therefore a global id in a header
is used only with `apicurio`: otherwise it could be the id of another schema.

A resolved schema has full names, and the definitions of all types.  Its types say how the values
of fastavro become canonical JSON data: the semantic types of Kafka Connect and Debezium
(`connect.name`) come before Avro's logical types; decimals are exact numbers, timestamp-* are in
UTC with a "Z", local-timestamp-* without, a duration is an interval of ISO 8601, and bytes become
base64 text.

Sources: confluent_kafka.schema_registry (dual_schema_id_deserializer), Apicurio's
KafkaSerdeHeaders, Default4ByteIdHandler and Legacy8ByteIdHandler.
"""

import re
import struct
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, Protocol

from msgspec import UNSET

from ikebana.codecs import canonical
from ikebana.codecs.change import Headers
from ikebana.codecs.column_encodings import (
    DECIMAL,
    PRECISION,
    Meaning,
    form_of,
    meaning_of_name,
)
from ikebana.codecs.encodings import COUNTED, Convert, decimals
from ikebana.codecs.errors import DecodeError

SIMPLE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


class SchemaUnknown(Exception):
    """A schema id is unknown, or its schema cannot be used; `reason` says which."""

    def __init__(self, reason: str = "schema id is unknown") -> None:
        super().__init__(reason)
        self.reason = reason


class Schemas(Protocol):
    """A source of writers' schemas, such as a registry."""

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        """Look up the schema of an id, with its references, as `self_contained` returns it.

        Raises:
            SchemaUnknown: the id has no schema, or one that cannot be used.
        """
        ...


def self_contained(schema: Any, references: Sequence[Any] = ()) -> Any:
    """Resolve a schema: names become full, and each type is defined where it first occurs.

    `references` has the schemas that it refers to, each after the schemas that it needs.

    Raises:
        SchemaUnknown: it is no Avro schema, or names a type that is not defined.
    """
    types: dict[str, Any] = {}
    try:
        for reference in references:
            _named(reference, "", types, set())
        return _named(schema, "", types, set())
    except (AttributeError, KeyError, RecursionError, TypeError):
        raise SchemaUnknown("its schema is no Avro schema") from None


def _named(schema: Any, namespace: str, types: dict[str, Any], seen: set[str]) -> Any:
    if isinstance(schema, list):
        return [_named(branch, namespace, types, seen) for branch in schema]
    if isinstance(schema, str):
        if schema in SIMPLE:
            return schema
        local = f"{namespace}.{schema}" if namespace and "." not in schema else schema
        for name in (local, schema):
            if name in seen:
                return name
            if name in types:
                return _named(types[name], "", types, seen)
        raise SchemaUnknown("its schema names a type that is not defined")
    kind = schema["type"]
    if kind == "array":
        return {**schema, "items": _named(schema["items"], namespace, types, seen)}
    if kind == "map":
        return {**schema, "values": _named(schema["values"], namespace, types, seen)}
    if kind in ("record", "error", "enum", "fixed"):
        name = schema["name"]
        if "." not in name and (space := schema.get("namespace", namespace)):
            name = f"{space}.{name}"
        if name in seen:
            return name
        seen.add(name)
        resolved = {**schema, "name": name}
        resolved.pop("namespace", None)
        if "fields" in schema:
            space = name.rpartition(".")[0]
            resolved["type"] = "record"
            resolved["fields"] = [
                {**field, "type": _named(field["type"], space, types, seen)}
                for field in schema["fields"]
            ]
        types[name] = resolved
        return resolved
    return schema if isinstance(kind, str) and kind in SIMPLE else _named(
        kind, namespace, types, seen
    )  # fmt: skip


Framing = Literal["confluent", "apicurio", "headers"]
MessagePart = Literal["key", "value"]

_ID, _GUID = 0, 1
_GUID_LENGTH = 17


OF_GLUE = (
    "it has the header of AWS Glue's registry, which is not read: write it by the serializer of a "
    "registry of Confluent or Apicurio"
)
# A version, the kind of compression, and the schema's UUID.
is_of_glue = re.compile(rb"\x03[\x00\x05].{16}", re.DOTALL).match
"""Whether a message begins with the header of AWS Glue's schema registry."""


def locate(
    framing: Framing, part: MessagePart, message: bytes, headers: Headers = None
) -> tuple[int | str, int]:
    """Find the schema's id (a GUID as text), and the index at which the body begins.

    >>> locate("confluent", "value", bytes.fromhex("00 0000002a 02"))
    (42, 5)

    Raises:
        DecodeError: the framing has an id, and the message has none there.
    """
    if headers and (schema := _of_headers(framing, part, headers)) is not None:
        return schema, 0
    if framing == "headers":
        raise DecodeError(f"Avro {part}", "no header names its schema")
    if not message:
        raise DecodeError(f"Avro {part}", "it is empty")
    first = message[0]
    if first == _ID:
        length = 9 if framing == "apicurio" else 5
        if len(message) >= length:
            return int.from_bytes(message[1:length], "big"), length
    elif first == _GUID and framing == "confluent":
        if len(message) >= _GUID_LENGTH:
            return _uuid(message[1:_GUID_LENGTH]), _GUID_LENGTH
    elif is_of_glue(message):
        raise DecodeError(f"Avro {part}", OF_GLUE)
    else:
        raise DecodeError(f"Avro {part}", "it does not begin with the byte of a schema id")
    raise DecodeError(f"Avro {part}", "it is too short for a schema id")


def _of_headers(framing: Framing, part: MessagePart, headers: Headers) -> int | str | None:
    ids: dict[str, bytes | str | None] = {}
    for name, value in headers or ():
        if name.startswith(("__", "apicurio.")):
            ids[name] = value
    if not ids:
        return None
    if (name := f"__{part}_schema_id") in ids:
        value = ids[name]
        if isinstance(value, bytes):
            if len(value) == _GUID_LENGTH and value[0] == _GUID:
                return _uuid(value[1:])
            if len(value) == 5 and value[0] == _ID:
                return int.from_bytes(value[1:], "big")
        raise DecodeError(f"Avro {part}", f'header "{name}" is no schema id')
    for kind in ("contentId", "globalId"):
        if (name := f"apicurio.{part}.{kind}") in ids:
            value = ids[name]
            if not isinstance(value, bytes) or len(value) != 8:
                raise DecodeError(f"Avro {part}", f'header "{name}" is no schema id')
            if kind == "globalId" and framing != "apicurio":
                raise DecodeError(
                    f"Avro {part}", f'header "{name}" is a global id: it needs framing apicurio'
                )
            return int.from_bytes(value, "big")
    return None


def _in_utc(name: str) -> Convert:
    convert = COUNTED[name]

    def in_utc(value: Any) -> str:
        text: str = convert(value)
        return text if text.endswith("infinity") else f"{text}Z"

    return in_utc


def _timestamp(unit: str, utc: str, local: str) -> dict[str, Meaning]:
    name = f"timestamp-{unit}"
    in_utc = Meaning(utc, _in_utc(name), form=form_of(name, utc=True))
    return {name: in_utc, f"local-{name}": _counted(local, name)}


def _counted(kind: str, name: str) -> Meaning:
    return Meaning(kind, COUNTED[name], form=form_of(name))


_LOGICAL = {
    "date": _counted("DATE", "date"),
    "time-millis": _counted("TIME", "time-millis"),
    "time-micros": _counted("TIME", "time-micros"),
    **_timestamp("millis", "TIMESTAMPTZ", "TIMESTAMP"),
    **_timestamp("micros", "TIMESTAMPTZ", "TIMESTAMP"),
    **_timestamp("nanos", "TIMESTAMP_NS", "TIMESTAMP_NS"),
}


class Unfit(Exception):
    """A value that does not fit its field; `path` has the names, the innermost first."""

    def __init__(self, name: str, error: Exception) -> None:
        self.path: list[str] = [*getattr(error, "path", ()), name]
        self.reason: str = getattr(error, "reason", "it is out of range")


_REFUSALS = (Unfit, DecodeError, ArithmeticError, ValueError)


def meaning_of(schema: Mapping[str, Any]) -> Convert | None:
    """The conversion that a schema's semantic or logical type asks for, if it has one."""
    meaning = semantics_of(schema)
    return None if meaning is None else meaning.convert


def semantics_of(schema: Mapping[str, Any]) -> Meaning | None:
    """The meaning of a schema's semantic or logical type; None if it has none."""
    name, logical = schema.get("connect.name"), schema.get("logicalType")
    if meaning := meaning_of_name(name, schema.get("connect.parameters")):
        return meaning
    kind = schema["type"]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        parts = {"scale": schema.get("scale", 0), PRECISION: schema.get("precision")}
        return meaning_of_name(DECIMAL, {name: str(part) for name, part in parts.items()})
    if logical == "uuid":
        fixed = kind == "fixed" and schema["size"] == 16
        return Meaning("UUID", _uuid if fixed else None) if fixed or kind == "string" else None
    if logical == "duration" and kind == "fixed" and schema["size"] == _DURATION.size:
        return Meaning("INTERVAL", _duration)
    if logical in _LOGICAL and kind in ("int", "long"):
        return _LOGICAL[logical]
    return None


def converted(convert: Convert | None, value: Any) -> Any:
    """Convert a value, if there is a conversion."""
    return convert(value) if convert else value


def composed(first: Convert | None, second: Convert) -> Convert:
    """Compose two conversions."""
    return second if first is None else lambda value: second(first(value))


def either(first: Convert, second: Convert | None) -> Convert:
    """The first conversion, or the second one for values that the first one refuses."""

    def convert(value: Any) -> Any:
        try:
            return first(value)
        except _REFUSALS:
            return converted(second, value)

    return convert


def unless(absent: Callable[[Any], bool], convert: Convert | None) -> Convert:
    """A conversion to UNSET for values that pass the test `absent`."""
    return lambda value: UNSET if absent(value) else converted(convert, value)


def of_record(
    names: Sequence[str] | None, converts: Sequence[tuple[str, Convert]]
) -> Convert | None:
    """The conversion of a record: its fields `names`, None for all, some of them converted."""
    if names is None and not converts:
        return None

    def record(value: dict[str, Any]) -> dict[str, Any]:
        # Not in place, because a default is one object that all messages share.
        row = value.copy() if names is None else {name: value[name] for name in names}
        name = ""
        try:
            for name, convert in converts:
                if (field := row[name]) is not None:
                    row[name] = convert(field)
        except _REFUSALS as error:
            raise Unfit(name, error) from None
        return row

    return record


def of_items(convert: Convert | None, kind: type) -> Convert | None:
    """The conversion of the items of a list, or of the values of a dict."""
    if convert is None:
        return None
    if kind is list:
        return lambda value: [None if item is None else convert(item) for item in value]
    return lambda value: {
        name: None if item is None else convert(item) for name, item in value.items()
    }


def as_bytes(value: bytes | str) -> bytes:
    """Bytes, also of a default."""
    # A default of type bytes is a text: its code points are the bytes.
    return value.encode("latin-1") if isinstance(value, str) else value


def base64(value: bytes | str) -> str:
    """Bytes as base64 text."""
    return b2a_base64(as_bytes(value), newline=False).decode()


def _uuid(value: bytes | str) -> str:
    text = as_bytes(value).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _duration(value: bytes | str) -> str:
    months, days, millis = _DURATION.unpack(as_bytes(value))
    seconds, rest = divmod(millis, 1_000)
    return f"P{months}M{days}DT{seconds}{decimals(rest, 3)}S"


_DURATION = struct.Struct("<III")


def _double(value: float) -> Any:
    if value.is_integer() and -1e15 < value < 1e15:
        return int(value)
    return canonical.number(repr(value)) if isfinite(value) else canonical.spelling(value)


def _float(value: float) -> Any:
    # The shortest decimal that names this float of 32 bits, as Java writes it.
    if isfinite(value):
        for digits in range(6, 9):
            if _FLOAT.unpack(_FLOAT.pack(near := float(f"{value:.{digits}g}")))[0] == value:
                return _double(near)
    return _double(value)


_FLOAT = struct.Struct("<f")
CONVERTS: dict[str, Convert] = {"bytes": base64, "float": _float, "double": _double}
