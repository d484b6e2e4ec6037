"""What SQL steps make of rows: exact values, exact errors, each row by itself."""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana.processor.linear import query as query_module
from ikebana.processor.linear.database import rows_over
from ikebana.processor.linear.expressions import type_named
from ikebana.processor.linear.nest import ROW
from ikebana.processor.linear.query import FailedRow, Query
from ikebana.processor.linear.scope import KEY, VALUE, Scope, StepError
from ikebana.processor.linear.steps import (
    Sql,
    negate,
    project,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)
from support.strategies import strings, unhurried

OPEN = Scope({KEY: "JSON", VALUE: "JSON"}, open=True)
# More than the 2,048 rows that DuckDB takes at a time.
SIZES = (1, 10, 2_049, 5_000)


def typed(**types: str) -> Scope:
    return Scope({**OPEN.types, **types})


def made(expression: str, value: str, scope: Scope = OPEN) -> str:
    """The JSON text that an expression comes to, or why it does not."""
    query = Query([select(r=expression)], scope)
    found, failed = query.run([b'"k"'], [value.encode()])
    if failed:
        # What DuckDB says of it is for `test_misfits`.
        reason = failed[0].reason
        return reason.partition(": ")[0] if reason.startswith("could not") else reason
    assert found.values is not None
    (text,) = found.values
    assert text.startswith(b'{"r":')
    return text.decode()[len('{"r":') : -1]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("BIGINT", "9223372036854775807", "9223372036854775807"),
        ("BIGINT", "-9007199254740993", "-9007199254740993"),
        ("BIGINT", "1e3", "1000"),
        ("BIGINT", '"7"', "7"),
        ("BIGINT", "null", "null"),
        ("BIGINT", "9223372036854775808", 'column "x" is not of type BIGINT'),
        ("BIGINT", '"seven"', 'column "x" is not of type BIGINT'),
        ("BIGINT", "[1]", 'column "x" is not of type BIGINT'),
        ("HUGEINT", "1" + "0" * 38, "1" + "0" * 38),
        (
            "DECIMAL(38,10)",
            "1234567890123456789012345678.0123456789",
            "1234567890123456789012345678.0123456789",
        ),
        (
            "DECIMAL(38,37)",
            "0." + "1234567890" * 3 + "1234567",
            "0." + "1234567890" * 3 + "1234567",
        ),
        # DuckDB writes no digit before the point of these.
        ("DECIMAL(3,3)", "0.5", "0.5"),
        ("DECIMAL(3,3)", "-0.25", "-0.25"),
        ("DECIMAL(2,2)", "0", "0"),
        ("DECIMAL(38,38)", "-0." + "9" * 38, "-0." + "9" * 38),
        ("DECIMAL(1,1)[]", "[0.5,-0.5,null]", "[0.5,-0.5,null]"),
        ("STRUCT(a DECIMAL(2,2))", '{"a":-0.05}', '{"a":-0.05}'),
        ("MAP(VARCHAR, DECIMAL(4,4))", '{"a":0.0001}', '{"a":0.0001}'),
        ("DECIMAL(38,0)", "9" * 38, "9" * 38),
        ("DECIMAL(38,0)", "9" * 39, 'column "x" is not of type DECIMAL(38,0)'),
        ("DOUBLE", "0.1", "0.1"),
        ("DOUBLE", "1e308", "1" + "0" * 308),
        ("DOUBLE", '"NaN"', '"NaN"'),
        ("DOUBLE", '"-inf"', '"-Infinity"'),
        ("FLOAT[]", '["Infinity",1.5,null]', '["Infinity",1.5,null]'),
        ("FLOAT", "0.1", "0.1"),
        ("BOOLEAN", "true", "true"),
        ("BOOLEAN", '"perhaps"', 'column "x" is not of type BOOLEAN'),
        ("DATE", '"2024-02-29"', '"2024-02-29"'),
        ("DATE", '"2023-02-29"', 'column "x" is not of type DATE'),
        ("DATE", '"today"', 'column "x" is not of type DATE'),
        ("DATE", '"infinity"', '"infinity"'),
        ("TIME", '"12:34:56.7"', '"12:34:56.7"'),
        ("TIMESTAMP", '"2024-01-31 12:34:56.789012"', '"2024-01-31T12:34:56.789012"'),
        ("TIMESTAMP", '"2024-01-31T12:34:56"', '"2024-01-31T12:34:56"'),
        ("TIMESTAMP", '"now"', 'column "x" is not of type TIMESTAMP'),
        ("TIMESTAMP", "5", 'column "x" is not of type TIMESTAMP'),
        ("TIMESTAMP", '"0044-03-15 (BC) 12:00:00"', '"-0043-03-15T12:00:00"'),
        ("TIMESTAMP", '"0001-12-31 (BC) 12:00:00"', '"0000-12-31T12:00:00"'),
        ("DATE", '"-0043-03-15"', '"-0043-03-15"'),
        ("TIMESTAMPTZ", '"290308-12-21 (BC) 00:00:00+00"', '"-290307-12-21T00:00:00Z"'),
        ("TIMESTAMP_NS", '"2024-01-31 00:00:00.123456789"', '"2024-01-31T00:00:00.123456789"'),
        ("TIMESTAMPTZ", '"2024-01-31T00:30:00+02:00"', '"2024-01-30T22:30:00Z"'),
        ("TIMESTAMPTZ", '"2024-01-31T00:30:00"', '"2024-01-31T00:30:00Z"'),
        ("TIMESTAMPTZ", '"2024-07-01 00:30:00 Europe/Berlin"', '"2024-06-30T22:30:00Z"'),
        (
            "UUID",
            '"6ba7b810-9dad-11d1-80b4-00c04fd430c8"',
            '"6ba7b810-9dad-11d1-80b4-00c04fd430c8"',
        ),
        ("BLOB", '"AP8="', '"AP8="'),
        ("BLOB", '"!"', 'column "x" is not of type BLOB'),
        ("INTERVAL", '"1 month 3 days"', '"1 month 3 days"'),
        ("VARCHAR", '"null"', '"null"'),
        ("VARCHAR", "null", "null"),
        ("VARCHAR", "12345678901234567890.5", '"12345678901234567890.5"'),
        ("VARCHAR", '{"a":[1,null]}', r'"{\"a\":[1,null]}"'),
        ("VARCHAR", r'"a\"b\\c\n\u0000\u001f"', r'"a\"b\\c\n\u0000\u001f"'),
        ("VARCHAR", '"\U0001f600é\x7f\u2028"', '"\U0001f600é\x7f\u2028"'),
        ("JSON", '{"b":0.12345678901234567891}', '{"b":0.12345678901234567891}'),
        ("JSON[]", "[12345678901234567890.5,null,[]]", "[12345678901234567890.5,null,[]]"),
        ("VARCHAR[]", '[12345678901234567890.5,"a"]', '["12345678901234567890.5","a"]'),
        ("DECIMAL(20,2)[]", "[123456789012345678.99,null]", "[123456789012345678.99,null]"),
        ("DECIMAL(20,2)[]", '"x"', 'column "x" is not of type DECIMAL(20,2)[]'),
        (
            "STRUCT(a JSON, b DECIMAL(30,10)[])",
            '{"a":12345678901234567890.5,"b":[12345678901234567890.0123456789]}',
            '{"a":12345678901234567890.5,"b":[12345678901234567890.0123456789]}',
        ),
        ("STRUCT(a JSON, b VARCHAR)", "null", "null"),
        ("STRUCT(a JSON, b VARCHAR)", '{"c":1}', '{"a":null,"b":null}'),
        ("STRUCT(a JSON, b VARCHAR)", "[]", 'column "x" is not of type STRUCT(a JSON, b VARCHAR)'),
        (
            "MAP(VARCHAR, JSON)",
            '{"q\\"":12345678901234567890.5,"é":null}',
            '{"q\\"":12345678901234567890.5,"é":null}',
        ),
    ],
)
def test_a_declared_column_keeps_its_value(kind: str, given: str, expected: str) -> None:
    """Every digit and every character, as with a cast; what does not fit is an error."""
    cast = f"could not evaluate select.r x::{kind}"
    assert made("x", f'{{"x":{given}}}', typed(x=type_named(kind))) == expected
    assert made(f"x::{kind}", f'{{"x":{given}}}') == (
        cast if expected.startswith("column") else expected
    )


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("x", '{"x":0.12345678901234567891}', "0.12345678901234567891"),
        ("x", "{}", "null"),
        ("x", '{"x":null}', "null"),
        ("x", "[1]", "null"),
        ("x", '"x"', "null"),
        ("value", "[1]", "[1]"),
        ("key", "{}", '"k"'),
        (
            "[x, x]",
            '{"x":12345678901234567890.5}',
            "[12345678901234567890.5,12345678901234567890.5]",
        ),
        ("{'a': x, 'b': y}", '{"x":1}', '{"a":1,"b":null}'),
        ("{'a\"b': 1}", "{}", '{"a\\"b":1}'),
        ("MAP {'a': x}", '{"x":[1]}', '{"a":[1]}'),
        ("x->'y'", '{"x":{"y":[1,"a"]}}', '[1,"a"]'),
        ("x->'y'->>'z'", '{"x":{"y":{"z":"a\\"b"}}}', '"a\\"b"'),
        ("x->>'y'", '{"x":{"y":null}}', "null"),
        ("x->>'y'", '{"x":5}', "null"),
        ("x->>0", '{"x":["a"]}', '"a"'),
        ("x->>'$.y[1]'", '{"x":{"y":[1,2]}}', '"2"'),
        ("(x->'y')::BIGINT + 1", '{"x":{"y":9007199254740993}}', "9007199254740994"),
        ("json_array_length(x)", '{"x":[1,2]}', "2"),
        ("0.1 + 0.2", "{}", "0.3"),
        ("x::BIGINT // 0", '{"x":1}', "could not evaluate select.r x::BIGINT // 0"),
        ("x::BIGINT % 0", '{"x":1}', "could not evaluate select.r x::BIGINT % 0"),
        ("x::BIGINT / 0", '{"x":1}', '"Infinity"'),
        ("[x::DOUBLE / 0]", '{"x":1}', '["Infinity"]'),
        (
            "x::BIGINT * x::BIGINT",
            '{"x":9223372036854775807}',
            "could not evaluate select.r x::BIGINT * x::BIGINT",
        ),
        ("x::BIGINT::TINYINT", '{"x":128}', "could not evaluate select.r x::BIGINT::TINYINT"),
        ("TRY_CAST(x AS BIGINT)", '{"x":"a"}', "null"),
        ("TRY(x::BIGINT // 0)", '{"x":1}', "null"),
        ("sqrt(x::DOUBLE)", '{"x":-1}', '"NaN"'),
        (
            "regexp_matches('a', x::VARCHAR)",
            '{"x":"("}',
            "could not evaluate select.r regexp_matches('a', x::VARCHAR)",
        ),
        ("x::VARCHAR::JSON", '{"x":"{"}', "could not evaluate select.r x::VARCHAR::JSON"),
        ("x::BIGINT IN (1, NULL)", '{"x":2}', "null"),
        ("NULL", "{}", "null"),
        ("[]", "{}", "[]"),
        ("{}", "{}", "{}"),
        ("'a' || chr(0) || 'b'", "{}", r'"a\u0000b"'),
        ("decode('\\xFF'::BLOB)", "{}", "could not evaluate select.r decode('\\xFF'::BLOB)"),
        (
            "timezone('Europe/Berlin', '2024-07-01 12:00:00'::TIMESTAMP)",
            "{}",
            '"2024-07-01T10:00:00Z"',
        ),
        (
            "date_trunc('month', x::TIMESTAMPTZ)",
            '{"x":"2024-07-31T23:30:00-02:00"}',
            '"2024-08-01T00:00:00Z"',
        ),
        ("CASE WHEN x::BIGINT <> 0 THEN 10 // x::BIGINT END", '{"x":0}', "null"),
        ("coalesce(y::BIGINT, 1 // x::BIGINT)", '{"x":0,"y":5}', "5"),
    ],
)
def test_an_expression_comes_to_its_exact_value(
    expression: str, value: str, expected: str
) -> None:
    """As DuckDB computes it, written as JSON without a loss; or the error that it is."""
    assert made(expression, value) == expected


def test_json_that_is_taken_apart_has_the_digits_of_a_double() -> None:
    """`->` is DuckDB's own; a declared type keeps them all."""
    value = '{"x":{"y":12345678901234567890.5}}'

    assert made("x->'y'", value) == "12345678901234567000"
    assert made("(x::STRUCT(y JSON)).y", value) == "12345678901234567890.5"


TEXTS = Query([select(a="x", b="x::VARCHAR", c="[x::VARCHAR]", d="y->>'z'")], OPEN)


@unhurried
@given(st.lists(strings(), min_size=1, max_size=5))
def test_strings_go_through_as_they_are(texts: list[str]) -> None:
    """Whatever is in them, be it carried as JSON, as text, or in a list."""
    values = [json.dumps({"x": text, "y": {"z": text}}).encode() for text in texts]

    found, failed = TEXTS.run([b"1"] * len(texts), values)

    assert failed == []
    assert [json.loads(value) for value in found.values or []] == [
        {"a": text, "b": text, "c": [text], "d": text} for text in texts
    ]


DIGITS = Query(
    [select(x="x", minus="-x", y="y", sum="y + 1")],
    typed(x="DECIMAL(38,10)", y="DECIMAL(38,0)"),
)


@unhurried
@given(st.decimals(-(10**27), 10**27, places=10), st.integers(-(10**37), 10**37))
def test_38_digits_go_through(exact: Decimal, whole: int) -> None:
    """And arithmetic on them is exact."""
    found, failed = DIGITS.run([None], [f'{{"x":{exact:f},"y":{whole}}}'.encode()])

    assert failed == []
    assert json.loads((found.values or [])[0], parse_float=Decimal) == {
        "x": exact,
        "minus": exact.copy_negate(),
        "y": whole,
        "sum": whole + 1,
    }


NAMES = ["a.b", 'q"q', "é😀", "sel ect", "select", "A", "'", "b\\s", "a\nb", "at", "$", "-", "1"]


def test_a_field_may_have_any_name() -> None:
    """Quotes, dots, spaces, control characters, reserved words, in and out."""
    row = {name: number for number, name in enumerate(NAMES)}

    found, failed = Query([project(*NAMES)], OPEN).run([None], [json.dumps(row).encode()])

    assert failed == []
    assert [json.loads(value) for value in found.values or []] == [row]


def test_a_field_is_told_by_its_exact_name() -> None:
    """Neither case nor form makes two names one, and an escape in the message is none."""
    value = rb'{"NAME":1,"na\u006de":2,"name ":3}'

    found, _ = Query([select(a="name", b='"name "')], OPEN).run([None], [value])
    other, _ = Query([select(a='"NAME"')], OPEN).run([None], [value])

    assert found.values == [b'{"a":2,"b":3}']
    assert other.values == [b'{"a":1}']


def test_a_cast_is_not_the_field_of_its_name() -> None:
    """`x::BIGINT` is x as a number, also where there is a field of that name."""
    steps = [select(a="x::BIGINT", b='"x::BIGINT"', c="x")]

    found, _ = Query(steps, OPEN).run([None], [b'{"x":"1","x::BIGINT":2}'])

    assert found.values == [b'{"a":1,"b":2,"c":"1"}']


@pytest.mark.parametrize(
    ("steps", "part", "problem"),
    [
        ([select(a="1", A="2")], "select.A", "another column has this name"),
        ([select(ikebana_a="1")], "select.ikebana_a", 'no column can be named "ikebana_a"'),
        ([select(Ikebana_key="1")], "select.Ikebana_key", 'no column can be named "Ikebana_key"'),
        ([select({"": "1"})], "select.", 'a column cannot be named ""'),
        ([select({"a\0": "1"})], "select.a\0", 'a column cannot be named "a\0"'),
        ([unnest("ikebana_x", "x")], "flat_map", 'no column can be named "ikebana_x"'),
        ([unnest("e", "1")], "flat_map", "is of type INTEGER; must be a list"),
        ([where("1")], "where", "1: is of type INTEGER; must be true or false"),
        ([where("x")], "where", "x: is of type JSON; must be true or false"),
        ([where("true", "a +")], "where", "a +: syntax error at or near " + ""),
        ([Sql(diff="0.5")], "diff", "is of type DECIMAL(2,1); must be a whole number"),
        (
            [valid_between("1.5", None)],
            "valid_from",
            "is of type DECIMAL(2,1); must be a date, a timestamp or milliseconds",
        ),
        (
            [select(r="1::VARIANT")],
            "select.r",
            "1::VARIANT: is of type VARIANT, which JSON does not have; cast it",
        ),
        (
            [rekey("row(1, 2)")],
            "key",
            "row(1, 2): is of type TUPLE(INTEGER, INTEGER), without names; write",
        ),
        (
            [select(a='"Name"', b="name")],
            "select.b",
            '"name" and "Name" differ in case alone, which SQL does not see',
        ),
        (
            [where("x::BIGINT = 1"), select(b="X::BIGINT")],
            "select.b",
            '"X" and "x" differ in case alone, which SQL does not see',
        ),
        (
            [select(r="lower(1, 2)")],
            "select.r",
            "lower(1, 2): lower() does not take (INTEGER, INTEGER)",
        ),
        ([select(a="1"), select(r="b")], "select.r", 'b: there is no column "b"; there are a'),
    ],
)
def test_a_step_that_cannot_be_is_refused(steps: list[Sql], part: str, problem: str) -> None:
    """With its number, the part of it that is at fault, and why."""
    with pytest.raises(StepError) as caught:
        Query(steps, OPEN)

    assert (caught.value.step, caught.value.part) == (len(steps) - 1, part)
    assert str(caught.value).startswith(problem)


Result = list[tuple[Any, Any, int]]


def results(query: Query, *values: Any) -> Result:
    """(key, value, diff) of each result."""
    texts = [json.dumps(value).encode() for value in values]
    found, failed = query.run([b'"k"'] * len(texts), texts)
    assert failed == []
    keys = found.keys or [b'"k"' for _ in found.rows]
    made_values = found.values or [texts[row] for row in found.rows]
    diffs = found.diffs or [1] * len(found.rows)
    return [
        (json.loads(key), json.loads(value), diff)
        for key, value, diff in zip(keys, made_values, diffs, strict=True)
    ]


@pytest.mark.parametrize(
    ("steps", "value", "expected"),
    [
        pytest.param([Sql(select=())], {"x": 1}, [("k", {}, 1)], id="an empty select"),
        pytest.param([where()], {"x": 1}, [("k", {"x": 1}, 1)], id="no condition"),
        pytest.param([where("NULL")], {}, [], id="null is not true"),
        pytest.param(
            [unnest("x", "x")],
            {"x": [1, 2]},
            [("k", {"x": [1, 2]}, 1), ("k", {"x": [1, 2]}, 1)],
            id="flat_map leaves the value",
        ),
        pytest.param(
            [unnest("x", "x"), select(x="x", v="value")],
            {"x": [1, None]},
            [
                ("k", {"x": 1, "v": {"x": [1, None]}}, 1),
                ("k", {"x": None, "v": {"x": [1, None]}}, 1),
            ],
            id="a flat_map's column stands before the field of its name",
        ),
        pytest.param(
            [where("x::VARCHAR <> ''"), unnest("x", "x::VARCHAR[]"), select(x="x")],
            {"x": ["a"]},
            [("k", {"x": "a"}, 1)],
            id="also one that has been read",
        ),
        pytest.param(
            [select(x="x::BIGINT[]"), unnest("x", "x"), rekey("x")],
            {"x": [1, 2]},
            [(1, {"x": [1, 2]}, 1), (2, {"x": [1, 2]}, 1)],
            id="and one that has been selected",
        ),
        pytest.param(
            [unnest("x", "x"), unnest("x", "x"), select(x="x")],
            {"x": [[1], [], None, [2, 3]]},
            [("k", {"x": 1}, 1), ("k", {"x": 2}, 1), ("k", {"x": 3}, 1)],
            id="lists of lists",
        ),
        pytest.param(
            [Sql(flat_map=("e", "unnest(x::BIGINT[])"), where=("e > 1",), select=(("e", "e"),))],
            {"x": [1, 2, 3]},
            [("k", {"e": 2}, 1), ("k", {"e": 3}, 1)],
            id="all in one step",
        ),
        pytest.param([unnest("e", "x")], {"x": []}, [], id="an empty list"),
        pytest.param([unnest("e", "x")], {"x": None}, [], id="no list"),
        pytest.param(
            [unnest("e", "generate_series(1, x::BIGINT)"), select(e="e")],
            {"x": 2},
            [("k", {"e": 1}, 1), ("k", {"e": 2}, 1)],
            id="a series",
        ),
        pytest.param(
            [unnest("e", "repeat_row(x::BIGINT)")], {"x": 3}, [("k", {"x": 3}, 3)], id="rows"
        ),
        pytest.param(
            [unnest("e", "repeat_row(x::BIGINT)")], {"x": -3}, [("k", {"x": -3}, -3)], id="-"
        ),
        pytest.param(
            [unnest("e", "repeat_row(x::BIGINT)")], {"x": 0}, [], id="zero rows are none"
        ),
        pytest.param(
            [Sql(diff="x::BIGINT"), negate()], {"x": 2}, [("k", {"x": 2}, -2)], id="diff"
        ),
        pytest.param(
            [Sql(diff="x::INTEGER"), Sql(diff="3")], {"x": 2}, [("k", {"x": 2}, 6)], id="times"
        ),
        pytest.param([rekey("x")], {}, [(None, {}, 1)], id="a key of null"),
        pytest.param(
            [rekey("{'a': x, 'b': key}"), select(k="key", v="value")],
            {"x": 1.0},
            [({"a": 1, "b": "k"}, {"k": {"a": 1, "b": "k"}, "v": {"x": 1}}, 1)],
            id="a key of two",
        ),
        pytest.param(
            [Sql(select=(("o", "key"),), key="x")],
            {"x": 1},
            [(1, {"o": "k"}, 1)],
            id="the old key",
        ),
        pytest.param(
            [select(a="x"), rekey("a"), select(q="key", v="value")],
            {"x": 3},
            [(3, {"q": 3, "v": {"a": 3}}, 1)],
            id="the value that a select made",
        ),
        pytest.param(
            [select({"x::BIGINT": "5", "x": "y"}), select(r="x::BIGINT")],
            {"y": 7},
            [("k", {"r": 7}, 1)],
            id="a cast of a column behind a select",
        ),
    ],
)
def test_steps_make_rows(steps: list[Any], value: Any, expected: Result) -> None:
    """What comes out of a step is what goes into the next one."""
    assert results(Query(steps, OPEN), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 7, "b": 9}, [(7, 9)]),
        ({"a": -7, "b": 9}, [(-7, 9)]),
        ({"a": 9, "b": 9}, []),
        ({"a": 9, "b": 7}, []),
        ({"a": None, "b": 9}, []),
        ({"a": 7}, []),
    ],
)
def test_bounds(value: Any, expected: list[tuple[int, int]]) -> None:
    """An interval that is empty, inverted, or bounded by null, gives nothing."""
    query = Query([valid_between("a::BIGINT", "b::BIGINT")], OPEN)

    found, failed = query.run([None], [json.dumps(value).encode()])

    assert failed == []
    assert list(zip(found.begins or [], found.ends or [], strict=True)) == expected


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "expected"),
    [
        ("DATE", "1970-01-02", "1970-01-03", [(86_400_000, 172_800_000)]),
        ("TIMESTAMP", "1970-01-01 00:00:00.0011", "1970-01-01 00:00:00.0051", [(2, 6)]),
        ("TIMESTAMP", "1969-12-31 23:59:59.9951", "1969-12-31 23:59:59.9989", [(-4, -1)]),
        ("TIMESTAMP_NS", "1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.004", [(1, 4)]),
        ("TIMESTAMPTZ", "1970-01-01 00:00:00+01", "1970-01-01", [(-3_600_000, 0)]),
        ("TIMESTAMP_NS", "1970-01-01", "1970-01-02", [(0, 86_400_000)]),
        ("DATE", "1970-01-02", "infinity", [(86_400_000, None)]),
        ("TIMESTAMP", "infinity", "infinity", []),
        ("TIMESTAMP", "1970-01-01", "-infinity", []),
        ("TIMESTAMPTZ", "-infinity", "1970-01-01", [(None, 0)]),
    ],
)
def test_bounds_of_instants(
    kind: str, lower: str, upper: str, expected: list[tuple[int | None, int | None]]
) -> None:
    """The next whole millisecond since 1970; an infinite end is none."""
    query = Query([valid_between(f"a::{kind}", f"b::{kind}")], OPEN)

    found, failed = query.run([None], [json.dumps({"a": lower, "b": upper}).encode()])

    assert failed == []
    assert list(zip(found.begins or [], found.ends or [], strict=True)) == expected


def test_bounds_in_a_row_are_all_kept() -> None:
    """The latest beginning, the earliest end."""
    steps = [valid_between("1", "9"), valid_between("3", None), valid_between(None, "7")]

    found, _ = Query(steps, OPEN).run([None], [b"{}"])

    assert (found.begins, found.ends) == ([3], [7])


@pytest.mark.parametrize("size", SIZES)
def test_one_row_that_fails_leaves_the_others(size: int) -> None:
    """Each of the others is what it would be alone, and the error is of that row alone."""
    query = Query([where("x::BIGINT <> 7"), select(r="100 // (x::BIGINT - 5)")], OPEN)
    bad = size // 2
    numbers = [5 if at == bad else 10 + at % 90 for at in range(size)]

    found, failed = query.run([b"1"] * size, [b'{"x":%d}' % number for number in numbers])

    reason = "could not evaluate select.r 100 // (x::BIGINT - 5)"
    assert failed == [FailedRow(bad, 1, f"{reason}: Invalid Input Error: Division by zero")]
    assert found.rows == [at for at in range(size) if at != bad]
    assert found.values == [
        b'{"r":%d}' % (100 // (number - 5)) for number in numbers if number != 5
    ]


@pytest.mark.parametrize("bad", range(5))
def test_a_batch_that_fails_as_a_whole_is_run_in_halves(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17. Until the row that fails is alone; all others are what they would be."""
    query = Query([select(r="x::BIGINT + 1")], OPEN)

    def unforgiving(sql: str, table: pa.Table, *told: str) -> list[tuple[Any, ...]]:
        """Give nothing of a batch in which the row is, and say no more."""
        if bad in table.column(ROW).to_pylist():
            raise duckdb.InvalidInputException("the batch")
        return rows_over(sql, table, *told)

    monkeypatch.setattr(query_module, "rows_over", unforgiving)

    found, failed = query.run([b"1"] * 5, [b'{"x":%d}' % at for at in range(5)])

    assert failed == [FailedRow(bad, 0, "could not be evaluated")]
    assert found.rows == [at for at in range(5) if at != bad]
    assert found.values == [b'{"r":%d}' % (at + 1) for at in range(5) if at != bad]


CHAINS: dict[str, list[Any]] = {
    "where and select": [
        where("x::BIGINT <> 3", "60 // (x::BIGINT - 3) > 1"),
        select(r="7 // (x::BIGINT - 4)", s="key"),
    ],
    "flat_map": [
        unnest("e", "l::BIGINT[]"),
        where("10 // e > 2"),
        select(e="e", x="x"),
        rekey("5 // (e - 2)"),
    ],
    "diff and bounds": [
        Sql(diff="x::BIGINT - 2", valid_from="x::BIGINT", valid_until="y::BIGINT"),
        select(r="1 // (x::BIGINT - 5)"),
    ],
}
ROWS = [
    b'{"x":%d,"y":%s,"l":[%s]}' % (x, y, items)
    for x in range(8)
    for y in (b"null", b"4", b"9", b'"z"')
    for items in (b"", b"1", b"2,0,3", b"null,4", b'"a"')
]


def outcome(query: Query, rows: list[tuple[bytes, bytes]]) -> list[list[Any]]:
    """All that comes of each row, in the order of the rows."""
    found, failed = query.outcome(*zip(*rows, strict=True))
    by_row: list[list[Any]] = [[] for _ in rows]
    columns = [column or [None] * len(found.rows) for column in found[1:]]
    for row, *rest in zip(found.rows, *columns, strict=True):
        by_row[row].append(rest)
    for failure in failed:
        by_row[failure.row].append(failure[1:])
    return [sorted(results, key=repr) for results in by_row]


@pytest.mark.parametrize("name", CHAINS)
def test_the_size_of_a_batch_changes_nothing(name: str) -> None:
    """A row alone, among ten, and among thousands, has the same results and errors."""
    query = Query(CHAINS[name], OPEN)
    alone = {row: outcome(query, [(b"1", row)])[0] for row in ROWS}

    assert any(alone.values())
    for size in SIZES[1:]:
        rows = [(b"1", ROWS[at * 7 % len(ROWS)]) for at in range(size)]
        assert outcome(query, rows) == [alone[row] for _, row in rows]


@settings(unhurried, max_examples=25)
@given(st.permutations(ROWS[::3]), st.sampled_from(sorted(CHAINS)))
def test_neither_neighbours_nor_order_change_a_row(rows: list[bytes], name: str) -> None:
    """Whatever order a batch is in, each row comes to the same."""
    query = Query(CHAINS[name], OPEN)
    straight = dict(
        zip(ROWS[::3], outcome(query, [(b"1", row) for row in ROWS[::3]]), strict=True)
    )

    assert outcome(query, [(b"1", row) for row in rows]) == [straight[row] for row in rows]


def test_a_condition_guards_those_behind_it() -> None:
    """In a where of several, in AND and OR, also among thousands of rows."""
    guarded = ["x::BIGINT <> 0 AND 10 // x::BIGINT > 1", "x::BIGINT = 0 OR 10 // x::BIGINT > 1"]
    rows = [b'{"x":%d}' % (at % 20) for at in range(5_000)]
    for text in guarded:
        _, failed = Query([where(text)], OPEN).run([None] * 5_000, rows)
        assert failed == []
    mixed = [b'{"k":"n","x":1}', b'{"k":"s","x":"text"}'] * 2_500
    cast = Query([where("k::VARCHAR = 'n' AND x::BIGINT > 0"), select(x="x::BIGINT + 1")], OPEN)
    declared = Query(
        [where("k::VARCHAR = 'n'"), select(x="x + 1")], typed(k="VARCHAR", x="BIGINT")
    )
    for query in (cast, declared):
        found, failed = query.run([None] * 5_000, mixed)
        assert (found.values, failed) == ([b'{"x":2}'] * 2_500, [])
    _, failed = Query([where("x::BIGINT <> 0", "10 // x::BIGINT > 1")], OPEN).run(
        [None] * 5_000, rows
    )
    assert failed == []
    _, failed = Query([where("10 // x::BIGINT > 1 AND x::BIGINT <> 0")], OPEN).run(
        [None] * 5_000, rows
    )
    assert len(failed) == 250


def test_keys_and_values_of_bytes_stay_bytes() -> None:
    """Without a select they are handed on; expressions see them as BLOB."""
    scope = Scope({KEY: "BLOB", VALUE: "BLOB"})
    found, failed = Query([where("octet_length(value) > 0")], scope).run(
        [b"\xff\0", b"a"], [b"\xfe", b""]
    )
    text, refused = Query([select(t="decode(value)", k="key")], scope).run(
        [b"\xff\0", b"a"], [b"ok", b"\xfe"]
    )

    assert (found.rows, found.keys, found.values, failed) == ([0], None, None, [])
    assert text.values == [b'{"k":"/wA=","t":"ok"}']
    ((row, step, reason),) = refused
    assert (row, step) == (1, 0)
    assert reason.startswith("could not evaluate select.t decode(value): Conversion Error")


def test_no_rows_come_to_nothing() -> None:
    """An empty batch asks nothing of the database."""
    found, failed = Query([select(x="x")], OPEN).run([], [])

    assert (found.rows, failed) == ([], [])


def test_a_failure_of_ours_is_none_of_the_data() -> None:
    """A value is never blamed for what DuckDB cannot do; nor is it silently left out."""
    query = Query([select(r="repeat('x', n::BIGINT)")], OPEN)

    found, failed = query.run([None] * 2, [b'{"n":2}', b'{"n":30000000000}'])

    assert found.values == [b'{"r":"xx"}']
    ((row, step, reason),) = failed
    assert (row, step) == (1, 0)
    assert reason.startswith("could not evaluate select.r repeat('x', n::BIGINT): Out of Range")


def test_a_query_is_run_by_any_thread() -> None:
    """Each has a database of its own."""
    query = Query([select(r="x::BIGINT + 1")], OPEN)

    with ThreadPoolExecutor(3) as threads:
        found = [
            made.values
            for made, _ in threads.map(lambda n: query.run([None], [b'{"x":%d}' % n]), range(30))
        ]

    assert found == [[b'{"r":%d}' % (n + 1)] for n in range(30)]
