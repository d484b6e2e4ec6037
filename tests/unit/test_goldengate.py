"""The messages of Oracle GoldenGate, whose updates may be partial."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ikebana.codecs.change import Change, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.goldengate import GoldenGate
from support.damaged_messages import MARKER
from support.golden_messages import changed_of, declaring, deleted, golden, refusal_of, updated

MESSAGES = golden("goldengate")
changed = partial(changed_of, MESSAGES)
COLUMNS = ("ID", "NAME", "NOTE")
WANTED = declaring(COLUMNS, key=("ID",), before=True)


def refusal(message: bytes, wanted: Needs = WANTED) -> DecodeError:
    """What is raised for a message."""
    return refusal_of(GoldenGate(wanted), "GoldenGate", message)


FULL = {"row_image": "full"}
LETTERS = {"op_insert": "ins", "op_update": "upd", "op_delete": "del", "op_truncate": "cut"}
KEY = b'{"ID":7}'
ANN = b'{"ID":7,"NAME":"hunter2 Ann","NOTE":null}'
ANNA = b'{"ID":7,"NAME":"hunter2 Anna","NOTE":"hunter2 old"}'
PARTIAL = b'{"ID":7,"NAME":"hunter2 Ann"}'
NOTE = b'{"ID":7,"NOTE":"hunter2 new"}'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("insert", [Change("upsert", KEY, ANN)], id="insert"),
        pytest.param("update", [updated(KEY, ANN, ANNA)], id="full update"),
        pytest.param(
            "compressed_update",
            [updated(KEY, PARTIAL, None, ("NOTE",))],
            id="compressed update",
        ),
        pytest.param(
            "update_without_before",
            [updated(KEY, PARTIAL, None, ("NOTE",))],
            id="update without an old image",
        ),
        pytest.param(
            "update_of_full_before",
            [updated(KEY, PARTIAL, ANNA, ("NOTE",))],
            id="compressed update with a full old image",
        ),
        pytest.param("marked_update", [updated(KEY, NOTE, None, ("NAME",))], id="marked update"),
        pytest.param(
            "key_change",
            [
                deleted(b'{"ID":6}', ANN.replace(b"7", b"6")),
                Change("upsert", KEY, ANN),
            ],
            id="key change",
        ),
        pytest.param("delete", [deleted(KEY, ANN)], id="full delete"),
        pytest.param("compressed_delete", [deleted(KEY)], id="compressed delete"),
        pytest.param("truncate", [Change("truncate")], id="truncate"),
    ],
)
def test_a_message_says_what_has_changed(name: str, expected: Sequence[Change]) -> None:
    """A declared column that an update lacks is absent, not null."""
    assert GoldenGate(WANTED).changes(None, MESSAGES[name], None) == expected


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        pytest.param("insert", {}, [Change("upsert", KEY, ANN)], id="inserts are full"),
        pytest.param(
            "marked_update",
            {},
            [updated(KEY, NOTE, None, ("NAME",))],
            id="marks tell",
        ),
        pytest.param(
            "update_of_full_before",
            {},
            [updated(KEY, PARTIAL, ANNA, ("NOTE",))],
            id="an old image with more columns tells",
        ),
        pytest.param("update", FULL, [updated(KEY, ANN, ANNA)], id="images are full"),
        pytest.param(
            "update_without_before", FULL, [updated(KEY, PARTIAL)], id="whatever they have"
        ),
        pytest.param("delete", FULL, [deleted(KEY, ANN)], id="full delete"),
        pytest.param("delete", {}, [deleted(KEY)], id="it cannot be told to be full"),
    ],
)
def test_without_declared_columns_the_message_or_an_option_tells_what_is_absent(
    name: str, options: dict[str, str], expected: Sequence[Change]
) -> None:
    """All its columns are read, and the key is the one that it tells."""
    codec = GoldenGate(Needs(before=True, options=options))

    assert codec.changes(None, MESSAGES[name], None) == expected


@pytest.mark.parametrize("name", ["update", "compressed_update", "update_without_before"])
def test_an_update_that_cannot_be_told_to_be_full_is_refused(name: str) -> None:
    """Taken as full, it would erase the columns that it leaves out."""
    error = refusal(MESSAGES[name], Needs())

    assert error.reason.startswith("it cannot be told which columns it leaves out")
    assert error.key == KEY


def test_marks_are_no_columns() -> None:
    """Neither where none is true, nor in old images."""
    before = {"ID": 7, "ID_isMissing": False, "NAME": MARKER, "NAME_isMissing": False}
    after = {**before, "NAME": None}
    expected = [updated(KEY, b'{"ID":7,"NAME":null}', b'{"ID":7,"NAME":"hunter2"}')]
    message = changed("update", before=before, after=after)

    for columns in (None, ("ID", "NAME")):
        codec = GoldenGate(declaring(columns, key=("ID",), before=True))
        assert codec.changes(None, message, None) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param(None, b'{"ID":7,"ID_isMissing":"hunter2"}', id="all"),
        pytest.param(("ID", "ID_isMissing"), b'{"ID":7,"ID_isMissing":"hunter2"}', id="declared"),
        pytest.param(("ID",), b'{"ID":7}', id="not declared"),
    ],
)
def test_a_column_whose_name_is_like_a_mark_is_a_column(
    columns: tuple[str, ...] | None, expected: bytes
) -> None:
    """Marks are booleans, which Oracle's columns are not."""
    message = changed("insert", after={"ID": 7, "ID_isMissing": "hunter2"})
    codec = GoldenGate(declaring(columns, key=("ID",)))

    assert codec.changes(None, message, None) == [Change("upsert", KEY, expected)]


def test_a_full_image_lacks_what_the_table_did_not_have() -> None:
    """Such a column is not absent: there is nothing to keep; nor does an old image lack it."""
    wanted = declaring(("ID", "NAME", "LATE"), before=True, options=FULL)
    older = PARTIAL.replace(b"Ann", b"Anna")

    assert GoldenGate(wanted).changes(None, MESSAGES["update"], None) == [
        updated(KEY, PARTIAL, older)
    ]


@pytest.mark.parametrize(
    ("before", "known"),
    [({"ID": 7}, None), ({"ID": 7, "NAME": "Ann"}, b'{"ID":7,"NAME":"Ann"}')],
)
def test_declared_columns_say_whether_an_old_image_is_whole(
    before: dict[str, Any], known: bytes | None
) -> None:
    """One that lacks a column is compressed, whatever the new image has."""
    after = {"ID": 7, "NAME": "hunter2"}
    codec = GoldenGate(declaring(("ID", "NAME"), key=("ID",), before=True))

    assert codec.changes(None, changed("update", before=before, after=after), None) == [
        updated(KEY, b'{"ID":7,"NAME":"hunter2"}', known)
    ]


def test_an_old_image_is_not_full_because_the_new_one_is_marked() -> None:
    """It may be compressed, if it has no marks itself."""
    after = {"ID": 7, "ID_isMissing": False, "NAME": MARKER, "NAME_isMissing": False}
    message = changed("update", before={"ID": 7}, after=after)

    assert GoldenGate(Needs(before=True)).changes(None, message, None) == [
        updated(KEY, b'{"ID":7,"NAME":"hunter2"}')
    ]


def test_letters_of_operations_can_be_set() -> None:
    """As the formatter's own settings can."""
    codec = GoldenGate(declaring(COLUMNS, key=("ID",), options=LETTERS))

    assert codec.changes(None, MESSAGES["other_letters"], None) == [updated(KEY, ANN)]
    assert codec.changes(None, changed("truncate", op_type="cut"), None) == [Change("truncate")]
    assert refusal(MESSAGES["insert"], Needs(options=LETTERS)).key == KEY


@pytest.mark.parametrize(
    ("before", "after", "old_key", "key"),
    [
        pytest.param(
            {"A": 1, "B": 2}, {"A": 1, "B": 3}, b'{"A":1,"B":2}', b'{"A":1,"B":3}', id="B"
        ),
        pytest.param(
            {"B": 2}, {"A": 1, "B": 3}, b'{"A":1,"B":2}', b'{"A":1,"B":3}', id="no old A"
        ),
        pytest.param(
            {"A": 1, "B": 2}, {"B": 3}, b'{"A":1,"B":2}', b'{"A":1,"B":3}', id="no new A"
        ),
    ],
)
def test_a_column_of_the_key_that_one_image_lacks_is_unchanged(
    before: dict[str, Any], after: dict[str, Any], old_key: bytes, key: bytes
) -> None:
    """The key is put together from both."""
    message = changed("update", before=before, after=after, primary_keys=["A", "B"])

    assert GoldenGate(declaring(("B",))).changes(None, message, None) == [
        deleted(old_key),
        Change("upsert", key, b'{"B":3}'),
    ]


@pytest.mark.parametrize(
    ("message", "reason", "key"),
    [
        pytest.param(
            changed("insert", op_type=MARKER),
            "field `op_type` is none of the operations",
            KEY,
            id="unknown type",
        ),
        pytest.param(
            changed("insert", op_type=5),
            "Expected `str`, got `int` - at `$.op_type`",
            KEY,
            id="type",
        ),
        pytest.param(
            changed("insert", after=...), "field `after` is missing", None, id="no after"
        ),
        pytest.param(
            changed("update", after=None), "field `after` is missing", KEY, id="null after"
        ),
        pytest.param(
            changed("delete", before=...), "field `before` is missing", None, id="no before"
        ),
        pytest.param(
            changed("insert", after=[MARKER]), "Expected `object`, got `array`", None, id="after"
        ),
        pytest.param(
            changed("update", before=MARKER), "Expected `object`, got `str`", KEY, id="before"
        ),
        pytest.param(
            changed("insert", after={"NAME": MARKER}),
            "the row lacks `ID` of the key",
            None,
            id="no key",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(message: bytes, reason: str, key: bytes | None) -> None:
    """With the row's key, where that is readable."""
    error = refusal(message)

    assert (error.reason, error.key) == (reason, key)
