"""Structs, lists and maps, as the page about nested data shows them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import ikebana as ik
from support.doc_blocks import named

REST = {
    "pipeline": "nested",
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "run": {"checkpoint": "./checkpoint"},
}


def shown(folder: Path, *messages: Any) -> dict[str, list[Any]]:
    """What the page's pipeline makes of messages, one a key, and the reasons of errors."""
    file = folder / "nested.yaml"
    file.write_text(yaml.safe_dump({**REST, **yaml.safe_load(named("nested-1").text)}))
    found = ik.load(file).evaluate(orders=[(at, m, 0) for at, m in enumerate(messages)])
    made = {
        name: [data[1] for data, _, _ in found[name]] for name in ("cities", "lines", "marked")
    }
    return {**made, "errors": [error["reason"] for error, _, _ in found["errors"]]}


@pytest.fixture
def message() -> Any:
    """The message on the page."""
    return json.loads(named("nested-2").text)


def test_the_page_says_what_comes_out(tmp_path: Path, message: Any) -> None:
    """Fields, elements, entries, and paths into JSON."""
    assert shown(tmp_path, message) == {
        "cities": [{"city": "Rome", "orders": 1}],
        "lines": [
            {"order": 1, "sku": "tea", "total": 9},
            {"order": 1, "sku": "jam", "total": 3.2},
        ],
        "marked": [{"by": "frank", "first": "tea", "id": 1, "lines": 2}],
        "errors": [],
    }


def test_fields_come_and_go(tmp_path: Path, message: Any) -> None:
    """What is not declared is ignored, and what lacks is null."""
    more = {**message, "customer": {"id": 7, "city": "Rome", "zip": "00100"}}
    less = {**message, "customer": {}, "lines": [{"sku": "tea", "x": 1}], "labels": {}}

    found = shown(tmp_path, more, less)

    assert found["errors"] == []
    assert [row["city"] for row in found["cities"]] == ["Rome", None]
    assert found["lines"][2:] == [{"order": 1, "sku": "tea", "total": None}]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"customer": {"id": "x"}}, 'column "customer": field id is not of type BIGINT'),
        (
            {"lines": [{}, {"price": 1.234}]},
            'column "lines": field [2].price is not of type DECIMAL(9,2)',
        ),
        ({"customer": []}, 'column "customer" is not of type STRUCT(id BIGINT, city VARCHAR)'),
    ],
)
def test_a_field_that_does_not_fit_is_named(
    tmp_path: Path, message: Any, changed: Any, reason: str
) -> None:
    """By its path in the column."""
    assert shown(tmp_path, {**message, **changed})["errors"] == [reason]


@pytest.mark.parametrize("kind", ["STRUCT(a DECIMAL(9,2))", "STRUCT(a STRUCT(b DECIMAL(9,2))[])"])
def test_decimals_within_structs_keep_their_scale(kind: str) -> None:
    """A number of more digits than the type has is an error, however deep it lies."""
    shop = ik.Pipeline("shop")
    shop.topic("t", columns=[ik.Column("s", kind)]).upsert().to("out")
    numbers: list[Any] = [1.25, 1.239]
    if "[]" in kind:
        numbers = [[{"b": number}] for number in numbers]

    found = shop.evaluate(t=[(key, {"s": {"a": each}}, 0) for key, each in enumerate(numbers)])

    assert [u.data[0] for u in found["out"]] == [0]
    assert [u.data["offset"] for u in found["errors"]] == [2]
