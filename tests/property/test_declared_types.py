"""Columns of any type of SQL: what is declared is decoded, or refused when the plan is made."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan, PlanError, Upsert, evaluate
from ikebana.codecs.sql_type import (
    Array,
    Decimal,
    Enum,
    List,
    Map,
    SqlType,
    Struct,
    within,
)
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.checking import checked
from support.sql_types import types
from support.strategies import few

WHOLE: dict[str, Any] = {
    **{name: [0, 1, -1, 100] for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")},
    **{name: [0, 1, 100] for name in ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")},
    "BOOLEAN": [True, False],
    "FLOAT": [1.5, -0.25],
    "DOUBLE": [1.5, -0.1],
    "VARCHAR": ["", "x", "1.50", '"', "ä"],
    "DATE": ["2024-02-29"],
    "TIMESTAMP": ["2024-02-29T12:00:00"],
    "UUID": ["00000000-0000-0000-0000-000000000001"],
    "JSON": [1, "x", [1], {"a": 1}],
}
"""Values that come out as they go in."""


def values(kind: SqlType) -> st.SearchStrategy[Any]:
    """Values of a type as JSON has them."""
    match kind:
        case Decimal(width, scale):
            most = 10 ** min(width, 15) - 1
            one: st.SearchStrategy[Any] = st.integers(-most, most).map(
                lambda number: json.loads(f"{number}e-{scale}") if scale < 16 else 0
            )
        case Enum(texts):
            one = st.sampled_from(texts)
        case List(of):
            one = st.lists(values(of), max_size=3)
        case Array(of, size):
            one = st.lists(values(of), min_size=size, max_size=size)
        case Map(_, of):
            one = st.dictionaries(st.sampled_from("ab"), values(of), max_size=2)
        case Struct(fields):
            one = st.fixed_dictionaries({name: values(of) for name, of in fields})
        case _:
            return st.sampled_from([None, *WHOLE[str(kind)]])
    return st.none() | one


def plan(kind: str) -> Plan:
    """A plan with a column of a type."""
    return Plan(
        "p",
        (Input("t", ("t",), columns=(Column("x", kind),)),),
        (Upsert("u", "t"),),
        (Output("o", "u", "o"),),
    )


def is_shown(kind: SqlType) -> bool:
    """Whether there are values above, and maps have the keys that JSON has."""
    return all(
        str(each.key) == "VARCHAR" if isinstance(each, Map) else str(each) in WHOLE
        for each in within(kind)
        if not isinstance(each, Decimal | Enum | List | Array | Struct)
    )


@few
@given(
    types,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text("ab'\"", max_size=2), of),
    ),
)
def test_a_type_is_refused_with_the_plan_or_decodes_any_value(kind: SqlType, value: Any) -> None:
    """What is not of the type is an error record; nothing fails."""
    try:
        column_type(str(kind))
    except ExpressionError:
        with pytest.raises(PlanError, match="columns"):
            checked(plan(str(kind)))
        return

    found = evaluate(checked(plan(str(kind))), {"t": [(1, {"x": value}, 0), (2, {"x": None}, 0)]})

    assert len(found["o"]) + len(found["errors"]) == 2
    assert (2, {"x": None}) in [update.data for update in found["o"]]


@few
@given(types.filter(is_shown), st.data())
def test_what_is_of_a_type_comes_out_as_it_is(kind: SqlType, data: st.DataObject) -> None:
    """However lists, arrays, structs, maps and decimals stand within each other."""
    value = data.draw(values(kind))

    found = evaluate(checked(plan(str(kind))), {"t": [(1, {"x": value}, 0)]})

    assert found["errors"] == []
    assert [update.data for update in found["o"]] == [(1, {"x": value})]


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        ("DECIMAL(10,2)[]", [1.25, 2, None], [1.255]),
        ("decimal(10)[]", [1, 2], [1.5]),
        ("Numeric[]", [1.125], [1.1255]),
        ("DECIMAL(4,2)[3]", [1.25, 2, None], [1.25]),
        ("DECIMAL(4,2)[][]", [[1.25], []], [1.25]),
        ("DECIMAL(4,2)[2][]", [[1.25, 1]], [[1.25]]),
        ("STRUCT(a DECIMAL(4,2)[])[]", [{"a": [1.25]}], [{"a": [100]}]),
        ("MAP(VARCHAR, DECIMAL(4,2)[])", {"a": [1.25]}, {"a": 1.25}),
    ],
)
def test_decimals_in_lists_are_checked_one_by_one(kind: str, value: Any, wrong: Any) -> None:
    """Each is exact, or the row is an error."""
    found = evaluate(checked(plan(kind)), {"t": [(1, {"x": value}, 0), (2, {"x": wrong}, 0)]})

    assert [update.data for update in found["o"]] == [(1, {"x": value})]
    (error,) = found["errors"]
    assert error.data["reason"].startswith('column "x"')


@pytest.mark.parametrize("kind", ["BIGINT" + "[]" * 40, "STRUCT(a " * 40 + "INT" + ")" * 40])
def test_a_type_that_nests_without_end_is_refused(kind: str) -> None:
    """At once: the time that DuckDB takes doubles with each level."""
    with pytest.raises(PlanError, match="deeper than 10"):
        checked(plan(kind))


@pytest.mark.parametrize(
    ("kind", "number"),
    [("DECIMAL(6,6)", "1e-6"), ("DECIMAL(2,2)", "1.2E-1"), ("DECIMAL(7,7)[]", "[1e-7]")],
)
def test_small_numbers_may_have_exponents(kind: str, number: str) -> None:
    """Where the type has no digit before the point, too."""
    records = [(1, b'{"x":%b}' % number.encode(), 0)]

    assert [u.data[1]["x"] for u in evaluate(plan(kind), {"t": records})["o"]] == [
        json.loads(number)
    ]


def test_a_long_text_that_is_not_of_a_type_is_an_error_record() -> None:
    """Also where DuckDB cuts its message within a character."""
    value = {"": {"aa": [None, None]}, '"': None, 'a"': {'"': "0\U00010000"}}

    found = evaluate(plan("BOOLEAN[]"), {"t": [(1, {"x": value}, 0)]})

    assert [e.data["reason"] for e in found["errors"]] == ['column "x" is not of type BOOLEAN[]']
