"""What the real Debezium, Maxwell and Canal have said of a MariaDB comes to its tables.

The messages are stored word for word, with the tables as SELECT gave them; `make test-cdc`
shows that the producers still say so.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import recorded
from cdc import decoded
from cdc.decoded import codec_of, folded
from cdc.telling import Row, told
from ikebana.codecs.change import Change
from ikebana.codecs.debezium_position import Boundaries, Positions
from ikebana.codecs.errors import DecodeError

PRODUCERS = ("json", "headers", "confluent", "maxwell", "canal")
ADDED = "extra"


def changes(producer: str, table: str) -> Iterator[Change]:
    """What all messages of a producer say of a table."""
    codec = codec_of(producer, table, recorded.schemas())
    avro = producer in ("headers", "confluent")
    yield from decoded.changes(
        codec, (each.parts(avro=avro) for each in recorded.messages_of(producer))
    )


def rows(producer: str, table: str) -> list[Row]:
    """The rows in the end, in the order of their ids."""
    return by_id(folded(changes(producer, table), added=[ADDED]).values())


def by_id(rows: Any) -> list[Row]:
    """Rows in the order of their ids."""
    return sorted(rows, key=lambda each: each["id"])


@pytest.mark.parametrize("producer", PRODUCERS)
def test_recorded_messages_come_to_the_table(producer: str) -> None:
    """Through updates, a changed key, a delete, a rollback and an added column.

    The default of an added column is in no message of a row that nobody has changed since.
    """
    found = rows(producer, "samples")
    expected = by_id(told(producer, each) for each in recorded.tables()["samples"])

    assert [each["id"] for each in found if ADDED in each] == [3, 6, 999]
    added = {each["id"]: each.pop(ADDED) for each in expected}
    assert {
        each["id"]: each.pop(ADDED) for each in found if ADDED in each
    }.items() <= added.items()
    assert found == expected


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_truncate_empties_the_table_where_it_is_told(producer: str) -> None:
    """Maxwell alone says nothing of it, so that its reader goes on with the old rows."""
    found = rows(producer, "emptied")
    left = by_id(told(producer, each) for each in recorded.tables()["emptied"])

    assert [each["id"] for each in left] == [3, 999]
    if producer == "maxwell":
        assert [each["id"] for each in found] == [1, 2, 3, 999]
    else:
        assert found == left


@pytest.mark.parametrize("producer", PRODUCERS)
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
