"""What compiled programs make of Avro is what Python makes of it, of whatever bytes."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import avro, canonical
from ikebana.codecs.avro import AvroDecoder, AvroUpserts
from ikebana.codecs.avro_compiler import ALL, Fields, Take
from ikebana.codecs.change import Change, Codec, Ignored, Needs
from ikebana.codecs.column_encodings import Encoding
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.errors import DecodeError
from support.avro_messages import body
from support.avro_schemas import PREFIX, Known, Types, cases, damaged
from support.strategies import unhurried

pytest.importorskip(
    "ikebana.compiled._avro_text",
    reason="the compiled code is not built, or switched off",
    exc_type=ImportError,
)


def in_python(*given: Any) -> None:
    """Instead of `program_of`."""


def primed(decoder: AvroDecoder, message: bytes) -> tuple[bytes | None, ...] | None:
    """The parts of a message, for which a schema has to be known."""
    decoder._plans.get(0) or decoder._planned(0)
    return decoder.parts(PREFIX + message)


@unhurried
@given(cases(), st.data())
def test_a_program_writes_what_is_decoded(
    case: tuple[Any, Fields, list[bytes]], data: st.DataObject
) -> None:
    """All of a record, some of its fields, or the value of one."""
    schema, wanted, messages = case
    kept = sorted(
        wanted.only if wanted.only is not None else [f["name"] for f in schema["fields"]]
    )
    some = data.draw(st.lists(st.sampled_from(kept))) if kept else []
    fields = [Take((name,)) for name in some[:2]]
    for takes in ([Take((), tuple(some)), Take()], fields):
        decoder = AvroDecoder(Known(schema), needs=wanted, takes=takes)
        for message in messages:
            parts = primed(decoder, message)
            if parts is None:
                continue
            row = decoder.decode(PREFIX + message)
            expected = [{name: row[name] for name in kept if name in some}, row]
            if takes is fields:
                expected = [row[name] for name in some[:2]]
            assert list(parts) == [
                None if each is None else canonical.write(each) for each in expected
            ]


def test_usual_messages_are_taken() -> None:
    """Whatever their types, but maps, and other unions."""
    kinds = ["long", "double", "string", "bytes", "boolean", "float", "int"]
    schema: Any = {"type": "record", "name": "R", "fields": [
        *({"name": kind, "type": kind} for kind in kinds),
        {"name": "absent", "type": ["null", "string"]},
        {"name": "created", "type": [
            {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "null"
        ]},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [
            {"name": "b", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
            {"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}},
        ]}},
        {"name": "none", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    ]}  # fmt: skip
    row = {
        **{"long": -(2**63), "double": 0.1 + 0.2, "string": 'ä"\n', "bytes": b"\xff", "int": 7},
        **{"boolean": True, "float": 0.1, "absent": None, "created": 1, "born": 19_000},
        **{"price": b"\x30\x39", "inner": {"b": "Y", "a": b"ab"}},
        **{"none": [], "tags": ["a", None]},
    }
    decoder = AvroDecoder(Known(schema), takes=[Take()])

    assert primed(decoder, body(schema, row)) == (
        b'{"absent":null,"boolean":true,"born":"2022-01-08","bytes":"/w==",'
        b'"created":"1970-01-01T00:00:00.000001","double":0.30000000000000004,"float":0.1,'
        b'"inner":{"a":"YWI=","b":"Y"},"int":7,"long":-9223372036854775808,"none":[],'
        b'"price":123.45,"string":"\xc3\xa4\\"\\n","tags":["a",null]}',
    )


def assert_written_as_data(schema: str, number: float) -> None:
    """A compiled decoder writes a number as it is written after it has been decoded."""
    decoder = AvroDecoder(Known(schema), takes=[Take()])
    message = body(schema, number)
    try:
        expected: tuple[bytes] | None = (canonical.write(decoder.decode(PREFIX + message)),)
    except DecodeError:
        expected = None

    assert primed(decoder, message) == expected


@given(st.floats() | st.builds(lambda n, k: n / 10**k, st.integers(), st.integers(0, 25)))
def test_doubles_are_written_as_their_data(number: float) -> None:
    """By one rule, however many digits they have."""
    assert_written_as_data("double", number)


@given(st.floats(width=32) | st.integers(-(10**9), 10**9).map(lambda at: at / 1000))
def test_floats_are_written_as_their_data(number: float) -> None:
    """The shortest decimal that is the float."""
    assert_written_as_data("float", number)


def outcome(codec: Codec, message: Sequence[bytes | None]) -> Any:
    """What a codec makes of a message; a refusal by its reason and key."""
    key, value = message
    try:
        found = codec.changes(key, value, None)
    except DecodeError as error:
        return str(error), error.key
    return found if isinstance(found, Ignored) else list(found)


class Registry(NamedTuple):
    """The schemas of keys and of values."""

    key: Any
    value: Any

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        """Keys have an even id."""
        return Known(self.key if int(id) % 2 == 0 else self.value).parsed(id)


KEYS, VALUES = PREFIX, b"\0\0\0\0\1"


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """The schema of a row, which has an `id` and a column `k`, and its data."""
    schema, data = Types(draw).record(1)
    fields = [field for field in schema["fields"] if field["name"] not in ("id", "k")]
    own = [{"name": "id", "type": "long"}, {"name": "k", "type": ["null", "string"]}]
    row = st.builds(
        lambda rest, number, text: {**rest, "id": number, "k": text},
        *(data, st.integers(0, 2), st.none() | st.sampled_from(["", "a"])),
    )
    return {**schema, "fields": draw(st.permutations([*fields, *own]))}, row


KEY = {"type": "record", "name": "Key", "fields": [
    {"name": "id", "type": "long"}, {"name": "k", "type": ["null", "string"]},
]}  # fmt: skip
SOURCE = {"type": "record", "name": "Source", "fields": [
    {"name": "db", "type": "string"}, {"name": "table", "type": ["null", "string"]},
    {"name": "ts_ms", "type": "long"},
]}  # fmt: skip


@st.composite
def wanteds(draw: st.DrawFn, schema: Any) -> Needs:
    """What a pipeline may want of rows."""
    names = [field["name"] for field in schema["fields"]]
    columns = draw(st.none() | st.lists(st.sampled_from(names), unique=True).map(tuple))
    return Needs(
        columns=columns,
        key=draw(st.sampled_from([(), ("id",), ("k", "id"), ("none",)])),
        before=draw(st.booleans()),
        tables=draw(st.sampled_from([None, r"shop\.orders"])),
        encodings=draw(st.sampled_from([{}, {"id": "date"}, {"k": "date"}])),
        diffs=draw(st.booleans()),
    )


def message_of(draw: st.DrawFn, key: Any, schema: Any, value: Any) -> list[list[bytes | None]]:
    """A message, and damaged ones."""
    keys = [None if key is None else KEYS + body(KEY, key)]
    values: list[bytes | None] = [None]
    if keys[0] is not None:
        keys.append(KEYS + draw(st.binary(max_size=4)))
    if value is not None:
        values = [VALUES + each for each in damaged(draw, body(schema, value))]
    return [[key, value] for key in keys for value in values]


@st.composite
def upserts(draw: st.DrawFn) -> tuple[Registry, Needs, list[list[bytes | None]]]:
    """Plain upserts, some of them damaged."""
    schema, row = draw(tables())
    messages: list[list[bytes | None]] = []
    for value in draw(st.lists(row, min_size=1, max_size=3)):
        key = draw(st.sampled_from([None, {"id": 1, "k": "a"}]))
        messages += message_of(draw, key, schema, value)
    return Registry(KEY, schema), draw(wanteds(schema)), messages


@st.composite
def events(draw: st.DrawFn) -> tuple[Registry, Needs, list[list[bytes | None]]]:
    """Events of Debezium, some of them damaged."""
    schema, row = draw(tables())
    fields: list[dict[str, Any]] = draw(st.permutations([
        {"name": "before"},
        {"name": "after"},
        {"name": "source", "type": draw(st.sampled_from([SOURCE, ["null", SOURCE]]))},
        {"name": "op", "type": draw(st.sampled_from(["string", ["null", "string"]]))},
        {"name": "ts_ms", "type": ["null", "long"]},
    ]))  # fmt: skip
    # The type is defined where it first occurs.
    kinds = iter((schema, schema["name"]))
    fields = [field if "type" in field else {**field, "type": ["null", next(kinds)]}
              for field in fields]  # fmt: skip
    envelope: dict[str, Any] = {"type": "record", "name": "Envelope", "fields": fields}
    messages: list[list[bytes | None]] = []
    for op in draw(st.lists(st.sampled_from("cruudtmx"), min_size=1, max_size=4)):
        source = {"db": "shop", "table": draw(st.sampled_from(["orders", "other", None]))}
        event = {
            "before": draw(st.none() | row),
            "after": draw(row | st.none()),
            "source": {**source, "ts_ms": 1},
            "op": op,
            "ts_ms": draw(st.none() | st.integers(0, 5)),
        }
        key = draw(st.sampled_from([None, {"id": 1, "k": None}]))
        messages += message_of(draw, key, envelope, event)
    messages.append([KEYS + body(KEY, {"id": 1, "k": None}), None])
    return Registry(KEY, envelope), draw(wanteds(schema)), messages


def assert_the_same(
    codec: type[AvroUpserts | DebeziumAvro], case: tuple[Registry, Needs, list[list[bytes | None]]]
) -> None:
    """Compiled, a codec makes of each message what it makes in Python."""
    schemas, wanted, messages = case
    quick = codec(schemas, wanted)
    with mock.patch.object(avro, "program_of", in_python):
        slow = codec(schemas, wanted)
        expected = [outcome(slow, message) for message in messages]
    for _ in range(2):
        assert [outcome(quick, message) for message in messages] == expected


@unhurried
@given(upserts())
def test_upserts_are_the_same(case: tuple[Registry, Needs, list[list[bytes | None]]]) -> None:
    """Key and row, and the reason if a message is damaged."""
    assert_the_same(AvroUpserts, case)


@unhurried
@given(events())
def test_events_are_the_same(case: tuple[Registry, Needs, list[list[bytes | None]]]) -> None:
    """Changes with their images, and the reason if a message is damaged."""
    assert_the_same(DebeziumAvro, case)


@pytest.mark.parametrize("before", [True, False])
def test_images_that_are_no_records_are_refused(before: bool) -> None:  # noqa: FBT001
    """As those of a document store, which are texts."""
    text = ["null", "string"]
    event = {"type": "record", "name": "Event", "fields": [
        {"name": "before", "type": text}, {"name": "after", "type": text},
        {"name": "op", "type": "string"},
    ]}  # fmt: skip
    key = KEYS + body(KEY, {"id": 1, "k": None})
    codec = DebeziumAvro(Registry(KEY, event), Needs(before=before))
    for op in "uudd":
        value = VALUES + body(event, {"before": "{}", "after": "{}", "op": op})
        with pytest.raises(DecodeError, match="is no record"):
            codec.changes(key, value, None)


def test_usual_events_are_taken() -> None:
    """Without a look at the message in Python."""
    row = {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
    ]}  # fmt: skip
    event = {"type": "record", "name": "Event", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]},
        {"name": "source", "type": SOURCE}, {"name": "op", "type": "string"},
    ]}  # fmt: skip
    source = {"db": "shop", "table": "orders", "ts_ms": 1}
    data = {"before": {"id": 6, "name": None}, "after": {"id": 7, "name": "a"}, "source": source}
    wanted = Needs(key=("id",), before=True, tables=r"shop\.orders")
    codec = DebeziumAvro(Registry(KEY, event), wanted)
    update, delete = (VALUES + body(event, {**data, "op": op}) for op in "ud")
    codec.changes(None, update, None)

    with mock.patch.object(AvroDecoder, "decode", side_effect=AssertionError):
        assert codec.changes(None, update, None) == [
            Change("delete", b'{"id":6}', None, b'{"id":6,"name":null}', replaces=True),
            Change("upsert", b'{"id":7}', b'{"id":7,"name":"a"}'),
        ]
        assert codec.changes(None, delete, None) == [
            Change("delete", b'{"id":6}', None, b'{"id":6,"name":null}', replaces=True)
        ]


def test_a_program_is_not_entered_twice() -> None:
    """A function of a step may let another thread run; that one decodes in Python."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    found: list[object] = []

    def again(value: Any) -> Any:
        found.append(decoder.parts(PREFIX + b"\x02"))
        return value

    given = {"a": Encoding(again, frozenset({"long"}))}
    decoder = AvroDecoder(Known(schema), needs=Fields(None, given), takes=[Take()])

    assert primed(decoder, b"\x0e") == (b'{"a":7}',)
    assert found == [None]


def test_what_a_function_makes_has_room() -> None:
    """However much longer it is than its value."""
    schema = {"type": "record", "name": "R", "fields": [
        {"name": name, "type": "long"} for name in "cba"
    ]}  # fmt: skip
    long = Encoding(lambda value: str(value) * 10_000, frozenset({"long"}))
    wanted = Fields(None, dict.fromkeys("abc", long))
    decoder = AvroDecoder(Known(schema), needs=wanted, takes=[Take()])

    assert primed(decoder, b"\x02\x04\x06") == (
        b'{"a":"%s","b":"%s","c":"%s"}' % (b"3" * 10_000, b"2" * 10_000, b"1" * 10_000),
    )


def test_the_items_of_an_array_have_room() -> None:
    """Although a byte of each is all that the message has of them."""
    item = {"type": "record", "name": "I", "fields": [{"name": "n" * 1_000, "type": "int"}]}
    schema = {"type": "array", "items": item}
    decoder = AvroDecoder(Known(schema), takes=[Take()])
    message = b"\x04\x02\x04" * 5_000 + b"\x00"

    (found,) = primed(decoder, message) or (None,)

    assert found == canonical.write(decoder.decode(PREFIX + message))


def test_what_is_not_covered_is_decoded() -> None:
    """Maps, unions of more types, and records within themselves."""
    for kind in (
        {"type": "map", "values": "long"},
        ["null", "long", "string"],
        ["null", "R"],
    ):
        fields = [{"name": "a", "type": kind}]
        schema = {"type": "record", "name": "R", "fields": fields}
        decoder = AvroDecoder(Known(schema), needs=ALL, takes=[Take()])
        assert primed(decoder, b"\0") is None


@pytest.mark.parametrize(
    "field",
    [
        {"name": 5, "type": "long"},
        {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": -1}]},
        {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": 2**63}]},
    ],
)
def test_schemas_that_fastavro_does_not_mind_are_left_to_it(field: Any) -> None:
    """What such a field says is not asked for."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, field]}
    codec = AvroUpserts(Known(schema), Needs(columns=("a",)), "bytes")

    for _ in range(2):
        (change,) = codec.changes(b"k", PREFIX + b"\2\0", None)
        assert change.after == b'{"a":1}'


def test_a_copy_of_a_decoder_reads_what_the_first_one_does() -> None:
    """A run that is copied takes its programs along."""
    decoder = AvroDecoder(Known("long"), takes=[Take()])
    assert primed(decoder, b"\2") == (b"1",)

    assert copy.deepcopy(decoder).parts(PREFIX + b"\2") == (b"1",)
