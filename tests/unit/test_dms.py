"""The messages of AWS DMS, which leave out nulls."""

import json
from collections.abc import Sequence
from functools import partial

import pytest

from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.dms import Dms
from ikebana.codecs.errors import DecodeError
from support.damaged_messages import MARKER
from support.golden_messages import changed_of, declaring, deleted, golden, refusal_of, updated

MESSAGES = golden("dms")
changed = partial(changed_of, MESSAGES)
COLUMNS = ("id", "name", "note")
WANTED = declaring(COLUMNS, key=("id",), before=True)


def refusal(message: bytes, wanted: Needs = WANTED) -> DecodeError:
    """What is raised for a message."""
    return refusal_of(Dms(wanted), "DMS", message)


PREFIX = {"before_prefix": "BI_"}
ALL = {"before_filter": "all"}
KEY = b'{"id":7}'
ANN = b'{"id":7,"name":"hunter2 Ann","note":"hunter2 x"}'
ANNA = b'{"id":7,"name":"hunter2 Anna","note":"hunter2 x"}'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("load", [Change("upsert", KEY, ANN)], id="snapshot"),
        pytest.param("insert", [Change("upsert", KEY, ANN)], id="insert"),
        pytest.param("update", [updated(KEY, ANN)], id="update, the key as old image"),
        pytest.param("full_before", [updated(KEY, ANN, ANNA)], id="a full old image"),
        pytest.param(
            "update_to_null",
            [updated(KEY, b'{"id":7,"name":"hunter2 Ann","note":null}')],
            id="a column that is left out is null",
        ),
        pytest.param(
            "key_change",
            [deleted(b'{"id":6}'), Change("upsert", KEY, ANN)],
            id="key change",
        ),
        pytest.param("delete", [deleted(KEY, ANN)], id="delete"),
        pytest.param("delete_of_key", [deleted(KEY)], id="delete of which only a key is"),
        pytest.param("truncate", [Change("truncate")], id="truncate"),
        pytest.param("create_table", Ignored("ddl"), id="DDL"),
        pytest.param("drop_table", Ignored("dropped table"), id="drop table"),
    ],
)
def test_a_message_says_what_has_changed(name: str, expected: Sequence[Change] | Ignored) -> None:
    """Of the declared columns, with the old row where the message has it."""
    assert Dms(WANTED).changes(None, MESSAGES[name], None) == expected


@pytest.mark.parametrize(
    ("message", "wanted", "expected"),
    [
        pytest.param(
            MESSAGES["update_to_null"],
            Needs(key=("id",), before=True),
            [updated(KEY, b'{"id":7,"name":"hunter2 Ann"}')],
            id="all columns: the row is as it stands there",
        ),
        pytest.param(
            MESSAGES["full_before"],
            Needs(key=("id",), before=True),
            [updated(KEY, ANN)],
            id="all columns: no old image can be told to be full",
        ),
        pytest.param(
            MESSAGES["full_before"],
            Needs(key=("id",), before=True, options=ALL),
            [updated(KEY, ANN, ANNA)],
            id="unless an option says so",
        ),
        pytest.param(
            MESSAGES["update"],
            declaring(COLUMNS, key=("id",), before=True, options=ALL),
            [updated(KEY, ANN, b'{"id":7,"name":null,"note":null}')],
            id="then what an old image lacks was null",
        ),
        pytest.param(
            MESSAGES["delete_of_key"],
            declaring(COLUMNS, key=("id",), before=True, options=ALL),
            [deleted(KEY)],
            id="but data of a delete is no old image",
        ),
        pytest.param(
            MESSAGES["prefixed_key_change"],
            declaring(COLUMNS, key=("id",), before=True, options=PREFIX),
            [deleted(b'{"id":6}'), Change("upsert", KEY, ANN)],
            id="an old image among the columns",
        ),
        pytest.param(
            MESSAGES["prefixed_key_change"],
            Needs(key=("id",), options=PREFIX),
            [deleted(b'{"id":6}'), Change("upsert", KEY, ANN)],
            id="an old image among all columns",
        ),
        pytest.param(
            MESSAGES["prefixed_key_change"],
            declaring(("name",), key=("id",), before=True, options=PREFIX),
            [
                deleted(b'{"id":6}', b'{"name":"hunter2 Ann"}'),
                Change("upsert", KEY, b'{"name":"hunter2 Ann"}'),
            ],
            id="of which the wanted columns are full",
        ),
        pytest.param(
            changed("update", **{"before-image": ..., "was": {"id": 6}}),
            declaring(COLUMNS, key=("id",), options={"before_image": "was"}),
            [deleted(b'{"id":6}'), Change("upsert", KEY, ANN)],
            id="an old image under another name",
        ),
        pytest.param(
            changed("delete", **{"data": {}, "before-image": {"id": 7}}),
            declaring(("id",), key=("id",), before=True),
            [deleted(KEY, KEY)],
            id="a delete with an old image alone",
        ),
        pytest.param(
            changed("prefixed_key_change", **{"before-image": {"name": "hunter2 Anna"}}),
            declaring(("id", "name"), key=("id",), before=True, options=PREFIX),
            [
                deleted(b'{"id":6}', b'{"id":6,"name":"hunter2 Anna"}'),
                Change("upsert", KEY, b'{"id":7,"name":"hunter2 Ann"}'),
            ],
            id="an old image in both places",
        ),
        pytest.param(
            changed("update", **{"before-image": None}),
            declaring(COLUMNS, key=("id",), before=True),
            [updated(KEY, ANN)],
            id="null is no old image",
        ),
    ],
)
def test_where_the_old_image_is_and_what_it_has_is_said_by_options(
    message: bytes, wanted: Needs, expected: Sequence[Change]
) -> None:
    """DMS lets its user choose."""
    assert Dms(wanted).changes(None, message, None) == expected


METADATA = json.loads(MESSAGES["insert"])["metadata"]


@pytest.mark.parametrize(
    ("message", "reason", "key"),
    [
        pytest.param(
            changed("insert", metadata={}),
            "Object missing required field `record-type` - at `$.metadata`",
            KEY,
            id="no record type",
        ),
        pytest.param(
            changed("insert", metadata={**METADATA, "record-type": MARKER}),
            "field `record-type` is neither data nor control",
            KEY,
            id="unknown record type",
        ),
        pytest.param(
            changed("insert", metadata={**METADATA, "operation": MARKER}),
            "field `operation` is none of those of data records",
            KEY,
            id="unknown operation",
        ),
        pytest.param(
            changed("insert", metadata={**METADATA, "operation": 5}),
            "Expected `str`, got `int` - at `$.metadata.operation`",
            KEY,
            id="operation",
        ),
        pytest.param(changed("insert", data=...), "field `data` is missing", None, id="no data"),
        pytest.param(
            changed("insert", data=None), "Expected `object`, got `null`", None, id="null data"
        ),
        pytest.param(
            changed("insert", data={"name": MARKER}),
            "the row lacks `id` of the key",
            None,
            id="no key",
        ),
        pytest.param(
            changed("update", **{"before-image": MARKER}),
            "Expected `object`, got `str`",
            KEY,
            id="old image",
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
    bad = {**METADATA, "operation": 5}

    assert refusal(changed("insert", metadata=bad), wanted).key == KEY
    other = {**bad, "schema-name": "other"}
    assert refusal(changed("insert", metadata=other), wanted).key is None
    nowhere = {**METADATA, "schema-name": None}
    error = refusal(changed("insert", metadata=nowhere), wanted)
    assert (error.reason, error.key) == ("field `schema-name` is missing", None)
