"""Avro messages become canonical JSON data, or are refused without their payload."""

import json
import random
import struct
from pathlib import Path
from typing import Any, Literal

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder, AvroUpserts
from ikebana.codecs.avro_compiler import ALL, Fields
from ikebana.codecs.avro_schema import self_contained
from ikebana.codecs.change import Change, Needs
from ikebana.codecs.column_encodings import encoding
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from support.avro_messages import KnownSchemas, body

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "avro").glob("*.json"))
CONFLUENT = bytes(5)


def record(*fields: Any, name: str = "row") -> dict[str, Any]:
    """A record of fields that are (name, type) or (name, type, default)."""
    parts = ("name", "type", "default")
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(parts, field, strict=False)) for field in fields],
    }


def number(value: int) -> bytes:
    """Avro's long."""
    return body("long", value)


def decoded(schema: Any, message: bytes, reader: Any = None, needs: Fields = ALL) -> Any:
    """Decode one body of a schema."""
    pinned = None if reader is None else json.dumps(reader)
    return AvroDecoder(KnownSchemas({0: schema}), pinned, needs=needs).decode(CONFLUENT + message)


def refused(schema: Any, message: bytes, reader: Any = None) -> str:
    """Why a body is not decoded."""
    with pytest.raises(DecodeError) as caught:
        decoded(schema, message, reader)
    assert caught.value.codec == "Avro value"
    return caught.value.reason


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_golden_messages_decode_to_what_is_written_beside_them(file: Path) -> None:
    """Every type, every logical type and Connect's, byte by byte."""
    golden = json.loads(file.read_text())
    message = bytes.fromhex(golden["message"])
    decoder = AvroDecoder(KnownSchemas({int.from_bytes(message[1:5], "big"): golden["schema"]}))

    assert canonical.write(decoder.decode(message)) == canonical.encode(golden["expected"])


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_pinned_schema_that_is_the_writers_changes_nothing(file: Path) -> None:
    """Resolution of a schema against itself, but for a comment, is the identity."""
    golden = json.loads(file.read_text())
    message = bytes.fromhex(golden["message"])[5:]

    data = decoded(golden["schema"], message, {**golden["schema"], "doc": "pinned"})

    assert canonical.write(data) == canonical.encode(golden["expected"])


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_golden_message_that_is_cut_or_extended_anywhere_is_refused(file: Path) -> None:
    """No prefix of a message is a message, nor is one with a byte more."""
    golden = json.loads(file.read_text())
    message = bytes.fromhex(golden["message"])
    decoder = AvroDecoder(KnownSchemas({int.from_bytes(message[1:5], "big"): golden["schema"]}))

    for end in range(len(message)):
        with pytest.raises(DecodeError):
            decoder.decode(message[:end])
    with pytest.raises(DecodeError, match="its body is followed by more bytes"):
        decoder.decode(message + b"\0")


@pytest.mark.parametrize(
    ("kind", "packed", "expected"),
    [
        pytest.param("float", struct.pack("<f", 0.1), b"0.1", id="shortest float"),
        pytest.param("float", struct.pack("<f", 16777216.0), b"16777216", id="whole float"),
        pytest.param("float", struct.pack("<f", 1.1754944e-38), b"1.1754944e-38", id="tiny float"),
        pytest.param("double", struct.pack("<d", 0.1), b"0.1", id="double"),
        pytest.param("double", struct.pack("<d", -0.0), b"0", id="minus zero"),
        pytest.param(
            "double", struct.pack("<d", 0.1 + 0.2), b"0.30000000000000004", id="17 digits"
        ),
    ],
)
def test_floats_are_canonical(kind: str, packed: bytes, expected: bytes) -> None:
    """A float is the same bytes as the shortest JSON number that names it."""
    assert canonical.write(decoded(kind, packed)) == expected == canonical.canonical(expected)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_survives_its_decimal(value: float) -> None:
    """What is written of a float of 32 bits reads back as that float."""
    data = decoded("float", struct.pack("<f", value))

    assert struct.unpack("<f", struct.pack("<f", float(data)))[0] == value


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_float_that_is_not_finite_has_a_name(kind: str, value: float) -> None:
    """As Connect's JSON converter writes it, since JSON has no such number."""
    schema = record(("deep", record(("price", kind), name="inner")))
    packed = struct.pack("<f" if kind == "float" else "<d", value)

    assert decoded(schema, packed) == {"deep": {"price": canonical.spelling(value)}}


@pytest.mark.parametrize(
    ("branches", "data", "expected"),
    [
        pytest.param(["null", "bytes"], None, None, id="null"),
        pytest.param(["bytes", "null"], b"a", "YQ==", id="null last"),
        pytest.param(["long", "string", "boolean"], True, True, id="plain"),
        pytest.param(["long", "double"], 2.0, 2, id="number"),
        pytest.param(
            [record(("a", "bytes"), name="A"), record(("b", "double"), name="B"), "null"],
            {"b": 2.0},
            {"b": 2},
            id="records",
        ),
        pytest.param(
            ["null", {"type": "map", "values": "bytes"}, {"type": "array", "items": "bytes"}],
            [b"a"],
            ["YQ=="],
            id="containers",
        ),
    ],
)
def test_a_union_is_its_plain_value(branches: list[Any], data: Any, expected: Any) -> None:
    """Each branch is converted in its own way."""
    assert decoded(branches, body(branches, data)) == expected


ALIKE = [
    pytest.param(
        ["int", {"type": "long", "logicalType": "timestamp-millis"}], b"\2\0",
        "1970-01-01T00:00:00Z", id="numbers",
    ),
    pytest.param(["null", "float", "double"], b"\2" + struct.pack("<f", 0.1), 0.1, id="a float"),
    pytest.param(["null", "float", "double"], b"\4" + struct.pack("<d", 0.1), 0.1, id="a double"),
    pytest.param(
        [record(("a", "bytes"), name="A"), record(("a", "double"), name="B")],
        b"\2" + struct.pack("<d", 2.5), {"a": 2.5}, id="records of the same fields",
    ),
    pytest.param(
        [record(("a", "bytes"), name="A"), {"type": "map", "values": "double"}],
        b"\2\2\2a" + struct.pack("<d", 2.5) + b"\0", {"a": 2.5}, id="a map like a record",
    ),
    pytest.param(
        [record(("a", ["null", "float", "double"]), name="A"), record(("a", "bytes"), name="B")],
        b"\0\2" + struct.pack("<f", 0.1), {"a": 0.1}, id="a union in a union",
    ),
    pytest.param(
        [{"type": "array", "items": ["bytes", "string"]}, "string"], b"\0\4\0\2a\2\2a\0",
        ["YQ==", "a"], id="unions in an array",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("branches", "message", "data"), ALIKE)
def test_a_union_has_the_value_of_its_branch(
    branches: list[Any], message: bytes, data: Any
) -> None:
    """However alike others are: the bytes say which one it is."""
    assert decoded(branches, message) == data
    schema = record(
        ("u", branches), ("v", ["null", *branches] if "null" not in branches else "int")
    )
    beside = b"\0" if "null" not in branches else b"\2"
    value = None if "null" not in branches else 1
    assert decoded(schema, message + beside) == {"u": data, "v": value}


@pytest.mark.parametrize("branches", [case.values[0] for case in ALIKE[:1] + ALIKE[3:5]])
def test_a_pinned_schema_has_no_union_whose_values_look_alike(branches: Any) -> None:
    """What fastavro resolves does not tell its branch, and a guess could be another meaning."""
    with pytest.raises(ConfigError, match="a union whose values cannot be told apart"):
        decoded(branches, b"\0\0", reader=branches)


def test_a_type_that_is_named_again_means_the_same() -> None:
    """A record with a meaning, such as a decimal with its own scale, in a second column too."""
    name = "io.debezium.data.VariableScaleDecimal"
    number = record(("scale", "int"), ("value", "bytes")) | {"name": name, "connect.name": name}
    fields = ("a", number), ("b", ["null", name])
    digits = b"\x04\x04\x30\x39"

    message = digits + b"\2" + digits

    assert decoded(record(*fields), message) == {"a": 123.45, "b": 123.45}
    newer = record(*fields, ("c", "int", 0))
    assert decoded(record(*fields), message, newer) == {"a": 123.45, "b": 123.45, "c": 0}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
V1 = record(("id", "long"), ("name", "string"))
V2 = record(
    ("id", "long"),
    ("mail", ["null", "string"], None),
    ("name", "string"),
    ("tags", {"type": "array", "items": "string"}, ["new"]),
    ("raw", "bytes", "\u00ff\u0000"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u007b"),
)


def test_a_pinned_schema_has_every_writer_look_alike() -> None:
    """Defaults fill what the older writer lacks, and are of the field's own kind."""
    known = KnownSchemas({1: V1, 2: V2})
    decoder = AvroDecoder(known, json.dumps(V2))
    newer = {"id": 2, "mail": "m", "name": "b", "tags": [], "raw": b"", "price": b"\x01"}
    raw = record(
        *((f["name"], "bytes" if f["name"] == "price" else f["type"]) for f in V2["fields"])
    )

    old = decoder.decode(bytes([0, 0, 0, 0, 1]) + body(V1, {"id": 1, "name": "a"}))
    again = decoder.decode(bytes([0, 0, 0, 0, 1]) + body(V1, {"id": 1, "name": "a"}))
    new = decoder.decode(bytes([0, 0, 0, 0, 2]) + body(raw, newer))

    assert old == again == {
        "id": 1, "mail": None, "name": "a", "tags": ["new"], "raw": "/wA=", "price": 1.23
    }  # fmt: skip
    assert new == {"id": 2, "mail": "m", "name": "b", "tags": [], "raw": "", "price": 0.01}
    assert known.asked == [1, 2]


def test_a_default_of_a_record_has_the_defaults_of_its_fields() -> None:
    """Those that it leaves out, also in a list and in the first type of a union."""
    day = {"type": "int", "logicalType": "date"}
    part = record(("day", day, 1), ("note", ["null", "string"], None), ("n", "int"), name="part")
    reader = record(
        ("id", "long"),
        ("one", part, {"n": 7}),
        ("more", {"type": "array", "items": ["part", "null"]}, [{"n": 8, "day": 0}]),
        ("by_name", {"type": "map", "values": "part"}, {"a": {"n": 9, "note": None}}),
    )

    first = {"day": "1970-01-02", "n": 7, "note": None}
    assert decoded(V1, body(V1, {"id": 1, "name": "a"}), reader) == {
        "id": 1,
        "one": first,
        "more": [{**first, "day": "1970-01-01", "n": 8}],
        "by_name": {"a": {**first, "n": 9}},
    }


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((14, 3, 1_500), "P14M3DT1.5S"),
        ((0, 0, 0), "P0M0DT0S"),
        ((0, 0, 2**32 - 1), "P0M0DT4294967.295S"),
    ],
)
def test_a_duration_is_an_interval(parts: tuple[int, ...], shown: str) -> None:
    """Of months, days and milliseconds."""
    schema = {"type": "fixed", "name": "length", "size": 12, "logicalType": "duration"}

    assert decoded(schema, struct.pack("<III", *parts)) == shown


def test_a_pinned_schema_leaves_out_what_a_newer_writer_adds() -> None:
    """What the reader does not know is skipped, whole."""
    writer = record(("id", "long"), ("blob", "bytes"), ("name", "string"), ("last", "string"))
    message = body(writer, {"id": 1, "blob": b"x" * 300, "name": "a", "last": "zz"})

    assert decoded(writer, message, V1) == {"id": 1, "name": "a"}
    assert refused(writer, message[:-1], V1) == "its body is cut off"


@pytest.mark.parametrize(
    ("writer", "reader", "message", "reason"),
    [
        pytest.param(
            V1,
            record(("id", "long"), ("new", "string")),
            "02 02 61",
            "its body does not fit the pinned schema",
            id="no default",
        ),
        pytest.param(
            record(("id", "string")),
            record(("id", "long")),
            "02 61",
            "its body does not fit the pinned schema",
            id="another type",
        ),
        pytest.param(
            record(("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}])),
            record(("at", ["null", {"type": "long", "logicalType": "timestamp-micros"}], None)),
            "02 02",
            "its schema and the pinned one differ in what a field means",
            id="another unit",
        ),
        pytest.param(
            record(("a", record(("t", MILLIS), name="in")), ("b", "in")),
            record(("b", record(("t", MICROS), name="in"))),
            "02 02",
            "its schema and the pinned one differ in what a field means",
            id="another unit within a named type",
        ),
        pytest.param(
            record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})),
            record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3})),
            "02 01",
            "its schema and the pinned one differ in what a field means",
            id="another scale",
        ),
    ],
)
def test_a_schema_that_does_not_resolve_is_refused(
    writer: Any, reader: Any, message: str, reason: str
) -> None:
    """Digits are never given another sense, and nothing is made up."""
    assert refused(writer, bytes.fromhex(message), reader) == reason


@pytest.mark.parametrize(
    "schema", ["", "{", '"nothing"', '{"type":"record","name":"r"}', "[1]", '{"type":{}}']
)
def test_a_reader_schema_that_is_none_is_an_error_of_the_settings(schema: str) -> None:
    """It is told before any message is read."""
    with pytest.raises(ConfigError, match="cannot use the reader schema of the value"):
        AvroDecoder(KnownSchemas({}), schema)


def test_only_wanted_fields_are_converted() -> None:
    """What nobody wants may be whatever it is."""
    inner = record(("x", "double"), ("y", "double"), name="inner")
    schema = record(("id", "long"), ("inner", inner), ("other", "double"))
    nan = float("nan")
    message = body(schema, {"id": 1, "inner": {"x": 2.0, "y": nan}, "other": nan})
    wanted = Fields({"id": ALL, "inner": Fields({"x": ALL}), "missing": ALL})

    assert decoded(schema, message, needs=wanted) == {"id": 1, "inner": {"x": 2}}


def test_a_declared_encoding_is_for_what_the_schema_leaves_open() -> None:
    """A type that has a meaning keeps it."""
    schema = record(
        ("day", ["null", "int"]), ("known", {"type": "int", "logicalType": "date"}), ("d", "bytes")
    )
    plain = record(("day", ["null", "int"]), ("known", "int"), ("d", "bytes"))
    given = {"day": encoding("date"), "known": encoding("time-millis"), "d": encoding("decimal:1")}

    data = decoded(
        schema, body(plain, {"day": 1, "known": 1, "d": b"\x0f"}), needs=Fields(None, given)
    )

    assert data == {"day": "1970-01-02", "known": "1970-01-02", "d": 1.5}


NODE = record(("value", "bytes"), ("next", ["null", "node"], None), name="node")


def test_a_type_within_itself_is_read() -> None:
    """Also the inner records are converted, and a reader schema resolves."""
    message = body(NODE, {"value": b"a", "next": {"value": b"b", "next": None}})
    expected = {"value": "YQ==", "next": {"value": "Yg==", "next": None}}

    assert decoded(NODE, message) == expected
    assert decoded(NODE, message, NODE) == expected
    assert decoded(NODE, message, needs=Fields({"next": ALL})) == {"next": expected["next"]}


@pytest.mark.parametrize("reader", [None, NODE, record(("value", "bytes"), name="node")])
def test_a_recursion_without_end_is_refused(reader: Any) -> None:
    """It ends neither the process nor its patience."""
    assert refused(NODE, b"\0\2" * 1_000_000, reader) == "it is nested too deeply"


@pytest.mark.parametrize(
    ("schema", "message", "reason"),
    [
        pytest.param("string", b"", "its body is cut off", id="nothing"),
        pytest.param("string", number(2**62), "its body is cut off", id="a giant text"),
        pytest.param("bytes", number(2**62) + b"x", "its body is cut off", id="giant bytes"),
        pytest.param("string", number(-1) + b"x", "its body is cut off", id="a negative length"),
        pytest.param("double", b"1234567", "its body is cut off", id="a part of a double"),
        pytest.param("long", b"\xff", "its body is cut off", id="a part of a long"),
        pytest.param("string", b"\2\xff", "its body does not fit its schema", id="no UTF-8"),
        pytest.param(["null", "int"], b"\6", "its body does not fit its schema", id="no branch"),
        pytest.param(
            {"type": "enum", "name": "e", "symbols": ["A"]},
            b"\2",
            "its body does not fit its schema",
            id="no symbol",
        ),
        pytest.param(
            {"type": "array", "items": "int"},
            number(2**62) + b"\2",
            "its body is cut off",
            id="a giant array",
        ),
        pytest.param(
            {"type": "array", "items": record(("x", "null"))},
            number(2**62),
            "its schema has an array of items without bytes",
            id="a giant array of nothing",
        ),
        pytest.param("null", b"\0", "its body is followed by more bytes", id="left over"),
        pytest.param(
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0},
            number(9_000) + b"\x7f" * 9_000,
            "a number has too many digits",
            id="digits",
        ),
    ],
)
def test_damaged_bodies_are_refused(schema: Any, message: bytes, reason: str) -> None:
    """Nothing is allocated for what is not there."""
    assert refused(schema, message) == reason


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param("nothing", id="a name that is not defined"),
        pytest.param({"type": "record", "name": "r"}, id="no fields"),
        pytest.param({"type": "fixed", "name": "f"}, id="no size"),
        pytest.param({}, id="nothing in it"),
        pytest.param(7, id="a number"),
    ],
)
def test_a_schema_that_is_none_makes_its_messages_unreadable(schema: Any) -> None:
    """One bad schema in a registry is no reason to stop."""
    assert refused(schema, b"\0").startswith("its schema ")


def test_names_are_resolved_as_avro_says() -> None:
    """By namespace, in the order of the text, and out of what is referred to."""
    money = {"type": "fixed", "name": "Money", "namespace": "bank", "size": 2}
    line = {
        "type": "record",
        "name": "shop.Line",
        "fields": [
            {"name": "price", "type": "bank.Money"},
            {"name": "up", "type": ["null", "Line"]},
        ],
    }
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": "Line"}},
            {"name": "b", "type": "bank.Money"},
        ],
    }

    schema = self_contained(order, [money, line])

    assert fastavro.parse_schema(schema)
    assert schema["name"] == "shop.Order"
    assert decoded(schema, b"\2ab\0\0cd") == {"a": [{"price": "YWI=", "up": None}], "b": "Y2Q="}


TYPES = json.loads(next(file for file in GOLDEN if file.stem == "types").read_text())


def test_damage_anywhere_raises_only_decode_errors_without_payload() -> None:
    """Of a thousand bodies with a byte changed, each is data or refused."""
    chance = random.Random(7)
    message = bytes.fromhex(TYPES["message"])
    decoder = AvroDecoder(KnownSchemas({42: TYPES["schema"]}))
    outcomes = set()
    for _ in range(1_000):
        damaged = bytearray(message)
        damaged[chance.randrange(5, len(message))] = chance.randrange(256)
        try:
            canonical.write(decoder.decode(bytes(damaged)))
        except DecodeError as error:
            outcomes.add(error.reason)

    assert outcomes
    assert not any("SPADES" in reason or "0f14d0ab" in reason for reason in outcomes)


@given(st.binary(max_size=200), st.sampled_from(["", "0000000000", "0000000001", "0000000002"]))
def test_any_bytes_are_data_or_refused(message: bytes, prefix: str) -> None:
    """Random bytes raise nothing else, with schemas that are flat, deep, pinned or unknown."""
    known = KnownSchemas({0: TYPES["schema"], 1: NODE})
    for decoder in (AvroDecoder(known), AvroDecoder(known, json.dumps(V2))):
        try:
            decoder.decode(bytes.fromhex(prefix) + message)
        except DecodeError as error:
            outcome = error.reason
        else:
            outcome = "data"
        assert len(outcome) < 100


KEY = record(("id", "long"), name="key")
ROW = record(("id", "long"), ("name", ["null", "string"]), ("price", "double"))
SCHEMAS = KnownSchemas({0: KEY, 1: ROW, 2: "string"})
ROW_BYTES = bytes([0, 0, 0, 0, 1]) + body(ROW, {"id": 1, "name": "a", "price": 2.0})
KEY_BYTES = CONFLUENT + b"\2"


@pytest.mark.parametrize(
    ("key_format", "key", "expected"),
    [
        pytest.param("avro", KEY_BYTES, b'{"id":1}', id="Avro"),
        pytest.param("avro", b"\0\0\0\0\2\2a", b'"a"', id="Avro that is no record"),
        pytest.param("json", b'{"id": 1.0}', b'{"id":1}', id="JSON"),
        pytest.param("bytes", b"\xff", b"\xff", id="bytes"),
        pytest.param("bytes", b"", b"", id="no bytes"),
    ],
)
def test_an_upsert_has_its_key_in_the_kafka_key(
    key_format: Literal["avro", "json", "bytes"], key: bytes, expected: bytes
) -> None:
    """A null value is a delete of that key."""
    codec = AvroUpserts(SCHEMAS, Needs(), key_format)

    assert codec.key(key) == expected
    assert codec.changes(key, ROW_BYTES, None) == [
        Change("upsert", expected, b'{"id":1,"name":"a","price":2}')
    ]
    assert codec.changes(key, None, None) == [Change("delete", expected)]


def test_an_upserts_key_may_be_columns_of_its_row() -> None:
    """Then the Kafka key matters for deletes only, and the row has wanted columns alone."""
    codec = AvroUpserts(SCHEMAS, Needs(columns=("price", "gone"), key=("id",)))

    assert codec.key(KEY_BYTES) is None
    assert codec.changes(b"?", ROW_BYTES, None) == [Change("upsert", b'{"id":1}', b'{"price":2}')]
    assert codec.changes(KEY_BYTES, None, None) == [Change("delete", b'{"id":1}')]


def test_an_upserts_schemas_may_be_in_headers() -> None:
    """The key is then known with its headers only."""
    codec = AvroUpserts(SCHEMAS, Needs(options={"framing": "headers"}))
    headers = [("__key_schema_id", bytes(5)), ("apicurio.value.contentId", b"\0" * 7 + b"\1")]

    assert codec.key(b"\2") is None
    assert codec.changes(b"\2", ROW_BYTES[5:], iter(headers)) == [
        Change("upsert", b'{"id":1}', b'{"id":1,"name":"a","price":2}')
    ]


@pytest.mark.parametrize(
    ("key_format", "wanted", "key", "value", "reason"),
    [
        pytest.param("avro", Needs(), None, ROW_BYTES, "Avro key: it is null", id="null key"),
        pytest.param("avro", Needs(), b"", ROW_BYTES, "Avro key: it is empty", id="empty key"),
        pytest.param(
            "json",
            Needs(),
            b"{",
            ROW_BYTES,
            "JSON key: it is empty, cut off, or has half a surrogate pair",
            id="a key that is no JSON",
        ),
        pytest.param(
            "avro",
            Needs(key=("other",)),
            KEY_BYTES,
            ROW_BYTES,
            "Avro value: it lacks `other` of the key",
            id="a row without the key",
        ),
        pytest.param(
            "avro",
            Needs(key=("other",)),
            KEY_BYTES,
            None,
            "Avro key: it lacks `other` of the key",
            id="a delete without the key",
        ),
    ],
)
def test_an_upsert_without_a_key_is_refused(
    key_format: Literal["avro", "json", "bytes"],
    wanted: Needs,
    key: bytes | None,
    value: bytes | None,
    reason: str,
) -> None:
    """There is then no row that it could be about."""
    with pytest.raises(DecodeError) as caught:
        AvroUpserts(SCHEMAS, wanted, key_format).changes(key, value, None)

    assert str(caught.value) == f"could not decode {reason}"
    assert caught.value.key is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"{}", "it does not begin with the byte of a schema id", id="JSON"),
        pytest.param(b"\0\0\0\0\7", "schema id is unknown", id="unknown"),
        pytest.param(ROW_BYTES[:-1], "its body is cut off", id="cut off"),
        pytest.param(ROW_BYTES + b"\0", "its body is followed by more bytes", id="left over"),
        pytest.param(b"\0\0\0\0\2\2a", "expected a record", id="no record"),
        pytest.param(
            b"\0" * 10_000_000, "its body is followed by more bytes", id="10 MB of nothing"
        ),
    ],
)
def test_an_upsert_with_a_bad_value_is_refused_with_its_key(value: bytes, reason: str) -> None:
    """The row is known, though not what it is now."""
    codec = AvroUpserts(SCHEMAS, Needs(columns=("id", "name", "price")))

    with pytest.raises(DecodeError) as caught:
        codec.changes(KEY_BYTES, value, None)

    assert (caught.value.reason, caught.value.key) == (reason, b'{"id":1}')


def test_an_upsert_may_have_numbers_that_are_not_finite() -> None:
    """Compiled or not."""
    value = ROW_BYTES[:-8] + struct.pack("<d", float("-inf"))
    codec = AvroUpserts(SCHEMAS, Needs(columns=("price",)))

    for _ in range(2):
        (change,) = codec.changes(KEY_BYTES, value, None)
        assert change.after == b'{"price":"-Infinity"}'


def test_another_framing_is_an_option() -> None:
    """One that there is not is an error of the settings."""
    codec = AvroUpserts(SCHEMAS, Needs(options={"framing": "apicurio"}), "bytes")

    assert codec.changes(b"k", b"\0" * 8 + b"\2\2a", None) == [Change("upsert", b"k", b'"a"')]
    with pytest.raises(ConfigError, match='option "framing" is "other"'):
        AvroUpserts(SCHEMAS, Needs(options={"framing": "other"}))


def test_a_value_of_10_mb_is_decoded() -> None:
    """What is there is read, however long."""
    codec = AvroUpserts(SCHEMAS, Needs())
    text = "x" * 10_000_000

    [change] = codec.changes(KEY_BYTES, b"\0\0\0\0\2" + body("string", text), None)

    assert change.after == f'"{text}"'.encode()
