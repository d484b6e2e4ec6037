"""Decode keys and rows in Protobuf by the schemas of a registry, as JSON data.

* Integers, floats, texts and booleans are as in JSON, bytes are base64, enumerations the names of
  their values.  A field without presence that a message lacks has the default of its type; one
  with presence, such as an `optional` one, and one of a `oneof`, is null.
* A repeated field is an array, a map an object, a message an object or null.
* `google.protobuf.Timestamp`, `google.type.Date` and `google.type.TimeOfDay` are texts of
  timestamps in UTC, dates and times, and `confluent.type.Decimal` is a number.  Of
  `google.protobuf`, wrappers are their values or null, `Duration` is an interval, and `Struct`,
  `Value` and `ListValue` are JSON.

A schema is a list of files, each a path and a serialized `FileDescriptorProto`, after the files
that it imports; the main file is the last one.  A registry does not return well-known files:
`google/protobuf/*.proto` are in the library, and a few others for types of SQL are here.

Messages are named by the id of their schema; a header that names it is refused, as it does not
say which message of the schema it is.  After the id, a message has the place of its type: the
number of indexes, and the indexes, each of a message within the one before.  A zero alone is the
first message of the file.

Form: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import CONVERTS, MessagePart, SchemaUnknown, locate
from ikebana.codecs.change import Headers, Needs
from ikebana.codecs.encodings import Convert, decimals, duration, time_of, timestamp_of
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import DataDecoder
from ikebana.codecs.plain import KeyedUpserts
from ikebana.codecs.row_images import RowImages
from ikebana.errors import ConfigError

DATE, TIME_OF_DAY = "google/type/date.proto", "google/type/timeofday.proto"
DECIMAL, TIMESTAMP = "confluent/type/decimal.proto", "google/protobuf/timestamp.proto"
# By path: the package, and its only message with its fields, which are numbered from 1.
_FILES: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    DATE: ("google.type", "Date", (("year", "INT32"), ("month", "INT32"), ("day", "INT32"))),
    TIME_OF_DAY: (
        "google.type",
        "TimeOfDay",
        tuple((name, "INT32") for name in ("hours", "minutes", "seconds", "nanos")),
    ),
    DECIMAL: (
        "confluent.type",
        "Decimal",
        (("value", "BYTES"), ("precision", "UINT32"), ("scale", "INT32")),
    ),
}
_MOST_INDEXES = 100
_SPACE = "google.protobuf."


File = tuple[str, bytes]


class Descriptions(Protocol):
    """A source of schemas in Protobuf, such as a registry."""

    def described(self, id: int | str) -> Sequence[File]:  # noqa: A002 -- as registries call it
        """The files of an id's schema.

        Raises:
            SchemaUnknown: the id has no schema, or one that is not in Protobuf.
        """
        ...


def library() -> Any:
    """The package `google.protobuf`, with the parts that are used.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        package = import_module("google.protobuf")
        for name in ("descriptor_pb2", "descriptor_pool", "message", "message_factory"):
            import_module(f"google.protobuf.{name}")
    except ImportError as error:
        raise ConfigError(
            f"cannot read or write Protobuf: {error.name} is not installed",
            hint='Install it: pip install "ikebana[protobuf]".',
        ) from error
    return package


def pool_of(files: Sequence[File]) -> Any:
    """A pool with the files and everything that they import.

    Raises:
        SchemaUnknown: a file is invalid, or imports a file that is missing.
    """
    of = library()
    pool = of.descriptor_pool.DescriptorPool()
    parsed = []
    try:
        for path, file in files:
            parsed.append(of.descriptor_pb2.FileDescriptorProto.FromString(file))
            parsed[-1].name = path
        for each in parsed:
            for path in each.dependency:
                _add_well_known(pool, path, others={other.name for other in parsed})
            pool.Add(each)
        pool.FindFileByName(parsed[-1].name)
    except (of.message.DecodeError, KeyError, TypeError, IndexError):
        raise SchemaUnknown("its schema cannot be read with") from None
    return pool


def _add_well_known(pool: Any, path: str, others: set[str]) -> None:
    """Add a well-known file that schemas import, unless it is there.

    Raises: SchemaUnknown, if it is none of the well-known files.
    """
    if path in others or _has(pool, path):
        return
    if path in _FILES:
        pool.Add(known_file(path))
        return
    package, _, file = path.rpartition("/")
    if package != "google/protobuf" or not file.removesuffix(".proto").isidentifier():
        raise SchemaUnknown(f'its schema imports "{path}", which the registry does not give')
    try:
        module = import_module(f"google.protobuf.{file.removesuffix('.proto')}_pb2")
    except ImportError:
        raise SchemaUnknown(f'its schema imports "{path}", which is not known') from None
    for other in module.DESCRIPTOR.dependencies:
        _add_well_known(pool, other.name, others)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _has(pool: Any, path: str) -> bool:
    try:
        pool.FindFileByName(path)
    except KeyError:
        return False
    return True


def known_file(path: str) -> Any:
    """One of the well-known files for types of SQL."""
    of = library().descriptor_pb2
    package, name, fields = _FILES[path]
    file = of.FileDescriptorProto(name=path, package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    optional = of.FieldDescriptorProto.LABEL_OPTIONAL
    for number, (field, kind) in enumerate(fields, 1):
        kind_of = of.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        message.field.add(name=field, number=number, label=optional, type=kind_of)
    return file


def entry_of(field: str) -> str:
    """The name that Protobuf gives to the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def message_at(pool: Any, file: str, indexes: Sequence[int]) -> Any:
    """The class of the messages at a place of a file.

    Raises:
        DecodeError: the file has no message there.
    """
    file_descriptor = pool.FindFileByName(file)
    types = [*file_descriptor.message_types_by_name.values()]
    descriptor = None
    for index in indexes:
        if not 0 <= index < len(types):
            raise DecodeError("Protobuf", "its schema has no message at the place that it names")
        descriptor = types[index]
        types = [*descriptor.nested_types]
    assert descriptor is not None, "a place without a number"
    return library().message_factory.GetMessageClass(descriptor)


def indexes_of(message: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The place of a message's type, and where the message itself begins.

    >>> indexes_of(bytes([0, 7]), 0), indexes_of(bytes([4, 2, 0, 7]), 0)
    (((0,), 1), ((1, 0), 3))

    Raises:
        DecodeError: the message has no valid place.
    """
    count, at = _number(message, start)
    if not count:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise DecodeError("Protobuf", "it does not say of which message of its schema it is")
    indexes = []
    for _ in range(count):
        number, at = _number(message, at)
        indexes.append(number)
    return tuple(indexes), at


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Read a signed number in the form of Protobuf; return it and its end."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise DecodeError("Protobuf", "it is too short for the place of its type")


class ProtobufDecoder:
    """Decodes the keys, or the values, of a topic.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(self, schemas: Descriptions, part: MessagePart = "value") -> None:
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
                return CONVERTS["bytes"]
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
    return canonical.canonical_number(Decimal((int(unscaled < 0), digits, -message.scale)))


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
    f"{_SPACE}BytesValue": lambda message: CONVERTS["bytes"](message.value),
    f"{_SPACE}Value": _json,
    f"{_SPACE}Struct": _struct,
    f"{_SPACE}ListValue": _list,
}


class ProtobufUpserts(KeyedUpserts):
    """Decodes keyed upserts with values in Protobuf, and keys in Protobuf, JSON or bytes.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(self, schemas: Descriptions, needs: Needs, key_format: str) -> None:
        keys, values = ProtobufDecoder(schemas, "key"), ProtobufDecoder(schemas)
        images = RowImages("Protobuf value", needs, exact=False)

        def row(message: bytes, headers: Headers) -> Any:
            data = values.decode(message, headers)
            if not isinstance(data, dict):
                raise DecodeError("Protobuf value", "its message is no row")
            return images.converted(data)

        super().__init__("Protobuf", needs, key_format, DataDecoder(keys.decode), DataDecoder(row))


# The text of a `.proto` file: some registries, such as Apicurio's, have no other form.
#
# What describes no message is left out: options, services, extensions, reserved numbers.  The pool
# finds the types of fields by their names.  Groups and editions are not read.

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<token> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | \.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*
        | [-+]?\.?\d[\w.]* | . )""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS = frozenset(
    [
        *("double", "float", "bool", "string", "bytes", "int32", "int64", "uint32", "uint64"),
        *("sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    ]
)
_OPEN, _CLOSE = "{[(<", "}])>"


def parsed_text(path: str, text: str) -> Any:
    """The description of a file.

    Raises:
        ConfigError: the library is not installed.
        SchemaUnknown: the text is none of a file, or has what is not read.
    """
    file = library().descriptor_pb2.FileDescriptorProto(name=path, syntax="proto2")
    try:
        _Reader(text).file(file)
    except ValueError:
        raise SchemaUnknown("the text of its schema cannot be read") from None
    return file


class _Reader:
    """Reads tokens from the first to the last one.  It raises: ValueError."""

    def __init__(self, text: str) -> None:
        matches = _TOKEN.finditer(text)
        self._tokens: Iterator[str] = (m["token"] for m in matches if m["token"] is not None)
        self._next = next(self._tokens, "")

    def file(self, file: Any) -> None:
        """Everything."""
        while self._next:
            match self._take():
                case "syntax":
                    self._expect("=")
                    file.syntax = self._quoted()
                    self._expect(";")
                case "package":
                    file.package = self._take()
                    self._expect(";")
                case "import":
                    if self._next == "public":
                        file.public_dependency.append(len(file.dependency))
                    if self._next in ("public", "weak"):
                        self._take()
                    file.dependency.append(self._quoted())
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add(), is_new=file.syntax == "proto3")
                case "enum":
                    self._enum(file.enum_type.add())
                case "option" | "service" | "extend":
                    self._skip()
                case ";":
                    pass
                case _:
                    raise ValueError

    def _message(self, message: Any, *, is_new: bool) -> None:
        message.name = self._take()
        # The choices of proto3 between a value and none follow the others.
        optional: list[Any] = []

        def part(word: str) -> None:
            match word:
                case "message":
                    self._message(message.nested_type.add(), is_new=is_new)
                case "enum":
                    self._enum(message.enum_type.add())
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip()
                case "oneof":
                    message.oneof_decl.add(name=self._take())
                    self._choice(message)
                case "map" if self._next == "<":
                    self._map(message)
                case "repeated" | "required" | "optional":
                    field = self._field(message, self._take(), word)
                    if is_new and word == "optional":
                        optional.append(field)
                case ";":
                    pass
                case _:
                    self._field(message, word)

        self._block(part)
        for field in optional:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _choice(self, message: Any) -> None:
        index = len(message.oneof_decl) - 1

        def part(word: str) -> None:
            if word == "option":
                self._skip()
            elif word != ";":
                self._field(message, word).oneof_index = index

        self._block(part)

    def _map(self, message: Any) -> None:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        entry = message.nested_type.add(name=entry_of(self._next))
        entry.options.map_entry = True
        for number, (name, kind) in enumerate([("key", key), ("value", value)], 1):
            _typed(entry.field.add(name=name, number=number), kind, "optional")
        self._field(message, entry.name, "repeated")

    def _field(self, message: Any, kind: str, label: str = "optional") -> Any:
        if kind == "group":
            raise ValueError
        field = message.field.add(name=self._take())
        _typed(field, kind, label)
        self._expect("=")
        field.number = int(self._take(), 0)
        options = self._skip()
        for at, pair in enumerate(pairwise(options)):
            if pair == ("default", "="):
                field.default_value = _default(options[at + 2 :], field)
        return field

    def _enum(self, enum: Any) -> None:
        enum.name = self._take()

        def part(word: str) -> None:
            if word in ("option", "reserved"):
                self._skip()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=int(self._take(), 0))
                self._skip()

        self._block(part)

    def _block(self, part: Callable[[str], None]) -> None:
        """Read the parts in braces, each from its first word on."""
        self._expect("{")
        while self._next != "}":
            part(self._take())
        self._take()

    def _skip(self) -> list[str]:
        """Skip up to a semicolon, or over the braces that end a part; return the tokens."""
        depth = 0
        tokens = []
        while True:
            tokens.append(token := self._take())
            depth += (token in _OPEN) - (token in _CLOSE)
            if not depth and (token == ";" or (token == "}" and self._next != ";")):
                return tokens

    def _quoted(self) -> str:
        text = self._take()
        if text[:1] not in ('"', "'"):
            raise ValueError
        return text[1:-1]

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise ValueError

    def _take(self) -> str:
        if not (token := self._next):
            raise ValueError
        self._next = next(self._tokens, "")
        return token


def _typed(field: Any, kind: str, label: str) -> None:
    field.label = field.Label.Value(f"LABEL_{label.upper()}")
    if kind in _SCALARS:
        field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type_name = kind


def _default(tokens: list[str], field: Any) -> str:
    """The default that tokens begin with, as descriptions have it: bytes stay escaped."""
    token = tokens[0]
    if token == "-":
        return token + tokens[1]
    if token[0] not in ('"', "'"):
        return token
    escaped = field.type == field.Type.Value("TYPE_STRING") and "\\" in token
    # Escapes are of the bytes of UTF-8.
    bare = token.encode().decode("unicode_escape").encode("latin-1").decode() if escaped else token
    return bare[1:-1]
