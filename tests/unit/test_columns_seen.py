"""The columns of messages beside those that an input declares."""

import json
from typing import Any

import pytest

from ikebana import Column, Input
from ikebana.processor.authoring.proposing.look import (
    ColumnsSeen,
    Look,
    UndeclaredColumn,
    columns_seen,
    look,
)
from ikebana.processor.topics.messages import Message

COLUMNS = (Column("id", "BIGINT"), Column("name", "VARCHAR"))


def source(form: Any = "json", **changed: Any) -> Input:
    return Input("people", ("people",), form, columns=COLUMNS, **changed)


def seen(given: Input, *values: Any) -> Look:
    return look(given, [Message(0, b"1", json.dumps(value).encode()) for value in values])


def test_what_is_not_declared_is_found_with_its_type() -> None:
    """Of all rows that are read, and what is declared and does not come."""
    rows = {"id": 1, "born": 1990}, {"id": 2, "born": 1.5, "of": ["a"]}, {"id": 3}
    found = columns_seen(source(), seen(source(), *rows))
    undeclared = [UndeclaredColumn("born", "DOUBLE", 2), UndeclaredColumn("of", "JSON", 1)]
    assert found == ColumnsSeen("people", 3, undeclared, ["name"])


def test_nothing_has_drifted() -> None:
    """Columns of the key need not be declared."""
    given = source("maxwell", key=("tenant",))
    row = {"id": 1, "name": "A", "tenant": 7}
    change = {"database": "shop", "table": "people", "type": "insert", "ts": 1, "data": row}
    found = columns_seen(given, seen(given, change))
    assert found == ColumnsSeen("people", 1)


def test_changes_have_their_rows_in_them() -> None:
    """Those of other tables, and messages without a row, do not count."""

    def change(table: str, row: Any) -> Any:
        where = {"db": "shop", "schema": "public", "table": table}
        return {"op": "c", "before": None, "after": row, "source": where}

    values = change("people", {"id": 1, "name": "A", "age": 7}), change("pets", {"bark": "loud"})
    for tables in ("shop.public.people", ".*people"):
        given = source("debezium-json", tables=tables)
        found = columns_seen(given, seen(given, *values, {"ts_ms": 1}))
        assert found.undeclared == [UndeclaredColumn("age", "BIGINT", 1)], tables


@pytest.mark.parametrize(
    ("given", "values", "why"),
    [
        (Input("people", ("people",)), [{"id": 1}], "it declares no columns"),
        (source("cdcv2-json"), [{"updates": []}], "messages of cdcv2-json are not looked at"),
        (source(), [], "there is no row among the newest messages"),
        (source(), [[1, 2]], "there is no row among the newest messages"),
    ],
)
def test_where_nothing_is_compared_it_says_why(given: Input, values: Any, why: str) -> None:
    assert columns_seen(given, seen(given, *values)) == ColumnsSeen("people", why=why)
