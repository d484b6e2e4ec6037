"""The place of a change in the order of its source, as the messages of each format have it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ikebana import Input
from ikebana.codecs.change import Change, DeclaredColumns, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FORMATS
from ikebana.codecs.sequences import SourceSequence
from ikebana.errors import ConfigError
from ikebana.processor.topics.row_files import rows_of
from support import avro_messages as avro
from support.avro_messages import KnownSchemas

ROW, OLD = {"id": 2, "n": 1}, {"id": 1, "n": 1}
ORDERED = {
    "debezium-json": "source.lsn",
    "debezium-avro": "source.lsn",
    "maxwell": "position log, xoffset",
    "canal": "_tidb.commitTs",
    "goldengate": "pos log",
    "dms": "metadata.stream-position log, metadata.transaction-record-id",
}
MYSQL = {"database": "shop", "table": "t"}
DMS = {"record-type": "data", "schema-name": "shop", "table-name": "t"}


def changes(
    value_format: Any, message: Any, *, sequence: str = "", diffs: bool = False, **options: str
) -> list[Change] | Ignored:
    needs = Needs(
        key=("id",),
        declared=DeclaredColumns({"id": "BIGINT", "n": "BIGINT"}),
        options={"sequence": sequence or ORDERED[value_format], **options},
        diffs=diffs,
    )
    make = FORMATS[value_format].codec
    assert make is not None
    key, schemas = b'{"id":2}', None
    if FORMATS[value_format].in_registry:
        key, schemas = avro.message(2, KEY, {"id": 2}), KnownSchemas({1: EVENT, 2: KEY})
    else:
        message = None if message is None else msgspec.json.encode(message)
    found = make(needs, "json", schemas).changes(key, message, None)
    return found if isinstance(found, Ignored) else list(found)


KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
IMAGE = {**KEY, "name": "Image", "fields": [*KEY["fields"], {"name": "n", "type": "int"}]}
LSN = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "before", "type": ["null", IMAGE]},
        {"name": "after", "type": ["null", "Image"]},
        {"name": "source", "type": LSN},
    ],
}


def in_avro(**more: Any) -> bytes:
    return avro.message(1, EVENT, debezium(**more))


def debezium(**more: Any) -> dict[str, Any]:
    return {"op": "u", "before": OLD, "after": ROW, "source": {"lsn": 7}, **more}


def maxwell(kind: str = "update", **more: Any) -> dict[str, Any]:
    return {**MYSQL, "type": kind, "data": ROW, "position": "bin.09:4", "xoffset": 3, **more}


def dms(operation: str, **more: Any) -> dict[str, Any]:
    return {"data": ROW, "metadata": {**DMS, "operation": operation, **more}, "before-image": OLD}


CANAL = {**MYSQL, "type": "UPDATE", "data": [ROW], "old": [OLD], "_tidb": {"commitTs": 9}}
GOLDENGATE = {"table": "T", "op_type": "U", "before": OLD, "after": ROW, "pos": "0143"}
AT = {"stream-position": "00000002/7C007178.10.00000002/7C", "transaction-record-id": 1}


@pytest.mark.parametrize(
    ("value_format", "message", "sequence"),
    [
        pytest.param("debezium-json", debezium(), (7,), id="debezium"),
        pytest.param("debezium-json", {"payload": debezium()}, (7,), id="debezium in a payload"),
        pytest.param("debezium-avro", in_avro(), (7,), id="debezium in avro"),
        pytest.param("maxwell", maxwell(old={"id": 1}), ("003bin002090014", 3), id="maxwell"),
        pytest.param("canal", CANAL, (9,), id="canal"),
        pytest.param("goldengate", GOLDENGATE, ("0040143",), id="goldengate"),
        pytest.param(
            "dms",
            dms("update", **AT),
            ("008000000020087C00717800210008000000020027C", 1),
            id="dms",
        ),
    ],
)
def test_both_changes_of_a_changed_key_have_the_place_of_their_message(
    value_format: Any, message: Any, sequence: tuple[Any, ...]
) -> None:
    """The delete of the old key and the upsert of the new one."""
    found = changes(value_format, message)

    assert not isinstance(found, Ignored)
    assert [(c.kind, c.key, c.sequence) for c in found] == [
        ("delete", b'{"id":1}', sequence),
        ("upsert", b'{"id":2}', sequence),
    ]


@pytest.mark.parametrize(
    ("value_format", "message", "sequence"),
    [
        pytest.param("dms", dms("load"), (False, False), id="dms"),
        pytest.param(
            "maxwell",
            maxwell("bootstrap-insert", xoffset=None),
            ("003bin002090014", False),
            id="maxwell",
        ),
        pytest.param("debezium-json", debezium(op="r", source={}), (False,), id="debezium"),
        pytest.param(
            "debezium-avro",
            in_avro(op="r", before=None, source={"lsn": None}),
            (False,),
            id="debezium in avro",
        ),
    ],
)
def test_a_row_of_a_snapshot_without_a_place_is_before_all_changes(
    value_format: Any, message: Any, sequence: tuple[Any, ...]
) -> None:
    """Of several fields, each by itself."""
    found = changes(value_format, message)

    assert not isinstance(found, Ignored)
    assert [change.sequence for change in found] == [sequence]


@pytest.mark.parametrize(
    ("value_format", "message", "reason"),
    [
        ("debezium-avro", in_avro(source={"lsn": None}), "`source.lsn` of the sequence is null"),
        ("maxwell", maxwell("update", position=None), "`position` of the sequence is null or"),
        (
            "maxwell",
            maxwell("delete", xoffset="hunter2"),
            "`xoffset` of the sequence is no number",
        ),
        ("goldengate", {**GOLDENGATE, "op_type": "T"}, "a truncate has no place in a sequence"),
        (
            "goldengate",
            {**GOLDENGATE, "before": {"id": 2}, "after": {"id": 2}},
            "needs whole rows",
        ),
    ],
)
def test_a_message_that_cannot_be_placed_is_an_error_of_its_row(
    value_format: Any, message: Any, reason: str
) -> None:
    """It says which field, and never what is in it."""
    with pytest.raises(DecodeError, match=reason) as told:
        changes(value_format, message)

    assert "hunter2" not in str(told.value)
    assert told.value.key == (None if "truncate" in reason else b'{"id":2}')


def test_what_says_nothing_of_a_row_has_no_place() -> None:
    """A tombstone repeats the delete before it, also one that a converter wraps."""
    for null in (None, msgspec.Raw(b"null"), {"schema": None, "payload": None}):
        assert changes("debezium-json", null) == Ignored("tombstone")
    assert changes("maxwell", maxwell("table-alter", data=None)) == Ignored("ddl")


def test_without_a_state_no_order_can_be_kept() -> None:
    """Then no message may be left out."""
    with pytest.raises(ConfigError, match="needs a state"):
        changes("maxwell", maxwell(), diffs=True)


@pytest.mark.parametrize(
    "places",
    [
        ["mysql-bin.000009:900", "mysql-bin.000010:4", "mysql-bin.000010:30"],
        ["mysql-bin.999999:4", "mysql-bin.1000000:4"],
        ["00000002/7C007178.3.0", "00000002/7C007178.10.0", "00000002/7C0071A0.1.0"],
        ["0/16B3748", "0/16B37A0", "0/116B3748", "1/0"],
        ["00000027:00000ac0:0002", "00000027:00000ac0:0003", "00000028:00000a00:0001"],
        ["00000000010000000143", "00000000010000001430"],
    ],
)
def test_places_in_logs_are_in_order(places: list[str]) -> None:
    """Of MySQL, DMS, PostgreSQL, SQL Server and GoldenGate."""
    place = SourceSequence("codec", "at log")

    found = [place.of({"at": text}) for text in places]
    assert found == sorted(set(found))


def test_rows_of_a_history_have_no_place_in_a_log() -> None:
    """They are read before all messages, where `changes` finds the place in the rows."""
    of_log = Input("t", ("t",), "maxwell", key=("id",), options=(("sequence", "position log"),))
    of_rows = replace(of_log, value_format="changes")

    assert [rows_of(each).value_format for each in (of_log, of_rows)] == ["json", "changes"]
