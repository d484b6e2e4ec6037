"""Event time, played batch by batch: what is bad, unwanted or null holds nothing up."""

import json

import pytest

from ikebana import Column, EventTime, Input, Linear, Output, Plan, PlanError, Upsert, steps
from ikebana.codecs import canonical
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import EventClock
from ikebana.testing import Run, Topics

ROWS = Input(
    "rows",
    ("rows",),
    columns=(Column("t", "BIGINT"),),
    event_time=EventTime(of="t", ahead_ms=None),
)


def played(plan: Plan) -> tuple[Run, Topics]:
    """A pipeline before its first batch."""
    topics = Topics()
    assert topics.messages["rows"][0] == []
    return Run(plan, topics), topics


def of(source: Input, *linear: Linear) -> Plan:
    shown = linear[-1].name if linear else "current"
    return Plan("p", (source,), (Upsert("current", "rows"), *linear), (Output("o", shown, "o"),))


def test_an_error_without_a_key_waits_until_its_time_is_closed() -> None:
    """In a batch that closes nothing it would be an update of no interval, read by nobody."""
    run, topics = played(of(ROWS))
    topics.send("rows", None, b'{"t":3}')
    run.read()

    assert (run.last.upper, run.written.updates["errors"]) == (0, [])

    topics.send("rows", b'"a"', b'{"t":9}')
    run.read()

    assert [error.time for error in run.written.updates["errors"]] == [0]


def test_a_truncate_in_event_time_waits_until_its_time_is_closed() -> None:
    """R14. It is an error that has no time either."""
    source = Input(
        "rows", ("rows",), "debezium-json", columns=ROWS.columns, event_time=ROWS.event_time
    )
    run, topics = played(of(source))
    topics.send("rows", None, b'{"op":"t","before":null,"after":null,"source":{}}')
    run.read()

    assert (run.last.upper, run.written.updates["errors"]) == (0, [])


def test_rows_of_keys_that_nobody_wants_move_the_frontier() -> None:
    """Else what is pushed down would decide which times are closed."""
    run, topics = played(
        of(ROWS, Linear("wanted", "current", (steps.where("key::VARCHAR <> 'x'"),)))
    )
    topics.send("rows", b'"a"', b'{"t":3}')
    topics.send("rows", b'"x"', b'{"t":9}')
    run.read()

    assert run.last.upper == 9
    assert [update.time for update in run.written.updates["o"]] == [3]


def change(op: str, row: dict[str, int], at: int) -> bytes:
    """A change of a row at a position that is also its time."""
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    source = {"connector": "postgresql", "schema": "public", "table": "rows"}
    return json.dumps({"op": op, **images, "source": {**source, "ts_ms": at, "lsn": at}}).encode()


@pytest.mark.parametrize("clock", ["source", "lsn"])
@pytest.mark.parametrize("cut", [[3], [2, 3], [1, 2, 3]])
def test_a_tombstone_behind_a_delete_says_nothing_of_the_source(
    clock: EventClock, cut: list[int]
) -> None:
    """It has no position, and the delete has said it all, in whichever batch."""
    event = EventTime(clock=clock, ahead_ms=None)
    run, topics = played(of(Input("rows", ("rows",), "debezium-json", event_time=event)))
    key = b'{"id":1}'
    topics.send("rows", key, change("c", {"id": 1}, 10))
    topics.send("rows", key, change("d", {"id": 1}, 20))
    topics.send("rows", key, None)
    for end in cut:
        run.batch(ends={"rows": {0: end}})
    topics.send("rows", b'{"id":2}', change("c", {"id": 2}, 30))
    run.read()

    assert run.written.updates["errors"] == []
    assert [
        (canonical.decode(u.key or b"")["id"], u.time, u.diff) for u in run.written.updates["o"]
    ] == [
        (1, 10, 1),
        (1, 20, -1),
    ]
    assert run.counted["tombstone"] == 1


@pytest.mark.parametrize("cut", [[3], [1, 3], [2, 3], [1, 2, 3]])
def test_a_bad_value_has_the_time_of_its_message(cut: list[int]) -> None:
    """With the clock of Kafka, what cannot be decoded can be dated: it is the last of its key."""
    run, topics = played(of(Input("rows", ("rows",), event_time=EventTime(clock="kafka"))))
    topics.send("rows", b'"a"', b"1", timestamp=50)
    topics.send("rows", b'"b"', b"1", timestamp=80)
    topics.send("rows", b'"a"', b"{bad", timestamp=100)
    for end in cut:
        run.batch(ends={"rows": {0: end}})
    topics.send("rows", b'"b"', b"1", timestamp=200)
    run.read()

    assert [(error.time, error.diff) for error in run.written.updates["errors"]] == [(100, 1)]
    assert [(u.key, u.time) for u in run.written.updates["o"]] == [(b'"a"', 50), (b'"b"', 80)]


def test_an_undecodable_change_is_an_error_at_once() -> None:
    """Its row would say when, and the clock of Kafka may be years away from the rows'."""
    rows = Input(
        "rows",
        ("rows",),
        "debezium-json",
        mode="diffs",
        columns=ROWS.columns,
        event_time=ROWS.event_time,
    )
    run, topics = played(Plan("p", (rows,), (), (Output("o", "rows", "o"),)))
    topics.send("rows", b'{"id":1}', b"{bad", timestamp=10_000)
    topics.send("rows", b'{"id":2}', change("c", {"id": 2, "t": 9}, 9), timestamp=10_001)
    run.read()

    assert [error.time for error in run.written.updates["errors"]] == [0]


def of_bank(name: str, topics: tuple[str, ...], told: str = "bank.transaction") -> Input:
    event = EventTime(clock="transaction", transactions=told)
    return Input(name, topics, "debezium-json", event_time=event)


@pytest.mark.parametrize(
    ("inputs", "written", "problem"),
    [
        pytest.param(
            (of_bank("a", ("bank.x", "bank.transaction")),),
            "o",
            'inputs.a.event_time.transactions: topic "bank.transaction" is also read',
            id="by the input itself",
        ),
        pytest.param(
            (of_bank("a", ("bank.x",)), Input("b", ("bank.transaction",))),
            "o",
            'inputs.a.event_time.transactions: topic "bank.transaction" is also read',
            id="by another input",
        ),
        pytest.param(
            (of_bank("a", ("bank.x",)),),
            "bank.transaction",
            'outputs.o.topic: topic "bank.transaction" is also read',
            id="written",
        ),
        pytest.param(
            (of_bank("a", ("bank.x",)), of_bank("b", ("shop.x",), "shop.transaction")),
            "o",
            "positions in the logs of several sources are not of one axis",
            id="of two sources",
        ),
    ],
)
def test_a_transaction_topic_is_that_of_one_source_alone(
    inputs: tuple[Input, ...], written: str, problem: str
) -> None:
    """Its records are no rows, and its positions say nothing of another log."""
    with pytest.raises(PlanError) as raised:
        checked(Plan("p", inputs, (Upsert("c", "a"),), (Output("o", "c", written),)))

    assert problem.replace('"', "'") in str(raised.value)


def test_inputs_of_one_source_share_their_transactions() -> None:
    """As many as there are tables."""
    inputs = (of_bank("a", ("bank.x",)), of_bank("b", ("bank.y",)))
    plan = Plan("p", inputs, (Upsert("c", "a"),), (Output("o", "c", "o"),))

    assert plan.transaction_topics == ("bank.transaction",)


def test_records_without_times_do_not_starve_beside_one_that_has() -> None:
    """What a batch leaves of them is stamped before the frontier that was known."""
    plan = Plan(
        "p",
        (ROWS, Input("names", ("names",))),
        (Upsert("current", "rows"), Upsert("named", "names")),
        (Output("o", "named", "o"),),
    )
    topics = Topics()
    assert topics.messages["rows"][0] == topics.messages["names"][0] == []
    run = Run(plan, topics)
    for name in range(5):
        topics.send("names", b"%d" % name, b"1")
    run.read(limit=2)
    # They wait, and it is told: there is no time that they could have.
    assert run.last.upper == 0
    topics.send("rows", b'"a"', b'{"t":9}')
    run.read(limit=2)

    assert run.last.positions["names"] == {0: 5}
    assert len(run.written.updates["o"]) == 5
    assert run.last.upper == 9


def test_what_cannot_be_read_yet_is_told_to_be_behind() -> None:
    """Whoever watches sees that records wait for a frontier."""
    plan = Plan(
        "p",
        (ROWS, Input("names", ("names",))),
        (Upsert("current", "rows"), Upsert("named", "names")),
        (Output("o", "named", "o"),),
    )
    topics = Topics()
    assert topics.messages["rows"][0] == []
    for name in range(3):
        topics.send("names", b"%d" % name, b"1")
    topics.send("rows", None, b'{"t":9}')
    run = Run(plan, topics)
    run.batch()

    assert run.last.behind == 3
