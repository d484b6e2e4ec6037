"""Canal's flat messages: rows whose values are all text."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ikebana.codecs import canonical
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Change, DeclaredColumns, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from support.damaged_messages import MARKER
from support.golden_messages import changed_of, declaring, deleted, golden, refusal_of, updated

MESSAGES = golden("canal")
changed = partial(changed_of, MESSAGES)
COLUMNS = ("id", "name")
WANTED = declaring(COLUMNS, key=("id",), before=True)


def refusal(message: bytes, wanted: Needs = WANTED) -> DecodeError:
    """What is raised for a message."""
    return refusal_of(Canal(wanted), "Canal", message)


MINIMAL = {"row_image": "minimal"}
TRUNCATE = [Change("truncate")]


def ann(number: int, name: str | None = "hunter2 Ann") -> bytes:
    """The row of this key, with these columns."""
    return canonical.write({"id": number, "name": name})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("insert", [Change("upsert", b'{"id":1}', ann(1))], id="insert"),
        pytest.param(
            "insert_many",
            [
                Change("upsert", b'{"id":1}', ann(1)),
                Change("upsert", b'{"id":2}', ann(2, None)),
                Change("upsert", b'{"id":3}', ann(3, "hunter2 Cy")),
            ],
            id="several rows",
        ),
        pytest.param(
            "update",
            [
                updated(b'{"id":1}', ann(1), ann(1, "hunter2 Anna")),
                updated(b'{"id":2}', ann(2, "hunter2 Bo"), ann(2, "hunter2 Bo")),
            ],
            id="update, with columns that the second row did not change",
        ),
        pytest.param("update_unchanged", [updated(b'{"id":1}', ann(1), ann(1))], id="no old rows"),
        pytest.param(
            "key_change",
            [
                deleted(b'{"id":7}', ann(7)),
                Change("upsert", b'{"id":8}', ann(8)),
                updated(b'{"id":9}', ann(9, "hunter2 Bo"), ann(9, "hunter2 B")),
            ],
            id="key change, and one that is none",
        ),
        pytest.param(
            "delete",
            [
                deleted(b'{"id":1}', ann(1)),
                deleted(b'{"id":2}', ann(2, "hunter2 Bo")),
            ],
            id="delete",
        ),
        pytest.param("truncate", TRUNCATE, id="truncate"),
        pytest.param("alter", Ignored("ddl"), id="DDL"),
        pytest.param("drop", Ignored("dropped table"), id="drop table"),
    ],
)
def test_a_message_says_what_has_changed(name: str, expected: Sequence[Change] | Ignored) -> None:
    """Row by row, in the message's order."""
    assert Canal(WANTED).changes(None, MESSAGES[name], None) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        *(pytest.param(name, Ignored("ddl"), id=name) for name in ("QUERY", "RENAME", "CINDEX")),
        *(pytest.param(name, Ignored("transaction"), id=name) for name in ("GTID", "XACOMMIT")),
        pytest.param("MHEARTBEAT", Ignored("heartbeat"), id="MHEARTBEAT"),
        pytest.param("TIDB_WATERMARK", Ignored("heartbeat"), id="that of TiDB"),
    ],
)
def test_events_that_are_of_no_row_are_ignored(event: str, expected: Ignored) -> None:
    """Each is counted as what it is."""
    message = changed("insert", type=event, data=None, database="", table="")

    assert Canal(Needs(tables="shop.*")).changes(None, message, None) == expected


def test_values_become_what_their_types_say() -> None:
    """Integers of any size, exact numbers, T in timestamps, base64 of bytes; the rest is text."""
    for wanted in (
        Needs(),
        declaring(tuple(json.loads(MESSAGES["insert"])["sqlType"]), key=("id",)),
    ):
        (change,) = Canal(wanted).changes(None, MESSAGES["insert"], None)
        assert isinstance(change, Change)
        assert change.after == (
            b'{"at":"12:34:56","balance":100.5,"big":18446744073709551615,"body":"hunter2 text",'
            b'"born":"1990-02-03","flags":"5","id":1,"name":"hunter2 Ann","ok":1,"photo":"/9gA",'
            b'"ratio":10000000000,"seen":"2024-01-31T12:34:56.789"}'
        )


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text", "expected"),
    [
        pytest.param("int(11)", 4, "-5", -5, id="int"),
        pytest.param("INT UNSIGNED", 4, "4294967295", 4294967295, id="upper case"),
        pytest.param(
            "bigint(20) unsigned", 3, "18446744073709551615", 2**64 - 1, id="bigint unsigned"
        ),
        pytest.param("bigint(20) unsigned", -5, "9223372036854775808", 2**63, id="by another row"),
        pytest.param("mediumint(9)", 4, "007", 7, id="zerofill"),
        pytest.param("tinyint(1)", -7, "2", 2, id="a boolean is a number"),
        pytest.param("year(4)", 12, "2024", 2024, id="year"),
        pytest.param("decimal(30,10)", 3, "1.50", 1.5, id="decimal"),
        pytest.param("decimal(3,0)", 3, "100", 100, id="whole decimal"),
        pytest.param("float", 7, "1.5E-7", 1.5e-7, id="float"),
        pytest.param("double", 8, "-0.0", 0, id="minus zero"),
        pytest.param("datetime", 93, "2024-01-31 12:34:56", "2024-01-31T12:34:56", id="datetime"),
        pytest.param(
            "timestamp(6)", 93, "2024-01-31 12:34:56.000000", "2024-01-31T12:34:56", id="zeros"
        ),
        pytest.param(
            "datetime(3)", 93, "2024-01-31 12:34:56.120", "2024-01-31T12:34:56.12", id="ms"
        ),
        pytest.param("datetime", 93, "0000-00-00 00:00:00", "0000-00-00 00:00:00", id="zero date"),
        pytest.param("datetime", 93, "2024-00-31 00:00:00", "2024-00-31 00:00:00", id="no month"),
        pytest.param("date", 91, "0000-00-00", "0000-00-00", id="date"),
        pytest.param("time(6)", 92, "-838:59:59.500000", "-838:59:59.5", id="time"),
        pytest.param("binary(2)", 1, "\u00ff\u0000", "/wA=", id="binary is CHAR to Canal"),
        pytest.param("varbinary(9)", 12, "", "", id="no bytes"),
        pytest.param("longblob", 2004, "\u00e9", "6Q==", id="blob"),
        pytest.param("geometry", 2004, "\u0001", "AQ==", id="by sqlType"),
        pytest.param("text", -4, "\u20ac", "\u20ac", id="a text whose last row was null"),
        pytest.param("bit(3)", -7, "5", "5", id="bit"),
        pytest.param("json", 12, '{"a": 1}', '{"a": 1}', id="json"),
        pytest.param("enum('x','y')", 4, "2", 2, id="enum, as its number"),
        pytest.param("set('x','y')", -7, "3", "3", id="set"),
        pytest.param("", -5, "12", 12, id="no mysqlType"),
        pytest.param(None, 16, "1", 1, id="null as mysqlType"),
        pytest.param("int", None, "12", 12, id="no sqlType"),
        pytest.param("vector", None, "[1]", "[1]", id="a type that we do not know"),
        pytest.param("int", 4, None, None, id="null"),
    ],
)
def test_a_value_becomes_what_its_type_says(
    mysql_type: str | None, sql_type: int | None, text: str | None, expected: Any
) -> None:
    """By its MySQL type, else by that of JDBC."""
    message = changed(
        "insert",
        mysqlType={"v": mysql_type, "id": "int"},
        sqlType={"v": sql_type, "id": 4},
        data=[{"id": "1", "v": text}],
    )

    (change,) = Canal(Needs(("v",), key=("id",))).changes(None, message, None)

    assert isinstance(change, Change)
    assert change.after == canonical.encode({"v": expected})


@pytest.mark.parametrize(
    ("declared", "text", "expected"),
    [
        pytest.param("HUGEINT", "12", 12, id="integer"),
        pytest.param("BOOLEAN", "1", 1, id="boolean, as MySQL has it"),
        pytest.param("DECIMAL(12,2)", "12.50", 12.5, id="decimal"),
        pytest.param("TIMESTAMP", "2024-01-31 12:34:56.500", "2024-01-31T12:34:56.5", id="time"),
        pytest.param("BLOB", "\u00ff", "/w==", id="bytes"),
        pytest.param("VARCHAR", "12", "12", id="text, whatever sqlType says"),
        pytest.param("DATE", "2024-01-31", "2024-01-31", id="date"),
        pytest.param("JSON", "[1]", "[1]", id="JSON is the text of it"),
    ],
)
@pytest.mark.parametrize("sql_type", [None, {"v": 4, "id": 4}])
def test_without_mysql_types_declared_types_say_what_texts_become(
    declared: str, text: str, expected: Any, sql_type: Any
) -> None:
    """They come before `sqlType`, which is at times that of another row; `mysqlType` wins."""
    types = DeclaredColumns({"v": declared, "id": "BIGINT"})
    codec = Canal(Needs(key=("id",), declared=types))
    data = [{"id": "1", "v": text}]

    nothing: dict[str, str] = {}
    for mysql_types in (None, nothing):
        message = changed("insert", mysqlType=mysql_types, sqlType=sql_type, data=data)
        assert codec.changes(None, message, None) == [
            Change("upsert", b'{"id":1}', canonical.encode({"id": 1, "v": expected}))
        ]
    message = changed("insert", mysqlType={"v": "text", "id": "int"}, data=data)
    assert codec.changes(None, message, None) == [
        Change("upsert", b'{"id":1}', canonical.encode({"id": 1, "v": text}))
    ]


def test_a_decimal_is_exact() -> None:
    """More digits than a double has stay."""
    message = MESSAGES["insert"].replace(b"100.5000", b"1234567890123456.7890")

    (change,) = Canal(declaring(("balance",))).changes(None, message, None)

    assert isinstance(change, Change)
    assert change.after == b'{"balance":1234567890123456.789}'


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        pytest.param("big", "hunter2", "column `big` is no integer", id="integer"),
        pytest.param("big", "1_0", "column `big` is no integer", id="Python's integer"),
        pytest.param("big", "1" * 5_000, "column `big` is no integer", id="digits"),
        pytest.param("balance", "NaN", "column `balance` is no number", id="decimal"),
        pytest.param("ratio", "1e400", "column `ratio` is no number", id="beyond all"),
        pytest.param("ratio", "1" * 10_000_000, "column `ratio` is no number", id="10 MB"),
        pytest.param("seen", "hunter2", "column `seen` is no timestamp", id="timestamp"),
        pytest.param("at", "12:34", "column `at` is no time", id="time"),
        pytest.param("photo", "\u20ac", "column `photo` is no ISO-8859-1 text", id="bytes"),
    ],
)
def test_a_value_that_is_not_what_its_type_says_is_refused(
    column: str, text: str, reason: str
) -> None:
    """In a column that declares a type; in others it stays, since nobody might read it."""
    row = {**json.loads(MESSAGES["insert"])["data"][0], column: text}
    message = changed("insert", data=[row])
    declared = Needs((column,), key=("id",), declared=DeclaredColumns({column: "BIGINT"}))

    assert (refusal(message, declared).reason, refusal(message, declared).key) == (
        reason,
        b'{"id":1}',
    )
    for wanted in (Needs((column,)), declaring((column,))):
        (change,) = Canal(wanted).changes(None, message, None)
        assert isinstance(change, Change)
        assert change.after == canonical.encode({column: text})


def test_one_bad_row_refuses_the_message() -> None:
    """Without a key: one key would say nothing of the other rows."""
    rows = [{"id": "1", "name": MARKER}, {"id": MARKER, "name": MARKER}]
    error = refusal(changed("insert", data=rows))

    assert (error.reason, error.key) == ("column `id` is no integer", None)


def test_an_image_without_blobs_is_partial() -> None:
    """What it lacks is absent, not null; no old row is full."""
    wanted = declaring(("id", "name", "photo"), before=True, options=MINIMAL)

    assert Canal(wanted).changes(None, MESSAGES["noblob_update"], None) == [
        updated(b'{"id":1}', ann(1), None, ("photo",))
    ]


def test_an_image_without_blobs_has_no_full_old_row() -> None:
    """Even if no column is missing: the old value of a blob would be."""
    wanted = declaring(COLUMNS, key=("id",), before=True, options=MINIMAL)

    assert Canal(wanted).changes(None, MESSAGES["update_unchanged"], None) == [
        updated(b'{"id":1}', ann(1))
    ]
    assert Canal(wanted).changes(None, MESSAGES["delete"], None) == [
        deleted(b'{"id":1}'),
        deleted(b'{"id":2}'),
    ]


def test_a_row_in_which_nothing_has_changed_may_be_null_in_old() -> None:
    """It is the row as it was."""
    message = changed("update_unchanged", old=[None])

    for before in (None, ann(1)):
        wanted = declaring(COLUMNS, key=("id",), before=before is not None)
        assert Canal(wanted).changes(None, message, None) == [updated(b'{"id":1}', ann(1), before)]


def test_old_columns_that_nobody_wants_are_not_even_read() -> None:
    """Without old rows only the key's columns are."""
    message = changed("update_unchanged", old=[{"balance": MARKER}])

    assert Canal(declaring(COLUMNS, key=("id",))).changes(None, message, None) == [
        updated(b'{"id":1}', ann(1))
    ]
    types = {**dict.fromkeys(COLUMNS, "VARCHAR"), "balance": "DECIMAL(9,2)"}
    wanted = Needs(tuple(types), ("id",), before=True, declared=DeclaredColumns(types))
    assert refusal(message, wanted).reason == "column `balance` is no number"


def test_columns_that_nobody_wants_are_not_even_converted() -> None:
    """Where the key is told by the message, too."""
    row = {**json.loads(MESSAGES["insert"])["data"][0], "big": MARKER}

    for key in ((), ("id",)):
        codec = Canal(declaring(COLUMNS, key=key))
        assert codec.changes(None, changed("insert", data=[row]), None) == [
            Change("upsert", b'{"id":1}', ann(1))
        ]


@pytest.mark.parametrize(
    ("message", "reason", "key"),
    [
        pytest.param(
            changed("insert", type=MARKER),
            "field `type` is none of Canal's event types",
            b'{"id":1}',
            id="unknown type",
        ),
        pytest.param(
            changed("insert", isDdl=MARKER),
            "Expected `bool`, got `str` - at `$.isDdl`",
            b'{"id":1}',
            id="isDdl",
        ),
        pytest.param(changed("insert", data=...), "field `data` is missing", None, id="no data"),
        pytest.param(
            changed("insert", data=None), "field `data` is missing", None, id="null data"
        ),
        pytest.param(changed("insert", data=[]), "field `data` has no rows", None, id="no rows"),
        pytest.param(
            changed("insert", data=[[]]),
            "Expected `object`, got `array` - at `$[0]`",
            None,
            id="row",
        ),
        pytest.param(
            changed("insert", data=[{"name": MARKER}]),
            "the row lacks `id` of the key",
            None,
            id="no key",
        ),
        pytest.param(
            changed("update", old=[{"name": MARKER}]),
            "field `old` has another number of rows than `data`",
            None,
            id="old rows",
        ),
        pytest.param(
            changed("insert", data=[{"id": MARKER}]),
            "column `id` is no integer",
            None,
            id="a type",
        ),
        pytest.param(
            changed("insert", sqlType={"id": MARKER}),
            "Expected `int | null`, got `str` - at `$.id`",
            None,
            id="sqlType",
        ),
        pytest.param(
            changed("insert", mysqlType={"id": "int", "name": 7}),
            "Expected `str | null`, got `int` - at `$.name`",
            None,
            id="mysqlType",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(message: bytes, reason: str, key: bytes | None) -> None:
    """With the row's key, where that is readable."""
    error = refusal(message)

    assert (error.reason, error.key) == (reason, key)


def test_types_that_are_not_declared_have_to_be_told() -> None:
    """In `mysqlType`, which is the better one, or in `sqlType`."""
    reason = "neither `mysqlType` nor `sqlType` has a column: declare its type"

    assert refusal(changed("insert", sqlType=None, mysqlType=None), Needs()).reason == reason


def test_of_a_deleted_row_nobody_needs_more_than_the_key() -> None:
    """Whatever its other columns are like, if its old row is not wanted."""
    rows = [{"id": "1", "big": MARKER}]
    wanted = declaring(("big",), key=("id",))

    assert Canal(wanted).changes(None, changed("delete", data=rows), None) == [
        deleted(b'{"id":1}')
    ]
