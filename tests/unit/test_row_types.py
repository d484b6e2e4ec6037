"""Columns that a TypedDict declares."""

import typing
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

import ikebana as ik
from ikebana.errors import ConfigError
from ikebana.processor.building.rows import columns_of


class Address(TypedDict):
    """A row in a row."""

    street: str


class Everything(TypedDict):
    """One column of each kind."""

    text: str
    whole: int
    number: float
    flag: bool
    perhaps: int | None
    left_out: NotRequired[str]
    exact: Annotated[float, "DECIMAL(12,2)"]
    placed: Annotated[str, ik.ColumnType("TIMESTAMP", encoding="timestamp-micros")] | None
    listed: list[int]
    nested: Address
    anything: Any
    loose: dict[str, object]
    old_style: typing.Optional[bool]  # noqa: UP045 -- users write it


def test_columns_have_the_types_of_sql() -> None:
    """In the order of the class."""
    assert columns_of(Everything) == (
        ik.Column("text", "VARCHAR"),
        ik.Column("whole", "BIGINT"),
        ik.Column("number", "DOUBLE"),
        ik.Column("flag", "BOOLEAN"),
        ik.Column("perhaps", "BIGINT"),
        ik.Column("left_out", "VARCHAR"),
        ik.Column("exact", "DECIMAL(12,2)"),
        ik.Column("placed", "TIMESTAMP", "timestamp-micros"),
        ik.Column("listed", "JSON"),
        ik.Column("nested", "JSON"),
        ik.Column("anything", "JSON"),
        ik.Column("loose", "JSON"),
        ik.Column("old_style", "BOOLEAN"),
    )


class Plain:
    """No TypedDict."""

    text: str


class Dated(TypedDict):
    """JSON has no times."""

    at: datetime


class Either(TypedDict):
    """Two types at once."""

    one: int | str


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Plain, "cannot read rows as Plain: it is no TypedDict"),
        (Dated, "column at is of type datetime, which is no type of JSON"),
        (Either, "column one is of type"),
    ],
)
def test_what_says_no_type_is_refused(row: type, problem: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError, match=problem) as raised:
        columns_of(row)

    assert raised.value.hint
