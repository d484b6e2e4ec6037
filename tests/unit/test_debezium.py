"""Debezium's messages, as connectors write them and as flattened; and what is at fault.

The stored messages of `golden/debezium` have the connectors' shapes and data of our own;
those of `golden/debezium_captured` are a PostgreSQL connector's, word for word.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Codec, DeclaredColumns, Ignored, Needs
from ikebana.codecs.debezium import Debezium, DebeziumFlat
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError

GOLDEN = Path(__file__).parents[1] / "golden"
STORED = {path.stem: json.loads(path.read_text()) for path in (GOLDEN / "debezium").glob("*.json")}
CAPTURED = sorted((GOLDEN / "debezium_captured").glob("*.json"))

PLACEHOLDER = "__debezium_unavailable_value"
DIGITS = [b64encode(bytes([byte])).decode() for byte in PLACEHOLDER.encode()]
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
SOURCE = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "people"}
KEY = b'{"id":1}'


def encoded(data: object) -> bytes | None:
    return None if data is None else json.dumps(data, separators=(",", ":")).encode()


def event(op: str, before: object = None, after: object = None, **more: object) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1, **more}


def image(row: object) -> bytes | None:
    return None if row is None else canonical.encode(row)


def upsert(
    after: object, before: object = None, *, absent: tuple[str, ...] = (), key: bytes = KEY
) -> Change:
    return Change("upsert", key, image(after), image(before), absent)


def delete(before: object = None, key: bytes = KEY) -> Change:
    return Change("delete", key, None, image(before))


def told(changes: Sequence[Change] | Ignored) -> Sequence[Change] | Ignored:
    """Changes but for what they say of the row before; that is tested by itself."""
    if isinstance(changes, Ignored):
        return changes
    return [change._replace(replaces=False) for change in changes]


def schema_of(data: object, field: str | None = None) -> dict[str, Any]:
    """A Kafka Connect schema that says of data what anybody sees."""
    schema: dict[str, Any] = {"optional": True, "field": field}
    match data:
        case dict():
            fields = [schema_of(value, name) for name, value in data.items()]
            return {**schema, "type": "struct", "fields": fields}
        case list():
            items = schema_of(data[0] if data else None)
            return {**schema, "type": "array", "items": items}
        case _:
            kinds = {bool: "boolean", int: "int64", float: "double"}
            return {**schema, "type": kinds.get(type(data), "string")}


def bare(data: object) -> bytes | None:
    return encoded(data)


def without_schema(data: object) -> bytes | None:
    return None if data is None else encoded({"schema": None, "payload": data})


def with_schema(data: object) -> bytes | None:
    return None if data is None else encoded({"schema": schema_of(data), "payload": data})


def spaced(data: object) -> bytes | None:
    if data is None:
        return None
    return json.dumps({"payload": data, "schema": schema_of(data)}, indent=2).encode() + b"\n"


WRAPPINGS = [bare, without_schema, with_schema, spaced]
Wrapping = Callable[[object], bytes | None]


def decoding_needs(stored: dict[str, Any]) -> Needs:
    columns = stored.get("columns")
    return Needs(**{**stored, **({"columns": tuple(columns)} if columns else {})})


def stored_messages() -> Iterator[Any]:
    for name, stored in sorted(STORED.items()):
        for number, message in enumerate(stored["messages"]):
            yield pytest.param(name, message, id=f"{name} {number}")


def expected(changes: str | list[dict[str, Any]]) -> object:
    if isinstance(changes, str):
        return Ignored(changes)  # type: ignore[arg-type]
    return [
        Change(
            change["kind"],
            image(change.get("key")),
            image(change.get("after")),
            image(change.get("before")),
            tuple(change.get("absent", ())),
        )
        for change in changes
    ]


def codec_of(name: str, wanted: Needs) -> Codec:
    return DebeziumFlat(wanted) if name == "flat" else Debezium(wanted)


@pytest.mark.parametrize(("name", "message"), list(stored_messages()))
def test_stored_messages(name: str, message: dict[str, Any]) -> None:
    """Twice by one codec, since it remembers schemas; the Kafka key is the row's."""
    codec = codec_of(name, decoding_needs(STORED[name]["wanted"]))
    key, value = encoded(message["key"]), encoded(message["value"])

    for _ in range(2):
        assert told(codec.changes(key, value, None)) == expected(message["changes"])
    if isinstance(message["changes"], list) and message["key"] is not None:
        assert codec.key(key) == image(message["changes"][0]["key"])


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CAPTURED])
def test_captured_messages_are_the_same_with_and_without_schema(path: Path) -> None:
    """But for decimals, which without one come as text."""
    encodings = {
        "born": "date", "wakes": "time-micros", "seen": "timestamp-millis",
        "changed": "timestamp-micros", "day": "date", "midnight": "time-micros",
        "local": "timestamp-micros",
    }  # fmt: skip
    decimals = ("balance", "score", "price", "exact", "free", "prices", "whole")
    only_schemas_tell = (*decimals, "created", "moment", "clock", "days", "moments")
    typed, plain = (
        Debezium(Needs(before=True)),
        Debezium(Needs(before=True, encodings=encodings)),
    )

    def changes(codec: Codec, messages: list[dict[str, Any]]) -> list[list[Change]]:
        found = []
        for message in messages:
            given = codec.changes(encoded(message["key"]), encoded(message["value"]), None)
            assert not isinstance(given, Ignored)
            found.append([without(change) for change in given])
        return found

    def without(change: Change) -> Change:
        images = [
            raw and image({k: v for k, v in json.loads(raw).items() if k not in only_schemas_tell})
            for raw in (change.after, change.before)
        ]
        return change._replace(after=images[0], before=images[1])

    captured = json.loads(path.read_text())

    assert changes(typed, captured["typed"]) == changes(plain, captured["plain"])


ROW = {"id": 1, "name": "Ada", "age": 36}
OLDER = {**ROW, "age": 37}
PARTIAL = {"id": 1, "age": 36}


@pytest.mark.parametrize("wrap", WRAPPINGS)
@pytest.mark.parametrize(
    ("value", "changes"),
    [
        pytest.param(event("c", None, ROW), [upsert(ROW)], id="insert"),
        pytest.param(event("r", None, ROW), [upsert(ROW)], id="snapshot"),
        pytest.param(
            event("r", None, ROW, source={**SOURCE, "snapshot": "incremental"}),
            [upsert(ROW)],
            id="incremental snapshot",
        ),
        pytest.param(event("u", ROW, OLDER), [upsert(OLDER, ROW)], id="update"),
        pytest.param(event("u", {"id": 1}, OLDER), [upsert(OLDER)], id="update, partial before"),
        pytest.param(event("u", None, OLDER), [upsert(OLDER)], id="update, no before"),
        pytest.param(event("d", ROW), [delete(ROW)], id="delete"),
        pytest.param(event("d"), [delete()], id="delete, no before"),
        pytest.param(event("d", {}), [delete()], id="delete, no columns before"),
        pytest.param(event("t"), [Change("truncate")], id="truncate"),
        pytest.param(None, [delete()], id="tombstone"),
        pytest.param(event("m", message={"prefix": "a"}), Ignored("message"), id="message"),
        pytest.param({"ts_ms": 1}, Ignored("heartbeat"), id="heartbeat"),
        pytest.param({"resolved": "1.0"}, Ignored("heartbeat"), id="CockroachDB's"),
        pytest.param({"status": "BEGIN", "id": "1:2"}, Ignored("transaction"), id="transaction"),
        pytest.param(
            {"source": SOURCE, "ddl": "DROP", "tableChanges": []}, Ignored("ddl"), id="ddl"
        ),
        pytest.param(
            event("u", ROW, {**OLDER, "name": PLACEHOLDER}),
            [upsert({"id": 1, "age": 37}, ROW, absent=("name",))],
            id="unavailable",
        ),
        pytest.param(
            event("u", {**ROW, "name": PLACEHOLDER}, OLDER),
            [upsert(OLDER)],
            id="unavailable before",
        ),
        pytest.param(
            event("u", PARTIAL, {**PARTIAL, "name": PLACEHOLDER}),
            [upsert(PARTIAL, absent=("name",))],
            id="before lacks what is unavailable",
        ),
        *(
            pytest.param(
                event("u", None, {**ROW, "name": value}),
                [upsert(PARTIAL, absent=("name",))],
                id=f"unavailable as {what}",
            )
            for what, value in {
                "base64": BASE64,
                "an array of texts": [PLACEHOLDER],
                "an array of bytes": [BASE64],
                "an array of integers": list(PLACEHOLDER.encode()),
                "an array of UUIDs": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
                "an array of floats": [float(byte) for byte in PLACEHOLDER.encode()],
                "an array of decimals": DIGITS,
                "an array of decimals of any scale": [
                    {"scale": 0, "value": each} for each in DIGITS
                ],
                "a map": {PLACEHOLDER: PLACEHOLDER},
                "the text of a map": f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
            }.items()
        ),
        *(
            pytest.param(
                event("c", None, {**ROW, "name": value}),
                [upsert({**ROW, "name": value})],
                id=f"not unavailable: {what}",
            )
            for what, value in {
                "part of a text": f"it is {PLACEHOLDER}",
                "of two": [PLACEHOLDER, "a"],
                "within": {"a": PLACEHOLDER},
            }.items()
        ),
    ],
)
def test_every_kind(wrap: Wrapping, value: object, changes: list[Change] | Ignored) -> None:
    """Bare or wrapped, key and value each; mixed in one stream."""
    codec = Debezium(Needs(before=True))

    for wrap_key in WRAPPINGS:
        assert told(codec.changes(wrap_key({"id": 1}), wrap(value), None)) == changes
        assert codec.key(wrap_key({"id": 1})) == KEY


def test_a_changed_key_is_what_debezium_makes_of_it() -> None:
    """A delete with its tombstone, and a create."""
    codec = Debezium(Needs(before=True))
    moved = {**ROW, "id": 2}
    messages = [(KEY, event("d", ROW)), (KEY, None), (b'{"id": 2}', event("c", None, moved))]

    found = [told(codec.changes(key, bare(value), None)) for key, value in messages]

    assert found == [[delete(ROW)], [delete()], [upsert(moved, key=b'{"id":2}')]]


KEYED = Needs(before=True, key=("id", "name"), columns=("age", "id"))
K = b'{"id":1,"name":"Ada"}'
SHOWN = {"id": 1, "age": 36}


@pytest.mark.parametrize("wrap", WRAPPINGS)
@pytest.mark.parametrize(
    ("key", "value", "changes"),
    [
        pytest.param(None, event("c", None, ROW), [upsert(SHOWN, key=K)], id="insert"),
        pytest.param(
            None, event("u", ROW, OLDER), [upsert({**SHOWN, "age": 37}, SHOWN, key=K)], id="update"
        ),
        pytest.param(
            {"other": 1},
            event("u", ROW, {**ROW, "name": "Bob"}),
            [delete(SHOWN, key=K), upsert(SHOWN, key=b'{"id":1,"name":"Bob"}')],
            id="another key",
        ),
        pytest.param(
            None,
            event("u", {"id": 2}, ROW),
            [delete(key=b'{"id":2,"name":"Ada"}'), upsert(SHOWN, key=K)],
            id="part of another key",
        ),
        pytest.param(None, event("u", None, ROW), [upsert(SHOWN, key=K)], id="no before"),
        pytest.param(None, event("d", ROW), [delete(SHOWN, key=K)], id="delete"),
        pytest.param(
            {"id": 1, "name": "Ada", "x": 0}, event("d"), [delete(key=K)], id="delete by key"
        ),
        pytest.param({"name": "Ada", "id": 1.0}, None, [delete(key=K)], id="tombstone"),
        pytest.param({"id": 1}, None, Ignored("tombstone"), id="tombstone of another key"),
        pytest.param(None, event("t"), [Change("truncate")], id="truncate"),
    ],
)
def test_a_key_of_named_columns(
    wrap: Wrapping, key: object, value: object, changes: list[Change] | Ignored
) -> None:
    """It is the row's, whether or not its columns are wanted; a Kafka key with them is, too."""
    codec = Debezium(KEYED)
    has_them = isinstance(key, dict) and {"id", "name"} <= key.keys()

    assert told(codec.changes(wrap(key), wrap(value), None)) == changes
    assert (codec.key(wrap(key)) is not None) == has_them


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("op", ["c", "u", "r", "d"])
def test_only_wanted_columns_are_given(op: str, before: bool) -> None:  # noqa: FBT001
    """Of 30 columns three, before and after, in whatever order."""
    row = {f"column_{number}": number for number in range(30)}
    three = {name: row[name] for name in ("column_3", "column_17", "column_29")}
    codec = Debezium(Needs(columns=tuple(three), before=before))
    images = {"before": row if op in "ud" else None, "after": None if op == "d" else row}

    (found,) = codec.changes(KEY, bare(event(op, **images)), None)

    assert isinstance(found, Change)
    assert found.after == (None if op == "d" else image(three))
    assert found.before == (image(three) if before and op in "ud" else None)


def test_what_nobody_asks_for_is_not_read() -> None:
    """Of a table that is not wanted no image is, and no `before` unless it is wanted."""
    broken = {"name": 1}
    codec = Debezium(Needs(tables="shop.public.people", encodings={"name": "decimal:1"}))
    elsewhere = {**SOURCE, "table": "pets"}

    assert codec.changes(KEY, bare(event("c", None, broken, source=elsewhere)), None) == Ignored(
        "table"
    )
    assert told(codec.changes(KEY, bare(event("u", broken, {"id": 1})), None)) == [
        upsert({"id": 1})
    ]
    assert codec.changes(KEY, None, None) == Ignored("tombstone")


@pytest.mark.parametrize(
    ("pattern", "source", "ours"),
    [
        pytest.param(r"shop\.public\.people", SOURCE, True, id="with a schema"),
        pytest.param(r"shop\.people", {**SOURCE, "schema": None}, True, id="without one"),
        pytest.param(r"shop\.people", SOURCE, False, id="the schema is left out"),
        pytest.param(r".*\.people", SOURCE, True, id="any schema"),
        pytest.param(r"people", SOURCE, False, id="only a part"),
        pytest.param(r"s\.docs", {"db": "s", "collection": "docs"}, True, id="a collection"),
    ],
)
def test_tables_match_as_a_whole(pattern: str, source: dict[str, Any], ours: bool) -> None:  # noqa: FBT001
    codec = Debezium(Needs(tables=pattern))
    found = codec.changes(KEY, bare(event("c", None, ROW, source=source)), None)

    assert found == ([upsert(ROW)] if ours else Ignored("table"))


def test_encodings_are_declared_where_there_is_no_schema() -> None:
    """In rows and keys; or for what the schema leaves open, as it does numbers, not texts."""
    codec = Debezium(Needs(encodings={"day": "date", "total": "decimal:2"}))
    key, row = {"day": 19753}, {"day": 19753, "total": "MDk="}
    converted = upsert({"day": "2024-01-31", "total": 123.45}, key=b'{"day":"2024-01-31"}')

    assert codec.changes(bare(key), bare(event("c", None, row)), None) == [converted]
    assert codec.changes(without_schema(key), without_schema(event("c", None, row)), None) == [
        converted
    ]
    assert codec.changes(with_schema(key), with_schema(event("c", None, row)), None) == [
        upsert({**row, "day": "2024-01-31"}, key=b'{"day":"2024-01-31"}')
    ]


def test_another_placeholder_may_be_set() -> None:
    """Also one that JSON writes with escapes."""
    for placeholder in ("gone", "\u00fcber", 'a"/b'):
        codec = Debezium(Needs(options={"unavailable_placeholder": placeholder}))
        row = {f"c{number}": number for number in range(20)}
        value = bare(event("c", None, {**row, "name": placeholder, "other": PLACEHOLDER}))

        assert codec.changes(KEY, value, None) == [
            upsert({**row, "other": PLACEHOLDER}, absent=("name",))
        ]


def test_schemas_may_change_from_message_to_message() -> None:
    """The one of the last message is remembered, and is not mistaken for another."""
    codec = Debezium(Needs())
    day = {"type": "int32", "name": "io.debezium.time.Date", "field": "at"}
    plain = {"type": "int32", "field": "at"}

    def message(column: dict[str, Any]) -> bytes | None:
        row = {"type": "struct", "fields": [column], "field": "after"}
        schema = {"type": "struct", "fields": [row]}
        return encoded({"schema": schema, "payload": {"op": "c", "after": {"at": 1}}})

    for column, at in [(day, "1970-01-02"), (day, "1970-01-02"), (plain, 1), (day, "1970-01-02")]:
        assert codec.changes(KEY, message(column), None) == [upsert({"at": at})]


def test_a_row_may_have_columns_named_schema_and_payload() -> None:
    row = {"id": 1, "schema": None, "payload": {"schema": 1}}

    assert DebeziumFlat(Needs()).changes(KEY, bare(row), None) == [upsert(row)]
    assert Debezium(Needs()).changes(KEY, bare(event("c", None, row)), None) == [upsert(row)]


@pytest.mark.parametrize("wrap", WRAPPINGS)
@pytest.mark.parametrize(
    ("wanted", "value", "changes"),
    [
        pytest.param(Needs(), ROW, [upsert(ROW)], id="a row"),
        pytest.param(Needs(), {**ROW, "__deleted": "false"}, [upsert(ROW)], id="not deleted"),
        pytest.param(Needs(), {**ROW, "__deleted": "true"}, [delete()], id="deleted"),
        pytest.param(Needs(before=True), {**ROW, "__deleted": True}, [delete(ROW)], id="before"),
        pytest.param(
            Needs(options={"prefix": "_x_"}),
            {**ROW, "_x_op": "u", "__deleted": "false", "__own": 1},
            [upsert({**ROW, "__own": 1})],
            id="another prefix",
        ),
        pytest.param(
            Needs(
                declared=DeclaredColumns({"id": "BIGINT", "_x_lsn": "BIGINT"}),
                options={"prefix": "_x_"},
            ),
            {**ROW, "_x_lsn": 5, "_x_op": "c"},
            [upsert({**ROW, "_x_lsn": 5})],
            id="an added field is declared",
        ),
        pytest.param(
            Needs(columns=("id", "_x_lsn"), options={"prefix": "_x_"}),
            {**ROW, "_x_lsn": 5, "_x_op": "c"},
            [upsert({"id": 1})],
            id="an added field is read, and no column",
        ),
        pytest.param(
            Needs(columns=("age",), key=("id",), before=True),
            {**ROW, "__deleted": "true"},
            [delete({"age": 36})],
            id="a key of columns",
        ),
        pytest.param(
            Needs(key=("id",), before=True),
            {"__deleted": "true"},
            [delete()],
            id="deleted without the key's columns",
        ),
        pytest.param(Needs(key=("id",)), None, [delete()], id="a tombstone"),
        pytest.param(Needs(key=("age",)), None, Ignored("tombstone"), id="another key's"),
        pytest.param(Needs(), {"__op": "t"}, [Change("truncate")], id="a truncate"),
        pytest.param(Needs(), {"__op": "m"}, Ignored("message"), id="a message"),
        pytest.param(
            Needs(tables="shop.people"),
            {**ROW, "__db": "shop", "__table": "people"},
            [upsert(ROW)],
            id="a wanted table",
        ),
        pytest.param(
            Needs(tables="people"),
            {**ROW, "__source_table": "pets"},
            Ignored("table"),
            id="another table",
        ),
        pytest.param(
            Needs(columns=("id", "name")),
            {**ROW, "name": PLACEHOLDER},
            [upsert({"id": 1}, absent=("name",))],
            id="unavailable",
        ),
    ],
)
def test_flattened_rows(
    wrap: Wrapping, wanted: Needs, value: object, changes: list[Change] | Ignored
) -> None:
    codec = DebeziumFlat(wanted)

    assert told(codec.changes(wrap({"id": 1}), wrap(value), None)) == changes


def test_an_empty_prefix_would_take_every_column_away() -> None:
    with pytest.raises(ConfigError, match="prefix"):
        DebeziumFlat(Needs(options={"prefix": ""}))


@pytest.mark.parametrize("codec", [Debezium, DebeziumFlat])
def test_an_empty_placeholder_would_take_every_text_away(codec: type) -> None:
    with pytest.raises(ConfigError, match='"unavailable_placeholder" must not be empty'):
        codec(Needs(options={"unavailable_placeholder": ""}))


DEEP = b"[" * 100_000 + b"]" * 100_000
AFTER = b'{"op":"c","after":%b}'
GOOD = bare(event("u", ROW, OLDER)) or b""


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(KEY, b"", "cut off", id="nothing"),
        pytest.param(KEY, b"hunter2", "malformed", id="no JSON"),
        pytest.param(KEY, b'"hunter2"', "got `str`", id="text"),
        pytest.param(KEY, b"[1]", "got `array`", id="an array"),
        pytest.param(KEY, b"{}", 'field "op" is missing', id="an empty object"),
        pytest.param(KEY, b'{"x":null}', 'field "op" is missing', id="no operation"),
        pytest.param(KEY, b'{"payload":7}', 'field "op" is missing', id="no payload"),
        pytest.param(KEY, b'{"payload":{"x":1}}', 'field "op" is missing', id="within payload"),
        pytest.param(KEY, b'{"op":7,"after":{}}', "null`, got `int`", id="op is no text"),
        pytest.param(KEY, b'{"op":"hunter2"}', 'field "op" is none of', id="another op"),
        pytest.param(KEY, b'{"op":"c"}', 'field "after" is null or missing', id="no after"),
        pytest.param(KEY, AFTER % b"null", 'field "after" is null', id="after is null"),
        pytest.param(KEY, AFTER % b"[1]", "got `array`", id="after is an array"),
        pytest.param(KEY, AFTER % b"1", "got `int`", id="after is a number"),
        pytest.param(KEY, AFTER % b'"hunter2"', "malformed", id="after is text, no document"),
        pytest.param(KEY, AFTER % b'"[1]"', "got `array`", id="after is another document"),
        pytest.param(KEY, AFTER % b'{"name":"\xff"}', "not UTF-8", id="no UTF-8"),
        pytest.param(KEY, AFTER % DEEP, "too deeply", id="too deep an image"),
        pytest.param(KEY, DEEP, "got `array`", id="too deep a value"),
        pytest.param(KEY, b'{"x":' + DEEP + b"}", "too deeply", id="too deep a field"),
        pytest.param(KEY, AFTER % b'{"id":1e400}', "too many digits", id="a huge number"),
        pytest.param(KEY, b'{"schema":{},"payload":{"op":"c"}}', "`type`", id="an empty schema"),
        pytest.param(KEY, b'{"schema":{"type":1},"payload":{}}', "got `int`", id="a bad schema"),
        pytest.param(KEY, GOOD + b"x", "trailing", id="more than a value"),
    ],
)
def test_a_value_at_fault_is_named_with_the_row_s_key(
    key: bytes, value: bytes, reason: str
) -> None:
    """By field and type, never by what is in it."""
    with pytest.raises(DecodeError) as caught:
        Debezium(Needs()).changes(key, value, None)

    assert caught.value.codec == "Debezium value"
    assert reason in caught.value.reason
    assert "hunter2" not in str(caught.value)
    assert caught.value.key == KEY


@pytest.mark.parametrize("codec", [Debezium, DebeziumFlat])
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        pytest.param(None, "the Kafka key is null", id="null"),
        pytest.param(b"null", "the Kafka key is null", id="JSON's null"),
        pytest.param(b"", "cut off", id="nothing"),
        pytest.param(b"hunter2", "malformed", id="no JSON"),
        pytest.param(b"\xff", "malformed", id="no UTF-8"),
        pytest.param(DEEP, "too deeply", id="too deep an array"),
        pytest.param(b'{"x":' + DEEP + b"}", "too deeply", id="too deep"),
    ],
)
@pytest.mark.parametrize("value", [None, GOOD])
def test_a_key_at_fault_is_named(
    codec: Callable[[Needs], Codec], key: bytes | None, reason: str, value: bytes | None
) -> None:
    """A tombstone without a key says nothing, unless it may be all that there is of a delete."""
    if codec is Debezium and value is None and reason == "the Kafka key is null":
        assert codec(Needs()).changes(key, value, None) == Ignored("tombstone")
        return
    with pytest.raises(DecodeError) as caught:
        codec(Needs()).changes(key, value, None)

    assert caught.value.codec == ("Debezium key" if codec is Debezium else "flat Debezium key")
    assert reason in caught.value.reason
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "value", "reason", "key"),
    [
        pytest.param(
            Needs(key=("id", "no")),
            event("c", None, ROW),
            'key column "no"',
            None,
            id="no column",
        ),
        pytest.param(Needs(key=("id",)), event("d"), "lacks the key's columns", None, id="none"),
        pytest.param(
            Needs(key=("id",)), event("x", ROW), 'field "op" is none of', KEY, id="from before"
        ),
        pytest.param(
            Needs(encodings={"name": "date"}),
            event("c", None, ROW),
            'column "name": expected a number of days, found text',
            None,
            id="another encoding",
        ),
        pytest.param(
            Needs(key=("id",), columns=("age",), encodings={"age": "hex"}),
            event("c", None, ROW),
            'column "age": expected hexadecimal digits, found an integer',
            KEY,
            id="another encoding, keyed",
        ),
        pytest.param(
            Needs(tables="x"), {"op": "c", "after": ROW}, "`table` is missing", None, id="no table"
        ),
        pytest.param(
            Needs(tables="x"), event("c", source=[1]), "got `array`", None, id="a bad source"
        ),
    ],
)
def test_what_is_wanted_and_cannot_be_had_is_named(
    wanted: Needs, value: object, reason: str, key: bytes | None
) -> None:
    with pytest.raises(DecodeError) as caught:
        Debezium(wanted).changes(None, bare(value), None)

    assert reason in caught.value.reason
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param({**ROW, "__op": "hunter2"}, 'field "__op" is none of', id="another op"),
        pytest.param({**ROW, "__op": 1}, 'field "__op" is no text', id="op is no text"),
        pytest.param({**ROW, "__deleted": "x"}, 'field "__deleted" is neither', id="deleted"),
        pytest.param({**ROW, "__deleted": [1]}, 'field "__deleted" is neither', id="a list"),
    ],
)
def test_flattened_rows_at_fault_are_named_with_their_key(value: object, reason: str) -> None:
    for wanted in (Needs(), Needs(key=("id",))):
        with pytest.raises(DecodeError) as caught:
            DebeziumFlat(wanted).changes(KEY, bare(value), None)

        assert reason in caught.value.reason
        assert "hunter2" not in str(caught.value)
        assert caught.value.key == KEY


def test_a_large_value_is_read() -> None:
    """Of 10 MB, wanted or not."""
    row = {"id": 1, "name": "x" * 10_000_000}

    for wanted, after in ((Needs(), row), (Needs(columns=("id",)), {"id": 1})):
        assert Debezium(wanted).changes(KEY, bare(event("c", None, row)), None) == [upsert(after)]


MESSAGES = [
    (name, encoded(message["key"]), encoded(message["value"]))
    for name, stored in sorted(STORED.items())
    for message in stored["messages"]
]
CODECS: list[tuple[bool, Codec]] = [
    (flat, codec(wanted))
    for flat, codec in ((False, Debezium), (True, DebeziumFlat))
    for wanted in (
        Needs(before=True),
        Needs(columns=("id", "email"), tables=".*people"),
        Needs(before=True, key=("id",), columns=("total",), encodings={"total": "decimal:2"}),
    )
]


def only_decode_errors(key: bytes | None, value: bytes | None) -> list[str]:
    """Give a message to all codecs; what they refuse it with."""
    reasons = []
    for _, codec in CODECS:
        try:
            found = codec.changes(key, value, None)
        except DecodeError as error:
            reasons.append(str(error))
            continue
        if isinstance(found, Ignored):
            continue
        for change in found:
            assert (change.kind == "truncate") == (change.key is None)
            for part in (change.key, change.after, change.before):
                assert part is None or canonical.canonical(part) == part
    return reasons


def test_a_message_that_is_cut_off_anywhere_is_refused() -> None:
    """With the row's key."""
    codec = Debezium(Needs())
    for end in range(len(GOOD)):
        with pytest.raises(DecodeError) as caught:
            codec.changes(KEY, GOOD[:end], None)
        assert caught.value.key == KEY


MARKER = "hunter2"


def marked(data: Any) -> Any:
    """Every text of data begins with the marker, but for those that name kinds."""
    if isinstance(data, dict):
        return {name: value if name == "op" else marked(value) for name, value in data.items()}
    if isinstance(data, list):
        return [marked(value) for value in data]
    return MARKER + data if isinstance(data, str) else data


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@st.composite
def retyped(draw: st.DrawFn, data: Any) -> Any:
    """Data of which some field is missing or has a value of another type."""
    if isinstance(data, dict) and data:
        name = draw(st.sampled_from(sorted(data)))
        match draw(st.sampled_from(["descend", "descend", "remove", "replace"])):
            case "descend":
                return {**data, name: draw(retyped(data[name]))}
            case "remove":
                return {other: value for other, value in data.items() if other != name}
    return draw(scalars | st.sampled_from([[], {}, [1], {"a": 1}, MARKER]))


@given(st.data())
def test_only_decode_errors_leave_whatever_is_retyped(data: st.DataObject) -> None:
    """And no reason has anything of the message's values in it."""
    name = data.draw(st.sampled_from(sorted(STORED)))
    message = data.draw(st.sampled_from(STORED[name]["messages"]))
    key, value = message["key"], message["value"]
    if data.draw(st.booleans()):
        value = marked(value)
    if data.draw(st.booleans()):
        key = data.draw(retyped(key))
    if data.draw(st.booleans()):
        value = data.draw(retyped(value))

    for reason in only_decode_errors(encoded(key), encoded(value)):
        assert MARKER not in reason


@given(st.data())
def test_only_decode_errors_leave_whatever_bytes_are_changed(data: st.DataObject) -> None:
    """Flipped, removed, put in; of the key or the value."""
    _, key, value = data.draw(st.sampled_from(MESSAGES))

    def damaged(message: bytes | None) -> bytes | None:
        if message is None:
            return data.draw(st.none() | st.binary(max_size=8))
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(message)))
            until = data.draw(st.integers(at, min(len(message), at + 3)))
            message = message[:at] + data.draw(st.binary(max_size=3)) + message[until:]
        end = data.draw(st.none() | st.integers(0, len(message)))
        return message[:end]

    only_decode_errors(damaged(key), damaged(value))


def test_the_reason_never_holds_the_payload() -> None:
    """Whatever field is at fault, with every value marked."""
    for name, stored in STORED.items():
        for message in stored["messages"]:
            for wrong in (marked(message["value"]), MARKER, [MARKER], {"op": MARKER}, {MARKER: 1}):
                for reason in only_decode_errors(encoded(marked(message["key"])), encoded(wrong)):
                    assert not re.search(MARKER, reason), name


@pytest.mark.parametrize(
    ("value", "replaces"),
    [
        pytest.param(event("c", None, {"id": 1}), [False], id="create"),
        pytest.param(event("r", None, {"id": 1}), [False], id="snapshot"),
        pytest.param(event("u", None, {"id": 1}), [True], id="update"),
        pytest.param(event("d", {"id": 1}, None), [True], id="delete"),
        pytest.param(None, [False], id="tombstone"),
        pytest.param(event("u", {"id": 2}, {"id": 1}), [True, False], id="key change"),
    ],
)
def test_an_update_or_a_delete_says_that_there_was_a_row(
    value: object, replaces: list[bool]
) -> None:
    """What an old image is missing from; a create, a snapshot and a tombstone need none."""
    changes = Debezium(Needs(key=("id",))).changes(KEY, bare(value), None)

    assert not isinstance(changes, Ignored)
    assert replaces == [change.replaces for change in changes]


COMPILED = [
    pytest.param(columns, before, key, id=f"{columns} {before} {key}")
    for columns in (None, ("id", "name"))
    for before in (False, True)
    for key in ((), ("id",), ("gone",))
]
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=2)
VALUES: st.SearchStrategy[object] = (
    SCALARS | st.just(PLACEHOLDER) | st.just(BASE64) | st.just([PLACEHOLDER]) | st.just({})
)
ROWS = st.none() | st.fixed_dictionaries({}, optional={"id": VALUES, "name": VALUES, "x": VALUES})
TYPED = st.fixed_dictionaries({"id": SCALARS, "name": VALUES, "x": VALUES, "y": st.floats(-2, 2)})


@pytest.mark.parametrize(("columns", "before", "key"), COMPILED)
@given(st.lists(st.tuples(st.sampled_from("curdt?"), TYPED | ROWS, TYPED | ROWS), max_size=4))
def test_compiled_code_leads_to_the_same(
    columns: tuple[str, ...] | None,
    before: bool,  # noqa: FBT001
    key: tuple[str, ...],
    events: list[tuple[str, object, object]],
) -> None:
    """What it does not leave to Python is what Python says, whatever it has read before."""
    codec = Debezium(Needs(columns=columns, before=before, key=key))
    if codec._compiled is None:
        pytest.skip("the compiled code is not built, or switched off")
    for each in events:
        message = bare(event(*each))
        assert message is not None
        made = codec._compiled.changes(KEY, message)

        if made is not None:
            assert made == codec._changes(codec._opened(message), KEY, None)


@pytest.mark.parametrize("columns", [None, ("id",)])
def test_a_key_that_turns_from_true_to_1_is_another_key(columns: tuple[str, ...] | None) -> None:
    """The old row was deleted, then; in Python the two are equal."""
    codec = Debezium(Needs(columns=columns, key=("id",)))
    for _ in range(2):
        found = codec.changes(None, bare(event("u", {"id": True}, {"id": 1})), None)

        assert not isinstance(found, Ignored)
        assert [(change.kind, change.key) for change in found] == [
            ("delete", b'{"id":true}'),
            ("upsert", b'{"id":1}'),
        ]


@pytest.mark.parametrize("columns", [None, ("id", "name")])
def test_a_plain_update_is_decoded_by_compiled_code(columns: tuple[str, ...] | None) -> None:
    """Whatever columns the messages before had."""
    codec = Debezium(Needs(columns=columns, before=True, key=("id",)))
    if codec._compiled is None:
        pytest.skip("the compiled code is not built, or switched off")
    for name in ("name", "renamed") if columns is None else ("name",):
        old, new = {"id": 1, name: "a"}, {"id": 1, name: "b"}
        message = bare(event("u", old, new))
        assert message is not None

        assert codec._compiled.changes(None, message) == [upsert(new, old)._replace(replaces=True)]


def test_after_many_deletes_compiled_code_decodes_updates_as_before() -> None:
    """A purge of a hundred rows left all later updates of the run to Python."""
    codec = Debezium(Needs(before=True, key=("id",)))
    if codec._compiled is None:
        pytest.skip("the compiled code is not built, or switched off")
    message = bare(event("u", ROW, ROW))
    assert message is not None
    for _ in range(100):
        codec.changes(None, bare(event("d", ROW, None)), None)

    assert codec._compiled.changes(None, message) == [upsert(ROW, ROW)._replace(replaces=True)]


@pytest.mark.parametrize("scalar", [b"1", b'"a"', b"[1,2]"])
def test_a_key_that_is_no_object_is_the_key(scalar: bytes) -> None:
    """As ikebana's own output has them; it has no columns that `key` could name."""
    value = bare(event("c", None, ROW))

    for key in (scalar, b'{"schema":null,"payload":%b}' % scalar):
        assert Debezium(Needs()).changes(key, value, None) == [
            Change("upsert", canonical.canonical(scalar), canonical.encode(ROW))
        ]
        assert Debezium(Needs(key=("id",))).changes(key, value, None) == [upsert(ROW)]


@pytest.mark.parametrize("before", [True, False])
def test_a_payload_alone_is_wrapped(before: bool) -> None:  # noqa: FBT001
    """Its schema is known elsewhere; a key may be wrapped so, too."""
    for columns in (None, ("id", "name")):
        codec = Debezium(Needs(columns=columns, before=before))
        message = bare(event("u", ROW, OLDER)) or b""

        assert codec.changes(b'{"payload":{"id":1}}', b'{"payload":%b}' % message, None) == (
            codec.changes(KEY, message, None)
        )


@pytest.mark.parametrize(
    ("images", "change"),
    [
        pytest.param({"before": None, "after": ROW}, upsert(ROW), id="one has come"),
        pytest.param({"before": OLDER, "after": ROW}, upsert(ROW, OLDER), id="an update"),
        pytest.param({"before": OLDER, "after": None}, delete(OLDER), id="one is gone"),
        pytest.param({"before": OLDER}, delete(OLDER), id="gone, without a field for a new one"),
        pytest.param({"after": None}, delete(), id="gone, without a field for an old one"),
        pytest.param({"after": ROW}, upsert(ROW), id="perhaps an update"),
    ],
)
def test_events_without_operation_are_what_their_images_say(
    images: dict[str, Any], change: Change
) -> None:
    """One that has no field for an old image may replace a row, which matters without state."""
    for named, diffs in product((images, {**images, "op": None}), (False, True)):
        old = images.get("before", ... if diffs else None)
        expected = change._replace(replaces=old is not None or change.kind == "delete")
        codec = Debezium(Needs(before=True, diffs=diffs))
        assert codec.changes(KEY, bare(named), None) == [expected]


def test_a_tombstone_with_a_text_for_a_key_is_ignored_where_rows_have_the_key() -> None:
    """A StringConverter writes them.  Of flattened rows it may be all there is of a delete."""
    text = b"Struct{id=1}"

    assert Debezium(Needs(key=("id",))).changes(text, None, None) == Ignored("tombstone")
    for codec in (Debezium(Needs()), DebeziumFlat(Needs(key=("id",)))):
        with pytest.raises(DecodeError, match="the text of a StringConverter"):
            codec.changes(text, None, None)


def test_where_old_images_tell_all_rows_need_no_key() -> None:
    """A table without a primary key has none; its tombstones say nothing."""
    codec = Debezium(Needs(before=True, diffs=True))

    assert codec.changes(None, bare(event("u", OLDER, ROW)), None) == [
        Change("upsert", None, canonical.encode(ROW), canonical.encode(OLDER), (), replaces=True)
    ]
    assert codec.changes(None, bare(event("d", OLDER)), None) == [
        Change("delete", None, None, canonical.encode(OLDER), (), replaces=True)
    ]
    assert codec.changes(None, None, None) == Ignored("tombstone")


# Compiled code takes messages without a schema alone.
@pytest.mark.parametrize("wrap", [bare, with_schema])
def test_whether_an_old_image_is_whole_does_not_depend_on_what_is_read(wrap: Wrapping) -> None:
    """It lacks a column that the new one has, or it does not, whoever reads the column."""
    partial = {name: value for name, value in OLDER.items() if name != "name"}
    younger = {"id": 1, "late": 5}
    for columns in (None, ("id",), ("id", "age"), ("id", "late")):
        codec = Debezium(Needs(columns=columns, before=True, diffs=True))
        (lacks,) = codec.changes(KEY, wrap(event("u", partial, ROW)), None)
        (whole,) = codec.changes(KEY, wrap(event("d", {"id": 1})), None)
        (none,) = codec.changes(KEY, wrap(event("d", {})), None)
        (added,) = codec.changes(KEY, wrap(event("u", {"id": 1, "late": None}, younger)), None)

        assert isinstance(lacks, Change)
        assert lacks.before is None
        assert isinstance(whole, Change)
        assert whole.before == b'{"id":1}'
        assert isinstance(none, Change)
        assert none.before is None
        assert isinstance(added, Change)
        assert added.before is not None


@pytest.mark.parametrize("wrap", [bare, with_schema])
@pytest.mark.parametrize("columns", [None, ("id", "late")])
def test_a_column_that_is_younger_than_a_row_is_null_in_it(
    wrap: Wrapping, columns: tuple[str, ...] | None
) -> None:
    """Old images retract rows only if both are equal; without them a row has what it has."""
    declared = DeclaredColumns({"id": "BIGINT", "late": "BIGINT"})
    inserted = wrap(event("c", None, {"id": 1}))
    updated = wrap(event("u", {"id": 1, "late": None}, {"id": 1, "late": 5}))
    codec = Debezium(Needs(columns=columns, before=True, diffs=True, declared=declared))

    for _ in range(2):
        (old,) = codec.changes(KEY, inserted, None)
        (new,) = codec.changes(KEY, updated, None)
        assert isinstance(old, Change)
        assert isinstance(new, Change)
        assert old.after == new.before == b'{"id":1,"late":null}'
        assert new.after == b'{"id":1,"late":5}'
    (alone,) = Debezium(Needs(columns=columns, declared=declared)).changes(KEY, inserted, None)
    assert isinstance(alone, Change)
    assert alone.after == b'{"id":1}'


def test_what_is_unavailable_is_absent_whoever_reads_it() -> None:
    """Whatever its form, in the new image and in the old one."""
    for value in (PLACEHOLDER, list(PLACEHOLDER.encode()), {PLACEHOLDER: PLACEHOLDER}):
        for columns in (None, ("id",), ("age",), ("name",)):
            codec = Debezium(Needs(columns=columns, before=True))
            (new,) = codec.changes(KEY, bare(event("u", OLDER, {**ROW, "name": value})), None)
            (old,) = codec.changes(KEY, bare(event("u", {**OLDER, "name": value}, ROW)), None)

            assert isinstance(new, Change)
            assert new.absent == ("name",)
            assert isinstance(old, Change)
            assert old.before is None


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\x00", "na\u00efve", "\u65e5\u672c"])
def test_columns_of_any_name_are_read(name: str) -> None:
    """Also of those that the parser cannot skip others for; the others are left out."""
    row = {"id": 1, name: 2, "other": [3]}
    for wanted in (Needs((name,), before=True), Needs((name,), ("id",), tables=".*people")):
        assert Debezium(wanted).changes(KEY, bare(event("c", None, row)), None) == [
            upsert({name: 2})
        ]
