"""Outputs whose readers rely on one value a key: what is refused, watched, and told."""

import json
from typing import Any

import pytest

from ikebana import (
    AsOfJoin,
    Column,
    DeltaJoin,
    Evaluation,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    StateMachine,
    Upsert,
    steps,
)
from ikebana.codecs.formats import SINGLE_VALUE_FORMATS, OutputFormat
from ikebana.processor.checkpoint import parts
from ikebana.processor.explain.graph import output_lines
from ikebana.processor.kernels import single_value
from ikebana.processor.planning import outputs
from ikebana.processor.planning.checking import checked
from ikebana.testing import Run, Topics

COLUMNS = (Column("k", "BIGINT"), Column("v", "VARCHAR"))
ROWS = Input("rows", ("rows",), columns=COLUMNS)
EVENTS = Input("events", ("events",), mode="append", columns=COLUMNS)
CHANGES = Input("changes", ("changes",), "debezium-json", mode="diffs")
CURRENT = Upsert("current", "rows")
FORMATS: list[Any] = list(SINGLE_VALUE_FORMATS)


def plan_of(
    shown: str, *operators: Any, inputs: tuple[Input, ...] = (ROWS,), out: OutputFormat = "upsert"
) -> Plan:
    """One output of a collection."""
    return checked(Plan("p", inputs, operators, (Output("out", shown, "out", out),)))


def joined(retract: Any) -> AsOfJoin:
    """Rows, each with what an event of the same key says."""
    left, right = JoinInput("l", "current"), JoinInput("r", "events")
    return AsOfJoin("j", left, right, ("l.k = r.k",), (("v", "r.v"),), retract=retract)


@pytest.mark.parametrize("out", FORMATS)
@pytest.mark.parametrize(
    ("shown", "operators", "inputs", "reason", "remedy"),
    [
        pytest.param(
            "events", (), (EVENTS,), "rows of 'events' stay", "read it by an upsert", id="append"
        ),
        pytest.param(
            "l",
            (CURRENT, Linear("l", "current", (steps.negate(),))),
            (ROWS,),
            "'l' changes diffs",
            "reduce it by the key",
            id="negated",
        ),
        pytest.param(
            "j",
            (CURRENT, joined("current")),
            (ROWS, EVENTS),
            "retractions of 'j' meet another right",
            "set its retract: locked",
            id="as-of join",
        ),
    ],
)
def test_a_collection_that_has_several_values_a_key_is_refused(
    shown: str, operators: Any, inputs: Any, reason: str, remedy: str, out: OutputFormat
) -> None:
    """By the output's name, with the reason and the ways out."""
    with pytest.raises(PlanError) as refused:
        plan_of(shown, *operators, inputs=inputs, out=out)

    (problem,) = refused.value.problems
    assert problem[0] == "outputs.out.format"
    assert problem[1].startswith(f"{out} needs at most one value a key, and {reason}")
    assert remedy in problem[1]
    assert problem[1].endswith("or write a diff topic")


def identity(states: Any, event: Any, time: int) -> Any:
    """A machine that shows its last event."""
    return [event]


WATCHED = [
    pytest.param(plan_of("m", StateMachine("m", "rows", identity)), True, id="machine"),
    pytest.param(plan_of("changes", inputs=(CHANGES,)), True, id="old images"),
    pytest.param(plan_of("j", CURRENT, joined("locked"), inputs=(ROWS, EVENTS)), True, id="join"),
    pytest.param(plan_of("current", CURRENT), False, id="upsert"),
    pytest.param(
        plan_of("r", CURRENT, Reduce("r", "current", (("n", "count(*)"),), by="k")),
        False,
        id="reduction",
    ),
    pytest.param(plan_of("changes", inputs=(CHANGES,), out="diff"), False, id="diff"),
]


@pytest.mark.parametrize(("plan", "watched"), WATCHED)
def test_only_what_may_have_several_values_is_watched(plan: Plan, *, watched: bool) -> None:
    """What has one value a key by what it is keeps nothing more than it did."""
    assert outputs.watches_values(plan, plan.outputs[0]) is watched
    assert (f"{single_value.PART.prefix}out" in parts.parts_of(plan)) is watched
    told = list(output_lines(plan, plan.outputs[0]))
    assert any(line.startswith("watched: ") for line in told) is watched


def change(op: str, before: Any, after: Any) -> bytes:
    """A row's change."""
    return json.dumps({"op": op, "before": before, "after": after}).encode()


def row(n: int) -> dict[str, int]:
    """A row of the one key."""
    return {"k": 1, "n": n}


def played(out: OutputFormat, *changes: bytes, **options: Any) -> tuple[list[Any], list[Any]]:
    """What changes of a key become, one in each batch: messages, and updates of errors."""
    output = Output("out", "changes", "out", out, **options)
    plan = Plan("p", (CHANGES,), (), (output,))
    topics = Topics()
    run = Run(plan, topics)
    for each in changes:
        topics.send("changes", b'{"k":1}', each)
        run.read()
    errors = [
        (json.loads(error.value)["reason"], error.diff) for error in run.written.updates["errors"]
    ]
    return [
        message.value and json.loads(message.value) for message in run.written.messages["out"]
    ], errors


CREATE_TWO = (change("c", None, row(1)), change("c", None, row(2)))
MANY = "output out: the key has more than one value"


def test_no_tombstone_stands_while_a_row_of_the_key_remains() -> None:
    """It comes with the last one; rows come and go exactly, and the key is told meanwhile."""
    messages, errors = played(
        "debezium-json", *CREATE_TWO, change("d", row(1), None), change("d", row(2), None)
    )

    told = [None if m is None else (m["op"], (m["before"] or m["after"])["n"]) for m in messages]
    assert told == [("c", 1), ("c", 2), ("d", 1), ("d", 2), None]
    assert errors == [(MANY, 1), (MANY, -1)]


def test_tombstones_can_be_switched_off() -> None:
    """By the output."""
    changes = change("c", None, row(1)), change("d", row(1), None)

    assert [m and m["op"] for m in played("debezium-json", *changes)[0]] == ["c", "d", None]
    without, _ = played("debezium-json", *changes, tombstones=False)
    assert [m and m["op"] for m in without] == ["c", "d"]


def test_a_second_value_of_a_later_time_is_an_error_and_no_value() -> None:
    """Readers keep what was right; when one value is left they are told it, and no error is."""
    messages, errors = played("upsert", *CREATE_TWO, change("d", row(1), None))

    assert messages == [row(1), row(2)]
    assert errors == [(MANY, 1), (MANY, -1)]


def test_the_second_result_of_a_join_is_an_error() -> None:
    """Whenever it comes: the first stays."""
    sides = tuple(Input(n, (n,), mode="append", columns=COLUMNS) for n in "ab")
    join = DeltaJoin(
        "j", (JoinInput("x", "a"), JoinInput("y", "b")), ("x.k=y.k",), (("v", "y.v"),), key="x.k"
    )
    topics = Topics()
    run = Run(plan_of("j", join, inputs=sides), topics)
    topics.send("a", None, b'{"k":1,"v":"a"}')
    for value in (b"first", b"second"):
        topics.send("b", None, b'{"k":1,"v":"%b"}' % value)
        run.read()
    for _ in range(3):
        run.batch(run.last.upper + 1, heartbeat=True)

    assert [message.value for message in run.written.messages["out"]] == [b'{"v":"first"}']
    assert [json.loads(error.value)["reason"] for error in run.written.updates["errors"]] == [MANY]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_rows_without_a_key_are_errors_in_any_number_of_shards(shards: int) -> None:
    """One each, of an upsert topic; and one that is retracted is none any more."""
    source = Input("in", ("in",), "cdcv2-json", mode="diffs")
    evaluated = Evaluation(plan_of("in", inputs=(source,)))
    records = [(None, n, 0, 1) for n in range(6)]
    found = evaluated.advance({"in": [*records, (None, 0, 1, -1)]}, 2)["errors"]
    assert [(update.time, update.diff) for update in found] == [(0, 6), (1, -1)]

    topics = Topics()
    topics.messages["in"][0]
    run = Run(plan_of("in", inputs=(source,)), topics, shards)
    updates = ",".join(f'[{{"value":{n}}},0,1]' for n in range(6))
    topics.send("in", None, f'{{"updates":[{updates}]}}'.encode())
    topics.send("in", None, b'{"progress":{"lower":[0],"upper":[1],"counts":[[0,6]]}}')
    for _ in range(3):
        run.read()
    assert sum(error.diff for error in run.written.updates["errors"]) == 6
    assert len({error.value for error in run.written.updates["errors"]}) == 1


@pytest.mark.parametrize("to", [3, 5])
def test_what_is_known_of_keys_goes_along_when_shards_become_more(to: int) -> None:
    """A second value is found by the shard that gets the key."""
    topics, keys = Topics(), [b'{"k":%d}' % key for key in range(4)]
    run = Run(plan_of("changes", inputs=(CHANGES,)), topics)
    for n, key in enumerate(keys):
        topics.send("changes", key, change("c", None, row(1)))
        topics.send("changes", key, change("c", None, row(n % 2 + 1)))
    run.read()
    assert sum(error.diff for error in run.written.updates["errors"]) == 4
    run.restart(shards=to)
    for key in keys:
        topics.send("changes", key, change("d", row(1), None))
    run.read()

    assert sum(error.diff for error in run.written.updates["errors"]) == 0
    assert {message.key: message.value for message in run.written.messages["out"]} == {
        key: b'{"k":1,"n":%d}' % (n % 2 + 1) for n, key in enumerate(keys)
    }


def test_a_plan_is_the_same_with_and_without_tombstones() -> None:
    """They are no part of what is computed."""
    one, other = (
        Plan("p", (CHANGES,), (), (Output("o", "changes", "o", "debezium-json", tombstones=t),))
        for t in (True, False)
    )
    assert one.fingerprint() == other.fingerprint()


def test_tombstones_are_for_debezium() -> None:
    """Of an upsert topic they are the deletes."""
    with pytest.raises(PlanError, match=r"outputs\.out\.tombstones"):
        checked(
            Plan("p", (CHANGES,), (), (Output("out", "changes", "o", "upsert", tombstones=False),))
        )
