"""What is noticed of an input from a look at some of its messages."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ikebana import Column, EventTime, Input, Linear, Output, Plan, Upsert
from ikebana.processor.authoring.proposing.look import look, notices
from ikebana.processor.base.notices import KINDS, Board, Notice, counts
from ikebana.processor.linear.steps import select
from ikebana.processor.topics.messages import Message
from support.connector_histories import FORMS, KNOWN, Happening, messages

ID = Column("id", "BIGINT")


def sent(*values: Any, key: bytes | None = b"1") -> list[Message]:
    return [
        Message(at, key, value if isinstance(value, bytes) else json.dumps(value).encode())
        for at, value in enumerate(values)
    ]


def noticed(
    found: Sequence[Message], *columns: Column, expression: str = "id", **of_input: Any
) -> list[Notice]:
    """What is noticed in a pipeline with one input of these columns, and one expression."""
    source = Input("customers", ("customers",), columns=columns, **of_input)
    plan = Plan(
        "p",
        (source,),
        (Upsert("current", "customers"), Linear("v", "current", (select(e=expression),))),
        (Output("out", "v", "out"),),
    )
    return notices(plan, source, found, look(source, found, KNOWN))


def test_a_declared_column_that_no_message_has_is_named_with_the_columns_there_are() -> None:
    """And with the one that is probably meant: G7 of a first act."""
    rows = {"id": 1, "name": "Ada", "city": "Oslo"}, {"id": 2, "name": "Bo", "city": "Rome"}

    (found,) = noticed(sent(*rows), ID, Column("nom", "VARCHAR"))

    assert found.name == ("column", "customers", "nom")
    assert found.line == (
        'customers: no message of 2 has the column "nom", so it is null: correct its name, or '
        'leave it out; they have city, id, name; did you mean "name"?'
    )
    # What messages have is not for everybody who may see that something is wrong.
    assert not any(word in found.words for word in ("city", "did you mean"))


def test_a_column_that_one_message_has_is_not_noticed() -> None:
    """Nor is one that is null there, nor a message without a row."""
    rows = {"id": 1}, {"id": 2, "name": None}, b"null"

    assert noticed(sent(*rows), ID, Column("name", "VARCHAR")) == []
    assert noticed([Message(0, b"1", None)], ID, Column("name", "VARCHAR")) == []
    assert noticed([], ID, Column("name", "VARCHAR")) == []


def test_a_field_of_a_struct_that_no_message_has_is_named_by_its_path() -> None:
    """A row without the struct says nothing of its fields."""
    place = Column("place", "STRUCT(city VARCHAR, zp VARCHAR)")
    rows = {"id": 1, "place": {"city": "Oslo", "zip": "0150"}}, {"id": 2, "place": None}

    found = [each for each in noticed(sent(*rows), ID, place) if each.kind == "column"]

    assert [each.line for each in found] == [
        'customers: no message of 1 has the field "place.zp", so it is null: correct its name, '
        'or leave it out; they have place.city, place.zip; did you mean "place.zip"?'
    ]


def test_fields_are_looked_for_at_every_depth() -> None:
    """In structs within structs, and in lists of them."""
    lines = Column("lines", "STRUCT(sku VARCHAR, of STRUCT(x BIGINT, z BIGINT))[]")
    rows = {"id": 1, "lines": []}, {"id": 2, "lines": [{"sku": "a", "of": {"x": 1, "y": 2}}]}

    (found,) = noticed(sent(*rows), ID, lines)

    assert (found.kind, found.of) == ("column", "lines[].of.z")
    assert "they have lines[].of.x, lines[].of.y" in found.line


@pytest.mark.parametrize("form", FORMS)
def test_every_format_of_changes_tells_which_columns_its_messages_have(form: str) -> None:
    """Those that are declared rightly are not noticed, in JSON as in Avro."""
    written = FORMS[form]
    history = [Happening(None, {"id": at, "a": 1, "b": "x", "big": "y"}) for at in range(3)]
    source = written.input("upsert", declared=True, keyed=False)
    found = [
        Message(at, key, value if isinstance(value, bytes) else json.dumps(value).encode())
        for key, value, at in messages(written, history, keyed=True)
    ]

    def told(source: Input) -> list[tuple[str, str]]:
        plan = Plan("p", (source,), (Upsert("c", "t"),), (Output("o", "c", "o"),))
        seen = look(source, found, KNOWN)
        return [(each.kind, each.of) for each in notices(plan, source, found, seen)]

    assert told(source) == []
    mistyped = (*source.columns, Column("bigg", "VARCHAR"))
    assert told(dataclasses.replace(source, columns=mistyped)) == [("column", "bigg")]


def test_a_topic_of_updates_tells_its_columns_too() -> None:
    """Its values are the rows."""
    (found,) = noticed(
        sent({"id": 1, "name": "A"}), ID, Column("nme", "VARCHAR"), value_format="diff"
    )

    assert found.line.endswith('they have id, name; did you mean "name"?')


def test_an_input_whose_messages_are_all_errors_is_noticed_with_the_commonest_reason() -> None:
    """As soon as one is none, it is not."""
    rows: list[Any] = [{"id": "x"}, {"id": "y"}, b"{"]

    (found,) = noticed(sent(*rows), ID)

    assert found.kind == "errors"
    assert found.words.startswith(
        'customers: each of 3 messages is an error: column "id" is not of type BIGINT '
        "(2 of them); "
    )
    assert noticed(sent(*rows, {"id": 1}), ID) == []
    (single,) = noticed(sent({"id": 1}, key=None), ID)
    assert "its only message is an error: could not decode key: it is null; " in single.words


def test_changes_without_old_images_are_errors_where_these_are_needed() -> None:
    """In `mode: diffs`; an empty value is a tombstone, as it is when the pipeline reads it."""
    change = {"op": "u", "before": None, "after": {"id": 1}, "source": {}}

    (found,) = noticed(sent(change, change, b""), ID, value_format="debezium-json", mode="diffs")

    assert found.kind == "errors"
    assert "each of 2 messages is an error" in found.words
    assert noticed(sent(change, b""), ID, value_format="debezium-json") == []


def test_a_row_without_its_event_time_is_an_error_too() -> None:
    """As it is when the pipeline reads it."""
    at = Column("moment", "TIMESTAMP")
    rows = {"id": 1, "moment": None}, {"id": 2, "moment": None}

    (found,) = noticed(sent(*rows), ID, at, event_time=EventTime("moment"))

    assert (found.kind, "each of 2 messages is an error: event time" in found.words) == (
        "errors",
        True,
    )


@pytest.mark.parametrize(
    "expression", ["doc->>'a'", "doc -> 'a'", "\"doc\"->>'a'", "doc.a", "doc['a']"]
)
def test_a_path_into_texts_that_hold_json_is_noticed(expression: str) -> None:
    """A column of type JSON has such texts where a source sends JSON as text."""
    rows = {"id": 1, "doc": '{"a": 1}'}, {"id": 2, "doc": "[1]"}, {"id": 3, "doc": None}

    (found,) = noticed(sent(*rows), ID, Column("doc", "JSON"), expression=expression)

    assert found.name == ("json text", "customers", "doc")
    assert found.words == (
        'customers: the JSON column "doc" has texts that hold JSON in 2 rows, so a path into it '
        "is null; declare its encoding as json"
    )


@pytest.mark.parametrize(
    ("kind", "values", "expression"),
    [
        ("JSON", [{"a": 1}], "doc->>'a'"),
        ("JSON", ['{"a": 1}', {"a": 1}], "doc->>'a'"),
        ("JSON", ["a text", "{no JSON"], "doc->>'a'"),
        ("JSON", ['{"a": 1}'], "doc"),
        ("VARCHAR", ['{"a": 1}'], "doc->>'a'"),
    ],
)
def test_other_texts_and_paths_are_not_noticed(
    kind: str, values: list[Any], expression: str
) -> None:
    """JSON itself, texts that hold none, texts that nothing looks into, and those of VARCHAR."""
    rows = [{"id": at, "doc": value} for at, value in enumerate(values)]

    assert noticed(sent(*rows), ID, Column("doc", kind), expression=expression) == []


def test_an_envelope_of_kafka_connect_that_is_read_as_it_is_names_the_format() -> None:
    """In place of the columns that no message has."""
    row = {"schema": {"type": "struct"}, "payload": {"id": 1}}
    change = {"op": "c", "before": None, "after": {"id": 1}, "source": {}}
    name = Column("name", "VARCHAR")

    (plain,) = noticed(sent(row, row), ID, name)
    (changes,) = noticed(sent({**row, "payload": change}), ID, name)

    assert plain.words == (
        'customers: each of 2 messages is {"schema", "payload"} of Kafka Connect, which format '
        "json reads as it is, so every declared column is null; format debezium-flat-json reads "
        "the payload"
    )
    assert changes.words.endswith("; format debezium-json reads the payload")
    assert noticed(sent(row), Column("payload", "JSON")) == []


def test_a_board_tells_when_what_holds_has_changed() -> None:
    """All that holds, whoever gives it; the same again is no change."""
    told: list[list[str]] = []
    board = Board(lambda all_: told.append([each.of for each in all_]))
    nom, topic = (Notice("column", "i", of, "words") for of in ("nom", "topic"))

    board.put("topics", [topic])
    board.put("messages", [nom])
    board.put("messages", [nom])
    board.put("topics", [])
    board.put("other", [])

    assert told == [["topic"], ["topic", "nom"], ["nom"]]


def test_notices_are_counted_by_kind_and_input() -> None:
    """Those that there are not have 0, so that a series falls when its notice is gone."""
    found = counts(["a", "b"], [Notice("column", "a", of, "words") for of in ("x", "y")])

    assert found == {(kind, name): 0 for kind in KINDS for name in "ab"} | {("column", "a"): 2}
