"""Debezium's events in Avro give the changes that the same events in JSON give."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Codec, DeclaredColumns, Ignored, Needs
from ikebana.codecs.debezium import Debezium
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.errors import DecodeError
from support.avro_messages import KnownSchemas, body

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "avro" / "debezium" / "customers.json").read_text()
)
PLACEHOLDER = "__debezium_unavailable_value"
KEY_ID, VALUE_ID, OTHER_ID = (bytes([0, 0, 0, 0, number]) for number in (1, 2, 3))


GOLDEN_SCHEMAS = KnownSchemas({1: GOLDEN["key_schema"], 2: GOLDEN["value_schema"]})


def from_hex(text: str | None) -> bytes | None:
    """Bytes of a golden file."""
    return None if text is None else bytes.fromhex(text)


def in_bytes(data: Any) -> bytes | None:
    """Canonical bytes of a golden file's data."""
    return None if data is None else canonical.encode(data)


@pytest.mark.parametrize("message", GOLDEN["messages"], ids=lambda message: message["name"])
def test_golden_events_decode_to_what_is_written_beside_them(message: dict[str, Any]) -> None:
    """Every operation, with the types that a Postgres table has."""
    columns = tuple(
        field["name"] for field in GOLDEN["value_schema"]["fields"][0]["type"][1]["fields"]
    )
    key, value = from_hex(message["key"]), from_hex(message["value"])
    expected = [
        Change(kind, in_bytes(of), in_bytes(after), in_bytes(before), tuple(absent), replaces)
        for kind, of, after, before, absent, replaces in message["changes"]
    ]

    for wanted in (Needs(before=True), Needs(before=True, columns=columns)):
        codec = DebeziumAvro(GOLDEN_SCHEMAS, wanted)
        assert codec.changes(key, value, None) == expected
        assert codec.key(key) == (b'{"id":1004}' if key else None)
    without = DebeziumAvro(GOLDEN_SCHEMAS, Needs()).changes(key, value, None)
    assert without == [change._replace(before=None) for change in expected]


COLUMNS = {
    "id": "int",
    "name": ["null", "string"],
    "data": ["null", "bytes"],
    "tags": ["null", {"type": "array", "items": ["null", "string"]}],
    "numbers": ["null", {"type": "array", "items": "int"}],
    "attributes": ["null", {"type": "map", "values": "string"}],
    "price": ["null", "double"],
}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": name, "type": kind} for name, kind in COLUMNS.items()],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": ["null", "string"]} for name in ("db", "schema", "table")],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
SCHEMAS = KnownSchemas({1: KEY, 2: ENVELOPE})
TABLE = {"db": "shop", "schema": "public", "table": "orders"}


def row(**columns: Any) -> dict[str, Any]:
    """A row, null where nothing is given."""
    return {**dict.fromkeys(COLUMNS), "id": 1, **columns}


def event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """An envelope."""
    return {
        "before": before, "after": after, "source": {**TABLE, **source}, "op": op, "ts_ms": 5
    }  # fmt: skip


def in_avro(key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
    """A message as the Avro converter writes it."""
    return (
        None if key is None else KEY_ID + body(KEY, key),
        None if value is None else VALUE_ID + body(ENVELOPE, value),
    )


def in_json(key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
    """The same message as the JSON converter writes it."""

    def text(data: Any) -> bytes | None:
        plain = lambda raw: b64encode(raw).decode()  # noqa: E731
        return None if data is None else json.dumps(data, default=plain).encode()

    return text(key), text(value)


def outcome(codec: Codec, message: tuple[bytes | None, bytes | None]) -> Any:
    """What a codec makes of a message; a refusal by its key."""
    try:
        found = codec.changes(*message, None)
    except DecodeError as error:
        return "refused", error.key
    if isinstance(found, Ignored):
        return found
    # In which order the absent columns are named is no matter, and what a change replaces is
    # tested above.
    return [
        change._replace(absent=tuple(sorted(change.absent)), replaces=False) for change in found
    ]


small = st.text("abc_", max_size=3)
columns = st.fixed_dictionaries(
    {
        "id": st.integers(1, 3),
        "name": st.none() | small | st.just(PLACEHOLDER),
        "data": st.none() | st.binary(max_size=3) | st.just(PLACEHOLDER.encode()),
        "tags": st.none() | st.lists(st.none() | small, max_size=2) | st.just([PLACEHOLDER]),
        "numbers": st.none() | st.lists(st.integers(0, 9)) | st.just(list(PLACEHOLDER.encode())),
        "attributes": st.none()
        | st.dictionaries(small, small, max_size=2)
        | st.just({PLACEHOLDER: PLACEHOLDER}),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)
events = st.none() | st.builds(
    event,
    st.sampled_from(["c", "u", "u", "r", "d", "t", "m", "x"]),
    st.none() | columns,
    st.none() | columns,
    table=st.sampled_from(["orders", "lines", None]),
    schema=st.sampled_from(["public", None]),
)
keys = st.none() | st.fixed_dictionaries({"id": st.integers(1, 3)})
wanteds = st.builds(
    Needs,
    columns=st.none()
    | st.sampled_from([("id", "name"), ("name", "data", "tags"), tuple(COLUMNS)]),
    key=st.sampled_from([(), ("id",), ("id", "name"), ("missing",)]),
    before=st.booleans(),
    tables=st.sampled_from([None, r"shop\.(public\.)?orders"]),
)


@given(wanteds, keys, events)
def test_avro_and_json_say_the_same(wanted: Needs, key: Any, value: Any) -> None:
    """The changes, what is ignored, and the keys of what is refused."""
    avro, plain = DebeziumAvro(SCHEMAS, wanted), Debezium(wanted)

    found = outcome(avro, in_avro(key, value))

    assert found == outcome(plain, in_json(key, value))
    assert avro.key(in_avro(key, value)[0]) == plain.key(in_json(key, value)[0])


def test_another_placeholder_is_an_option() -> None:
    """It replaces the default, which then is a text like any other."""
    codec = DebeziumAvro(
        SCHEMAS, Needs(("name", "data"), options={"unavailable_placeholder": "?"})
    )
    after = row(name=PLACEHOLDER, data=b"?")

    assert codec.changes(*in_avro({"id": 1}, event("c", None, after)), None) == [
        Change("upsert", b'{"id":1}', f'{{"name":"{PLACEHOLDER}"}}'.encode(), None, ("data",))
    ]


def test_a_changed_key_of_columns_is_a_delete_and_an_upsert() -> None:
    """The row has the key; the Kafka key is not looked at."""
    codec = DebeziumAvro(SCHEMAS, Needs(("id", "name"), key=("id",), before=True))
    old, new = row(id=1, name="a"), row(id=2, name="a")

    assert codec.changes(b"?", in_avro(None, event("u", old, new))[1], None) == [
        Change("delete", b'{"id":1}', None, b'{"id":1,"name":"a"}', replaces=True),
        Change("upsert", b'{"id":2}', b'{"id":2,"name":"a"}'),
    ]


@pytest.mark.parametrize(
    ("fields", "data", "expected"),
    [
        pytest.param([("ts_ms", "long")], {"ts_ms": 5}, "heartbeat", id="heartbeat"),
        pytest.param(
            [("resolved", "string")], {"resolved": "1.0"}, "heartbeat", id="CockroachDB's"
        ),
        pytest.param(
            [("status", "string"), ("id", "string"), ("ts_ms", "long")],
            {"status": "BEGIN", "id": "571:1", "ts_ms": 5},
            "transaction",
            id="transaction",
        ),
        pytest.param(
            [("source", SOURCE), ("ts_ms", "long"), ("ddl", ["null", "string"])],
            {"source": TABLE, "ts_ms": 5, "ddl": "DROP"},
            "ddl",
            id="schema change",
        ),
    ],
)
def test_what_tells_of_no_row_is_ignored(fields: Any, data: Any, expected: Any) -> None:
    """It is told by the fields that it has."""
    schema = {
        "type": "record", "name": "other", "fields": [{"name": n, "type": t} for n, t in fields]
    }  # fmt: skip
    codec = DebeziumAvro(KnownSchemas({1: KEY, 3: schema}), Needs())

    assert codec.changes(KEY_ID + b"\2", OTHER_ID + body(schema, data), None) == Ignored(expected)


def test_schemas_may_be_in_headers() -> None:
    """The headers may be iterable only once."""
    key, value = in_avro({"id": 1}, event("d"))
    assert key is not None
    assert value is not None
    headers = [("__key_schema_id", KEY_ID), ("__value_schema_id", VALUE_ID)]
    codec = DebeziumAvro(SCHEMAS, Needs(options={"framing": "headers"}))

    assert codec.key(key[5:]) is None
    assert codec.changes(key[5:], value[5:], iter(headers)) == [
        Change("delete", b'{"id":1}', replaces=True)
    ]


KEY_BYTES, VALUE_BYTES = in_avro({"id": 1}, event("c", None, row(name="hunter2")))
assert KEY_BYTES is not None
assert VALUE_BYTES is not None


@pytest.mark.parametrize(
    ("key", "value", "reason", "row_key"),
    [
        pytest.param(KEY_BYTES, b"", "it is empty", b'{"id":1}', id="empty"),
        pytest.param(
            KEY_BYTES,
            b"{}",
            "it does not begin with the byte of a schema id",
            b'{"id":1}',
            id="magic byte",
        ),
        pytest.param(
            KEY_BYTES, b"\0\0\0\0\7", "schema id is unknown", b'{"id":1}', id="unknown schema"
        ),
        pytest.param(
            KEY_BYTES, VALUE_BYTES[:-3], "its body is cut off", b'{"id":1}', id="cut off"
        ),
        pytest.param(
            KEY_BYTES,
            VALUE_BYTES + b"x",
            "its body is followed by more bytes",
            b'{"id":1}',
            id="left over",
        ),
        pytest.param(
            KEY_BYTES,
            VALUE_BYTES[:5] + b"\0" * 10_000_000,
            "its body is followed by more bytes",
            b'{"id":1}',
            id="10 MB of nothing",
        ),
        pytest.param(
            KEY_BYTES,
            in_avro(None, event("c"))[1],
            'field "after" is null or missing',
            b'{"id":1}',
            id="no row",
        ),
        pytest.param(
            KEY_BYTES,
            in_avro(None, event("?"))[1],
            'field "op" is none of c, u, r, d, t, m',
            b'{"id":1}',
            id="no operation",
        ),
        pytest.param(KEY_BYTES, KEY_BYTES, 'field "op" is missing', b'{"id":1}', id="no event"),
        pytest.param(b"", VALUE_BYTES, "it is empty", None, id="empty key"),
        pytest.param(
            None,
            VALUE_BYTES,
            "the Kafka key is null",
            None,
            id="null key",
        ),
    ],
)
def test_a_bad_message_is_refused_with_its_key(
    key: bytes | None, value: bytes | None, reason: str, row_key: bytes | None
) -> None:
    """The reason has nothing of the message in it."""
    with pytest.raises(DecodeError) as caught:
        DebeziumAvro(SCHEMAS, Needs()).changes(key, value, None)

    assert (caught.value.reason, caught.value.key) == (reason, row_key)
    assert caught.value.codec.startswith("Debezium ")


def test_a_bad_message_is_refused_with_the_key_of_its_row() -> None:
    """Where columns are the key, the row tells it although the rest is bad."""
    codec = DebeziumAvro(SCHEMAS, Needs(("name",), key=("id",), tables="shop.*"))
    value = in_avro(None, event("?", None, row(id=7)))[1]

    with pytest.raises(DecodeError) as caught:
        codec.changes(None, value, None)

    assert caught.value.key == b'{"id":7}'


def test_a_refusal_names_the_part_of_the_message_once() -> None:
    """In JSON and in Avro alike; what cannot be read as Avro says that it is Avro."""
    of_tables = Needs(tables="shop.*")
    nameless = event("c", None, row(), table=None)
    no_row = event("c")
    cut = (VALUE_BYTES or b"")[:-3]
    cases = [
        (of_tables, in_avro({"id": 1}, nameless), in_json({"id": 1}, nameless), "value"),
        (Needs(), in_avro({"id": 1}, no_row), in_json({"id": 1}, no_row), "value"),
        (Needs(), in_avro(None, event("d")), in_json(None, event("d")), "key"),
    ]
    for wanted, avro, text, part in cases:
        for codec, message in ((DebeziumAvro(SCHEMAS, wanted), avro), (Debezium(wanted), text)):
            with pytest.raises(DecodeError) as caught:
                codec.changes(*message, None)

            assert caught.value.codec == f"Debezium {part}"
    with pytest.raises(DecodeError) as caught:
        DebeziumAvro(SCHEMAS, Needs()).changes(KEY_BYTES, cut, None)

    assert caught.value.codec == "Debezium Avro value"


@given(st.binary(max_size=100), st.binary(max_size=100), st.sampled_from([b"", VALUE_ID]), wanteds)
def test_any_bytes_are_changes_or_refused(
    key: bytes, rest: bytes, prefix: bytes, wanted: Needs
) -> None:
    """Nothing but DecodeError is raised."""
    found = outcome(DebeziumAvro(SCHEMAS, wanted), (KEY_ID + key, prefix + rest))

    assert found


def test_a_tombstone_without_a_kafka_key_says_nothing() -> None:
    """A table without key has none, and its delete has said what is gone."""
    for wanted in (Needs(), Needs(key=("id",)), Needs(before=True, diffs=True)):
        assert DebeziumAvro(SCHEMAS, wanted).changes(None, None, None) == Ignored("tombstone")


def test_where_old_images_tell_all_rows_need_no_key() -> None:
    """A table without a primary key has none."""
    value = in_avro(None, event("d", row(id=1)))[1]
    (change,) = DebeziumAvro(SCHEMAS, Needs(("id",), before=True, diffs=True)).changes(
        None, value, None
    )

    assert change == Change("delete", None, None, b'{"id":1}', (), replaces=True)


@pytest.mark.parametrize("columns", [None, ("id", "late")])
def test_a_column_that_is_younger_than_a_row_is_null_in_it(
    columns: tuple[str, ...] | None,
) -> None:
    """A schema without the column has no program where old images retract rows."""
    value = in_avro(None, event("u", row(id=1), row(id=1, name="a")))[1]
    for names in (("id", "late"), ("id", "name")):
        declared = DeclaredColumns(dict.fromkeys(names, "VARCHAR"))
        codec = DebeziumAvro(SCHEMAS, Needs(columns, before=True, diffs=True, declared=declared))
        for _ in range(3):
            (change,) = codec.changes(KEY_BYTES, value, None)
            assert isinstance(change, Change)
            for image in (change.before, change.after):
                assert image is not None
                assert (b'"late":null' in image) == ("late" in names)


def test_what_is_unavailable_is_absent_whoever_reads_it() -> None:
    """Its values are not converted where nobody reads them."""
    after = row(id=1, name=PLACEHOLDER, data=b"x")
    value = in_avro(None, event("c", None, after))[1]
    for columns in (None, ("id",), ("name",)):
        (change,) = DebeziumAvro(SCHEMAS, Needs(columns)).changes(KEY_BYTES, value, None)

        assert isinstance(change, Change)
        assert change.absent == ("name",)


_BYTES = [bytes([byte]) for byte in PLACEHOLDER.encode()]
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_PARTS = {"scale": "int", "value": "bytes"}
_VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": name, "type": kind} for name, kind in _PARTS.items()],
}


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        pytest.param("float", [float(byte) for byte in PLACEHOLDER.encode()], id="floats"),
        pytest.param("double", [float(byte) for byte in PLACEHOLDER.encode()], id="doubles"),
        pytest.param(_DECIMAL, _BYTES, id="decimals"),
        pytest.param(
            _VARIABLE, [{"scale": 0, "value": each} for each in _BYTES], id="decimals of any scale"
        ),
    ],
)
def test_an_unavailable_array_has_an_item_for_each_byte(kind: Any, items: list[Any]) -> None:
    """If its items are no texts."""
    fields = [
        {"name": "id", "type": "int"},
        {"name": "x", "type": {"type": "array", "items": kind}},
    ]
    after = {"type": "record", "name": "Row", "fields": fields}
    envelope = {**ENVELOPE, "fields": [{"name": "after", "type": after}, *ENVELOPE["fields"][2:]]}
    value = VALUE_ID + body(envelope, event("u", None, {"id": 1, "x": items}))
    codec = DebeziumAvro(KnownSchemas({1: KEY, 2: envelope}), Needs())

    (change,) = codec.changes(KEY_BYTES, value, None)

    assert change == Change("upsert", b'{"id":1}', b'{"id":1}', None, ("x",), replaces=True)


def test_a_reader_schema_fills_what_an_older_writer_did_not_have() -> None:
    """By its defaults, in both images; it is that of the event."""
    younger = {
        **ROW,
        "fields": [*ROW["fields"], {"name": "late", "type": "string", "default": "-"}],
    }
    fields = [{"name": "before", "type": ["null", younger]}, *ENVELOPE["fields"][1:]]
    reader = json.dumps({**ENVELOPE, "fields": fields})
    value = in_avro(None, event("u", row(id=1), row(id=1, name="a")))[1]
    wanted = Needs(("id", "late"), before=True, options={"reader_schema": reader})

    assert DebeziumAvro(SCHEMAS, wanted).changes(KEY_BYTES, value, None) == [
        Change(
            "upsert",
            b'{"id":1}',
            b'{"id":1,"late":"-"}',
            b'{"id":1,"late":"-"}',
            (),
            replaces=True,
        )
    ]


def test_a_key_that_is_no_record_is_the_key() -> None:
    """It has no columns that `key` could name; then the row has."""
    schemas = KnownSchemas({1: "string", 2: ENVELOPE})
    key = KEY_ID + body("string", "a")
    value = in_avro(None, event("c", None, row(id=1)))[1]

    for wanted, found in ((Needs(("id",)), b'"a"'), (Needs(("id",), ("id",)), b'{"id":1}')):
        (change,) = DebeziumAvro(schemas, wanted).changes(key, value, None)
        assert isinstance(change, Change)
        assert change.key == found
