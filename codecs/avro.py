"""Decode Avro messages whose schemas are in a registry, and keyed upserts in this form.

A message carries the id of the schema that it was written with, and is decoded with that
schema.  If a reader schema is pinned, its defaults fill fields that an older writer did not
have.  The result is canonical JSON data: records and maps are objects, enumerations texts,
unions their plain value, bytes and fixed base64 text, a float the shortest decimal that names
it.  The semantic types of Kafka Connect and Debezium (`connect.name`) come first, then Avro's
logical types: decimals are exact numbers, timestamp-* are in UTC with a "Z",
local-timestamp-* without.  A duration stays bytes.

fastavro reads all of a body, without logical types, and unwanted columns are dropped
unconverted.  A reader schema of the wanted columns alone is no faster (14.3 us, against
13.8 us for the whole of a Debezium envelope), and its skipping passes over a cut-off end.
"""

import io
import struct
from binascii import b2a_base64
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

import fastavro
import msgspec
from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException
from msgspec import UNSET

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Headers, Wanted
from ikebana.codecs.encodings import Convert, encoding, of_name
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.framing import Framing, Part, locate
from ikebana.codecs.row_images import option
from ikebana.errors import ConfigError

_SIMPLE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_LOGICAL = {
    "date": "date",
    "time-millis": "time-millis",
    "time-micros": "time-micros",
    **{f"{zone}timestamp-{unit}": f"timestamp-{unit}"
       for zone in ("", "local-") for unit in ("millis", "micros", "nanos")},
}  # fmt: skip
# The exceptions that fastavro raises at damaged bytes.
_DAMAGED = (
    *(EOFError, IndexError, KeyError, MemoryError, OverflowError, RecursionError),
    *(StopIteration, TypeError, ValueError, struct.error),
)


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


class Fields(NamedTuple):
    """The fields of a record to decode, and the encodings of their values.

    * `only`: the fields to decode, None for all, each with the fields of its own record.
    * `encodings`: the conversions of fields whose meaning the schema leaves open.
    * `absent`: a test of the values that Avro has; a field that passes becomes UNSET.
    * `converted`: with `absent`, the fields whose values are read, None for all.  The others
      are tested, but not converted.
    """

    only: Mapping[str, "Fields"] | None = None
    encodings: Mapping[str, Convert] = {}
    absent: Callable[[Any], bool] | None = None
    converted: Collection[str] | None = None


ALL = Fields()


def self_contained(schema: Any, references: Sequence[Any] = ()) -> Any:
    """Resolve a schema: names become full, and each type is defined where it first occurs.

    `references` are the schemas that it refers to, each after those that it needs itself.

    Raises:
        SchemaUnknown: it is no Avro schema, or names a type that is not defined.
    """
    known: dict[str, Any] = {}
    try:
        for reference in references:
            _named(reference, "", known, set())
        return _named(schema, "", known, set())
    except (AttributeError, KeyError, RecursionError, TypeError):
        raise SchemaUnknown("its schema is no Avro schema") from None


def _named(schema: Any, namespace: str, known: dict[str, Any], seen: set[str]) -> Any:
    if isinstance(schema, list):
        return [_named(branch, namespace, known, seen) for branch in schema]
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return schema
        local = f"{namespace}.{schema}" if namespace and "." not in schema else schema
        for name in (local, schema):
            if name in seen:
                return name
            if name in known:
                return _named(known[name], "", known, seen)
        raise SchemaUnknown("its schema names a type that is not defined")
    kind = schema["type"]
    if kind == "array":
        return {**schema, "items": _named(schema["items"], namespace, known, seen)}
    if kind == "map":
        return {**schema, "values": _named(schema["values"], namespace, known, seen)}
    if kind in ("record", "error", "enum", "fixed"):
        name = schema["name"]
        if "." not in name and (space := schema.get("namespace", namespace)):
            name = f"{space}.{name}"
        if name in seen:
            return name
        seen.add(name)
        made = {**schema, "name": name}
        made.pop("namespace", None)
        if "fields" in schema:
            space = name.rpartition(".")[0]
            made["type"] = "record"
            made["fields"] = [
                {**field, "type": _named(field["type"], space, known, seen)}
                for field in schema["fields"]
            ]
        known[name] = made
        return made
    return schema if isinstance(kind, str) and kind in _SIMPLE else _named(
        kind, namespace, known, seen
    )  # fmt: skip


class _Node(NamedTuple):
    bare: Any
    """The type without logical types, for fastavro."""
    convert: Convert | None = None
    """Converts the values of fastavro, except null, to JSON data; None if they are that."""
    least: int = 1
    """The least size of a value: 0 if it may take no bytes, else 1."""
    meant: bool = False
    """Whether the schema defines the meaning of the value."""


class _Unfit(Exception):
    def __init__(self, name: str, error: Exception) -> None:
        self.path: list[str] = [*getattr(error, "path", ()), name]
        self.reason: str = getattr(error, "reason", "it is out of range")


class _Compiler:
    """Compiles a self-contained schema to nodes; a pinned one keeps its defaults."""

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self.types: dict[str, Any] = {}
        """The schemas of all named types, by name."""
        self._open: list[str] = []
        self._made: dict[tuple[str, int], _Node] = {}
        self.recursive = False

    def node(self, schema: Any, wanted: Fields = ALL) -> _Node:
        if isinstance(schema, list):
            return self._union(schema, wanted)
        if isinstance(schema, str):
            if schema in _SIMPLE:
                return self._of_kind(schema, {}, wanted)
            self.recursive |= schema in self._open
            made = self._made.get((schema, id(wanted)))
            return (made or self.node(self.types[schema], wanted))._replace(bare=schema)
        made = self._of_kind(schema["type"], schema, wanted)
        meaning = _meaning(schema)
        if meaning is None:
            return made
        raw = self._pinned and schema["type"] in ("bytes", "fixed")
        return made._replace(convert=_after(_bytes, meaning) if raw else meaning, meant=True)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], wanted: Fields) -> _Node:
        match kind:
            case "record":
                return self._record(schema, wanted)
            case "array":
                items = self.node(schema["items"])
                if items.least == 0:
                    # Nine bytes of a message could ask for 2^62 items, which all take memory.
                    raise SchemaUnknown("its schema has an array of items without bytes")
                return _Node({"type": kind, "items": items.bare}, _each(items.convert, list))
            case "map":
                values = self.node(schema["values"])
                return _Node({"type": kind, "values": values.bare}, _each(values.convert, dict))
            case "enum" | "fixed":
                self.types[schema["name"]] = schema
                least = min(1, schema["size"]) if kind == "fixed" else 1
                return _Node(self._form(schema), _base64 if kind == "fixed" else None, least)
        return _Node(kind, _CONVERTS.get(kind), int(kind != "null"))

    def _record(self, schema: Mapping[str, Any], wanted: Fields) -> _Node:
        name, only = schema["name"], wanted.only
        self.types[name] = schema
        # A record within itself gets this node, whose conversion is known only at the end.
        made: list[Convert | None] = [None]
        self._made[name, id(wanted)] = _Node(name, lambda value: _applied(made[0], value))
        self._open.append(name)
        fields, least, kept, converts = [], 0, [], []
        for field in schema["fields"]:
            here = field["name"]
            node = self.node(field["type"], ALL if only is None else only.get(here, ALL))
            fields.append({**self._form(field), "type": node.bare})
            least |= node.least
            if only is not None and here not in only:
                continue
            kept.append(here)
            convert = node.convert
            if here in wanted.encodings and not node.meant:
                convert = _after(convert, wanted.encodings[here])
            if wanted.converted is not None and here not in wanted.converted:
                convert = None
            if convert:
                converts.append((here, convert))
        self._open.pop()
        bare = {**self._form(schema), "fields": fields}
        if wanted.absent:
            absent = wanted.absent
            made[0] = _picked(kept, [
                (here, _unless(absent, dict(converts).get(here))) for here in kept
            ])  # fmt: skip
        else:
            made[0] = _picked(kept if len(kept) < len(fields) else None, converts)
        done = self._made[name, id(wanted)] = _Node(bare, made[0], least)
        return done

    def _form(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        # Defaults of writers are not used, and some of them are such as Avro forbids.
        parts = ("default", *_FORM) if self._pinned else _FORM
        return {part: schema[part] for part in parts if part in schema}

    def _union(self, branches: list[Any], wanted: Fields) -> _Node:
        nodes = [self.node(branch, wanted) for branch in branches]
        bare, found = [node.bare for node in nodes], [n for n in nodes if n.bare != "null"]
        if len(found) == 1:
            return _Node(bare, found[0].convert, 1, found[0].meant)
        by_type: dict[Any, Convert | None] = {}
        by_fields: dict[frozenset[str], Convert | None] = {}
        for node in found:
            schema = self.types.get(node.bare, {}) if isinstance(node.bare, str) else node.bare
            kind = schema.get("type", node.bare)
            if kind == "record":
                table: dict[Any, Convert | None] = by_fields
                here: Any = frozenset(field["name"] for field in schema["fields"])
            else:
                table, here = by_type, _READ_AS[kind]
            if table.setdefault(here, node.convert) is not node.convert or (
                by_fields and dict in by_type
            ):
                raise SchemaUnknown("its schema has a union whose values cannot be told apart")
        if not any(node.convert for node in found):
            return _Node(bare)

        def convert(value: Any) -> Any:
            if by_fields and value.__class__ is dict:
                return _applied(by_fields.get(frozenset(value)), value)
            return _applied(by_type.get(value.__class__), value)

        return _Node(bare, convert, 1, any(node.meant for node in found))


# The attributes that make up the form of a type or a field.
_FORM = ("type", "name", "aliases", "symbols", "size")
_READ_AS = {
    **{"boolean": bool, "int": int, "long": int, "float": float, "double": float},
    **{"bytes": bytes, "fixed": bytes, "string": str, "enum": str, "array": list, "map": dict},
}


def _meaning(schema: Mapping[str, Any]) -> Convert | None:
    name, logical = schema.get("connect.name"), schema.get("logicalType")
    if known := of_name(name, schema.get("connect.parameters")):
        return known
    kind = schema["type"]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return of_name(_DECIMAL, {"scale": str(schema.get("scale", 0))})
    if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
        return _uuid
    if logical in _LOGICAL and kind in ("int", "long"):
        convert = encoding(_LOGICAL[logical])
        if logical.startswith("timestamp-"):
            return lambda value: f"{convert(value)}Z"
        return convert
    return None


_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _applied(convert: Convert | None, value: Any) -> Any:
    return convert(value) if convert else value


def _after(first: Convert | None, second: Convert) -> Convert:
    return second if first is None else lambda value: second(first(value))


def _unless(absent: Callable[[Any], bool], convert: Convert | None) -> Convert:
    return lambda value: UNSET if absent(value) else _applied(convert, value)


def _picked(
    names: Sequence[str] | None, converts: Sequence[tuple[str, Convert]]
) -> Convert | None:
    if names is None and not converts:
        return None

    def record(value: dict[str, Any]) -> dict[str, Any]:
        # Not in place, because a default is one object that all messages share.
        made = value.copy() if names is None else {name: value[name] for name in names}
        name = ""
        try:
            for name, convert in converts:
                if (field := made[name]) is not None:
                    made[name] = convert(field)
        except (_Unfit, DecodeError, ArithmeticError, ValueError) as error:
            raise _Unfit(name, error) from None
        return made

    return record


def _each(convert: Convert | None, kind: type) -> Convert | None:
    if convert is None:
        return None
    if kind is list:
        return lambda value: [None if item is None else convert(item) for item in value]
    return lambda value: {
        name: None if item is None else convert(item) for name, item in value.items()
    }


def _bytes(value: bytes | str) -> bytes:
    # A default of type bytes is a text, whose code points are the bytes.
    return value.encode("latin-1") if isinstance(value, str) else value


def _base64(value: bytes | str) -> str:
    return b2a_base64(_bytes(value), newline=False).decode()


def _uuid(value: bytes | str) -> str:
    text = _bytes(value).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _double(value: float) -> Any:
    if value.is_integer() and -1e15 < value < 1e15:
        return int(value)
    if not isfinite(value):
        raise DecodeError("Avro", "expected a number, found one that is not finite")
    return canonical.number(repr(value))


def _float(value: float) -> Any:
    # The shortest decimal that names this float of 32 bits, as Java writes it.
    if isfinite(value):
        for digits in range(6, 9):
            if _FLOAT.unpack(_FLOAT.pack(near := float(f"{value:.{digits}g}")))[0] == value:
                return _double(near)
    return _double(value)


_FLOAT = struct.Struct("<f")
_CONVERTS: dict[str, Convert] = {"bytes": _base64, "float": _float, "double": _double}


class _Bounded(BinaryDecoder):  # type: ignore[misc]
    """fastavro's decoder in Python, whose longs end after ten bytes."""

    def read_long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte: int = self.fo.read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError

    read_int = read_long


class _Plan(NamedTuple):
    read: Callable[[io.BytesIO], Any]
    convert: Convert | None


def _plan(writer: Any, reader: Any | None, wanted: Fields) -> _Plan:
    """Plan how messages of a schema are decoded.

    Raises:
        SchemaUnknown: they cannot be decoded.
    """
    try:
        compiler = _Compiler(pinned=False)
        if reader is None or reader == writer:
            node = compiler.node(writer, wanted)
            writes, reads = fastavro.parse_schema(node.bare), None
        else:
            writes = fastavro.parse_schema(compiler.node(writer).bare)
            resolver = _Compiler(pinned=True)
            node = resolver.node(reader, wanted)
            reads = fastavro.parse_schema(node.bare)
            _compare(writer, reader, (compiler.types, resolver.types), set())
    except (*_DAMAGED, DecodeError, SchemaParseException):
        raise SchemaUnknown("its schema cannot be read with") from None
    if not compiler.recursive:
        return _Plan(lambda body: fastavro.schemaless_reader(body, writes, reads), node.convert)
    # Decoded in Python: in C, a recursion that goes too deep would end the process.
    named: dict[str, Any] = {"writer": {}, "reader": {}}
    fastavro.parse_schema(writes, named["writer"])
    if reads is not None:
        fastavro.parse_schema(reads, named["reader"])
    return _Plan(lambda body: read_data(_Bounded(body), writes, named, reads), node.convert)


def _compare(
    writer: Any, reader: Any, types: tuple[dict[str, Any], dict[str, Any]], seen: set[Any]
) -> None:
    """Refuse a reader schema that reads the same digits with another scale, unit or meaning."""
    writer, reader = _one(writer, types[0]), _one(reader, types[1])
    if not isinstance(writer, dict) or not isinstance(reader, dict):
        return
    for inner in ("items", "values"):
        if inner in writer and inner in reader:
            _compare(writer[inner], reader[inner], types, seen)
    if "fields" in writer and "fields" in reader:
        if (pair := (writer["name"], reader["name"])) in seen:
            return
        seen.add(pair)
        written = {field["name"]: field["type"] for field in writer["fields"]}
        for field in reader["fields"]:
            for name in (field["name"], *field.get("aliases", ())):
                if name in written:
                    _compare(written[name], field["type"], types, seen)
    senses = [
        (one.get("logicalType"), one.get("scale", 0), one.get("connect.name"))
        for one in (writer, reader)
        if _meaning(one)
    ]
    if len(senses) == 2 and senses[0] != senses[1]:
        raise SchemaUnknown("its schema and the pinned one differ in what a field means")


def _one(schema: Any, types: Mapping[str, Any]) -> Any:
    """Resolve an optional type to its one branch, and a name to its type."""
    if isinstance(schema, list) and len(found := [s for s in schema if s != "null"]) == 1:
        schema = found[0]
    return types.get(schema, schema) if isinstance(schema, str) else schema


class AvroDecoder:
    """Decodes the keys, or the values, of a topic."""

    def __init__(
        self,
        schemas: Schemas,
        reader_schema: str | None = None,
        framing: Framing = "confluent",
        *,
        part: Part = "value",
        wanted: Fields = ALL,
    ) -> None:
        """Make a decoder, with a pinned reader schema if one is given as JSON.

        Raises:
            ConfigError: the reader schema is no Avro schema.
        """
        self._schemas, self._framing, self._part, self._wanted = schemas, framing, part, wanted
        self._codec = f"Avro {part}"
        self._plans: dict[int | str, _Plan] = {}
        self._reader = None
        if reader_schema is not None:
            try:
                self._reader = self_contained(msgspec.json.decode(reader_schema))
                fastavro.parse_schema(_Compiler(pinned=True).node(self._reader, wanted).bare)
            except (msgspec.MsgspecError, SchemaUnknown, SchemaParseException, *_DAMAGED) as error:
                raise ConfigError(
                    f"cannot use the reader schema of the {part}: {error}",
                    hint="Give an Avro schema as JSON, with all types that it names.",
                ) from None

    def decode(self, message: bytes, headers: Headers = None) -> Any:
        """Decode a message into JSON data with canonical numbers.

        Raises:
            DecodeError: the message cannot be decoded.
        """
        schema, start = locate(self._framing, self._part, message, headers)
        plan = self._plans.get(schema) or self._planned(schema)
        # One extra byte shows afterwards whether fastavro has read past the end.
        body = io.BytesIO(message + b"\0")
        body.seek(start)
        try:
            data = plan.read(body)
            if (end := body.tell()) == len(message):
                return data if data is None or plan.convert is None else plan.convert(data)
        except (EOFError, SchemaResolutionError, RecursionError, _Unfit, DecodeError) as error:
            raise DecodeError(self._codec, _reason(error)) from None
        except _DAMAGED:
            raise DecodeError(self._codec, "its body does not fit its schema") from None
        left = "is cut off" if end > len(message) else "is followed by more bytes"
        raise DecodeError(self._codec, f"its body {left}")

    def _planned(self, schema: int | str) -> _Plan:
        try:
            plan = _plan(self._schemas.parsed(schema), self._reader, self._wanted)
        except SchemaUnknown as error:
            raise DecodeError(self._codec, error.reason) from None
        self._plans[schema] = plan
        return plan


def _reason(error: Exception) -> str:
    match error:
        case _Unfit():
            return f"field `{'.'.join(reversed(error.path))}`: {error.reason}"
        case DecodeError():
            return error.reason
        case EOFError():
            return "its body is cut off"
        case RecursionError():
            return "it is nested too deeply"
    return "its body does not fit the pinned schema"


class AvroUpserts:
    """Decodes keyed upserts: the Kafka key is the row's key, the value the row.

    A null value is a delete.  A key in Avro or JSON may be any data; a key in bytes is taken as
    it is.  If `wanted.key` names columns, the key is in the row, and only the key of a delete
    is taken from the Kafka key.

    `wanted.options` may have "framing", and "reader_schema", the JSON of the schema to pin for
    values.

    Raises:
        ConfigError: the framing is not known, or the reader schema is no Avro schema.
    """

    def __init__(
        self,
        schemas: Schemas,
        wanted: Wanted,
        key_format: Literal["avro", "json", "bytes"] = "avro",
    ) -> None:
        framing = framing_of(wanted)
        self._key_format = key_format
        self._columns, self._key_columns = wanted.columns, wanted.key
        names = (
            None if self._columns is None else dict.fromkeys((*self._columns, *wanted.key), ALL)
        )
        encodings = {name: encoding(given) for name, given in wanted.encodings.items()}
        self._keys = AvroDecoder(
            schemas, None, framing, part="key", wanted=Fields(encodings=encodings)
        )
        self._values = AvroDecoder(
            schemas,
            wanted.options.get("reader_schema"),
            framing,
            wanted=Fields(names, encodings),
        )
        self._told_by_header = framing == "headers" and key_format == "avro"

    def key(self, key: bytes | None) -> bytes | None:
        # A schema that a header names is not known here.
        return None if self._key_columns or self._told_by_header else self._of_kafka(key, None)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change]:
        headers = list(headers) if headers else None
        row_key = None if self._key_columns and value is not None else self._of_kafka(key, headers)
        if value is None:
            return [Change("delete", row_key)]
        try:
            row = self._values.decode(value, headers)
            if self._columns is not None or self._key_columns:
                if not isinstance(row, dict):
                    raise DecodeError("Avro value", "expected a record")
                if self._key_columns:
                    row_key = _key_of(row, self._key_columns, "value")
                    if self._columns is not None:
                        row = {name: row[name] for name in self._columns if name in row}
            return [Change("upsert", row_key, canonical.write(row))]
        except DecodeError as error:
            raise DecodeError(error.codec, error.reason, key=row_key) from None
        except canonical.REFUSALS as error:
            reason = canonical.refused("Avro value", error).reason
            raise DecodeError("Avro value", reason, key=row_key) from None

    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes:
        if key is None:
            raise DecodeError(_KEYS[self._key_format], "it is null")
        if self._key_format == "bytes":
            return key
        try:
            if self._key_format == "json":
                data = canonical.decoder(Any)(key)
            else:
                data = self._keys.decode(key, headers)
            return (
                _key_of(data, self._key_columns, "key")
                if self._key_columns
                else canonical.write(data)
            )
        except canonical.REFUSALS as error:
            raise canonical.refused(_KEYS[self._key_format], error) from None


_KEYS = {"avro": "Avro key", "json": "JSON key", "bytes": "key"}


def framing_of(wanted: Wanted) -> Framing:
    """Find the framing that the options name, `confluent` if they name none.

    Raises:
        ConfigError: the framing is not known.
    """
    return cast(Framing, option(wanted, "framing", *get_args(Framing)))


def _key_of(row: Any, columns: Sequence[str], part: Part) -> bytes:
    if not isinstance(row, dict) or not all(name in row for name in columns):
        raise DecodeError(f"Avro {part}", "it lacks a column of the key")
    return canonical.write({name: row[name] for name in columns})
