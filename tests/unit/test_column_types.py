"""Declared types hold for all columns, whoever reads them, and whatever is pushed down."""

from typing import Any

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert, evaluate
from ikebana.codecs.formats import Format
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import Step, project
from ikebana.processor.planning.plan import InputMode

Found = tuple[list[Any], list[Any], int]
COLUMNS = (Column("id", "BIGINT"), Column("n", "BIGINT"), Column("t", "VARCHAR"))
READERS = pytest.mark.parametrize("steps", [(), (project("t"),), (project("n", "t"),)])


def debezium(new: Any, old: Any = None) -> Any:
    return {"op": "d" if new is None else "c" if old is None else "u", "before": old, "after": new}


def maxwell(new: Any, old: Any = None) -> Any:
    kind = "delete" if new is None else "insert" if old is None else "update"
    return {"database": "d", "table": "t", "type": kind, "data": new or old, "old": old}


def goldengate(new: Any, old: Any = None) -> Any:
    return {"table": "D.T", "op_type": "I" if old is None else "U", "after": new, "before": old}


def in_schema(new: Any, old: Any = None) -> Any:
    return {"schema": None, "payload": debezium(new, old)}


WRITERS: list[tuple[Format, Any]] = [
    ("json", lambda new, old=None: new),
    ("debezium-json", debezium),
    ("debezium-json", in_schema),
    ("maxwell", maxwell),
    ("goldengate", goldengate),
]
FORMATS = pytest.mark.parametrize(("value_format", "write"), WRITERS)


def found(
    value_format: Format, values: list[Any], *steps: Step, mode: InputMode = "upsert", **rest: Any
) -> Found:
    """Updates (row, time, diff), errors (reason, time, diff), and how many old images differ.

    They are the same with pushdown and without.
    """
    key = () if value_format == "json" else ("id",)
    source = Input(
        "t", ("t",), value_format, mode=mode, **{"key": key, "columns": COLUMNS, **rest}
    )
    root = "t" if source.is_collection else "u"
    plan = Plan(
        "p",
        (source,),
        (
            *(() if source.is_collection else (Upsert("u", "t"),)),
            *((Linear("l", root, steps),) if steps else ()),
        ),
        (Output("o", "l" if steps else root, "o"),),
    )
    outcomes = []
    for pushed in (True, False):
        evaluation = Evaluation(plan, optimized=pushed)
        made = evaluation.advance({"t": [(1, v, at) for at, v in enumerate(values)]}, 100)
        updates = [(u.data[1], u.time, u.diff) for u in made["o"]]
        errors = [(u.data["reason"], u.time, u.diff) for u in made["errors"]]
        outcomes.append((updates, errors, evaluation.counted["drift"]))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def row(n: Any, t: str = "x") -> dict[str, Any]:
    return {"id": 1, "n": n, "t": t}


@FORMATS
@READERS
def test_a_value_that_is_not_of_its_type_leaves_the_key_as_it_was(
    value_format: Format, write: Any, steps: tuple[Step, ...]
) -> None:
    """It is an error until the key is right again, also if nobody reads the column."""
    values = [write(row(1, "a")), write(row("fifteen", "b"), row(1, "a")), write(row(3, "c"))]

    updates, errors, _ = found(value_format, values, *steps)

    reason = 'column "n" is not of type BIGINT'
    assert errors == [(reason, 1, 1), (reason, 2, -1)]
    assert [(row["t"], time, diff) for row, time, diff in updates] == [
        ("a", 0, 1),
        ("a", 2, -1),
        ("c", 2, 1),
    ]


NESTED = (Column("id", "BIGINT"), Column("n", "STRUCT(id BIGINT, tags STRUCT(a DATE)[])"))


@FORMATS
@pytest.mark.parametrize("steps", [(), (project("n"),), (project("id"),)])
def test_fields_of_structs_may_come_and_go(
    value_format: Format, write: Any, steps: tuple[Step, ...]
) -> None:
    """As columns of rows do; a field that is of another type is named by its path."""
    values = [
        write({"id": 1, "n": n})
        for n in (
            {"id": 7, "tags": []},
            {"id": 8, "tags": [{"a": "2024-01-01", "b": 1}], "zip": "00100"},
            {"tags": [None, {}, {"a": "soon"}]},
            {"zip": 5},
        )
    ]

    updates, errors, _ = found(value_format, values, *steps, columns=NESTED)

    reason = 'column "n": field tags[3].a is not of type DATE'
    assert errors == [(reason, 2, 1), (reason, 3, -1)]
    if steps == (project("n"),):
        assert [row["n"] for row, _, diff in updates if diff > 0] == [
            {"id": 7, "tags": []},
            {"id": 8, "tags": [{"a": "2024-01-01"}]},
            {"id": None, "tags": None},
        ]


@READERS
def test_by_old_images_an_error_comes_and_goes_with_its_row(steps: tuple[Step, ...]) -> None:
    """No state is needed: an image that is wrong is an error as often as the row is there."""
    bad, good = row("fifteen", "b"), row(3, "c")
    values = [debezium(bad), debezium(good, bad), debezium(None, good)]

    updates, errors, _ = found("debezium-json", values, *steps, mode="diffs")

    reason = 'input t: column "n" is not of type BIGINT'
    assert errors == [(reason, 0, 1), (reason, 1, -1)]
    assert [(row["t"], time, diff) for row, time, diff in updates] == [("c", 1, 1), ("c", 2, -1)]


@READERS
def test_a_row_that_stays_is_an_error_that_stays(steps: tuple[Step, ...]) -> None:
    """And says where it stands."""
    updates, errors, _ = found("json", [row(1.5), row(1)], *steps, mode="append")

    assert errors == [('column "n" is not of type BIGINT', 0, 1)]
    assert [time for _, time, _ in updates] == [1]


@READERS
@pytest.mark.parametrize("write", [debezium, in_schema])
def test_unusual_values_are_no_drift(write: Any, steps: tuple[Step, ...]) -> None:
    """A text that spells a number takes another way through decoding, and is the same row."""
    values = [write(row(1)), write(row("2", "y"), row(1)), write(row(3, "z"), row("2", "y"))]

    updates, errors, drift = found("debezium-json", values, *steps)

    assert (errors, drift) == ([], 0)
    assert [row["t"] for row, *_ in updates] == ["x", "x", "y", "y", "z"]


@READERS
def test_what_a_message_leaves_as_it_is_is_not_asked_about(steps: tuple[Step, ...]) -> None:
    """An unavailable value is of no type; what the message has is checked."""
    unavailable = "__debezium_unavailable_value"
    values = [debezium(row(1)), debezium(row(unavailable, "y")), debezium(row([], unavailable))]

    updates, errors, _ = found("debezium-json", values, *steps)

    assert errors == [('column "n" is not of type BIGINT', 2, 1)]
    assert [row["t"] for row, *_ in updates] == ["x", "x", "y"]


@READERS
def test_an_encoding_that_fails_is_an_error_whoever_reads_the_column(
    steps: tuple[Step, ...],
) -> None:
    """What is encoded is decoded, so that its type can be told."""
    columns = (Column("id", "BIGINT"), Column("n", "DATE", "date"), Column("t", "VARCHAR"))
    values = [debezium(row(19_000)), debezium(row("soon"))]

    updates, errors, _ = found("debezium-json", values, *steps, columns=columns)

    assert len(updates) == 1
    assert [(time, diff) for _, time, diff in errors] == [(1, 1)]


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("DECIMAL(4,2)", ["12.34", "-0.5", "99", '"1.5"', "null"], ["1.239", "100", '"x"']),
        ("DATE", ['"2024-02-29"', '"2024-02-28"', '"12024-01-01"'], ['"2023-02-29"', "5"]),
        ("TIMESTAMP", ['"2024-01-01T12:00:00"'], ['"2024-01-01 12:00:00.1234567"', '"now"']),
        ("TIME", ['"12:00:00"', '"24:00:00"'], ['"12:00:00+02"', '"25:00:00"']),
        ("UUID", ['"00000000-0000-0000-0000-000000000001"'], ['"1"']),
        ("TINYINT", ["127", "-128", "1e2"], ["128", "true"]),
        ("UBIGINT", [str(2**64 - 1)], ["-1", str(2**64)]),
        ("BOOLEAN", ["true", "1"], ["2", '"perhaps"']),
        (
            "DOUBLE",
            ["1.5", "1e308", '"POSITIVE_INFINITY"', '"-Infinity"'],
            ["true", '"x"', '"1e400"', "9" * 310],
        ),
        ("FLOAT", ["1.5", "-1e38", '"NEGATIVE_INFINITY"'], ['"x"', "1e39", "-" + "9" * 39]),
        ("INTEGER[]", ["[1,2]", "[]"], ["[1.5]", "{}"]),
        ("INTERVAL", ['"1 month"'], ['"soon"']),
        ("JSON", ["[]", '"x"'], []),
        ("VARCHAR", ["[]", "5"], []),
    ],
)
def test_types_take_what_they_take_in_expressions(
    kind: str, right: list[str], wrong: list[str]
) -> None:
    """One by one and together: a neighbour that fails changes nothing."""
    plan = Plan(
        "p",
        (Input("t", ("t",), columns=(Column("x", kind),)),),
        (Upsert("u", "t"),),
        (Output("o", "u", "o"),),
    )
    texts = [*right, *wrong]
    records = [(at, b'{"x":%b}' % text.encode(), 0) for at, text in enumerate(texts)]

    together = evaluate(plan, {"t": records})
    alone = [evaluate(plan, {"t": [record]}) for record in records]

    assert sorted(u.data[0] for u in together["o"]) == list(range(len(right)))
    assert [len(each["o"]) for each in alone] == [1] * len(right) + [0] * len(wrong)
    assert len(together["errors"]) == len(wrong)
