"""Decode Avro messages with schemas in a registry, and keyed upserts of them.

A message carries the id of the schema that it was written with, and is decoded with that
schema.  If a reader schema is pinned, its defaults fill fields that an older writer did not
have.  The result is canonical JSON data: records and maps are objects, enumerations texts,
unions their plain value, bytes and fixed base64 text, a float the shortest decimal that names
it.
"""

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import fastavro
import msgspec
from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from ikebana.codecs.avro_compiler import (
    ALL,
    Compiler,
    Fields,
    Take,
    TakeTexts,
    program_of,
    require_same_meaning,
)
from ikebana.codecs.avro_schema import (
    Framing,
    MessagePart,
    Schemas,
    SchemaUnknown,
    Unfit,
    locate,
    self_contained,
)
from ikebana.codecs.change import Headers, Needs
from ikebana.codecs.column_encodings import encodings
from ikebana.codecs.encodings import Convert
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import DataDecoder
from ikebana.codecs.plain import KeyedUpserts
from ikebana.codecs.row_images import option
from ikebana.errors import ConfigError

# The exceptions that fastavro raises at damaged bytes.
_DAMAGED = (
    *(EOFError, IndexError, KeyError, MemoryError, OverflowError, RecursionError),
    *(StopIteration, TypeError, ValueError, struct.error),
)


class _Bounded(BinaryDecoder):  # type: ignore[misc]
    """fastavro's decoder in Python, with longs of at most ten bytes."""

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
    parts: TakeTexts | None = None
    """Writes the texts of `takes` of a usual message."""


def _plan(writer: Any, reader: Any | None, needs: Fields, takes: Sequence[Take | None]) -> _Plan:
    """Plan how messages of a schema are decoded.

    Raises:
        SchemaUnknown: they cannot be decoded.
    """
    try:
        resolved = reader is not None and reader != writer
        compiler = Compiler(pinned=False, apart=not resolved)
        if not resolved:
            node = compiler.node(writer, needs)
            writes, reads = fastavro.parse_schema(node.bare), None
        else:
            writes = fastavro.parse_schema(compiler.node(writer).bare)
            resolver = Compiler(pinned=True)
            node = resolver.node(reader, needs)
            reads = fastavro.parse_schema(node.bare)
            require_same_meaning(writer, reader, (compiler.types, resolver.types), set())
    except (*_DAMAGED, DecodeError, SchemaParseException):
        raise SchemaUnknown("its schema cannot be read with") from None
    if not compiler.recursive:
        parts = program_of(writer, compiler, needs, takes) if reads is None and takes else None
        return _Plan(
            lambda body: fastavro.schemaless_reader(body, writes, reads),
            node.convert,
            parts,
        )
    # Decoded in Python: in C, too deep a recursion would end the process.
    named: dict[str, Any] = {"writer": {}, "reader": {}}
    fastavro.parse_schema(writes, named["writer"])
    if reads is not None:
        fastavro.parse_schema(reads, named["reader"])
    return _Plan(lambda body: read_data(_Bounded(body), writes, named, reads), node.convert)


class AvroDecoder:
    """Decodes the keys, or the values, of a topic."""

    def __init__(
        self,
        schemas: Schemas,
        reader_schema: str | None = None,
        framing: Framing = "confluent",
        *,
        part: MessagePart = "value",
        needs: Fields = ALL,
        takes: Sequence[Take | None] = (),
    ) -> None:
        """Make a decoder, with a pinned reader schema if one is given as JSON.

        `takes` says what `parts` returns.

        Raises:
            ConfigError: the reader schema is no Avro schema.
        """
        self._schemas, self._framing, self._part, self._needs = schemas, framing, part, needs
        self._codec, self._takes = f"Avro {part}", takes
        self._plans: dict[int | str, _Plan] = {}
        # By the bytes before a body, which have the id of the schema.
        self._by_prefix: dict[bytes, _Plan] = {}
        self._prefix = 9 if framing == "apicurio" else 5
        self._reader = None
        if reader_schema is not None:
            try:
                self._reader = self_contained(msgspec.json.decode(reader_schema))
                fastavro.parse_schema(Compiler(pinned=True).node(self._reader, needs).bare)
            except (msgspec.MsgspecError, SchemaUnknown, SchemaParseException, *_DAMAGED) as error:
                raise ConfigError(
                    f"cannot use the reader schema of the {part}: {error}",
                    hint="Give an Avro schema as JSON, with all types that it names.",
                ) from None

    def parts(self, message: bytes, headers: Headers = None) -> tuple[bytes | None, ...] | None:
        """The canonical bytes of the `takes` of a message, each None if it is null.

        It is None if the message has to be decoded: if it is unusual, or the first of its schema,
        or damaged.
        """
        start = self._prefix
        plan = None if headers else self._by_prefix.get(message[:start])
        if plan is None:
            try:
                schema, start = locate(self._framing, self._part, message, headers)
            except DecodeError:
                return None
            plan = self._plans.get(schema)
        return None if plan is None or plan.parts is None else plan.parts(message, start)

    def decode(self, message: bytes, headers: Headers = None) -> Any:
        """Decode a message into JSON data with canonical numbers.

        Raises:
            DecodeError: the message cannot be decoded.
        """
        start = self._prefix
        plan = None if headers else self._by_prefix.get(message[:start])
        if plan is None:
            schema, start = locate(self._framing, self._part, message, headers)
            plan = self._plans.get(schema) or self._planned(schema)
            if not headers and start == self._prefix:
                self._by_prefix[message[:start]] = plan
        # One extra byte shows afterwards whether fastavro has read past the end.
        body = io.BytesIO(message + b"\0")
        body.seek(start)
        try:
            data = plan.read(body)
            if (end := body.tell()) == len(message):
                return data if data is None or plan.convert is None else plan.convert(data)
        except (EOFError, SchemaResolutionError, RecursionError, Unfit, DecodeError) as error:
            raise DecodeError(self._codec, _reason(error)) from None
        except _DAMAGED:
            raise DecodeError(self._codec, "its body does not fit its schema") from None
        left = "is cut off" if end > len(message) else "is followed by more bytes"
        raise DecodeError(self._codec, f"its body {left}")

    def _planned(self, schema: int | str) -> _Plan:
        try:
            plan = _plan(self._schemas.parsed(schema), self._reader, self._needs, self._takes)
        except SchemaUnknown as error:
            raise DecodeError(self._codec, error.reason) from None
        self._plans[schema] = plan
        return plan


def _reason(error: Exception) -> str:
    match error:
        case Unfit():
            return f"field `{'.'.join(reversed(error.path))}`: {error.reason}"
        case DecodeError():
            return error.reason
        case EOFError():
            return "its body is cut off"
        case RecursionError():
            return "it is nested too deeply"
    return "its body does not fit the pinned schema"


class AvroUpserts(KeyedUpserts):
    """Decodes keyed upserts with values in Avro, and keys in Avro, JSON or bytes.

    `needs.options` may have "framing", and "reader_schema", the JSON of the schema to pin for
    values.

    Raises:
        ConfigError: the framing is not known, or the reader schema is no Avro schema.
    """

    def __init__(
        self,
        schemas: Schemas,
        needs: Needs,
        key_format: Literal["avro", "json", "bytes"] = "avro",
    ) -> None:
        framing = framing_of(needs)
        names = None if needs.columns is None else dict.fromkeys((*needs.columns, *needs.key), ALL)
        declared = encodings(needs.encodings)
        values = AvroDecoder(
            schemas,
            needs.options.get("reader_schema"),
            framing,
            needs=Fields(names, declared, judges=needs.judges),
            takes=[Take((), needs.columns), _key(needs) if needs.key else None],
        )
        self._keys_in_headers = framing == "headers" and key_format == "avro"
        rows = DataDecoder(values.decode, values.parts)
        super().__init__("Avro", needs, key_format, keys_in_avro(schemas, needs), rows)

    def key(self, key: bytes | None) -> bytes | None:
        # Headers, which may name the schema, are not available here.
        return None if self._keys_in_headers else super().key(key)


def keys_in_avro(schemas: Schemas, needs: Needs) -> DataDecoder:
    """Make the decoder of Kafka keys: of the key's columns, or the whole if it has none.

    Raises:
        ConfigError: the framing is not known.
    """
    only = dict.fromkeys(needs.key, ALL) if needs.key else None
    keys = AvroDecoder(
        schemas,
        framing=framing_of(needs),
        part="key",
        needs=Fields(only, encodings(needs.encodings)),
        takes=[_key(needs)],
    )
    return DataDecoder(keys.decode, keys.parts)


def _key(needs: Needs) -> Take:
    return Take((), needs.key, needs.key) if needs.key else Take()


def framing_of(needs: Needs) -> Framing:
    """Find the framing that the options name, `confluent` if they name none.

    Raises:
        ConfigError: the framing is not known.
    """
    return cast(Framing, option(needs, "framing", *get_args(Framing)))
