"""Maxwell's messages, and whatever else lies in its topic."""

from collections.abc import Sequence
from functools import partial

import pytest

from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.maxwell import Maxwell
from ikebana.errors import ConfigError
from support.damaged_messages import MARKER
from support.golden_messages import changed_of, declaring, deleted, golden, refusal_of, updated

MESSAGES = golden("maxwell")
changed = partial(changed_of, MESSAGES)
COLUMNS = ("id", "name", "note")
WANTED = declaring(COLUMNS, key=("id",), before=True)


def refusal(message: bytes, wanted: Needs = WANTED) -> DecodeError:
    """What is raised for a message."""
    return refusal_of(Maxwell(wanted), "Maxwell", message)


MINIMAL = {"row_image": "minimal"}
NO_NULLS = {"output_nulls": "false"}
ANN = b'{"id":7,"name":"hunter2 Ann","note":null}'
PARTIAL = b'{"id":7,"name":"hunter2 Ann"}'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("insert", [Change("upsert", b'{"id":7}', ANN)], id="insert"),
        pytest.param(
            "update",
            [
                updated(
                    b'{"id":7}',
                    ANN,
                    b'{"id":7,"name":"hunter2 Anna","note":"hunter2 old"}',
                )
            ],
            id="update",
        ),
        pytest.param("delete", [deleted(b'{"id":7}', ANN)], id="delete"),
        pytest.param(
            "key_change",
            [
                deleted(b'{"id":6}', ANN.replace(b"7", b"6")),
                Change("upsert", b'{"id":7}', ANN),
            ],
            id="key change",
        ),
        pytest.param("bootstrap_start", Ignored("snapshot"), id="bootstrap-start"),
        pytest.param("bootstrap_insert", [Change("upsert", b'{"id":7}', ANN)], id="snapshot"),
        pytest.param("bootstrap_complete", Ignored("snapshot"), id="bootstrap-complete"),
        pytest.param("table_alter", Ignored("ddl"), id="DDL"),
        pytest.param("table_drop", Ignored("dropped table"), id="drop table"),
        pytest.param("database_create", Ignored("ddl"), id="DDL without a table"),
    ],
)
def test_a_message_says_what_has_changed(name: str, expected: Sequence[Change] | Ignored) -> None:
    """Of the declared columns, with the old row where the message has it."""
    assert Maxwell(WANTED).changes(None, MESSAGES[name], None) == expected


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        pytest.param(
            "insert",
            Needs(),
            [
                Change(
                    "upsert",
                    b'{"id":7}',
                    b'{"balance":12.5,"born":"1990-02-03","id":7,'
                    b'"name":"hunter2 Ann","note":null}',
                )
            ],
            id="all columns, and the key that the message tells",
        ),
        pytest.param(
            "composite_key",
            declaring(("qty",), before=True),
            [
                deleted(b'{"no":1,"shop":"hunter2 a"}', b'{"qty":5}'),
                Change("upsert", b'{"no":2,"shop":"hunter2 a"}', b'{"qty":5}'),
            ],
            id="half of a key has changed",
        ),
        pytest.param(
            "insert",
            declaring(("name",), key=("name", "id")),
            [Change("upsert", b'{"id":7,"name":"hunter2 Ann"}', b'{"name":"hunter2 Ann"}')],
            id="a declared key is the key; its columns need not be wanted",
        ),
        pytest.param(
            "insert",
            declaring(("id", "late")),
            [Change("upsert", b'{"id":7}', b'{"id":7}')],
            id="a column that the table did not have yet",
        ),
        pytest.param(
            "delete",
            declaring(("id", "late"), before=True),
            [deleted(b'{"id":7}', b'{"id":7}')],
            id="an old row without that column is full all the same",
        ),
        pytest.param(
            "update",
            declaring(COLUMNS),
            [updated(b'{"id":7}', ANN)],
            id="nobody wants the old row",
        ),
    ],
)
def test_what_is_wanted_says_what_is_read(
    name: str, wanted: Needs, expected: Sequence[Change]
) -> None:
    """Columns, key and old row."""
    assert Maxwell(wanted).changes(None, MESSAGES[name], None) == expected


def test_a_minimal_image_is_partial() -> None:
    """What it lacks is absent, not null; no old row is full."""
    codec = Maxwell(declaring(COLUMNS, before=True, options=MINIMAL))

    assert codec.changes(None, MESSAGES["minimal_update"], None) == [
        updated(b'{"id":7}', PARTIAL, None, ("note",))
    ]
    assert codec.changes(None, MESSAGES["delete"], None) == [deleted(b'{"id":7}')]


def test_a_minimal_image_of_a_row_that_has_moved_stays_partial() -> None:
    """What it lacks stands in the row of the old key."""
    codec = Maxwell(declaring(COLUMNS, options=MINIMAL))

    assert codec.changes(None, changed("minimal_update", old={"id": 6}), None) == [
        deleted(b'{"id":6}'),
        Change("upsert", b'{"id":7}', PARTIAL, None, ("note",)),
    ]


def test_minimal_images_without_nulls_do_not_tell_null_from_unchanged() -> None:
    """So these options do not go together."""
    with pytest.raises(ConfigError, match="do not tell null from unchanged"):
        Maxwell(declaring(COLUMNS, options={**MINIMAL, **NO_NULLS}))


def test_where_nulls_are_left_out_a_missing_column_is_null() -> None:
    """An update to null takes effect; what was null before it cannot be told."""
    codec = Maxwell(declaring(COLUMNS, before=True, options=NO_NULLS))

    assert codec.changes(None, MESSAGES["update_to_null"], None) == [updated(b'{"id":7}', ANN)]
    assert codec.changes(None, changed("delete", data={"id": 7}), None) == [
        deleted(b'{"id":7}', b'{"id":7,"name":null,"note":null}')
    ]
    assert Maxwell(Needs(options=NO_NULLS)).changes(None, MESSAGES["update_to_null"], None) == [
        updated(b'{"id":7}', PARTIAL)
    ]


@pytest.mark.parametrize(
    ("message", "reason", "key"),
    [
        pytest.param(
            changed("insert", type=...),
            "Object missing required field `type`",
            b'{"id":7}',
            id="no type",
        ),
        pytest.param(
            changed("insert", type=5),
            "Expected `str`, got `int` - at `$.type`",
            b'{"id":7}',
            id="type",
        ),
        pytest.param(
            changed("insert", type=MARKER),
            "field `type` is none of Maxwell's types",
            b'{"id":7}',
            id="unknown type",
        ),
        pytest.param(changed("insert", data=...), "field `data` is missing", None, id="no data"),
        pytest.param(
            changed("insert", data=MARKER),
            "Expected `object`, got `str`",
            None,
            id="encrypted data",
        ),
        pytest.param(
            changed("insert", data={"name": MARKER}),
            "the row lacks `id` of the key",
            None,
            id="no key",
        ),
        pytest.param(
            changed("update", old=[MARKER]),
            "Expected `object`, got `array`",
            b'{"id":7}',
            id="old",
        ),
        pytest.param(
            changed("insert", primary_key_columns=MARKER),
            "Expected `array | null`, got `str` - at `$.primary_key_columns`",
            b'{"id":7}',
            id="primary key",
        ),
        pytest.param(
            MESSAGES["insert"].replace(b'"hunter2 Ann"', b"1e400"),
            "a number has too many digits",
            b'{"id":7}',
            id="a number beyond all",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(message: bytes, reason: str, key: bytes | None) -> None:
    """With the row's key, where that is readable."""
    error = refusal(message)

    assert (error.reason, error.key) == (reason, key)


def test_a_bad_message_of_who_knows_which_table_has_no_key() -> None:
    """Its row may be of a table that nobody wants."""
    wanted = declaring(COLUMNS, key=("id",), tables=r"shop\..*")

    assert refusal(changed("insert", type=5), wanted).key == b'{"id":7}'
    assert refusal(changed("insert", type=5, database="other"), wanted).key is None
    error = refusal(changed("insert", table=None), wanted)
    assert (error.reason, error.key) == ("field `table` is missing", None)


@pytest.mark.parametrize("before", [False, True])
def test_a_deleted_row_that_cannot_be_read_is_refused_under_its_key(before: bool) -> None:  # noqa: FBT001
    """Whether its old row is wanted or not."""
    message = MESSAGES["delete"].replace(b'"hunter2 Ann"', b"1e400")
    codec = Maxwell(declaring(COLUMNS, key=("id",), before=before))

    assert refusal_of(codec, "Maxwell", message).key == b'{"id":7}'


def test_names_that_are_not_ascii_are_found() -> None:
    """Of columns and of keys."""
    message = changed("insert", data={"\u00efd": 7, "na\u00efve": MARKER, "x": 1})

    wanted = declaring(("na\u00efve",), key=("\u00efd",), before=True)

    assert Maxwell(wanted).changes(None, message, None) == [
        Change("upsert", '{"\u00efd":7}'.encode(), '{"na\u00efve":"hunter2"}'.encode())
    ]
