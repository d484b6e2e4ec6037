"""What the real Debezium, Maxwell and Canal have said of a MariaDB comes to its tables.

The messages are stored word for word, with the tables as SELECT gave them; `make test-cdc`
shows that the producers still say so.
"""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import recorded
from cdc.telling import Row, comparable, told
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Change, Codec, Ignored, Wanted
from ikebana.codecs.debezium import Debezium
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.debezium_position import Boundaries, Positions
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.maxwell import Maxwell


def _avro(**options: str) -> Callable[[Wanted], Codec]:
    return lambda wanted: DebeziumAvro(
        recorded.schemas(), msgspec.structs.replace(wanted, options=options)
    )


CODECS: dict[str, Callable[[Wanted], Codec]] = {
    "json": Debezium,
    "headers": _avro(framing="headers"),
    "confluent": _avro(),
    "maxwell": Maxwell,
    "canal": Canal,
}
TABLES = ("samples", "emptied")
ADDED = "extra"


def changes(producer: str, table: str) -> Iterator[Change]:
    """What all messages of a producer say of a table."""
    wanted = Wanted(tables=rf"store\.{table}", before=True)
    codec = CODECS[producer](wanted)
    for message in recorded.messages_of(producer):
        found = codec.changes(*message.parts(avro=producer in ("headers", "confluent")))
        if not isinstance(found, Ignored):
            yield from found


def folded(producer: str, table: str) -> dict[bytes, Row]:
    """The rows in the end, by their keys."""
    rows: dict[bytes, Row] = {}
    for change in changes(producer, table):
        assert not change.absent
        if change.kind == "truncate":
            rows.clear()
            continue
        assert change.key is not None
        before = rows.pop(change.key, None)
        if change.before is not None:
            assert before == row(change.before)
        if change.kind == "upsert":
            assert change.after is not None
            rows[change.key] = row(change.after)
    return rows


def row(data: bytes) -> Row:
    """A row as it can be compared."""
    return comparable(json.loads(data, parse_float=Decimal))


def by_id(rows: Any) -> list[Row]:
    """Rows in the order of their ids."""
    return sorted(rows, key=lambda each: each["id"])


@pytest.mark.parametrize("producer", CODECS)
def test_recorded_messages_come_to_the_table(producer: str) -> None:
    """Through updates, a changed key, a delete, a rollback and an added column.

    The default of an added column is in no message of a row that nobody has changed since.
    """
    found = by_id(folded(producer, "samples").values())
    expected = by_id(told(producer, each) for each in recorded.tables()["samples"])

    assert [each["id"] for each in found if ADDED in each] == [3, 6, 999]
    added = {each["id"]: each.pop(ADDED) for each in expected}
    assert {
        each["id"]: each.pop(ADDED) for each in found if ADDED in each
    }.items() <= added.items()
    assert found == expected


@pytest.mark.parametrize("producer", CODECS)
def test_a_truncate_empties_the_table_where_it_is_told(producer: str) -> None:
    """Maxwell alone says nothing of it, so that its reader goes on with the old rows."""
    rows = by_id(folded(producer, "emptied").values())
    left = by_id(told(producer, each) for each in recorded.tables()["emptied"])

    assert [each["id"] for each in left] == [3, 999]
    if producer == "maxwell":
        assert [each["id"] for each in rows] == [1, 2, 3, 999]
    else:
        assert rows == left


@pytest.mark.parametrize("producer", CODECS)
def test_a_changed_key_is_told_as_a_delete_and_an_insert(producer: str) -> None:
    """In two messages or in one, of whichever key."""
    moved = [
        (change.kind, json.loads(change.key or b"{}")["id"])
        for change in changes(producer, "samples")
        if json.loads(change.key or b"{}")["id"] in (4, 40)
    ]

    assert moved[0] == ("upsert", 4)
    assert set(moved[1:-1]) == {("delete", 4)}
    assert moved[-1] == ("upsert", 40)


def test_ddl_and_truncates_begin_transactions_that_do_not_end() -> None:
    """A truncate's record is in one all the same; only what ends is counted there."""
    told = [
        json.loads(bytes(each.value))["payload"] for each in recorded.messages_of("transaction")
    ]
    begun = [each["id"] for each in told if each["status"] == "BEGIN"]
    ended = [each["id"] for each in told if each["status"] == "END"]
    truncates = [
        event["transaction"]["id"]
        for event in (json.loads(bytes(each.value))["payload"] for each in _values("json"))
        if event["op"] == "t"
    ]

    assert set(ended) < set(begun)
    assert len(truncates) == 1
    assert set(truncates) <= set(begun) - set(ended)


def test_a_transaction_of_mariadb_has_no_time() -> None:
    """Its id is a GTID: a pipeline that asks for `clock: transaction` is told so."""
    positions = Positions()
    found = [positions.of(bytes(each.value)) for each in _values("json")]

    assert {each.time for each in found if each is not None} == {None}
    with pytest.raises(DecodeError, match="not txid:lsn, as PostgreSQL has it"):
        Boundaries().of(bytes(recorded.messages_of("transaction")[0].value))


def _values(name: str) -> list[recorded.Recorded]:
    return [each for each in recorded.messages_of(name) if bytes(each.value) != b"null"]
