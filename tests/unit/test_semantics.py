"""What upserts mean, sentence by sentence, on literal records."""

from dataclasses import replace
from typing import Any

import pytest

from ikebana import ConfigError, Input, Output, Plan, Update, Upsert, evaluate
from ikebana.codecs import canonical
from ikebana.codecs.change import Column
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import Step, valid_between
from ikebana.processor.planning.plan import InputMode, Linear

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
            id="of several upserts at one time the last counts",
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
    """The output is the collection that the upserts describe, as updates."""
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


@pytest.mark.parametrize(
    ("key", "second", "errors"),
    [
        pytest.param(b"{", TOMBSTONE, [(1, 1), (1, 1)], id="unreadable: each stands for ever"),
        pytest.param(None, TOMBSTONE, [], id="null: without a value it empties the slot"),
        pytest.param(None, 4, [(1, 1)], id="null: all share one slot"),
    ],
)
def test_a_record_without_a_key_goes_to_the_errors_and_wedges_nothing(
    key: bytes | None, second: Any, errors: list[tuple[int, int]]
) -> None:
    """Other records go on."""
    found = evaluate(plan(), {"names": [("k", 1, 0), (key, 2, 1), (key, second, 1), ("k", 3, 2)]})

    assert [(u.time, u.diff) for u in found["errors"]] == errors
    assert {u.data["topic"] for u in found["errors"]} <= {"names"}
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
            id="the next good upsert retracts the error",
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
            id="a good upsert after it at its time leaves no error",
        ),
        pytest.param(
            [(1, 0), (2, 1), (BAD, 1)],
            [(b"1", 0, 1), (b"1", 1, -1), (b"2", 1, 1)],
            [(3, 1, 1)],
            id="a good upsert before it at its time is the last good value",
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
    """A key keeps its last good value; its one error record goes with the next good upsert."""
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
def test_a_record_before_the_frontier_is_refused(key: str | None) -> None:
    """What is closed stays closed: a late record is neither applied nor dropped."""
    evaluation = Evaluation(plan())
    evaluation.advance({"names": [("k", 1, 0)]}, 5)

    with pytest.raises(ConfigError, match='record 1 of input "names": time 4 lies before 5'):
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


K1, K2 = {"id": 1}, {"id": 2}
ROW1, ROW2, CHANGED1 = {"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 1, "v": 2}


def changes(value_format: Format, mode: InputMode = "upsert", *steps: Step) -> Plan:
    """An input of change messages of rows with the columns id, the key, and v."""
    lower = (Column("id", "BIGINT"), Column("v", "BIGINT"))
    upper = tuple(Column(column.name.upper(), column.type) for column in lower)
    columns = upper if value_format == "goldengate" else lower
    debezium = value_format.startswith("debezium")
    key = () if debezium else (columns[0].name,)
    options = (("row_image", "full"),) if value_format == "goldengate" else ()
    source = Input(
        "rows", ("rows",), value_format, columns=columns, key=key, mode=mode, options=options
    )
    root = "current" if mode == "upsert" else "rows"
    upserts = (Upsert("current", "rows"),) if mode == "upsert" else ()
    linear = (Linear("made", root, steps),) if steps else ()
    output = Output("diffs", "made" if steps else root, "diffs")
    return Plan("changes", (source,), (*upserts, *linear), (output,))


def maxwell(kind: str, data: Any, old: Any = None) -> Any:
    """A message of Maxwell."""
    return {"database": "d", "table": "t", "type": kind, "data": data, "old": old}


def canal(kind: str, *data: Any, old: Any = None) -> Any:
    """A flat message of Canal."""
    types = {"sqlType": {"id": 4, "v": 4}, "mysqlType": {"id": "int", "v": "int"}}
    names = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": False}
    return {**names, **types, "type": kind, "data": data, "old": old}


def goldengate(kind: str, before: Any, after: Any) -> Any:
    """A message of GoldenGate, whose columns are upper case."""
    images = {
        name: {column.upper(): value for column, value in image.items()}
        for name, image in (("before", before), ("after", after))
        if image
    }
    return {"table": "D.T", "op_type": kind, "pos": "1", **images}


def dms(kind: str, row: Any) -> Any:
    """A message of DMS."""
    metadata = {"record-type": "data", "operation": kind, "schema-name": "d", "table-name": "t"}
    return {"data": row, "metadata": metadata}


CHANGES: list[Any] = [
    pytest.param(
        "debezium-json",
        [
            (K1, {"op": "c", "before": None, "after": ROW1}, 0),
            (K2, {"op": "r", "before": None, "after": ROW2}, 0),
            (K1, {"op": "u", "before": ROW1, "after": CHANGED1}, 1),
            (K2, {"op": "d", "before": ROW2, "after": None}, 2),
            (K2, None, 2),
        ],
        id="debezium-json",
    ),
    pytest.param(
        "debezium-flat-json",
        [(K1, ROW1, 0), (K2, ROW2, 0), (K1, CHANGED1, 1), (K2, None, 2)],
        id="debezium-flat-json",
    ),
    pytest.param(
        "maxwell",
        [
            (None, maxwell("insert", ROW1), 0),
            (None, maxwell("bootstrap-insert", ROW2), 0),
            (None, maxwell("update", CHANGED1, {"v": 1}), 1),
            (None, maxwell("delete", ROW2), 2),
        ],
        id="maxwell",
    ),
    pytest.param(
        "canal",
        [
            (None, canal("INSERT", {"id": "1", "v": "1"}, {"id": "2", "v": "1"}), 0),
            (None, canal("UPDATE", {"id": "1", "v": "2"}, old=[{"v": "1"}]), 1),
            (None, canal("DELETE", {"id": "2", "v": "1"}), 2),
        ],
        id="canal",
    ),
    pytest.param(
        "dms",
        [
            (None, dms("load", ROW1), 0),
            (None, dms("insert", ROW2), 0),
            (None, dms("update", CHANGED1), 1),
            (None, dms("delete", ROW2), 2),
        ],
        id="dms",
    ),
    pytest.param(
        "goldengate",
        [
            (None, goldengate("I", None, ROW1), 0),
            (None, goldengate("I", None, ROW2), 0),
            (None, goldengate("U", ROW1, CHANGED1), 1),
            (None, goldengate("D", ROW2, None), 2),
        ],
        id="goldengate",
    ),
]
HISTORY = [
    (b'{"id":1}', b'{"id":1,"v":1}', 0, 1),
    (b'{"id":2}', b'{"id":2,"v":1}', 0, 1),
    (b'{"id":1}', b'{"id":1,"v":1}', 1, -1),
    (b'{"id":1}', b'{"id":1,"v":2}', 1, 1),
    (b'{"id":2}', b'{"id":2,"v":1}', 2, -1),
]


def in_lower_case(updates: list[tuple[bytes, bytes, int, int]]) -> Any:
    """Updates with columns by their names in lower case, which tells formats apart."""
    return [(key.lower(), value.lower(), *rest) for key, value, *rest in updates]


@pytest.mark.parametrize(("value_format", "records"), CHANGES)
def test_change_messages_of_every_format_come_to_the_same_updates(
    value_format: Format, records: list[tuple[Any, Any, int]]
) -> None:
    """Literal envelopes in, the row's history out, without errors and without drift."""
    evaluation = Evaluation(changes(value_format))
    found = evaluation.advance({"rows": records}, 10)

    assert in_lower_case(diffs(found["diffs"])) == HISTORY
    assert found["errors"] == []
    assert evaluation.counted == {}


@pytest.mark.parametrize(
    ("value_format", "records"),
    [each for each in CHANGES if each.id not in ("debezium-flat-json", "dms")],
)
def test_diffs_of_every_format_with_old_images_come_to_the_same_updates(
    value_format: Format, records: list[tuple[Any, Any, int]]
) -> None:
    """Nothing keeps state: old images tell what is gone."""
    found = evaluate(changes(value_format, "diffs"), {"rows": records})

    assert in_lower_case(diffs(found["diffs"])) == HISTORY
    assert found["errors"] == []


# A table that gets the column `v` after a row was written: its old image has null there.
OLD1, WIDE1 = {"id": 1}, {"id": 1, "v": None}
WIDER: list[Any] = [
    pytest.param(
        "debezium-json",
        [{"op": "c", "after": OLD1}, {"op": "u", "before": WIDE1, "after": CHANGED1}],
        id="debezium-json",
    ),
    pytest.param(
        "maxwell",
        [maxwell("insert", OLD1), maxwell("update", CHANGED1, {"v": None})],
        id="maxwell",
    ),
    pytest.param(
        "canal",
        [canal("INSERT", {"id": "1"}), canal("UPDATE", {"id": "1", "v": "2"}, old=[{"v": None}])],
        id="canal",
    ),
    pytest.param(
        "changes",
        [{"op": "I", "after": OLD1}, {"op": "U", "before": WIDE1, "after": CHANGED1}],
        id="changes",
    ),
]


@pytest.mark.parametrize("mode", ["upsert", "diffs"])
@pytest.mark.parametrize(("value_format", "messages"), WIDER)
def test_a_column_that_a_table_gets_later_is_null_in_old_images(
    value_format: Format, messages: list[Any], mode: InputMode
) -> None:
    """The first update of a row from before is no drift, and without state it retracts the row."""
    columns = (Column("id", "BIGINT"), Column("v", "BIGINT"))
    source = Input(
        "rows", ("rows",), value_format, columns=columns, key=("id",), mode=mode, drift=True
    )
    evaluation = Evaluation(replace(changes(value_format, mode), inputs=(source,)))
    records = [(K1, message, at) for at, message in enumerate(messages)]
    found = evaluation.advance({"rows": records}, 10)

    row = b'{"id":1}' if mode == "upsert" else b'{"id":1,"v":null}'
    assert (dict(evaluation.counted), found["errors"]) == ({}, [])
    assert [update[1:] for update in diffs(found["diffs"])] == [
        (row, 0, 1),
        (row, 1, -1),
        (b'{"id":1,"v":2}', 1, 1),
    ]


@pytest.mark.parametrize(
    ("value_format", "message"),
    [
        pytest.param("debezium-json", {"op": "d", "before": OLD1}, id="debezium-json"),
        pytest.param("maxwell", maxwell("delete", OLD1), id="maxwell"),
        # As TiCDC writes it with delete-only-output-handle-key-columns.
        pytest.param("canal", canal("DELETE", {"id": "1"}), id="canal"),
        pytest.param("changes", {"op": "D", "before": OLD1}, id="changes"),
        pytest.param("dms", dms("delete", OLD1), id="dms"),
        pytest.param(
            "goldengate", {"table": "D.T", "op_type": "D", "before": OLD1}, id="goldengate"
        ),
    ],
)
def test_a_delete_that_shows_its_key_alone_retracts_no_row(
    value_format: Format, message: Any
) -> None:
    """Without state it is an error record, unless the table has only these columns."""
    found = []
    for names in (("id", "v"), ("id",)):
        columns = tuple(Column(name, "BIGINT") for name in names)
        plan = changes(value_format, "diffs")
        source = replace(plan.inputs[0], columns=columns, key=("id",))
        plan = replace(plan, inputs=(source,))
        outputs = evaluate(plan, {"rows": [(K1, message, 0)]})
        found.append((len(outputs["errors"]), [update[1:] for update in diffs(outputs["diffs"])]))

    assert found == [(1, []), (0, [(b'{"id":1}', 0, -1)])]


def test_a_truncate_removes_every_row_at_its_place() -> None:
    """What its time says later counts; a partial image then has nothing to complete it."""
    records = [
        (K1, {"op": "c", "after": ROW1}, 0),
        (K2, {"op": "c", "after": ROW2}, 0),
        (None, {"op": "t"}, 1),
        (K1, {"op": "c", "after": CHANGED1}, 1),
        (K2, {"op": "u", "after": {"id": 2, "v": "__debezium_unavailable_value"}}, 1),
    ]
    found = evaluate(changes("debezium-json"), {"rows": records})

    assert diffs(found["diffs"]) == [
        (b'{"id":1}', b'{"id":1,"v":1}', 0, 1),
        (b'{"id":2}', b'{"id":2,"v":1}', 0, 1),
        (b'{"id":1}', b'{"id":1,"v":1}', 1, -1),
        (b'{"id":1}', b'{"id":1,"v":2}', 1, 1),
        (b'{"id":2}', b'{"id":2,"v":1}', 1, -1),
    ]
    assert [(u.data["offset"], u.time, u.diff) for u in found["errors"]] == [(5, 1, 1)]


def test_old_images_that_are_not_what_was_there_are_counted() -> None:
    """Also when their record has waited for its time; the result is as without them."""
    wrong = (K1, {"op": "u", "before": ROW2, "after": CHANGED1}, 5)
    evaluation = Evaluation(changes("debezium-json"))
    evaluation.advance({"rows": [(K1, {"op": "c", "after": ROW1}, 0), wrong]}, 1)
    before = dict(evaluation.counted)
    found = evaluation.advance({}, 6)

    assert (before, dict(evaluation.counted)) == ({}, {"drift": 1})
    assert [(v, t, d) for _, v, t, d in diffs(found["diffs"])] == [
        (b'{"id":1,"v":1}', 5, -1),
        (b'{"id":1,"v":2}', 5, 1),
    ]


ANN, BOB, NOBODY = ({"id": 1, "name": name} for name in ("ann", "bob", None))


@pytest.mark.parametrize(
    ("traits", "records", "drift"),
    [
        pytest.param({}, [{"op": "c", "after": ANN}, {"op": "d", "before": ANN}], 0, id="deleted"),
        # As Postgres writes it without REPLICA IDENTITY FULL.
        pytest.param({}, [{"op": "c", "after": ANN}, {"op": "d", "before": NOBODY}], 1, id="null"),
        pytest.param({}, [{"op": "d", "before": ANN}] * 2, 2, id="repeated"),
        # Without old images, an update that has changed the key leaves the row of the old one.
        pytest.param({}, [{"op": "c", "after": BOB}, {"op": "u", "after": ANN}], 1, id="update"),
        pytest.param({}, [{"op": "c", "after": ANN}, {"op": "u", "after": ANN}], 0, id="updated"),
        pytest.param({}, [{"after": ANN}], 0, id="perhaps an update"),
        pytest.param({"key": ()}, [{"op": "u", "after": ANN}], 0, id="Kafka's key"),
        pytest.param({"key": ("id",)}, [{"op": "u", "after": ANN}], 0, id="in Kafka's key"),
        pytest.param(
            {"value_format": "debezium-flat-json"}, [{**ANN, "__op": "u"}], 1, id="flat update"
        ),
        pytest.param({}, [None], 0, id="a tombstone"),
        pytest.param({"drift": False}, [{"op": "d", "before": ANN}], 0, id="no drift"),
        # A key that one message changes is compared with the old image.
        pytest.param(
            {},
            [{"op": "c", "after": ANN}, {"op": "u", "before": ANN, "after": BOB}],
            0,
            id="moved",
        ),
        pytest.param(
            {},
            [
                {"op": "c", "after": ANN},
                {"op": "u", "before": ANN | {"later": None}, "after": BOB},
            ],
            0,
            id="moved, with a column that the table got later",
        ),
        pytest.param(
            {},
            [{"op": "c", "after": ANN}, {"op": "u", "before": ANN | {"id": 2}, "after": BOB}],
            1,
            id="moved, and overtaken",
        ),
        pytest.param(
            {"metadata": (("at", "offset"),)}, [{"op": "d", "before": ANN}], 1, id="metadata"
        ),
        pytest.param(
            {"value_format": "debezium-flat-json"}, [{**ANN, "__deleted": "true"}], 1, id="flat"
        ),
        pytest.param(
            {"value_format": "changes", "options": (("deleted", "gone"),)},
            [{**ANN, "gone": True}] * 2,
            0,
            id="soft deletes",
        ),
        pytest.param(
            {"value_format": "changes", "options": (("sequence", "version"),)},
            [{"op": "d", "before": ANN, "version": 2}],
            0,
            id="in any order",
        ),
    ],
)
def test_a_change_of_a_row_that_is_not_there_is_counted(
    traits: dict[str, Any], records: list[Any], drift: int
) -> None:
    """It is counted as drift; what may come again, or ahead of the row, is not."""
    traits = {"value_format": "debezium-json", "key": ("name",), **traits}
    source = Input("rows", ("rows",), **traits)
    evaluation = Evaluation(replace(changes("debezium-json"), inputs=(source,)))
    found = evaluation.advance(
        {"rows": [({"id": 1}, each, at) for at, each in enumerate(records)]}, len(records)
    )

    assert (evaluation.counted["drift"], found["errors"]) == (drift, [])


def test_messages_that_say_nothing_of_a_row_are_counted() -> None:
    """By kind; they are no errors."""
    evaluation = Evaluation(changes("debezium-json"))
    found = evaluation.advance({"rows": [({}, {"ts_ms": 5}, 0), (K1, {"op": "m"}, 0)]}, 1)

    assert (found["diffs"], found["errors"]) == ([], [])
    assert evaluation.counted == {"heartbeat": 1, "message": 1}


VALID = valid_between("v", "v + 10")


@pytest.mark.parametrize("mode", ["upsert", "diffs"])
def test_all_times_are_closed_unless_an_upper_is_given(mode: InputMode) -> None:
    """Also those that are due later than any record; with an upper, only those before it."""
    plan = changes("debezium-json", mode, VALID)
    record = (K1, {"op": "c", "after": {"id": 1, "v": 100}}, 0)
    row = (b'{"id":1}', b'{"id":1,"v":100}')

    assert diffs(evaluate(plan, {"rows": [record]})["diffs"]) == [(*row, 100, 1), (*row, 110, -1)]
    assert diffs(evaluate(plan, {"rows": [record]}, upper=110)["diffs"]) == [(*row, 100, 1)]
    assert evaluate(plan, {"rows": [record]}, upper=100)["diffs"] == []


@pytest.mark.parametrize("mode", ["upsert", "diffs"])
def test_pending_are_the_times_of_updates_that_wait(mode: InputMode) -> None:
    """In order; a row that is removed before takes its own with it."""
    evaluation = Evaluation(changes("debezium-json", mode, VALID))
    rows = {"id": 1, "v": 100}, {"id": 2, "v": 105}
    evaluation.advance({"rows": [(K1, {"op": "c", "after": rows[0]}, 0)]}, 1)
    first = evaluation.pending()
    evaluation.advance({"rows": [(K2, {"op": "c", "after": rows[1]}, 1)]}, 2)
    second = evaluation.pending()
    evaluation.advance({"rows": [(K1, {"op": "d", "before": rows[0]}, 2)]}, 106)

    assert first == [100, 110]
    assert second == [100, 105, 110, 115]
    assert evaluation.pending() == [115]


def test_updates_of_diffs_whose_time_is_open_are_pending() -> None:
    """They are made already, and an error with them."""
    evaluation = Evaluation(changes("debezium-json", "diffs"))
    good, lacking = {"op": "c", "after": ROW1}, {"op": "d"}
    found = evaluation.advance({"rows": [(K1, good, 7), (K1, lacking, 5)]}, 3)

    assert (found["diffs"], found["errors"]) == ([], [])
    assert evaluation.pending() == [5, 7]
    assert [u.time for u in evaluation.advance({}, 6)["errors"]] == [5]
    assert evaluation.pending() == [7]


@pytest.mark.parametrize(
    ("value_format", "key_format", "key", "value", "part"),
    [
        pytest.param("bytes", "json", "k", "v", "its value is of type str", id="text"),
        pytest.param("bytes", "json", "k", 5, "its value is of type int", id="a number"),
        pytest.param("json", "bytes", "k", "v", "its key is of type str", id="a key"),
    ],
)
def test_only_json_data_are_written_for_the_caller(
    value_format: Format, key_format: KeyFormat, key: Any, value: Any, part: str
) -> None:
    """What is to be bytes is given as bytes; five is not five zeros."""
    with pytest.raises(ConfigError, match=f'record 1 of input "names": {part}\nHint: Give'):
        evaluate(plan(value_format, key_format), {"names": [(key, value, 0)]})
