"""Write messages of outputs in Protobuf, by schemas that follow from the types of columns.

| SQL | Protobuf |
|---|---|
| BOOLEAN | bool |
| TINYINT, SMALLINT, INTEGER, UTINYINT, USMALLINT | int32 |
| UINTEGER, UBIGINT; BIGINT | uint32, uint64; int64 |
| FLOAT, DOUBLE | float, double |
| DECIMAL(p, s); HUGEINT, UHUGEINT | confluent.type.Decimal |
| BLOB | bytes |
| DATE, TIME | google.type.Date, google.type.TimeOfDay |
| TIMESTAMP, also of other precisions and with a zone | google.protobuf.Timestamp |
| STRUCT, list and array, MAP | message, repeated, map |
| VARCHAR, JSON and all others | string |

Every field that is none of a list or a map is optional, so a column that a row lacks is null.  A
list or a map that is null is empty.  What is null within one is no value of its type, and neither
is a list in a list.

The number of a field follows from its name: it stays when columns come and go, so readers with a
schema of before, or of after, read messages of both.  Two names with one number are refused.

The first message of a file is that of the key, or of the row.  A key that is no record is the only
field of one.  A row of which a column is not of its type is a violation.
"""

import functools
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple, cast
from zlib import crc32

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import MessagePart, Schemas
from ikebana.codecs.encodings import INFINITE_NANOS
from ikebana.codecs.output_messages import (
    Forms,
    OutputShape,
    ToDatum,
    ToJson,
    Writers,
    avro_scalars,
    has_names,
)
from ikebana.codecs.protobuf import (
    DATE,
    DECIMAL,
    TIME_OF_DAY,
    TIMESTAMP,
    Descriptions,
    ProtobufDecoder,
    entry_of,
    library,
    message_at,
    pool_of,
)
from ikebana.codecs.sql_type import JSON, Array, List, Map, Scalar, SqlType, Struct
from ikebana.codecs.sql_type import Decimal as DecimalType

KIND = "PROTOBUF"
"""The name of the format in registries."""
name_problem = (
    "has a name or a type that Protobuf has not (letters, digits and _; each with its own number, "
    "which follows from it; no lists or maps in lists or maps)"
)
_ROW, _KEY, _ONLY = "Value", "Key", "OnlyKey"
# The field of a key that is no record, and whether it has the JSON of the key.
_FIELD, _FIELD_JSON = "key", "json_key"
# Four bytes hold numbers below the last one; some of the first are in use.
_FIRST, _LAST = 20_000, 1 << 25
_TAG = b"\0"
"""The place of the first message of a file."""


def carries(kind: SqlType) -> bool:
    """Whether Protobuf can express the names and types within a type."""
    return has_names(kind) and _flat(kind)


def _flat(kind: SqlType) -> bool:
    match kind:
        case Struct(fields):
            entries = [entry_of(name) for name, of in fields if isinstance(of, Map)]
            numbers = {number_of(name) for name, _ in fields}
            apart = len(numbers) == len(fields) and len(set(entries)) == len(entries)
            return apart and all(_flat(of) for _, of in fields)
        case List(of) | Array(of) | Map(_, of):
            return not isinstance(of, List | Array | Map) and _flat(of)
    return True


def number_of(name: str) -> int:
    """The number of a field."""
    return _FIRST + crc32(name.encode()) % (_LAST - _FIRST)


def names(shape: OutputShape) -> tuple[str, str]:
    """The full names of the messages of keys and of values."""
    key = _KEY if isinstance(shape.key_type, Struct) else _ONLY
    return f"{shape.space}.{key}", f"{shape.space}.{_ROW}"


def schemas(shape: OutputShape) -> tuple[str, str]:
    """The schemas of keys and of values, as a registry gets them."""
    return tuple(map(_text, files_of(shape)))  # type: ignore[return-value]


def files_of(shape: OutputShape) -> tuple[Any, Any]:
    """The files of keys and of values, as their descriptions.

    Raises: ConfigError, without the library.
    """
    key = _fields_of_key(shape.key_type)
    of_key, of_value = (name.rpartition(".")[2] for name in names(shape))
    return _file(shape.space, of_key, key), _file(shape.space, of_value, shape.columns)


def _fields_of_key(kind: SqlType) -> tuple[tuple[str, SqlType], ...]:
    if isinstance(kind, Struct):
        return kind.fields
    return ((_FIELD_JSON, Scalar("VARCHAR")) if kind == JSON else (_FIELD, kind),)


def _file(space: str, name: str, columns: Sequence[tuple[str, SqlType]]) -> Any:
    of = library().descriptor_pb2
    file = of.FileDescriptorProto(name=f"{space}.{name}.proto", package=space, syntax="proto3")
    _add_message(file, file.message_type.add(), name, columns)
    file.dependency.extend(sorted(_imports(columns)))
    return file


def _imports(columns: Sequence[tuple[str, SqlType]]) -> set[str]:
    paths = set()
    for _, kind in columns:
        match kind:
            case Struct(fields):
                paths |= _imports(fields)
            case List(of) | Array(of) | Map(_, of):
                paths |= _imports([("", of)])
            case _:
                paths |= {form.path for form in [_form(kind)] if form.path}
    return paths


def _add_message(
    file: Any, message: Any, name: str, columns: Sequence[tuple[str, SqlType]]
) -> None:
    """Describe a message with fields of these types, followed by other messages that it needs."""
    message.name = name
    for column, kind in columns:
        field = message.field.add(name=column, number=number_of(column))
        match kind:
            case List(of) | Array(of):
                field.label = field.LABEL_REPEATED
                _set_type(file, field, of, f"{name}_{column}")
            case Map(_, of):
                entry = message.nested_type.add(name=entry_of(column))
                entry.options.map_entry = True
                key = entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL)
                key.type = field.TYPE_STRING
                value = entry.field.add(name="value", number=2, label=field.LABEL_OPTIONAL)
                _set_type(file, value, of, f"{name}_{column}")
                field.label, field.type = field.LABEL_REPEATED, field.TYPE_MESSAGE
                field.type_name = f".{file.package}.{name}.{entry.name}"
            case _:
                field.label, field.proto3_optional = field.LABEL_OPTIONAL, True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_choice(column, [name for name, _ in columns]))
                _set_type(file, field, kind, f"{name}_{column}")


def _choice(column: str, others: Sequence[str]) -> str:
    """The name that Protobuf gives to the choice between a field and none."""
    name = f"_{column}"
    while name in others:
        name = f"X{name}"
    return name


def _set_type(file: Any, field: Any, kind: SqlType, name: str) -> None:
    if isinstance(kind, Struct):
        field.type, field.type_name = field.TYPE_MESSAGE, f".{file.package}.{name}"
        _add_message(file, file.message_type.add(), name, kind.fields)
        return
    form = _form(kind)
    field.type = field.Type.Value(f"TYPE_{form.type.upper()}" if not form.path else "TYPE_MESSAGE")
    if form.path:
        field.type_name = f".{form.type}"


class _Form(NamedTuple):
    """The type of a field: a scalar, or a message of another file at a path."""

    type: str
    path: str = ""


_SCALARS = {
    "BOOLEAN": _Form("bool"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), _Form("int32")),
    "UINTEGER": _Form("uint32"),
    "BIGINT": _Form("int64"),
    "UBIGINT": _Form("uint64"),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), _Form("confluent.type.Decimal", DECIMAL)),
    "FLOAT": _Form("float"),
    "DOUBLE": _Form("double"),
    "BLOB": _Form("bytes"),
    "DATE": _Form("google.type.Date", DATE),
    "TIME": _Form("google.type.TimeOfDay", TIME_OF_DAY),
}
_INSTANTS = {
    "TIMESTAMP": 6,
    "TIMESTAMP_S": 6,
    "TIMESTAMP_MS": 6,
    "TIMESTAMP_NS": 9,
    "TIMESTAMP WITH TIME ZONE": 6,
}


def _form(kind: SqlType) -> _Form:
    if isinstance(kind, DecimalType):
        return _SCALARS["HUGEINT"]
    if str(kind) in _INSTANTS:
        return _Form("google.protobuf.Timestamp", TIMESTAMP)
    return _SCALARS.get(str(kind), _Form("string"))


def _text(file: Any) -> str:
    """A file as a registry gets it."""
    imports = "".join(f'import "{path}";\n' for path in file.dependency)
    messages = "\n".join("\n".join(_lines(file, message)) for message in file.message_type)
    return f'syntax = "proto3";\npackage {file.package};\n{imports}\n{messages}\n'


def _lines(file: Any, message: Any) -> Iterator[str]:
    entries = {f".{file.package}.{message.name}.{e.name}": e for e in message.nested_type}
    yield f"message {message.name} {{"
    for field in message.field:
        if (entry := entries.get(field.type_name)) is not None:
            text = f"map<string, {_type_of(entry.field[1])}>"
        elif field.label == field.LABEL_REPEATED:
            text = f"repeated {_type_of(field)}"
        else:
            text = f"optional {_type_of(field)}"
        yield f"  {text} {field.name} = {field.number};"
    yield "}"


def _type_of(field: Any) -> str:
    """A field's type in a text, by its full name if it is a message."""
    return str(field.type_name or field.Type.Name(field.type).removeprefix("TYPE_").lower())


@functools.lru_cache(maxsize=64)
def writers(shape: OutputShape) -> Writers:
    """The writers of keys and values of a shape."""
    of_key, of_value = (_class(file) for file in files_of(shape))
    field = None if isinstance(shape.key_type, Struct) else _fields_of_key(shape.key_type)[0][0]
    # A list or a map cannot have nulls.
    return Forms(_scalars, nulls=False).writers(
        shape,
        lambda key: _written(of_key, key if field is None else {field: key}),
        lambda row: _written(of_value, row),
    )


def _class(file: Any) -> Any:
    return message_at(pool_of([(file.name, file.SerializeToString())]), file.name, (0,))


def _written(of: Any, fields: dict[str, Any]) -> bytes:
    # A field that is None is left out, and a dict has the fields of a message within.
    return _TAG + bytes(of(**fields).SerializeToString(deterministic=True))


def _scalars(kind: SqlType) -> ToDatum:
    """The function that makes a field's value, or the fields of its message: see `ScalarForms`."""
    datum = avro_scalars(kind)
    text = str(kind)
    if text == "UBIGINT":
        return lambda value: int.from_bytes(datum(value), "big", signed=True)
    if isinstance(kind, DecimalType) or text in ("HUGEINT", "UHUGEINT"):
        width, scale = (kind.width, kind.scale) if isinstance(kind, DecimalType) else (38, 0)
        return lambda value: {"value": datum(value), "precision": width, "scale": scale}
    if text == "DATE":
        return lambda value: _date(datum(value))
    if text == "TIME":
        return lambda value: _time(datum(value))
    if text in _INSTANTS:
        unit = 10 ** _INSTANTS[text]
        return lambda value: _timestamp(datum(value), unit)
    return datum


_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SECONDS = range(-62_135_596_800, 253_402_300_800)


def _date(days: int) -> dict[str, int]:
    day = date.fromordinal(days + _EPOCH_DAY)
    return {"year": day.year, "month": day.month, "day": day.day}


def _time(micros: int) -> dict[str, int]:
    seconds, part = divmod(micros, 10**6)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return {"hours": hours, "minutes": minute, "seconds": second, "nanos": part * 1000}


def _timestamp(count: int, unit: int) -> dict[str, int]:
    seconds, part = divmod(count, unit)
    if seconds not in _SECONDS or count in INFINITE_NANOS:
        raise ValueError
    return {"seconds": seconds, "nanos": part * (10**9 // unit)}


def back(schemas: Schemas, part: MessagePart) -> ToJson:
    """A reader of keys, or values, as canonical JSON."""
    decoder = ProtobufDecoder(cast(Descriptions, schemas), part)

    def in_json(message: bytes) -> bytes:
        name, data = decoder.named(message)
        if part == "key" and name.rpartition(".")[2] == _ONLY:
            [(field, data)] = data.items()
            if field == _FIELD_JSON:
                return canonical.canonical(data.encode())
        return canonical.encode(data)

    return in_json
