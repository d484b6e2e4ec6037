"""What an image lacks is told by what is declared, whoever reads what: plans with and without
pushdown give the same.
"""

from typing import Any

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert
from ikebana.errors import PlanError
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import Step, project, select
from ikebana.processor.planning.plan import InputMode

Found = tuple[list[Any], list[str]]
COLUMNS = (Column("id", "BIGINT"), Column("a", "BIGINT"), Column("big", "VARCHAR"))
UNAVAILABLE = "__debezium_unavailable_value"


def found(source: Input, values: list[Any], *steps: Step, kafka_key: Any = None) -> Found:
    """The output's updates (key, value, time, diff), and the reasons of errors."""
    root = "t" if source.mode == "diffs" else "u"
    plan = Plan(
        "p",
        (source,),
        (
            *(() if source.mode == "diffs" else (Upsert("u", "t"),)),
            *((Linear("l", root, steps),) if steps else ()),
        ),
        (Output("o", "l" if steps else root, "o"),),
    )
    outcomes = []
    for pushed in (True, False):
        evaluation = Evaluation(plan, optimized=pushed)
        records = [(kafka_key, value, at) for at, value in enumerate(values)]
        made = evaluation.advance({"t": records}, 100)
        reasons = [u.data["reason"] for u in made["errors"] for _ in range(u.diff)]
        outcomes.append(([(*u.data, u.time, u.diff) for u in made["o"]], reasons))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def input_of(
    value_format: Any, mode: InputMode = "upsert", *columns: Column, **rest: Any
) -> Input:
    return Input("t", ("t",), value_format, mode=mode, columns=columns, **rest)


@pytest.mark.parametrize(
    "columns", [(), (Column("id", "BIGINT"), Column("a", "BIGINT"), Column("new", "VARCHAR"))]
)
def test_a_delete_of_a_row_without_a_younger_column_counts(columns: tuple[Column, ...]) -> None:
    """The table did not have the column yet, which a select names: the image is whole."""
    source = input_of("debezium-json", "diffs", *columns, key=("id",))
    values = [
        {"op": "c", "before": None, "after": {"id": 1, "a": 2}},
        {"op": "d", "before": {"id": 1, "a": 2}, "after": None},
    ]
    key, row = {"id": 1}, {"id": 1, "a": 2, "new": None}

    assert found(source, values, select(id="id::BIGINT", a="a::BIGINT", new="new::VARCHAR")) == (
        [(key, row, 0, 1), (key, row, 1, -1)],
        [],
    )


def dms(operation: str, data: Any, **rest: Any) -> Any:
    metadata = {"record-type": "data", "operation": operation}
    return {"metadata": {**metadata, "schema-name": "d", "table-name": "t"}, "data": data, **rest}


@pytest.mark.parametrize("steps", [(), (project("id", "a", "big"),)])
def test_a_delete_of_dms_has_the_row_and_leaves_out_its_nulls(steps: tuple[Step, ...]) -> None:
    """Declared columns say what is null; a select need not stand in front."""
    source = input_of("dms", "diffs", *COLUMNS, key=("id",))
    values = [dms("insert", {"id": 1, "a": 2}), dms("delete", {"id": 1, "a": 2})]
    row = {"id": 1, "a": 2, "big": None}

    assert found(source, values, *steps) == (
        [({"id": 1}, row, 0, 1), ({"id": 1}, row, 1, -1)],
        [],
    )


def test_a_delete_of_dms_with_the_key_alone_is_no_row() -> None:
    """It is an error: nothing tells what is gone; where there are key columns alone, it is."""
    values = [dms("insert", {"id": 1}), dms("delete", {"id": 1})]

    updates, reasons = found(input_of("dms", "diffs", *COLUMNS, key=("id",)), values)
    assert (len(updates), len(reasons)) == (1, 1)
    assert reasons[0].startswith("could not decode old image: it is missing, or lacks columns")

    updates, reasons = found(input_of("dms", "diffs", COLUMNS[0], key=("id",)), values)
    assert ([diff for *_, diff in updates], reasons) == ([1, -1], [])


KEY_ALONE: list[Any] = [
    ("canal", {"database": "d", "table": "t", "type": "DELETE", "data": [{"id": 1}]}),
    ("maxwell", {"database": "d", "table": "t", "type": "delete", "data": {"id": 1}}),
    ("goldengate", {"table": "d.t", "op_type": "D", "before": {"id": 1}}),
    ("dms", dms("delete", {"id": 1})),
    ("changes", {"op": "d", "before": {"id": 1}}),
]


@pytest.mark.parametrize(("value_format", "deleted"), KEY_ALONE)
def test_a_delete_with_the_key_alone_needs_declared_columns(
    value_format: Any, deleted: Any
) -> None:
    """Nothing else says whether the table has more columns; the error names the remedy."""
    updates, [reason] = found(input_of(value_format, "diffs", key=("id",)), [deleted])
    assert updates == []
    assert reason.endswith("only the key, and the table may have more: declare columns")

    updates, reasons = found(input_of(value_format, "diffs", COLUMNS[0], key=("id",)), [deleted])
    assert ([diff for *_, diff in updates], reasons) == ([-1], [])


@pytest.mark.parametrize(
    ("value_format", "what"),
    [
        ("debezium-json", "Debezium"),
        ("debezium-flat-json", "flat Debezium"),
        ("changes", "change"),
    ],
)
def test_a_key_that_is_missing_is_one_of_its_format(value_format: Any, what: str) -> None:
    """Formats with one decoder of keys differ in the name of the format."""
    value = {"op": "c", "after": {"id": 1}}
    updates, [reason] = found(input_of(value_format), [value], kafka_key=None)
    assert (updates, reason) == ([], f"could not decode {what} key: the Kafka key is null")


def maxwell(kind: str, data: Any, old: Any = None) -> Any:
    return {"database": "d", "table": "t", "type": kind, "data": data, "old": old}


def canal(kind: str, data: Any, old: Any = None) -> Any:
    types = {"id": "bigint", "a": "bigint", "big": "text"}
    texts = [
        row and {name: None if value is None else str(value) for name, value in row.items()}
        for row in (data, old)
    ]
    told = {"data": texts[:1], "old": texts[1:], "mysqlType": types, "isDdl": False}
    return {"database": "d", "table": "t", "type": kind.upper(), **told}


def goldengate(kind: str, after: Any, before: Any = None) -> Any:
    return {"table": "D.T", "op_type": kind[0].upper(), "after": after, "before": before}


@pytest.mark.parametrize("steps", [(), (project("id", "a", "big"),), (project("a"),)])
@pytest.mark.parametrize(
    ("value_format", "write"), [("maxwell", maxwell), ("canal", canal), ("goldengate", goldengate)]
)
def test_minimal_images_are_completed_wherever_rows_are_read(
    value_format: str, write: Any, steps: tuple[Step, ...]
) -> None:
    """As whole rows or in part: what an update leaves out stays as it was."""
    source = input_of(
        value_format, "upsert", *COLUMNS, key=("id",), options=(("row_image", "minimal"),)
    )
    values = [
        write("insert", {"id": 1, "a": 4, "big": "B"}),
        write("update", {"id": 1, "a": 5}, {"a": 4}),
    ]
    rows = [{"id": 1, "a": 4, "big": "B"}, {"id": 1, "a": 5, "big": "B"}]
    if steps == (project("a"),):
        rows = [{"a": row["a"]} for row in rows]

    updates, reasons = found(source, values, *steps)

    assert reasons == []
    assert [(row, time, diff) for _, row, time, diff in updates] == [
        (rows[0], 0, 1),
        (rows[0], 1, -1),
        (rows[1], 1, 1),
    ]


@pytest.mark.parametrize("value_format", ["debezium-json", "maxwell"])
@pytest.mark.parametrize("steps", [(), (select(a="a"),)])
def test_a_partial_image_of_an_absent_key_is_an_error_whoever_reads_the_column(
    value_format: str, steps: tuple[Step, ...]
) -> None:
    """There is nothing to leave as it is, and the row would be another with each reader."""
    options = (("row_image", "minimal"),) if value_format == "maxwell" else ()
    source = input_of(value_format, "upsert", *COLUMNS, key=("id",), options=options)
    value = {"op": "u", "before": None, "after": {"id": 1, "a": 5, "big": UNAVAILABLE}}
    if value_format == "maxwell":
        value = maxwell("update", {"id": 1, "a": 5}, {"a": 4})

    assert found(source, [value], *steps) == (
        [],
        ["the message leaves columns as they are, of a row that is not there"],
    )


@pytest.mark.parametrize("mode", ["upsert", "diffs"])
def test_a_table_without_key_is_read_by_columns_or_by_old_images(mode: InputMode) -> None:
    """Its messages have no Kafka keys, and tombstones of such say nothing."""
    row = {"id": 1, "a": 2}
    values = [
        {"op": "c", "before": None, "after": row},
        {"op": "d", "before": row, "after": None},
        None,
        b"",
    ]
    key = ("id",) if mode == "upsert" else ()
    known = {"id": 1} if mode == "upsert" else None

    assert found(input_of("debezium-json", mode, key=key), values) == (
        [(known, row, 0, 1), (known, row, 1, -1)],
        [],
    )


@pytest.mark.parametrize(
    ("value_format", "values"),
    [
        ("maxwell", [maxwell("insert", {"id": 1}), maxwell("delete", {"id": 1})]),
        ("canal", [canal("insert", {"id": 1}), canal("delete", {"id": 1})]),
        ("goldengate", [goldengate("i", {"id": 1}), goldengate("d", None, {"id": 1})]),
        ("dms", [dms("insert", {"id": 1}), dms("delete", {"id": 1})]),
    ],
)
def test_rows_without_key_come_and_go(value_format: str, values: list[Any]) -> None:
    """In every format that has old images: the whole row says which is gone."""
    options = (("row_image", "full"),) if value_format == "goldengate" else ()
    updates, reasons = found(input_of(value_format, "diffs", options=options), values)

    assert reasons == []
    assert updates == [(None, {"id": 1}, 0, 1), (None, {"id": 1}, 1, -1)]


def test_a_value_without_bytes_is_null_unless_it_is_to_be_an_error() -> None:
    """In formats of changes; that an option says otherwise is checked at once."""
    values = [{"op": "c", "before": None, "after": {"id": 1}}, b""]

    updates, reasons = found(input_of("debezium-json"), values, kafka_key={"id": 1})
    assert ([diff for *_, diff in updates], reasons) == ([1, -1], [])

    refusing = input_of("debezium-json", options=(("empty_value", "error"),))
    updates, reasons = found(refusing, values, kafka_key={"id": 1})
    assert ([diff for *_, diff in updates], len(reasons)) == ([1], 1)

    with pytest.raises(PlanError, match=r'options\.empty_value: is "null"; set it to one of'):
        found(input_of("maxwell", options=(("empty_value", "null"),)), [])


@pytest.mark.parametrize("value_format", ["json", "debezium-json", "maxwell"])
def test_columns_may_have_any_name(value_format: str) -> None:
    """Quotes, backslashes, control characters and other letters than ASCII's stop nothing."""
    names = ('a"b', "a\\b", "a\nb", "na\u00efve")
    row = {"id": 1, **dict.fromkeys(names, 2), "other": 3}
    value: Any = {"op": "c", "before": None, "after": row}
    value = {"json": row, "maxwell": maxwell("insert", row)}.get(value_format, value)
    key = () if value_format == "json" else ("id",)
    read = select({name: '"' + name.replace('"', '""') + '"' for name in names})

    updates, reasons = found(input_of(value_format, key=key), [value], read, kafka_key={"id": 1})

    assert (updates, reasons) == ([({"id": 1}, dict.fromkeys(names, 2), 0, 1)], [])
