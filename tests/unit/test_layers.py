"""The layers of a statement: each is bound once, over the types of what is below it."""

import pytest

from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.nest import Layers
from ikebana.processor.linear.scope import KEY, VALUE, Scope

# Each type has to be one that a cast to its name gives back.
SQL = {
    "a number": "n + 1",
    "nothing": "NULL",
    "a decimal": "1.5::DECIMAL(12,2)",
    "a struct": "{'a b': 1, 'c': [n]}",
    "a tuple": "(1, 'x')",
    "an array": "[1, 2]::INTEGER[2]",
    "a map": "MAP {'k': 1}",
    "an enum": "'it''s'::ENUM('it''s', 'b')",
    "a union": "union_value(n := 1)",
    "a moment": "TIMESTAMPTZ '2026-01-01 00:00:00+00'",
    "nanoseconds": "TIMESTAMP_NS '2026-01-01 00:00:00'",
    "bits": "'101'::BIT",
    "a large number": "1::BIGNUM",
    "JSON": "'{}'::JSON",
}


def layered(sql: str, *, asks: bool, checked: bool) -> Layers:
    scope = Scope({KEY: JSON, VALUE: JSON, "n": "BIGINT"}, open=True)
    layers = Layers(scope, checked=checked, typed=not checked, blaming=False)
    layers.read_input("n", "BIGINT")
    column = ""
    for expression in ("3", sql, "{column}", "4"):
        column = layers.derived("map", expression.replace("{column}", column), expression)
        if asks:
            layers.described()
    return layers


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("sql", SQL.values(), ids=SQL)
def test_columns_have_the_same_types_whenever_they_are_asked(sql: str, checked: bool) -> None:  # noqa: FBT001
    step_by_step = layered(sql, asks=True, checked=checked)
    at_once = layered(sql, asks=False, checked=checked)

    assert step_by_step.sql() == at_once.sql()
    assert step_by_step.described() == at_once.described()
    assert len(at_once.described()) > 4
