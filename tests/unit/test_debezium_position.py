"""Where changes stand: as a real Debezium tells it, as it seldom tells it, and at fault.

The stored messages of `golden/debezium_transactions` are a PostgreSQL connector's, word for
word; `tests/cdc/test_transactions.py` says of which transactions.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.debezium_position import Boundaries, Boundary, PositionReader, SourcePosition
from ikebana.codecs.errors import DecodeError
from support.damaged_messages import MARKER, damaged
from support.strategies import unhurried

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER = GOLDEN / "debezium_transactions"
SERVERS = ("typed", "plain")


def encoded(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def stored(server: str, name: str) -> list[Any]:
    return [each["value"] for each in json.loads((FOLDER / f"{server}.{name}.json").read_text())]


def payload(value: Any) -> Any:
    return value["payload"] if value and "payload" in value else value


def positions(server: str, *names: str) -> list[SourcePosition]:
    of = PositionReader().of
    values = [value for name in names for value in stored(server, name) if value is not None]
    return [found for value in values if (found := of(encoded(value))) is not None]


def ends(server: str) -> list[Boundary]:
    of = Boundaries().of
    found = [of(encoded(value)) for value in stored(server, "transaction")]
    return [each for each in found if each is not None and each.status == "END"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", ["public.accounts", "public.entries"])
def test_a_captured_change_stands_where_its_source_says(server: str, name: str) -> None:
    """Whether it is wrapped with a schema or not."""
    values = [payload(value) for value in stored(server, name) if value is not None]
    found = positions(server, name)

    assert [(each.ts_ms, each.lsn, each.collection) for each in found] == [
        (value["source"]["ts_ms"], value["source"]["lsn"], name) for value in values
    ]
    assert [(each.transaction, each.order) for each in found] == [
        (str(value["source"]["txId"]), value["transaction"]["total_order"])
        if value["transaction"]
        else (None, None)
        for value in values
    ]
    assert [each.snapshot for each in found] == [value["op"] == "r" for value in values]


@pytest.mark.parametrize("server", SERVERS)
def test_the_time_of_a_captured_transaction_is_the_end_of_the_one_before(server: str) -> None:
    """Of all its changes; the first one and the snapshot have time 0."""
    known = ends(server)
    times = dict(
        zip((end.transaction for end in known), (0, *(end.lsn for end in known)), strict=False)
    )
    found = positions(server, "public.accounts", "public.entries", "message")

    assert {each.time for each in found if each.snapshot} == {0}
    assert {(each.transaction, each.time) for each in found if each.transaction} == {
        (name, time)
        for name, time in times.items()
        # Of one the connector has left everything out.
        if any(end.counts for end in known if end.transaction == name)
    }


@pytest.mark.parametrize("server", SERVERS)
def test_a_captured_boundary_is_what_it_says(server: str) -> None:
    """A BEGIN counts nothing; the LSN of an END is where the transaction ends."""
    of = Boundaries().of
    for value in stored(server, "transaction"):
        told, found = payload(value), of(encoded(value))
        transaction, _, lsn = told["id"].partition(":")

        assert found is not None
        assert (found.status, found.transaction, found.lsn, found.ts_ms) == (
            told["status"],
            transaction,
            int(lsn),
            told["ts_ms"],
        )
        assert sum(found.counts.values()) == (told["event_count"] or 0)


def event(source: Any = (), **fields: Any) -> dict[str, Any]:
    origin = {"connector": "postgresql", "schema": "public", "table": "t", "ts_ms": 5, "lsn": 70}
    return {"source": {**origin, "sequence": '["60","70"]', **dict(source)}, "op": "c", **fields}


PLACE = SourcePosition(5, 70, 60, "public.t")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(event(), PLACE, id="no transaction block"),
        pytest.param(event(transaction=None), PLACE, id="a block of null"),
        pytest.param(
            event(transaction={"id": "9:70", "total_order": 3, "data_collection_order": 2}),
            msgspec.structs.replace(PLACE, transaction="9", order=3),
            id="a block",
        ),
        pytest.param(
            event({"sequence": '[null,"70"]'}),
            msgspec.structs.replace(PLACE, time=0),
            id="no commit was seen",
        ),
        pytest.param(
            event({"sequence": None}), msgspec.structs.replace(PLACE, time=None), id="no sequence"
        ),
        pytest.param(
            event({"snapshot": "incremental"}),
            msgspec.structs.replace(PLACE, snapshot=True),
            id="incremental snapshot",
        ),
        pytest.param(
            event({"snapshot": True}),
            msgspec.structs.replace(PLACE, snapshot=True),
            id="snapshot as a boolean",
        ),
        pytest.param(event({"snapshot": False}), PLACE, id="no snapshot as a boolean"),
        pytest.param({"schema": None, "payload": event()}, PLACE, id="wrapped without a schema"),
        pytest.param(
            {
                "source": {"connector": "mysql", "db": "d", "table": "t", "ts_ms": 5, "pos": 4},
                "transaction": {"id": "3E11FA47:23", "total_order": 1},
            },
            SourcePosition(5, None, None, "d.t", "3E11FA47:23", 1),
            id="MySQL",
        ),
        pytest.param(
            {"source": {"connector": "mongodb", "db": "d", "collection": "c", "ts_ms": 5}},
            SourcePosition(5, None, None, "d.c"),
            id="MongoDB",
        ),
        pytest.param(
            {"source": {"connector": "sqlserver", "db": "d", "schema": "s", "table": "t"}},
            SourcePosition(None, None, None, "d.s.t"),
            id="SQL Server",
        ),
    ],
)
def test_a_change_stands_somewhere(message: Any, expected: SourcePosition) -> None:
    """What a source doesn't tell is None."""
    assert PositionReader().of(encoded(message)) == expected


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(None, id="tombstone"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"schema":null,"payload":null}', id="wrapped null"),
        pytest.param(b'{"ts_ms":1}', id="heartbeat"),
        pytest.param(b'{"status":"BEGIN","id":"1:2","ts_ms":1}', id="transaction"),
        pytest.param(b'{"id":1,"payload":"x"}', id="a row"),
        pytest.param(b'{"source":null,"op":"c"}', id="no source"),
    ],
)
def test_what_is_no_change_stands_nowhere(message: bytes | None) -> None:
    """It is neither counted nor at fault."""
    assert PositionReader().of(message) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(event({"sequence": MARKER}), "source.sequence", id="sequence"),
        pytest.param(event({"sequence": '["1"]'}), "source.sequence", id="short sequence"),
        pytest.param(event({"lsn": MARKER}), "source.lsn", id="LSN"),
        pytest.param(event({"lsn": -1}), "source.lsn", id="negative LSN"),
        pytest.param(event({"lsn": 2**63}), "source.lsn", id="large LSN"),
        pytest.param(event({"ts_ms": 1.5}), "source.ts_ms", id="commit time"),
        pytest.param(event(transaction={"id": MARKER}), "transaction.id", id="transaction"),
        pytest.param(event(transaction={"id": "9"}), "transaction.id", id="txid only"),
        pytest.param(event(transaction={}), "id", id="transaction without id"),
        pytest.param({"source": [MARKER]}, "source", id="source"),
    ],
)
def test_a_position_at_fault_is_named(message: Any, reason: str) -> None:
    """By field, without the payload."""
    with pytest.raises(DecodeError) as caught:
        PositionReader().of(encoded(message))
    assert caught.value.codec == "Debezium value"
    assert reason in caught.value.reason
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param({"status": "END", "id": "file=a,pos=4"}, '"id"', id="MySQL's"),
        pytest.param({"status": MARKER, "id": "1:2"}, "status", id="status"),
        pytest.param({"status": "END"}, "id", id="no id"),
        pytest.param(
            {"status": "END", "id": "1:2", "data_collections": [{"data_collection": MARKER}]},
            "event_count",
            id="no count",
        ),
        pytest.param(event(), "status", id="a change"),
    ],
)
def test_a_boundary_at_fault_is_named(record: Any, reason: str) -> None:
    """Of other databases too: their transactions have no LSN."""
    with pytest.raises(DecodeError) as caught:
        Boundaries().of(encoded(record))
    assert caught.value.codec == "Debezium transaction record"
    assert reason in caught.value.reason
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize("record", [None, b"null"])
def test_a_null_is_no_boundary(record: bytes | None) -> None:
    """A compacted transaction topic may have tombstones."""
    assert Boundaries().of(record) is None


def test_the_schema_may_change_from_message_to_message() -> None:
    """One reader reads wrapped and bare ones, of any schema, in any order."""
    of = PositionReader().of
    shapes = [event(), {"schema": {"type": "struct"}, "payload": event()}]
    shapes += [{"schema": {"type": "int32"}, "payload": event()}, shapes[1], event(), shapes[1]]

    assert [of(encoded(shape)) for shape in shapes] == [PLACE] * len(shapes)


SEEDS = [
    encoded(value)
    for server in SERVERS
    for name in ("public.accounts", "transaction", "message")
    for value in stored(server, name)[-3:]
    if value is not None
]


@unhurried
@given(damaged(SEEDS) | st.binary())
def test_a_damaged_message_is_read_or_refused(message: bytes) -> None:
    """Nothing but a `DecodeError` is ever raised."""
    for of in (PositionReader().of, Boundaries().of):
        found: SourcePosition | Boundary | None = None
        refusal = ""
        try:
            found = of(message)
        except DecodeError as error:
            refusal = str(error)

        assert found is None or isinstance(found, SourcePosition | Boundary)
        assert MARKER not in refusal
