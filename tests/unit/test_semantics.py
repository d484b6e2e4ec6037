"""What upserts mean, sentence by sentence, on literal records."""

from typing import Any

import pytest

from ikebana import ConfigError, Input, Output, Plan, Update, Upsert, evaluate
from ikebana.codecs import canonical
from ikebana.processor.evaluate import Evaluation
from ikebana.processor.plan import Format, KeyFormat

TOMBSTONE = None
BAD = b"{"


def plan(value_format: Format = "json", key_format: KeyFormat = "json") -> Plan:
    """One input, upserted, and one output."""
    return Plan(
        "names",
        inputs=(Input("names", ("names",), value_format, key_format),),
        operators=(Upsert("current", "names"),),
        outputs=(Output("diffs", "current", "diffs"),),
    )


def written(data: Any) -> bytes:
    """Data as canonical bytes: to Python 1 and true are equal, to us they are not."""
    return data if isinstance(data, bytes) else canonical.encode(data)


def diffs(updates: list[Update[Any]]) -> list[tuple[bytes, bytes, int, int]]:
    """Updates as (key, value, time, diff), a retraction before what takes its place."""
    found = [(written(u.data[0]), written(u.data[1]), u.time, u.diff) for u in updates]
    return sorted(found, key=lambda update: (update[2], update[0], update[3]))


def test_frank_has_six_updates() -> None:
    """Each upsert retracts the value before it, a repeat says nothing."""
    found = evaluate(
        plan(),
        {
            "names": [
                ("frank", "mcsherry", 0),
                ("frank", "zappa", 1),
                ("frank", TOMBSTONE, 2),
                ("frank", "oz", 3),
                ("frank", "oz", 4),
                ("frank", TOMBSTONE, 5),
            ]
        },
    )

    assert found["errors"] == []
    assert diffs(found["diffs"]) == [
        (b'"frank"', b'"mcsherry"', 0, 1),
        (b'"frank"', b'"mcsherry"', 1, -1),
        (b'"frank"', b'"zappa"', 1, 1),
        (b'"frank"', b'"zappa"', 2, -1),
        (b'"frank"', b'"oz"', 3, 1),
        (b'"frank"', b'"oz"', 5, -1),
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [("k", 1, 3), ("k", 2, 3), ("k", 3, 3)],
            [(b'"k"', b"3", 3, 1)],
            id="of several symbols at one time the last counts",
        ),
        pytest.param(
            [("k", 1, 3), ("k", TOMBSTONE, 3)], [], id="a tombstone at the same time counts"
        ),
        pytest.param(
            [("k", 1, 0), ("k", 2, 3), ("k", 1, 3)],
            [(b'"k"', b"1", 0, 1)],
            id="back to the same value within a time is no change",
        ),
        pytest.param([("k", TOMBSTONE, 0)], [], id="null for an absent key is nothing"),
        pytest.param(
            [("k", 1, 0), ("k", TOMBSTONE, 1), ("k", TOMBSTONE, 2)],
            [(b'"k"', b"1", 0, 1), (b'"k"', b"1", 1, -1)],
            id="null for a removed key is nothing",
        ),
        pytest.param(
            [("k", 3, 7), ("k", 1, 0), ("k", 2, 5)],
            [
                (b'"k"', b"1", 0, 1),
                (b'"k"', b"1", 5, -1),
                (b'"k"', b"2", 5, 1),
                (b'"k"', b"2", 7, -1),
                (b'"k"', b"3", 7, 1),
            ],
            id="times out of order are put in order",
        ),
        pytest.param(
            [("k", "", 0), ("k", {}, 1), ("k", [], 2)],
            [
                (b'"k"', b'""', 0, 1),
                (b'"k"', b'""', 1, -1),
                (b'"k"', b"{}", 1, 1),
                (b'"k"', b"{}", 2, -1),
                (b'"k"', b"[]", 2, 1),
            ],
            id="an empty value is a value",
        ),
        pytest.param(
            [("k", b"null", 0), ("k", TOMBSTONE, 1)],
            [(b'"k"', b"null", 0, 1), (b'"k"', b"null", 1, -1)],
            id="JSON's null is a value, a tombstone is none",
        ),
        pytest.param(
            [("", 1, 0), (b"null", 2, 0)],
            [(b'""', b"1", 0, 1), (b"null", b"2", 0, 1)],
            id="an empty key and JSON's null are keys",
        ),
        pytest.param(
            [("a", 1, 0), ("b", 1, 0), ("a", TOMBSTONE, 1)],
            [(b'"a"', b"1", 0, 1), (b'"b"', b"1", 0, 1), (b'"a"', b"1", 1, -1)],
            id="keys are independent",
        ),
    ],
)
def test_upserts_say_what_a_key_is(
    records: list[tuple[Any, Any, int]], expected: list[tuple[bytes, bytes, int, int]]
) -> None:
    """The output is the collection that the symbols describe, as updates."""
    found = evaluate(plan(), {"names": records})

    assert found["errors"] == []
    assert diffs(found["diffs"]) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(b'{"a":1,"b":2}', b'{ "b": 2, "a": 1 }', id="field order"),
        pytest.param(b'{"a":{"x":1,"y":2}}', b'{"a":{"y":2,"x":1}}', id="nested field order"),
        pytest.param(b"1", b"1.0", id="1 and 1.0"),
        pytest.param(b"[10]", b"[1e1]", id="10 and 1e1"),
        pytest.param(b"0", b"-0.0", id="zeros"),
        pytest.param(b'"\\u00e9"', b'"\xc3\xa9"', id="an escaped character"),
    ],
)
def test_equal_data_are_one_value_and_one_key(first: bytes, second: bytes) -> None:
    """A repeat in another spelling changes nothing, a key is known in any spelling."""
    as_values = evaluate(plan(), {"names": [("k", first, 0), ("k", second, 1)]})
    as_keys = evaluate(plan(), {"names": [(first, "v", 0), (second, TOMBSTONE, 1)]})

    assert [(u.time, u.diff) for u in as_values["diffs"]] == [(0, 1)]
    assert [(u.time, u.diff) for u in as_keys["diffs"]] == [(0, 1), (1, -1)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(b"1", b"true", id="1 and true"),
        pytest.param(b"0", b"false", id="0 and false"),
        pytest.param(b"1", b'"1"', id='1 and "1"'),
        pytest.param(b"null", b'"null"', id='null and "null"'),
        pytest.param(b'{"a":null}', b"{}", id="a null field and an absent one"),
        pytest.param(b"[]", b"{}", id="an empty list and an empty object"),
        pytest.param(b"[1,2]", b"[2,1]", id="the order of a list"),
        pytest.param(b'"\xc3\xa9"', b'"e\xcc\x81"', id="composed and decomposed accents"),
        pytest.param(b'"a"', b'"A"', id="upper case"),
        pytest.param(b'"\xe2\x84\xab"', b'"\xc3\x85"', id="angstrom sign and a with ring"),
        pytest.param(b'"a"', b'"a "', id="spaces"),
        pytest.param(b"0.1", b"0.1000000000000000055511151231257827", id="digits of a decimal"),
    ],
)
def test_unlike_data_are_two_values_and_two_keys(first: bytes, second: bytes) -> None:
    """Nothing is taken for something that it merely resembles."""
    as_values = evaluate(plan(), {"names": [("k", first, 0), ("k", second, 1)]})
    as_keys = evaluate(plan(), {"names": [(first, "v", 0), (second, TOMBSTONE, 1)]})

    assert sorted((u.time, u.diff) for u in as_values["diffs"]) == [(0, 1), (1, -1), (1, 1)]
    assert [(u.time, u.diff) for u in as_keys["diffs"]] == [(0, 1)]


def test_the_bytes_format_compares_bytes() -> None:
    """What is not decoded is equal only if every byte is, and nothing is unreadable."""
    found = evaluate(
        plan("bytes", "bytes"),
        {"names": [(b"\xff", b"1", 0), (b"\xff", b"1.0", 1), (b"", b"", 1), (b"\xff", b"{", 2)]},
    )

    assert found["errors"] == []
    assert diffs(found["diffs"]) == [
        (b"\xff", b"1", 0, 1),
        (b"", b"", 1, 1),
        (b"\xff", b"1", 1, -1),
        (b"\xff", b"1.0", 1, 1),
        (b"\xff", b"1.0", 2, -1),
        (b"\xff", b"{", 2, 1),
    ]


def test_a_time_is_processed_only_when_the_frontier_has_closed_it() -> None:
    """What is at or beyond the upper waits; the greatest order wins when its time comes."""
    evaluation = Evaluation(plan())
    early = evaluation.advance({"names": [("k", 1, 5), ("k", 0, 4), (None, 9, 5)]}, 5)
    late = evaluation.advance({"names": [("k", 2, 5)]}, 6)

    assert diffs(early["diffs"]) == [(b'"k"', b"0", 4, 1)]
    assert early["errors"] == []
    assert diffs(late["diffs"]) == [(b'"k"', b"0", 5, -1), (b'"k"', b"2", 5, 1)]
    assert [(u.data["offset"], u.time, u.diff) for u in late["errors"]] == [(3, 5, 1)]


def test_only_times_before_the_upper_are_closed() -> None:
    """`evaluate` with an upper shows neither updates nor errors of later times."""
    records = [("k", 1, 0), ("k", 2, 3), (None, 1, 0), (None, 1, 3)]
    found = evaluate(plan(), {"names": records}, upper=3)

    assert [u.time for u in found["diffs"] + found["errors"]] == [0, 0]


@pytest.mark.parametrize("key", [None, b"{"], ids=["null", "unreadable"])
def test_a_record_without_a_key_goes_to_the_errors_and_wedges_nothing(key: bytes | None) -> None:
    """It stands there for ever, once for each time that it came, and other records go on."""
    found = evaluate(
        plan(), {"names": [("k", 1, 0), (key, 2, 1), (key, TOMBSTONE, 1), ("k", 3, 2)]}
    )

    assert [(u.time, u.diff) for u in found["errors"]] == [(1, 1), (1, 1)]
    assert [u.data["topic"] for u in found["errors"]] == ["names", "names"]
    assert diffs(found["diffs"]) == [
        (b'"k"', b"1", 0, 1),
        (b'"k"', b"1", 2, -1),
        (b'"k"', b"3", 2, 1),
    ]


@pytest.mark.parametrize(
    ("records", "values", "errors"),
    [
        pytest.param(
            [(1, 0), (BAD, 1)], [(b"1", 0, 1)], [(2, 1, 1)], id="the value stays as it is"
        ),
        pytest.param([(BAD, 1)], [], [(1, 1, 1)], id="an absent key stays absent"),
        pytest.param(
            [(1, 0), (BAD, 1), (2, 2)],
            [(b"1", 0, 1), (b"1", 2, -1), (b"2", 2, 1)],
            [(2, 1, 1), (2, 2, -1)],
            id="the next good symbol retracts the error",
        ),
        pytest.param(
            [(1, 0), (BAD, 1), (1, 2)],
            [(b"1", 0, 1)],
            [(2, 1, 1), (2, 2, -1)],
            id="so does one that repeats the value",
        ),
        pytest.param(
            [(1, 0), (BAD, 1), (TOMBSTONE, 2)],
            [(b"1", 0, 1), (b"1", 2, -1)],
            [(2, 1, 1), (2, 2, -1)],
            id="so does a tombstone",
        ),
        pytest.param(
            [(BAD, 1), (TOMBSTONE, 2)],
            [],
            [(1, 1, 1), (1, 2, -1)],
            id="even one of an absent key",
        ),
        pytest.param(
            [(1, 0), (BAD, 1), (BAD, 2)],
            [(b"1", 0, 1)],
            [(2, 1, 1), (2, 2, -1), (3, 2, 1)],
            id="a second bad value replaces the first record",
        ),
        pytest.param(
            [(1, 0), (BAD, 1), (BAD, 1)],
            [(b"1", 0, 1)],
            [(3, 1, 1)],
            id="of two at one time only the second shows",
        ),
        pytest.param(
            [(1, 0), (BAD, 1), (2, 1)],
            [(b"1", 0, 1), (b"1", 1, -1), (b"2", 1, 1)],
            [],
            id="a good symbol after it at its time leaves no error",
        ),
        pytest.param(
            [(1, 0), (2, 1), (BAD, 1)],
            [(b"1", 0, 1), (b"1", 1, -1), (b"2", 1, 1)],
            [(3, 1, 1)],
            id="a good symbol before it at its time is the last good value",
        ),
        pytest.param(
            [(1, 0), (TOMBSTONE, 1), (BAD, 1), (BAD, 1)],
            [(b"1", 0, 1), (b"1", 1, -1)],
            [(4, 1, 1)],
            id="so is a tombstone before it",
        ),
        pytest.param(
            [(1, 0), (BAD, 0), (BAD, 1), (2, 2)],
            [(b"1", 0, 1), (b"1", 2, -1), (b"2", 2, 1)],
            [(2, 0, 1), (2, 1, -1), (3, 1, 1), (3, 2, -1)],
            id="the last good value outlives many errors",
        ),
    ],
)
def test_a_bad_value_leaves_the_value_and_fills_the_error_slot(
    records: list[tuple[Any, int]],
    values: list[tuple[bytes, int, int]],
    errors: list[tuple[int, int, int]],
) -> None:
    """A key keeps its last good value; its one error record goes with the next good symbol."""
    found = evaluate(plan(), {"names": [("k", value, time) for value, time in records]})

    assert [(v, t, d) for _, v, t, d in diffs(found["diffs"])] == values
    assert sorted(
        ((u.data["offset"], u.time, u.diff) for u in found["errors"]),
        key=lambda error: (error[1], error[2]),
    ) == sorted(errors, key=lambda error: (error[1], error[2]))


def test_an_error_record_says_where_and_why_and_holds_the_raw_bytes() -> None:
    """Key and value are base64; the reason holds nothing of the payload."""
    found = evaluate(plan(), {"names": [("k", b"hunter2", 4)]})

    (error,) = found["errors"]
    assert (error.time, error.diff) == (4, 1)
    assert error.data == {
        "reason": "could not decode value as JSON: JSON is malformed: invalid character (byte 0)",
        "topic": "names",
        "partition": 0,
        "offset": 1,
        "key": "Imsi",
        "value": "aHVudGVyMg==",
    }


def test_an_input_that_the_plan_does_not_have_is_named() -> None:
    """Records for nobody are refused, not dropped."""
    with pytest.raises(ConfigError, match='it has no input "nmaes"\nHint: There are names'):
        evaluate(plan(), {"nmaes": []})


@pytest.mark.parametrize("key", ["k", None])
def test_a_record_before_the_frontier_is_a_broken_invariant(key: str | None) -> None:
    """What is closed stays closed: a late record is neither applied nor dropped."""
    evaluation = Evaluation(plan())
    evaluation.advance({"names": [("k", 1, 0)]}, 5)

    with pytest.raises(AssertionError, match="time 4 is not beyond the lower 5"):
        evaluation.advance({"names": [(key, 2, 4)]}, 6)


def test_outputs_may_share_an_operator_and_operators_an_evaluation() -> None:
    """Each output gets the updates of its operator, and of no other."""
    shared = Plan(
        "names",
        inputs=(Input("a", ("a",)), Input("b", ("b",))),
        operators=(Upsert("of_a", "a"), Upsert("of_b", "b")),
        outputs=(
            Output("one", "of_a", "one"),
            Output("other", "of_a", "other"),
            Output("third", "of_b", "third"),
        ),
    )
    found = evaluate(shared, {"a": [("k", 1, 0)], "b": [("k", 2, 0)]})

    assert diffs(found["one"]) == diffs(found["other"]) == [(b'"k"', b"1", 0, 1)]
    assert diffs(found["third"]) == [(b'"k"', b"2", 0, 1)]
