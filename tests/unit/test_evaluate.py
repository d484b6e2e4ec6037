"""The in-process shell: which records it takes, what it tells of them, and what it leaves."""

import json
import signal
from collections.abc import Iterable
from typing import Any

import pytest

from ikebana import (
    ConfigError,
    Evaluation,
    Input,
    Linear,
    Output,
    Plan,
    Reduce,
    ReduceRows,
    StateMachine,
    Upsert,
    evaluate,
    steps,
)
from ikebana.codecs import cdcv2
from ikebana.codecs.formats import Format, OutputFormat
from support.avro_messages import message
from support.signals import handled_by

NAMES = Input("names", ("names",))
CURRENT = Upsert("current", "names")
DIFFS = Input("names", ("names",), "diff", mode="diffs")


def plan_of(*inputs: Input, shown: str = "current", out: OutputFormat = "diff") -> Plan:
    """Names as they stand, or updates as they are."""
    source = inputs[0] if inputs else NAMES
    operators = () if source.is_collection else (CURRENT,)
    shown = source.name if source.is_collection else shown
    return Plan("p", (source,), operators, (Output("out", shown, "out", out),))


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        pytest.param((), "it has 0 fields", id="empty"),
        pytest.param(("k",), "it has 1 fields", id="no value"),
        pytest.param(("k", 1, 0, -1), "it has a diff", id="a diff for an upsert"),
        pytest.param("kv0", "it is of type str", id="text"),
        pytest.param(5, "it is of type int", id="no record"),
        pytest.param(("k", 1, "0"), "its time is of type str", id="time in text"),
        pytest.param(("k", 1, True), "its time is of type bool", id="true"),
        pytest.param(("k", 1, 0.5), "its time is of type float", id="a fraction"),
        pytest.param(("k", 1, -1), "its time is -1", id="before 0"),
        pytest.param(("k", 1, 1 << 63), f"its time is {1 << 63}", id="beyond 63 bits"),
        pytest.param(("k", {1, object()}, 0), "its value cannot be written", id="no JSON"),
        pytest.param(({"a": object()}, 1, 0), "its key cannot be written", id="no JSON in a key"),
    ],
)
def test_a_record_that_is_none_is_named(record: Any, problem: str) -> None:
    """By the input and its number, as an error of the caller's, whatever Python optimises."""
    with pytest.raises(
        ConfigError, match=f'^cannot evaluate record 2 of input "names": {problem}'
    ):
        evaluate(plan_of(), {"names": [("k", 1, 0), record]})


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        pytest.param(("k", 1, 0), "it has 3 fields", id="no diff"),
        pytest.param(("k", 1, 0, 0), "its diff is 0", id="nothing"),
        pytest.param(("k", 1, 0, True), "its diff is of type bool", id="true"),
        pytest.param(("k", 1, 0, 1 << 63), "its diff is ", id="beyond 64 bits"),
    ],
)
@pytest.mark.parametrize("form", ["diff", "cdcv2-json"])
def test_an_update_that_is_none_is_named(form: Format, record: Any, problem: str) -> None:
    """Updates have diffs."""
    source = Input("names", ("names",), form, mode="diffs")
    with pytest.raises(ConfigError, match=f'record 1 of input "names": {problem}'):
        evaluate(plan_of(source), {"names": [record]})


@pytest.mark.parametrize("records", ["k", b"k", {"k": 1}, 5])
def test_records_are_a_list(records: Any) -> None:
    """A text or a mapping would be taken apart."""
    with pytest.raises(ConfigError, match='input "names": its records are of type'):
        evaluate(plan_of(), {"names": records})


def test_diffs_of_updates_count() -> None:
    """And are consolidated."""
    found = evaluate(plan_of(DIFFS), {"names": [("k", 1, 0, 3), ("k", 1, 0, -1), ("k", 1, 2, -2)]})

    assert found["out"] == [(("k", 1), 0, 2), (("k", 1), 2, -2)]


def test_data_of_a_diff_topic_become_canonical() -> None:
    """Equal data cancel, whoever wrote them."""
    found = evaluate(
        plan_of(DIFFS),
        {"names": [(b' "k"', b'{"a": 1.0, "b": 1e1}', 0, 1), (b'"k"', b'{"b":10,"a":1}', 1, -1)]},
    )

    assert found["out"] == [(("k", {"a": 1, "b": 10}), 0, 1), (("k", {"a": 1, "b": 10}), 1, -1)]
    assert found["errors"] == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(b'"k"', b"{", "could not decode value as JSON", id="value"),
        pytest.param(b"\xff", b"1", "could not decode key as JSON", id="key"),
    ],
)
def test_an_update_of_a_diff_topic_that_is_no_json_is_an_error_record(
    key: bytes, value: bytes, reason: str
) -> None:
    """It names its place, and the others count."""
    found = evaluate(plan_of(DIFFS), {"names": [("a", 1, 0, 1), (key, value, 0, 1)]})

    assert found["out"] == [(("a", 1), 0, 1)]
    ((record, time, diff),) = found["errors"]
    assert (record["topic"], record["partition"], record["offset"]) == ("names", 0, 2)
    assert record["reason"].startswith(reason)
    assert (time, diff) == (0, 1)


def leaves(*_: Any) -> Any:
    """A function that wants the process to end."""
    raise SystemExit(3)


def interrupted(*_: Any) -> Any:
    """A function during which somebody presses Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


OPERATORS = [
    pytest.param(lambda f: (CURRENT, Linear("o", "current", (steps.map_(f),))), id="step"),
    pytest.param(lambda f: (StateMachine("o", "names", f),), id="machine"),
    pytest.param(lambda f: (CURRENT, ReduceRows("o", "current", function=f)), id="reduction"),
]


@pytest.mark.parametrize("operators", OPERATORS)
def test_a_function_that_exits_is_an_error_record(operators: Any) -> None:
    """As one that raises anything else."""
    plan = Plan("p", (NAMES,), operators(leaves), (Output("out", "o", "out"),))

    found = evaluate(plan, {"names": [("k", 1, 0)]})

    assert found["out"] == []
    assert ["raised SystemExit" in update.data["reason"] for update in found["errors"]] == [True]


@pytest.mark.parametrize("operators", OPERATORS)
def test_an_interrupt_is_nobodys_error(operators: Any) -> None:
    """One that comes to the process ends what is running; one that a function raises is data."""
    plan = Plan("p", (NAMES,), operators(interrupted), (Output("out", "o", "out"),))
    with (
        handled_by(signal.SIGINT, signal.default_int_handler),
        pytest.raises(KeyboardInterrupt),
    ):
        evaluate(plan, {"names": [("k", 1, 0)]})


def test_what_waits_is_pending_and_finish_closes_it() -> None:
    """Records of an upsert that wait, updates that are due later, and what follows of them."""
    valid = Linear("valid", "current", (steps.Sql(valid_until="value::BIGINT"),))
    count = Reduce("count", "valid", (("n", "count(*)"),), by="1")
    plan = Plan("p", (NAMES,), (CURRENT, valid, count), (Output("out", "count", "out"),))
    evaluation = Evaluation(plan)
    first = evaluation.advance({"names": [("a", 9, 3), ("b", 7, 5)]}, 4)["out"]

    assert first == [((1, {"n": 1}), 3, 1)]
    assert evaluation.pending() == [5, 9]
    rest = evaluation.finish()["out"]
    assert [update for update in rest if update.diff > 0] == [
        ((1, {"n": 2}), 5, 1),
        ((1, {"n": 1}), 7, 1),
    ]
    assert evaluation.pending() == []


def test_events_of_a_machine_that_wait_are_pending() -> None:
    """Until their time is closed."""
    plan = Plan(
        "p",
        (NAMES,),
        (StateMachine("o", "names", lambda _, e, __: [e]),),
        (Output("out", "o", "out"),),
    )
    evaluation = Evaluation(plan)
    evaluation.advance({"names": [("a", 9, 3)]}, 0)

    assert evaluation.pending() == [3]
    assert evaluation.finish()["out"] == [(("a", 9), 3, 1)]


PERSON = {"type": "record", "name": "P", "fields": [{"name": "n", "type": "string"}]}


def avro(schema_id: int, row: Any) -> bytes:
    """A message of Avro as a registry's serialiser frames it."""
    return message(schema_id, PERSON, row)


@pytest.mark.parametrize("schema", [PERSON, json.dumps(PERSON)])
def test_messages_in_avro_are_read_by_given_schemas(schema: object) -> None:
    """Their ids are those of the messages; an id that nobody gives is an error record."""
    plan = plan_of(Input("names", ("names",), "avro"))
    records = [("k", avro(7, {"n": "zappa"}), 0), ("l", avro(8, {"n": "oz"}), 0)]

    found = evaluate(plan, {"names": records}, schemas={7: schema})

    assert found["out"] == [(("k", {"n": "zappa"}), 0, 1)]
    assert len(found["errors"]) == 1


def test_avro_without_schemas_is_refused() -> None:
    """Before any record is read, and with what to give."""
    with pytest.raises(ConfigError, match=r'"names": its messages are in Avro.*\nHint: Give'):
        evaluate(plan_of(Input("names", ("names",), "avro")), {})


def facts(*updates: tuple[Any, Any, int, int]) -> Iterable[bytes]:
    """Updates as a CDCv2 topic has them."""
    written = [(json.dumps(k).encode(), json.dumps(v).encode(), t, d) for k, v, t, d in updates]
    return cdcv2.encode_updates(written, 1 << 20)


def statement(lower: int, upper: int, counts: dict[int, int]) -> Iterable[bytes]:
    """Progress as a CDCv2 topic has it."""
    return cdcv2.encode_progress(lower, upper, counts, 1 << 20)


def test_messages_of_cdcv2_close_the_times_that_they_cover() -> None:
    """Facts may repeat themselves and come in any order; times that are not covered wait."""
    plan = plan_of(Input("names", ("names",), "cdcv2-json", mode="diffs"))
    told = [
        *statement(0, 3, {1: 1}),
        *facts(("k", 1, 5, -1)),
        *facts(("k", 1, 1, 1)),
        *facts(("k", 1, 1, 1), ("k", 2, 5, 1)),
    ]

    assert evaluate(plan, {"names": told})["out"] == [(("k", 1), 1, 1)]
    told += statement(3, 9, {5: 2})
    assert evaluate(plan, {"names": told})["out"] == [
        (("k", 1), 1, 1),
        (("k", 1), 5, -1),
        (("k", 2), 5, 1),
    ]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        pytest.param("diff", [(b'"k"', b"1", [("time", b"3"), ("diff", b"1")])], id="diff"),
        pytest.param("upsert", [(b'"k"', b"1", [("time", b"3")])], id="upsert"),
        pytest.param(
            "cdcv2-json",
            [
                (None, b'{"updates":[[{"key":"k","value":1},3,1]]}', []),
                (None, b'{"progress":{"lower":[0],"upper":[4],"counts":[[3,1]]}}', []),
            ],
            id="cdcv2",
        ),
    ],
)
def test_an_outputs_own_messages_are_there(form: OutputFormat, expected: list[Any]) -> None:
    """As a topic would have them, in its format."""
    evaluation = Evaluation(plan_of(out=form))
    evaluation.advance({"names": [("k", 1, 3)]}, 4)

    assert evaluation.messages["out"] == expected


def test_what_one_evaluation_writes_another_reads() -> None:
    """A topic of CDCv2 in process, from the one's output to the other's input."""
    writing = Evaluation(plan_of(out="cdcv2-json"))
    writing.advance({"names": [("k", 1, 3), ("k", 2, 4)]}, 9)
    told = [message.value for message in writing.messages["out"] if message.value is not None]

    found = evaluate(
        plan_of(Input("names", ("names",), "cdcv2-json", mode="diffs")), {"names": told}
    )

    assert found["out"] == [(("k", 1), 3, 1), (("k", 1), 4, -1), (("k", 2), 4, 1)]


def test_a_record_without_a_time_has_that_of_the_one_before() -> None:
    """The first has time 0; times may be given to some records alone."""
    plan = Plan("p", (Input("t", ("t",)),), (Upsert("u", "t"),), (Output("o", "u", "o"),))
    given: list[Any] = [("a", 1), ("a", 2), ("a", 3, 5), ("b", 1)]
    spelt: list[Any] = [("a", 1, 0), ("a", 2, 0), ("a", 3, 5), ("b", 1, 5)]

    assert evaluate(plan, {"t": given}) == evaluate(plan, {"t": spelt})
    assert [tuple(each)[1] for each in evaluate(plan, {"t": given})["o"]] == [0, 5, 5, 5]


def test_with_time_offset_each_record_has_a_time_of_its_own() -> None:
    """So an upsert that the next record replaces can be seen."""
    plan = Plan(
        "p", (Input("t", ("t",)),), (Upsert("u", "t"),), (Output("o", "u", "o"),), time="offset"
    )
    given: list[Any] = [("a", 1), ("a", 2), ("a", None, 7), ("b", 1)]
    spelt: list[Any] = [("a", 1, 0), ("a", 2, 1), ("a", None, 7), ("b", 1, 8)]

    assert evaluate(plan, {"t": given}) == evaluate(plan, {"t": spelt})
    assert [each.time for each in evaluate(plan, {"t": given})["o"]] == [0, 1, 1, 7, 8]
