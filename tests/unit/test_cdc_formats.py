"""What holds of every format whose messages alone tell of a row."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Change, Codec, DeclaredColumns, Ignored, Needs
from ikebana.codecs.dms import Dms
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.goldengate import GoldenGate
from ikebana.codecs.maxwell import Maxwell
from ikebana.errors import ConfigError
from support.damaged_messages import MARKER, damaged
from support.golden_messages import changed_of, declaring, golden, refusal_of
from support.strategies import unhurried


class Format(NamedTuple):
    """A codec, its stored messages, what is wanted of them, and what its messages are like.

    `insert` is the change of the stored insert, `needs` the field that no message lacks, `rows`
    the field that rows are in, and `column` that of names.
    """

    name: str
    codec: Callable[[Needs], Codec]
    messages: dict[str, bytes]
    wanted: Needs
    others: list[Needs]
    insert: Change
    needs: str
    rows: str = "data"
    column: str = "name"


THREE = ("id", "name", "note")
MINIMAL, DECLARED = {"row_image": "minimal"}, DeclaredColumns(dict.fromkeys(THREE, "JSON"))
CANAL = Format(
    "Canal",
    Canal,
    golden("canal"),
    Needs(columns=("id", "name"), key=("id",), before=True),
    [
        Needs(),
        Needs(columns=("big", "photo"), tables="shop.*", options=MINIMAL, declared=DECLARED),
    ],
    Change("upsert", b'{"id":1}', b'{"id":1,"name":"hunter2 Ann"}'),
    needs="type",
)
DMS = Format(
    "DMS",
    Dms,
    golden("dms"),
    Needs(columns=THREE, key=("id",), before=True),
    [
        Needs(),
        Needs(
            columns=("name",),
            key=("id",),
            before=True,
            tables="shop.*",
            options={"before_prefix": "BI_"},
        ),
    ],
    Change("upsert", b'{"id":7}', b'{"id":7,"name":"hunter2 Ann","note":"hunter2 x"}'),
    needs="metadata",
)
GOLDEN_GATE = Format(
    "GoldenGate",
    GoldenGate,
    golden("goldengate"),
    Needs(columns=("ID", "NAME", "NOTE"), key=("ID",), before=True),
    [
        Needs(before=True),
        Needs(columns=("NAME",), tables=r"SHOP\..*", options={"row_image": "full"}),
    ],
    Change("upsert", b'{"ID":7}', b'{"ID":7,"NAME":"hunter2 Ann","NOTE":null}'),
    needs="op_type",
    rows="after",
    column="NAME",
)
MAXWELL = Format(
    "Maxwell",
    Maxwell,
    golden("maxwell"),
    Needs(columns=THREE, key=("id",), before=True),
    [Needs(), Needs(columns=THREE, tables="shop.*", options=MINIMAL, declared=DECLARED)],
    Change("upsert", b'{"id":7}', b'{"id":7,"name":"hunter2 Ann","note":null}'),
    needs="type",
)
FORMATS = (CANAL, DMS, GOLDEN_GATE, MAXWELL)
each = pytest.mark.parametrize("form", [pytest.param(form, id=form.name) for form in FORMATS])


def of_formats(*rows: tuple[Any, ...]) -> list[Any]:
    """The rows of a table, each with its format before its values, by names."""
    return [pytest.param(*row, id=f"{row[0].name}-{at}") for at, row in enumerate(rows)]


@each
def test_the_kafka_key_tells_nothing(form: Format) -> None:
    """It may be the table's name, a hash, or the new key of a row that has moved."""
    codec = form.codec(form.wanted)

    assert codec.key(b'{"id":1}') is None
    assert codec.key(b"\xff") is None
    assert codec.key(None) is None


@each
def test_a_null_message_is_a_tombstone(form: Format) -> None:
    """The format has none of its own; a compacted topic may."""
    assert form.codec(form.wanted).changes(b"1", None, None) == Ignored("tombstone")


@each
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "it is empty, cut off, or has half a surrogate pair"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"hunter2", "JSON is malformed: invalid character (byte 0)"),
        (b'{"x":' + b"[" * 100_000, "it is nested too deeply"),
        (b"{}", "Object missing required field `{needs}`"),
    ],
    ids=["nothing", "null", "an array", "text", "nested", "no fields"],
)
def test_what_is_no_message_is_refused(form: Format, message: bytes, reason: str) -> None:
    """Without a key: nothing tells it."""
    error = refusal_of(form.codec(form.wanted), form.name, message)

    assert (error.reason, error.key) == (reason.replace("{needs}", form.needs), None)


@each
def test_what_is_not_utf_8_is_refused_under_its_key(form: Format) -> None:
    """With the place of the byte."""
    message = form.messages["insert"].replace(b"hunter2 Ann", b"hunter2 \xff")

    error = refusal_of(form.codec(form.wanted), form.name, message)

    assert (error.reason, error.key) == ("byte 8 of a string is not UTF-8", form.insert.key)


TRUNCATE = [Change("truncate")]
NOT_OF_IT = Ignored("table")


@pytest.mark.parametrize(
    ("form", "name", "tables", "expected"),
    of_formats(
        (CANAL, "insert", r".*shop\.customers", [CANAL.insert]),
        (CANAL, "insert", r"shop\.other", NOT_OF_IT),
        (CANAL, "truncate", r"shop\.customers", TRUNCATE),
        (CANAL, "truncate", r"shop\.other", NOT_OF_IT),
        (DMS, "insert", r"shop\.customers", [DMS.insert]),
        (DMS, "insert", "customers", NOT_OF_IT),
        (DMS, "truncate", r"shop\.customers", TRUNCATE),
        (DMS, "truncate", r"shop\.other", NOT_OF_IT),
        (GOLDEN_GATE, "insert", r"SHOP\.CUSTOMERS", [GOLDEN_GATE.insert]),
        (GOLDEN_GATE, "insert", "CUSTOMERS", NOT_OF_IT),
        (GOLDEN_GATE, "insert", r"shop\.customers", NOT_OF_IT),
        (GOLDEN_GATE, "truncate", r"SHOP\.OTHER", NOT_OF_IT),
        (MAXWELL, "insert", r"shop\.customers", [MAXWELL.insert]),
        (MAXWELL, "insert", r"shop\..*", [MAXWELL.insert]),
        (MAXWELL, "insert", "shop", NOT_OF_IT),
        (MAXWELL, "insert", r"other\.customers", NOT_OF_IT),
    ),
)
def test_tables_are_chosen_by_their_full_names(
    form: Format, name: str, tables: str, expected: Sequence[Change] | Ignored
) -> None:
    """By the whole of them and in their case; the rows of others are not looked at."""
    codec = form.codec(declaring(form.wanted.columns, key=form.wanted.key, tables=tables))

    assert codec.changes(None, form.messages[name], None) == expected
    if isinstance(expected, Ignored):
        message = changed_of(form.messages, name, **{form.rows: MARKER, "sqlType": 5})
        assert codec.changes(None, message, None) == expected


@each
def test_tables_have_to_be_a_regular_expression(form: Format) -> None:
    """Else nothing could be chosen by it."""
    with pytest.raises(ConfigError, match="tables is no regular expression"):
        form.codec(Needs(tables="("))


@pytest.mark.parametrize(
    ("form", "fields", "reason"),
    of_formats(
        (CANAL, {"pkNames": None}, "it does not tell the key's columns: declare `key`"),
        (CANAL, {"pkNames": []}, "it does not tell the key's columns: declare `key`"),
        (DMS, {}, "it does not tell the key's columns: declare `key`"),
        (GOLDEN_GATE, {"primary_keys": ...}, "it does not tell the key's columns: declare `key`"),
        (
            MAXWELL,
            {"primary_key_columns": ...},
            "it does not tell the key's columns: declare `key`",
        ),
        (
            MAXWELL,
            {"primary_key_columns": []},
            "it does not tell the key's columns: declare `key`",
        ),
        (
            MAXWELL,
            {"primary_key_columns": [MARKER]},
            "a column of the key is missing from the row",
        ),
    ),
)
def test_a_key_that_is_not_declared_has_to_be_told(
    form: Format, fields: dict[str, Any], reason: str
) -> None:
    """By each message; columns' names are payload."""
    message = changed_of(form.messages, "insert", **fields)

    assert refusal_of(form.codec(Needs()), form.name, message).reason == reason


@pytest.mark.parametrize(
    ("form", "options", "problem"),
    of_formats(
        (CANAL, {"row_image": "noblob"}, 'option "row_image" is "noblob"'),
        (
            DMS,
            {"before_image": "data"},
            'option "before_image" is "data", which it cannot be',
        ),
        (DMS, {"before_image": '"'}, 'option "before_image" is """, which it cannot be'),
        (DMS, {"before_filter": "none"}, 'option "before_filter" is "none"'),
        (GOLDEN_GATE, {"row_image": "x"}, 'option "row_image" is "x"'),
        (GOLDEN_GATE, {"op_insert": "U"}, "two operations of GoldenGate have the same letter"),
        (CANAL, MINIMAL, 'option "row_image" is "minimal", and no column is declared'),
        (MAXWELL, MINIMAL, 'option "row_image" is "minimal", and no column is declared'),
        (MAXWELL, {"row_image": "MINIMAL"}, 'option "row_image" is "MINIMAL"'),
        (MAXWELL, {"output_nulls": "no"}, 'option "output_nulls" is "no"'),
    ),
)
def test_options_that_cannot_be_are_refused_at_once(
    form: Format, options: dict[str, str], problem: str
) -> None:
    """A setting is wrong before there is any message."""
    with pytest.raises(ConfigError) as caught:
        form.codec(Needs(options=options))

    assert caught.value.message == problem


@each
def test_a_message_cut_off_anywhere_is_refused(form: Format) -> None:
    """No beginning of a message is a message."""
    message = form.messages["insert"].rstrip()

    for length in range(len(message)):
        refusal_of(form.codec(form.wanted), form.name, message[:length])


@each
def test_a_value_may_be_long(form: Format) -> None:
    """Ten million bytes are a value like any other."""
    long = "x" * 10_000_000
    message = form.messages["insert"].replace(b"hunter2 Ann", long.encode())

    (change, *_) = form.codec(form.wanted).changes(None, message, None)

    assert isinstance(change, Change)
    assert change.after is not None
    assert json.loads(change.after)[form.column] == long


@each
@unhurried
@given(st.data())
def test_of_a_damaged_message_only_a_decode_error_leaves(
    form: Format, data: st.DataObject
) -> None:
    """Its reason has nothing of the message in it; what is decoded is canonical."""
    message = data.draw(damaged(form.messages.values()))
    wanted = data.draw(st.sampled_from([form.wanted, *form.others]))
    try:
        changes: Sequence[Change] | Ignored = form.codec(wanted).changes(None, message, None)
    except DecodeError as error:
        reason, written = str(error), [error.key]
    else:
        reason = ""
        written = [
            part
            for change in ([] if isinstance(changes, Ignored) else changes)
            for part in (change.key, change.after, change.before)
        ]

    assert MARKER not in reason
    for part in written:
        assert part is None or canonical.canonical(part) == part
