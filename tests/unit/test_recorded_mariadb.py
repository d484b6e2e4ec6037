"""What the real Debezium, Maxwell and Canal have said of a MariaDB comes to its tables.

The messages are stored word for word, with the tables as SELECT gave them; `make test-cdc`
shows that the producers still say so.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdc import decoded
from cdc.decoded import codec_of, folded
from cdc.telling import Row, told
from ikebana import Input, Output, Plan, Upsert
from ikebana.codecs.change import Change
from ikebana.codecs.debezium_position import Boundaries, PositionReader
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import Format
from ikebana.testing import Run
from support import recorded_mariadb
from support.sums import summed

ADDED = "extra"


def changes(producer: str, table: str) -> Iterator[Change]:
    """What all messages of a producer say of a table."""
    codec = codec_of(producer, table, recorded_mariadb.schemas())
    avro = producer in recorded_mariadb.AVRO
    yield from decoded.changes(
        codec, (each.parts(avro=avro) for each in recorded_mariadb.messages_of(producer))
    )


def rows(producer: str, table: str) -> list[Row]:
    """The rows in the end, in the order of their ids."""
    return by_id(folded(changes(producer, table), added=[ADDED]).values())


def by_id(rows: Any) -> list[Row]:
    """Rows in the order of their ids."""
    return sorted(rows, key=lambda each: each["id"])


@pytest.mark.parametrize("producer", recorded_mariadb.PRODUCERS)
def test_recorded_messages_come_to_the_table(producer: str) -> None:
    """Through updates, a changed key, a delete, a rollback and an added column.

    The default of an added column is in no message of a row that nobody has changed since.
    """
    found = rows(producer, "samples")
    expected = by_id(told(producer, each) for each in recorded_mariadb.tables()["samples"])

    assert [each["id"] for each in found if ADDED in each] == [3, 6, 999]
    added = {each["id"]: each.pop(ADDED) for each in expected}
    assert {
        each["id"]: each.pop(ADDED) for each in found if ADDED in each
    }.items() <= added.items()
    assert found == expected


@pytest.mark.parametrize("producer", recorded_mariadb.PRODUCERS)
def test_a_truncate_empties_the_table_where_it_is_told(producer: str) -> None:
    """Maxwell alone says nothing of it, so that its reader goes on with the old rows."""
    found = rows(producer, "emptied")
    left = by_id(told(producer, each) for each in recorded_mariadb.tables()["emptied"])

    assert [each["id"] for each in left] == [3, 999]
    if producer == "maxwell":
        assert [each["id"] for each in found] == [1, 2, 3, 999]
    else:
        assert found == left


@pytest.mark.parametrize("producer", recorded_mariadb.PRODUCERS)
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


# By producer its format, and what two inputs pass over in the end: each the other's messages,
# and both those of no table.  Debezium's topics are one, as a routing transform makes it.
IN_ONE_TOPIC: dict[str, tuple[Format, dict[str, int]]] = {
    "json": ("debezium-json", {"table": 17, "tombstone": 2 * 2}),
    "maxwell": ("maxwell", {"table": 19, "snapshot": 4, "ddl": 2 * 1}),
    "canal": ("canal", {"table": 15, "ddl": 2 * 3}),
}


@pytest.mark.parametrize("producer", IN_ONE_TOPIC)
@pytest.mark.parametrize("limit", [None, 5], ids=["at once", "in batches"])
def test_two_tables_in_one_topic_are_two_inputs_of_a_pipeline(
    producer: str, limit: int | None
) -> None:
    """Each takes its own table's messages and counts the other's; no record is an error."""
    tables = ("samples", "emptied")
    value_format, passed_over = IN_ONE_TOPIC[producer]
    plan = Plan(
        "store",
        tuple(
            Input(table, ("store",), value_format, tables=rf"store\.{table}") for table in tables
        ),
        tuple(Upsert(f"{table}_now", table) for table in tables),
        tuple(Output(table, f"{table}_now", f"{table}.now") for table in tables),
    )
    run = Run(plan, shards=2)
    for each in recorded_mariadb.messages_of(producer):
        key, value, _ = each.parts(avro=False)
        run.topics.send("store", key, value)
    run.read(limit=limit)

    assert run.errors() == []
    assert {kind: run.counted[kind] for kind in passed_over} == passed_over
    for table in tables:
        counts = summed((update.value, update.diff) for update in run.written.updates[table])
        assert set(counts.values()) <= {1}
        assert by_id(map(decoded.row, counts)) == rows(producer, table)


def test_ddl_and_truncates_begin_transactions_that_do_not_end() -> None:
    """A truncate's record is in one all the same; only what ends is counted there."""
    told = [
        json.loads(bytes(each.value))["payload"]
        for each in recorded_mariadb.messages_of("transaction")
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
    positions = PositionReader()
    found = [positions.of(bytes(each.value)) for each in _values("json")]

    assert {each.time for each in found if each is not None} == {None}
    with pytest.raises(DecodeError, match="not txid:lsn, as PostgreSQL has it"):
        Boundaries().of(bytes(recorded_mariadb.messages_of("transaction")[0].value))


def _values(name: str) -> list[recorded_mariadb.Recorded]:
    return [each for each in recorded_mariadb.messages_of(name) if bytes(each.value) != b"null"]
