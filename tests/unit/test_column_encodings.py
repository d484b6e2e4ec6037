"""The encodings that columns declare, and those that the formats of connectors have of theirs."""

import json
from typing import Any

import pytest

import ikebana as ik
from ikebana.codecs.column_encodings import CHOICES
from ikebana.errors import PlanError
from support.doc_blocks import ROOT

JSON_TEXT = '{"b": [1, 2.50], "a": null}'
DOCUMENT = {"a": None, "b": [1, 2.5]}
# A message of each format with a row, and what the format's input needs beside its columns.
MESSAGES: dict[str, Any] = {
    "json": lambda row: row,
    "debezium-json": lambda row: {"before": None, "after": row, "op": "c"},
    "debezium-flat-json": lambda row: row,
    "maxwell": lambda row: {"type": "insert", "database": "d", "table": "t", "data": row},
    "canal": lambda row: {"type": "INSERT", "database": "d", "table": "t", "data": [row]},
    "goldengate": lambda row: {"op_type": "I", "table": "d.t", "after": row},
    "dms": lambda row: {"metadata": {"record-type": "data", "operation": "insert"}, "data": row},
}
CONNECTORS = ("debezium-json", "debezium-flat-json", "canal")


def found(
    form: Any, row: dict[str, Any], *columns: ik.Column, pushdown: bool = True, read: str = "*"
) -> tuple[list[Any], list[str]]:
    """The rows of a message with one row, and the reasons of its errors."""
    pipeline = ik.Pipeline("p", pushdown=pushdown)
    key: dict[str, Any] = {} if form == "json" else {"key": ["id"]}
    rows = pipeline.topic("t", format=form, columns=[ik.Column("id", "BIGINT"), *columns], **key)
    shown = rows.upsert()
    (shown if read == "*" else shown.sql(select={read: read})).to("out")
    value = MESSAGES[form]({"id": 1, **row})
    made = pipeline.evaluate(t=[({"id": 1}, value, 0)])
    return [u.data[1] for u in made["out"]], [u.data["reason"] for u in made["errors"]]


@pytest.mark.parametrize("form", CONNECTORS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(JSON_TEXT, DOCUMENT, id="an object"),
        pytest.param('"tea"', "tea", id="a string"),
        pytest.param("null", None, id="null"),
        pytest.param(None, None, id="no text"),
        pytest.param(["[1]"], ["[1]"], id="an array of texts"),
        pytest.param({"a": "1"}, {"a": "1"}, id="an object of texts"),
    ],
)
def test_a_column_declared_json_holds_what_its_text_says(form: str, text: Any, value: Any) -> None:
    """A connector writes a document as a text, and arrays and maps as they are."""
    assert found(form, {"doc": text}, ik.Column("doc", "JSON")) == ([{"doc": value, "id": 1}], [])


@pytest.mark.parametrize("form", CONNECTORS)
@pytest.mark.parametrize("read", ["*", "id", "doc"])
@pytest.mark.parametrize("pushdown", [True, False])
def test_a_text_that_is_no_json_is_an_error_whoever_reads_it(
    form: str, read: str, *, pushdown: bool
) -> None:
    """By the name of its column, and without the text."""
    rows, (reason,) = found(
        form, {"doc": "hunter2"}, ik.Column("doc", "JSON"), pushdown=pushdown, read=read
    )

    assert rows == []
    assert "doc" in reason
    assert "expected JSON, found another text" in reason
    assert "hunter2" not in reason


@pytest.mark.parametrize("form", CONNECTORS)
def test_a_plain_column_has_texts_as_they_are(form: str) -> None:
    """As those of writers that are no connectors, whose JSON is JSON."""
    column = ik.Column("doc", "JSON", encoding="plain")

    assert found(form, {"doc": JSON_TEXT}, column) == ([{"doc": JSON_TEXT, "id": 1}], [])


@pytest.mark.parametrize("form", sorted({*MESSAGES} - {*CONNECTORS}))
def test_other_formats_need_an_encoding_for_json_in_a_text(form: str) -> None:
    """Their writers have JSON as JSON, or say nothing of it."""
    plain, declared = ik.Column("doc", "JSON"), ik.Column("doc", "JSON", encoding="json")

    assert found(form, {"doc": JSON_TEXT}, plain) == ([{"doc": JSON_TEXT, "id": 1}], [])
    assert found(form, {"doc": JSON_TEXT}, declared) == ([{"doc": DOCUMENT, "id": 1}], [])


@pytest.mark.parametrize("form", MESSAGES)
def test_every_format_has_declared_encodings(form: str) -> None:
    """None of them is passed over; a wrong value is an error, read or not."""
    at = ik.Column("at", "TIMESTAMP", encoding="timestamp-millis")

    assert found(form, {"at": 1700000000000}, at) == (
        [{"at": "2023-11-14T22:13:20", "id": 1}],
        [],
    )
    for pushdown in (True, False):
        rows, (reason,) = found(form, {"at": "hunter2"}, at, pushdown=pushdown, read="id")
        assert rows == []
        assert "expected a number of parts of a second, found text" in reason


def test_the_fields_of_a_document_are_json_already() -> None:
    """MongoDB's after is one text; what is text within it is a string."""
    document = json.dumps({"id": 1, "doc": "[1]"})
    columns = [ik.Column("id", "BIGINT"), ik.Column("doc", "JSON")]
    pipeline = ik.Pipeline("p")
    rows = pipeline.topic("t", format="debezium-json", key=["id"], columns=columns)
    rows.upsert().to("out")

    made = pipeline.evaluate(t=[(None, {"before": None, "after": document, "op": "c"}, 0)])

    assert [u.data[1] for u in made["out"]] == [{"doc": "[1]", "id": 1}]


def test_keys_have_the_encodings_of_their_columns() -> None:
    """Those of Kafka, with other columns beside them, and those of rows."""
    columns = [
        ik.Column("day", "DATE", encoding="date"),
        ik.Column("doc", "JSON"),
        ik.Column("n", "INTEGER"),
    ]
    row = {"day": 19753, "doc": "[1]", "n": 5}
    for key in (None, ["day"]):
        pipeline = ik.Pipeline("p")
        named: dict[str, Any] = {} if key is None else {"key": key}
        rows = pipeline.topic("t", format="debezium-json", columns=columns, **named)
        rows.upsert().to("out")
        for kafka in ({"day": 19753}, {"payload": {"day": 19753}}):
            made = pipeline.evaluate(t=[(kafka, {"after": row, "op": "c"}, 0)])
            assert [u.data for u in made["out"]] == [
                ({"day": "2024-01-31"}, {"day": "2024-01-31", "doc": [1], "n": 5})
            ]


def test_updates_have_no_encodings() -> None:
    """They were written with their values."""
    columns = (ik.Column("at", "DATE", encoding="date"),)
    source = ik.Input("t", ("t",), "diff", mode="diffs", columns=columns)
    plan = ik.Plan("p", (source,), (), (ik.Output("out", "t", "out"),))

    with pytest.raises(PlanError, match="updates have their values as they were written"):
        ik.evaluate(plan, {"t": []})


def test_the_docs_have_each_encoding() -> None:
    """In the table of docs/column-types.md."""
    page = (ROOT / "docs" / "column-types.md").read_text().partition("\n| encoding |")[2]
    table = page.partition("\n\n")[0]

    assert [name for name in CHOICES if f"`{name}`" not in table] == []
