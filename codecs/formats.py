"""The formats of inputs and outputs: a table with the traits of each.

Other modules ask for a trait, never for a format by its name.  A new format is a codec in a file
beside this one, its name in `Format` or `OutputFormat`, and a row in the table.
"""

# Decision (names of formats are a Literal, too): A type checker knows no keys of a mapping. An
# output format writes and reads back in one file; tests take formats from the table.

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ikebana.codecs.change import Change, Codec, Headers, Ignored, Needs, RowCodec
from ikebana.codecs.column_encodings import WhenUsual
from ikebana.codecs.errors import DecodeError

if TYPE_CHECKING:
    from ikebana.codecs import cdcv2
    from ikebana.codecs.avro_schema import MessagePart, Schemas
    from ikebana.codecs.debezium_out import EnvelopeOrigin
    from ikebana.codecs.output_messages import (
        OutputMessage,
        OutputShape,
        ToJson,
        Violation,
        Writers,
    )
    from ikebana.codecs.sql_type import SqlType

ADDED_PREFIX = "__"
"""The prefix of the names of fields that Debezium adds to a row."""
OF_COCKROACH = "__crdb__"
"""The field with metadata in rows of CockroachDB's changefeeds."""
KeyFormat = Literal["json", "bytes", "avro", "protobuf"]
IN_REGISTRY: tuple[KeyFormat, ...] = ("avro", "protobuf")
"""Encodings by schemas of a registry."""
Format = Literal[
    "json",
    "bytes",
    "avro",
    "protobuf",
    "debezium-json",
    "debezium-avro",
    "debezium-flat-json",
    "maxwell",
    "canal",
    "goldengate",
    "dms",
    "changes",
    "changes-avro",
    "diff",
    "cdcv2-json",
    "cdcv2-avro",
]
OutputFormat = Literal[
    "diff",
    "cdcv2-json",
    "cdcv2-avro",
    "debezium-json",
    "debezium-avro",
    "upsert",
    "avro",
    "json-schema",
    "protobuf",
]
# rows: a message is a row.  changes: a message describes changes of rows.  updates: a message is
# one update with a time and a diff, written once; a progress topic says which times are closed.
# facts: a message has such updates, which may be repeated, or statements of progress.
FormatKind = Literal["rows", "changes", "updates", "facts"]
# The source of a row's key.  kafka: the Kafka key.  either: the Kafka key, unless the input names
# key columns.  message: the message names its key columns.  columns: the input has to name them.
KeyFrom = Literal["kafka", "either", "message", "columns"]
MakeCodec = Callable[[Needs, KeyFormat, "Schemas | None"], Codec]
# The values that a message of this key and value, None for a tombstone, inserts or retracts.
ReadUpdates = Callable[[bytes | None, bytes | None], list[tuple[bytes, int]]]


class FactCodec(Protocol):
    """An encoding of CDCv2, which the modules `cdcv2` and `cdcv2_avro` implement."""

    def decode(self, message: bytes | None, /) -> "cdcv2.Cdcv2Message":
        """Decode a message into updates or progress.  Raises: DecodeError."""
        ...

    def encode_updates(
        self, updates: "Iterable[cdcv2.Fact]", max_bytes: int = ..., /
    ) -> Iterator[bytes]:
        """Encode updates as messages of at most `max_bytes` each."""
        ...

    def encode_progress(
        self, lower: int, upper: int, counts: Mapping[int, int], max_bytes: int = ..., /
    ) -> Iterator[bytes]:
        """Encode the progress over [lower, upper) as messages of at most `max_bytes` each."""
        ...


class WrittenCodec(Protocol):
    """An encoding with schemas in a registry, such as the module `avro_out`."""

    KIND: str
    """The name of the encoding in registries."""
    name_problem: str
    """The problem of a name that it does not carry."""

    def carries(self, kind: "SqlType", /) -> bool:
        """Whether it has a schema for values of a type."""
        ...

    def schemas(self, shape: "OutputShape", /) -> tuple[str, str]:
        """The schemas of keys and of values, as a registry gets them."""
        ...

    def names(self, shape: "OutputShape", /) -> tuple[str, str]:
        """The full names of the records of keys and of values."""
        ...

    def writers(self, shape: "OutputShape", /) -> "Writers":
        """The writers that encode the JSON of keys and of values as messages."""
        ...

    def back(self, schemas: "Schemas", part: "MessagePart", /) -> "ToJson":
        """A reader of messages as JSON."""
        ...


class OutputCodec(Protocol):
    """Writes and reads back the changes of keys, as `output_messages` and `debezium_out` do."""

    def write(
        self,
        updates: "Iterable[cdcv2.Fact]",
        origin: "EnvelopeOrigin",
        empty: Container[tuple[int, bytes]] | None,
        /,
    ) -> "tuple[list[OutputMessage], list[Violation]]":
        """Messages of the updates of closed times, and the keys that cannot be written.

        `empty` has the times and keys after which a key has no rows, if that is known.
        """
        ...

    def reader(self) -> ReadUpdates:
        """A reader of a topic's messages, each partition in its order.  It raises: DecodeError."""
        ...


@dataclass(frozen=True, slots=True)
class InputOption:
    """The values of an option of an input: its choices, or without these any text."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTraits:
    """The traits of a format of inputs.

    Codecs are imported when they are first needed, so that `--help` is quick.
    """

    kind: FormatKind
    encoding: KeyFormat = "json"
    """The encoding of the values."""
    codec: MakeCodec | None = None
    """Makes the codec of rows or changes; None for updates and facts."""
    facts: Callable[[], FactCodec] | None = None
    key_from: KeyFrom = "message"
    keys_alike: bool = False
    """Whether keys always have the encoding of the values."""
    old_images: bool = False
    """Whether messages have old images of rows."""
    source_clocks: bool = False
    """Whether messages have the commit time and the log position of a change in its source."""
    quick: bool = False
    """Whether columns that are not read can be checked without decoding them."""
    usual_encodings: WhenUsual = "never"
    """Whether JSON and INTERVAL columns have an encoding that they need not declare, because
    connectors write them as texts and numbers."""
    options: Mapping[str, InputOption] = field(default_factory=dict)
    """The options of an input."""

    def added_prefix(self, options: Mapping[str, str]) -> str:
        """The prefix of fields that are no columns unless they are declared; "" if none are."""
        return options.get("prefix", ADDED_PREFIX) if "prefix" in self.options else ""

    @property
    def has_columns(self) -> bool:
        """Whether a row has columns."""
        return self.encoding != "bytes"

    @property
    def is_events(self) -> bool:
        """Whether messages can be events of a state machine."""
        return self.kind == "rows" and self.has_columns

    @property
    def is_updates(self) -> bool:
        """Whether messages have updates with their own times."""
        return self.kind in ("updates", "facts")

    @property
    def in_registry(self) -> bool:
        """Whether messages need the schemas of a registry."""
        return self.encoding in IN_REGISTRY and not self.is_updates

    @property
    def usual_key(self) -> KeyFormat:
        """The format of keys of an input that names only the format of its values."""
        return self.encoding if self.kind == "rows" or self.keys_alike else "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTraits:
    """The traits of a format of outputs."""

    codec: Callable[[], OutputCodec] | None = None
    """The writer of changes of keys; None: updates are written as updates, or as facts."""
    facts: Callable[[], FactCodec] | None = None
    latest: bool = False
    """Whether a message has the whole new value of its key, so that the topic may be compacted;
    a reader then needs the earlier messages to know the old value."""
    tombstones: bool = False
    """Whether deletes are followed by tombstones, which the pipeline file may switch off."""
    schemas: Callable[[], WrittenCodec] | None = None
    """The encoding of keys and values by schemas that a registry gets at the start."""

    @property
    def in_registry(self) -> bool:
        """Whether its readers need a registry."""
        return self.schemas is not None

    @property
    def as_updates(self) -> bool:
        """Whether each update is a message, with time and diff."""
        return self.codec is None and self.facts is None

    @property
    def single_value(self) -> bool:
        """Whether readers rely on at most one value for each key."""
        return self.codec is not None

    @property
    def needs_earlier(self) -> bool:
        """Whether a reader needs all earlier messages, to find the rows that a message retracts.

        An envelope in Avro may have other columns than the row had when it was inserted.
        """
        return self.latest or self.in_registry

    @property
    def envelope(self) -> bool:
        """Whether a message has a row before and after a change."""
        return self.codec is not None and not self.latest


def _plain(value_format: Literal["json", "bytes"]) -> MakeCodec:
    def make(needs: Needs, key_format: KeyFormat, _: "Schemas | None") -> Codec:
        from ikebana.codecs.plain import Plain

        assert key_format == "json" or key_format == "bytes"
        return Plain(key_format, value_format, needs)

    return make


def _framed(make: MakeCodec) -> MakeCodec:
    """The codec of JSON that may have the framing of a registry's serializers."""

    def framed(needs: Needs, key_format: KeyFormat, schemas: "Schemas | None") -> Codec:
        codec = make(needs, key_format, schemas)
        if (framing := needs.options.get("framing")) is None:
            return codec

        return Framed(codec, framing)

    return framed


def _in_json(module: str, name: str, *, placed: bool = False) -> MakeCodec:
    """The codec with this name in a module of this folder.

    With `placed`, messages may have a place in the order of their source that it does not read.
    """

    def make(needs: Needs, _: KeyFormat, __: "Schemas | None") -> Codec:
        codec: Codec = getattr(_module(module)(), name)(needs)
        return _sequenced(codec, needs) if placed else codec

    return make


def _by_schemas(
    module: str, name: str, *, any_keys: bool = False, placed: bool = False
) -> MakeCodec:
    """The same of a codec that needs a registry, and with `any_keys` the format of keys."""

    def make(needs: Needs, key_format: KeyFormat, schemas: "Schemas | None") -> Codec:
        assert schemas is not None
        of_keys = (key_format,) if any_keys else ()
        codec: Codec = getattr(_module(module)(), name)(schemas, needs, *of_keys)
        return _sequenced(codec, needs, schemas) if placed else codec

    return make


def _sequenced(codec: Codec, needs: Needs, schemas: "Schemas | None" = None) -> Codec:
    """The codec that reads the place of messages, too, if the input names it."""
    if "sequence" not in needs.options:
        return codec
    sequenced: Codec = _module("sequences")().Sequenced(codec, needs, schemas)
    return sequenced


def _module(name: str) -> Callable[[], Any]:
    """A module of this folder, which may be the codec itself."""
    return partial(import_module, f"ikebana.codecs.{name}")


_FACTS, _FACTS_IN_AVRO = _module("cdcv2"), _module("cdcv2_avro")
_UPSERTS, _ENVELOPES = _module("output_messages"), _module("debezium_out")
EMPTY_VALUES = ("tombstone", "error")
"""The meanings of a value without bytes; the first is the default."""
_TEXT = InputOption()
_OF_CHANGES = {"empty_value": InputOption(EMPTY_VALUES)}
_FRAMING = {"framing": InputOption(("confluent", "apicurio", "headers"))}
_FRAMED_JSON = {"framing": InputOption(("confluent", "apicurio"))}
_PLACEHOLDER = {"unavailable_placeholder": _TEXT}
_SEQUENCE = {"sequence": _TEXT}
_ROW_IMAGE = {"row_image": InputOption(("full", "minimal"))}
_OPERATIONS = dict.fromkeys(("op_insert", "op_update", "op_delete", "op_truncate"), _TEXT)
_OF_ANY_CHANGES = {
    **_OF_CHANGES,
    **_ROW_IMAGE,
    **_OPERATIONS,
    **_SEQUENCE,
    **dict.fromkeys(("op", "op_ignore", "before", "after", "deleted", "table"), _TEXT),
}

FORMATS: Mapping[str, InputTraits] = {
    "json": InputTraits(
        kind="rows", codec=_framed(_plain("json")), key_from="kafka", options=_FRAMED_JSON
    ),
    "bytes": InputTraits(kind="rows", codec=_plain("bytes"), encoding="bytes", key_from="kafka"),
    "avro": InputTraits(
        kind="rows",
        codec=_by_schemas("avro", "AvroUpserts", any_keys=True),
        encoding="avro",
        key_from="either",
        # Flattened events of Debezium have schemas that name these types.
        usual_encodings="named",
        options=_FRAMING,
    ),
    "protobuf": InputTraits(
        kind="rows",
        codec=_by_schemas("protobuf", "ProtobufUpserts", any_keys=True),
        encoding="protobuf",
        key_from="either",
    ),
    "debezium-json": InputTraits(
        kind="changes",
        codec=_framed(_in_json("debezium", "Debezium", placed=True)),
        key_from="either",
        old_images=True,
        source_clocks=True,
        quick=True,
        usual_encodings="always",
        options={**_OF_CHANGES, **_SEQUENCE, **_PLACEHOLDER, **_FRAMED_JSON},
    ),
    "debezium-avro": InputTraits(
        kind="changes",
        codec=_by_schemas("debezium_avro", "DebeziumAvro", placed=True),
        encoding="avro",
        key_from="either",
        keys_alike=True,
        old_images=True,
        usual_encodings="always",
        options={**_OF_CHANGES, **_SEQUENCE, **_FRAMING, **_PLACEHOLDER},
    ),
    "debezium-flat-json": InputTraits(
        kind="changes",
        codec=_framed(_in_json("debezium", "DebeziumFlat")),
        key_from="either",
        usual_encodings="always",
        options={**_OF_CHANGES, **_PLACEHOLDER, "prefix": _TEXT, **_FRAMED_JSON},
    ),
    "maxwell": InputTraits(
        kind="changes",
        codec=_in_json("maxwell", "Maxwell", placed=True),
        old_images=True,
        options={
            **_OF_CHANGES,
            **_SEQUENCE,
            **_ROW_IMAGE,
            "output_nulls": InputOption(("true", "false")),
        },
    ),
    "canal": InputTraits(
        kind="changes",
        codec=_in_json("canal", "Canal", placed=True),
        old_images=True,
        usual_encodings="always",
        options={**_OF_CHANGES, **_SEQUENCE, **_ROW_IMAGE},
    ),
    "goldengate": InputTraits(
        kind="changes",
        codec=_in_json("goldengate", "GoldenGate", placed=True),
        old_images=True,
        options={
            **_OF_CHANGES,
            **_SEQUENCE,
            **_ROW_IMAGE,
            **_OPERATIONS,
        },
    ),
    "dms": InputTraits(
        kind="changes",
        codec=_in_json("dms", "Dms", placed=True),
        key_from="columns",
        old_images=True,
        options={
            **_OF_CHANGES,
            **_SEQUENCE,
            "before_filter": InputOption(("pk-only", "non-lob", "all")),
            "before_image": _TEXT,
            "before_prefix": InputOption(may_be_empty=True),
        },
    ),
    "changes": InputTraits(
        kind="changes",
        codec=_framed(_in_json("changes", "in_json")),
        key_from="either",
        old_images=True,
        options={**_OF_ANY_CHANGES, **_FRAMED_JSON},
    ),
    "changes-avro": InputTraits(
        kind="changes",
        codec=_by_schemas("changes", "in_avro"),
        encoding="avro",
        key_from="either",
        keys_alike=True,
        old_images=True,
        options={**_OF_ANY_CHANGES, **_FRAMING},
    ),
    "diff": InputTraits(kind="updates"),
    "cdcv2-json": InputTraits(kind="facts", facts=_FACTS),
    "cdcv2-avro": InputTraits(kind="facts", facts=_FACTS_IN_AVRO, encoding="avro"),
}
OUTPUT_FORMATS: Mapping[str, OutputTraits] = {
    "diff": OutputTraits(),
    "cdcv2-json": OutputTraits(facts=_FACTS),
    "cdcv2-avro": OutputTraits(facts=_FACTS_IN_AVRO),
    "upsert": OutputTraits(codec=_UPSERTS, latest=True),
    "avro": OutputTraits(codec=_UPSERTS, latest=True, schemas=_module("avro_out")),
    "json-schema": OutputTraits(codec=_UPSERTS, latest=True, schemas=_module("json_schema_out")),
    "protobuf": OutputTraits(codec=_UPSERTS, latest=True, schemas=_module("protobuf_out")),
    "debezium-json": OutputTraits(codec=_ENVELOPES, tombstones=True),
    "debezium-avro": OutputTraits(codec=_ENVELOPES, tombstones=True, schemas=_module("avro_out")),
}
SINGLE_VALUE_FORMATS = tuple(name for name, its in OUTPUT_FORMATS.items() if its.single_value)
FACT_FORMATS = tuple(name for name, its in OUTPUT_FORMATS.items() if its.facts is not None)


def fact_codec(name: str) -> FactCodec:
    """Find the encoding of CDCv2 by the name of its format."""
    facts = FORMATS[name].facts
    assert facts is not None, f"{name} has no facts"
    return facts()


# JSON in the framing of a schema registry, as serializers of JSON Schema write it.
#
# The bytes before the JSON name a schema, which decoding does not need.  JSON never begins with a
# zero byte, so a key without framing, from another serializer, is recognised.  Values must be
# framed.
#
# Source: confluent_kafka.schema_registry.json_schema; Apicurio's ids have eight bytes.

FRAMES = {"confluent": 5, "apicurio": 9}
"""The bytes before the data, by framing."""


class Framed:
    """Decodes framed messages with the codec of bare ones.

    >>> from ikebana.codecs.change import Needs
    >>> from ikebana.codecs.plain import Plain
    >>> codec = Framed(Plain("json", "json", Needs()), "confluent")
    >>> codec.changes(b"1", bytes(5) + b'{"n":2}', None)[0].after
    b'{"n":2}'
    """

    def __init__(self, codec: Codec, framing: str) -> None:
        self._codec, self._length = codec, FRAMES[framing]

    def key(self, key: bytes | None) -> bytes | None:
        return self._codec.key(self._bare_key(key))

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        key = self._bare_key(key)
        if value is None:
            return self._codec.changes(key, None, headers)
        try:
            bare = self._bare(value)
        except DecodeError as error:
            raise DecodeError(error.codec, error.reason, key=self._readable(key)) from None
        return self._codec.changes(key, bare, headers)

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key, if the codec decodes rows.  Raises: DecodeError."""
        codec: RowCodec = self._codec  # type: ignore[assignment]
        return codec.row(self._bare(value), headers)

    def _bare_key(self, key: bytes | None) -> bytes | None:
        return key[self._length :] if key and key[0] == 0 else key

    def _bare(self, value: bytes) -> bytes:
        if value[:1] != b"\0":
            raise DecodeError("value as JSON", "it does not begin with the byte of a schema id")
        if len(value) < self._length:
            raise DecodeError("value as JSON", "it is too short for a schema id")
        return value[self._length :]

    def _readable(self, key: bytes | None) -> bytes | None:
        try:
            return self._codec.key(key)
        except DecodeError:
            return None
