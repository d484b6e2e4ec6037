"""Extremes of a reduction against DuckDB's own, for values of every type.

The values are made by SQL, as JSON they reach the reduction, and DuckDB orders them itself.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan, Reduce, Upsert
from ikebana.arrangements.update import Update
from ikebana.codecs import canonical
from ikebana.processor.engine.evaluate import evaluate
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.typed_json import from_json
from support.sql_oracle import assert_answered
from support.sql_oracle import plan_of as view_of
from support.strategies import unhurried

DAYS = ["2024-02-29", "0001-01-01", "9999-12-31", "10000-01-01", "12345-06-07", "200000-01-02"]
BEFORE = ["0044-03-15 (BC)", "0043-03-15 (BC)", "0001-12-31 (BC)"]
TIMES = ["12:00:00", "12:00:00.5", "12:00:00.49", "00:00:00", "23:59:59.999999"]
MODERN = [f"{day} {time}" for day in ("2024-02-29", "2024-03-01", "1969-12-31") for time in TIMES]
FAR = [f"{day} {time}" for day in [*DAYS, *BEFORE] for time in TIMES[:3]]
INFINITE = ["infinity", "-infinity"]
OFFSETS = ["+00", "+02", "-03:30", "+02:00:30", "-15:59:59", "+15:59:59"]
WHOLE = [0, 1, -1, 9, 10, 127, -128]
EDGES = [*WHOLE, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
DECIMALS = ["0", "1.5", "1.25", "-1.25", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + ".1", "1E-10"]

# JSON texts of values of each type, in the spellings that it takes.
TEXTS: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": [str(n) for n in WHOLE],
    "BIGINT": [str(n) for n in EDGES],
    "UBIGINT": ["0", "9", "10", str(2**64 - 1)],
    "HUGEINT": [str(n) for n in (*EDGES, 10**37, -(10**37))],
    "DOUBLE": ["0", "1.5", "-1.5", "1e308", "-1e308", "5e-324", "1e-7", "1e21", "0.1"],
    "FLOAT": ["0", "0.1", "-0.1", "3e38", "1e-40", "16777217"],
    "DECIMAL(38,10)": DECIMALS,
    "VARCHAR": ['""', '"a"', '"A"', '"ab"', '"é"', '"\\uffee"', '"\\ud83d\\ude00"', '"a\\u0000"'],
    "UUID": [f'"{text}"' for text in ("0" * 31 + "1", "f" * 32, "7" + "f" * 31, "8" + "0" * 31)],
    "BLOB": ['""', '"AA=="', '"AAA="', '"/w=="', '"YQ=="', '"fw=="', '"gA=="', '"AP8="'],
    "DATE": [f'"{text}"' for text in (*DAYS, *BEFORE, *INFINITE)],
    "TIME": [f'"{text}"' for text in (*TIMES, "24:00:00")],
    "TIME WITH TIME ZONE": [f'"{time}{zone}"' for time in TIMES for zone in OFFSETS],
    "TIMESTAMP": [f'"{text}"' for text in (*MODERN, *FAR, *INFINITE)],
    "TIMESTAMP_MS": [f'"{text}"' for text in (*MODERN[:3], *FAR[:3])],
    "TIMESTAMP_NS": [f'"{text}"' for text in (*MODERN, "2024-02-29 12:00:00.000000001")],
    "TIMESTAMP WITH TIME ZONE": [f'"{text}+00"' for text in (*MODERN, *FAR)]
    + [f'"{text}"' for text in INFINITE],
    "ENUM('z', 'a', 'm')": ['"z"', '"a"', '"m"'],
}
NESTED: dict[str, list[str]] = {
    **{f"{kind}[]": TEXTS[kind] for kind in ("BIGINT", "DATE", "BLOB", "VARCHAR")},
    "STRUCT(x DATE, y BIGINT[])": [
        f'{{"x":{day},"y":{row}}}'
        for day in ("null", '"2024-02-29"', '"12345-06-07"')
        for row in ("null", "[]", "[9]", "[10]", "[9,null]", "[null]")
    ],
}
LENGTHS = ["1 day", "-1 month", "1 year", "178000000 years"]
# The last ones are equal to some of these and differ as data, so the least may be either.
PEERS = [*LENGTHS, "24:00:00", "-30 days", "360 days"]
KINDS = {**TEXTS, **NESTED, "INTERVAL": [f'"{text}"' for text in LENGTHS]}
WITH_PEERS = {**KINDS, "INTERVAL": [f'"{text}"' for text in PEERS]}


@st.composite
def texts(draw: st.DrawFn, kind: str, kinds: Mapping[str, Sequence[str]] = KINDS) -> list[str]:
    """JSON texts of values of a type, null among them."""
    values = st.sampled_from(kinds[kind])
    if kind.endswith("[]"):
        parts = st.lists(st.one_of(st.just("null"), values), max_size=3)
        values = parts.map(lambda found: f"[{','.join(found)}]")
    return draw(
        st.lists(st.one_of(st.just("null"), values, values, values), min_size=1, max_size=9)
    )


AGGREGATES = (("least", "min(x)"), ("most", "max(x)"), ("top", "top(4, x)"))


@functools.cache
def plan_of(kind: str) -> Plan:
    """A reduction of a column of a type."""
    return Plan(
        "p",
        (Input("t", ("t",), columns=(Column("x", kind),)),),
        (Upsert("u", "t"), Reduce("r", "u", AGGREGATES, by="1")),
        (Output("o", "r", "o"),),
    )


def row_of(text: str) -> Any:
    """A row with a value that is written so."""
    return json.loads(f'{{"x":{text}}}', parse_float=canonical.number)


def results_at(found: list[Update[Any]], time: int) -> Any:
    """What the reduction has come to at a time."""
    return next(
        (u.data[1] for u in reversed(found) if u.time <= time and u.diff > 0),
        None,
    )


def in_duckdb(kind: str, values: Sequence[str]) -> tuple[list[str], tuple[Any, ...]]:
    """The values that are not null in DuckDB's order, as texts, and its least and greatest."""
    rows = ", ".join("(?)" for _ in values)
    made = f"SELECT {from_json('t', kind)} AS v FROM (VALUES {rows}) AS given(t)"
    in_order = rows_of(f"SELECT v::VARCHAR FROM ({made}) WHERE v IS NOT NULL ORDER BY v", *values)
    (ends,) = rows_of(f"SELECT min(v)::VARCHAR, max(v)::VARCHAR FROM ({made})", *values)
    return [text for (text,) in in_order], ends


def as_sql(kind: str, value: object) -> str | None:
    """A value of a result as SQL writes it."""
    if value is None:
        return None
    text = canonical.encode(value).decode()
    ((found,),) = rows_of(f"SELECT ({from_json('t', kind)})::VARCHAR FROM (SELECT ? AS t)", text)
    return str(found)


@pytest.mark.parametrize("kind", KINDS)
@settings(unhurried, max_examples=max(4, settings().max_examples // 20))
@given(st.data())
def test_extremes_are_those_of_sql(kind: str, data: st.DataObject) -> None:
    """min, max and top give what DuckDB's min, max and ORDER BY give; null counts for nothing."""
    drawn = data.draw(texts(kind))

    found = evaluate(plan_of(kind), {"t": [(at, row_of(t), 0) for at, t in enumerate(drawn)]})

    assert found["errors"] == []
    results = results_at(found["o"], 0)
    upwards, (least, most) = in_duckdb(kind, drawn)
    assert as_sql(kind, results["least"]) == least
    assert as_sql(kind, results["most"]) == most
    assert [as_sql(kind, value) for value in results["top"]] == upwards[::-1][:4]


@pytest.mark.parametrize("kind", KINDS)
@settings(unhurried, max_examples=max(3, settings().max_examples // 40))
@given(st.data())
def test_what_is_taken_back_is_no_extreme_any_more(kind: str, data: st.DataObject) -> None:
    """A value is found again by its bytes, whatever its type."""
    kept, gone = data.draw(texts(kind)), data.draw(texts(kind))
    plan = plan_of(kind)
    alone = [(f"kept {at}", row_of(text), 0) for at, text in enumerate(kept)]
    passing = [(f"gone {at}", row_of(text), 0) for at, text in enumerate(gone)]
    away = [(key, None, 1) for key, *_ in passing]

    found = evaluate(plan, {"t": [*alone, *passing, *away]})["o"]

    assert results_at(found, 1) == results_at(evaluate(plan, {"t": alone})["o"], 0)


TURNED = [*TEXTS, "INTERVAL"]


def check_turned(kind: str, drawn: Sequence[str], limit: int, nulls: str = "") -> None:
    """The first rows of an order in two directions are those that DuckDB has."""
    order = f"ORDER BY x DESC{nulls}, n LIMIT {limit}"
    plan = view_of({"t": {"x": kind, "n": "BIGINT"}}, {"view": f"SELECT n FROM t {order}"})
    rows = [(n, {**row_of(text), "n": n}, 0) for n, text in enumerate(drawn)]

    found = evaluate(plan, {"t_changes": rows})

    assert found["errors"] == []
    values = ", ".join(f"(?, {n})" for n in range(len(drawn)))
    made = f"SELECT {from_json('t', kind)} AS x, n FROM (VALUES {values}) AS given(t, n)"
    expected = [n for (n,) in rows_of(f"SELECT n FROM ({made}) {order}", *drawn)]
    assert sorted(u.data[1]["n"] for u in found["view"]) == sorted(expected)


@pytest.mark.parametrize("kind", TURNED)
@settings(unhurried, max_examples=max(2, settings().max_examples // 20))
@given(st.data())
def test_an_order_in_two_directions_is_that_of_sql(kind: str, data: st.DataObject) -> None:
    """What is ordered against others is turned around, nulls included."""
    drawn = data.draw(texts(kind, WITH_PEERS))
    nulls = data.draw(st.sampled_from(["", " NULLS FIRST"]))

    check_turned(kind, drawn, max(1, len(drawn) // 2), nulls)


INFINITIES = ["null", '"-infinity"', '"2024-02-29"', '"infinity"', '"1969-12-31"']


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [
        *((kind, INFINITIES) for kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")),
        ("TIMESTAMP_NS", ['"1969-12-31 23:59:59.999999999"', *INFINITIES]),
        ("HUGEINT", ["0", str(2**127 - 1), "null", str(-(2**127)), "-1"]),
        ("TIME", ['"24:00:00"', '"00:00:00"', "null", '"23:59:59.999999"']),
    ],
)
def test_ends_of_a_type_are_the_ends_of_an_order_that_is_turned(
    kind: str, drawn: list[str]
) -> None:
    for limit in range(1, len(drawn)):
        check_turned(kind, drawn, limit)


def test_microseconds_of_lengths_are_equal_as_sql_compares_them() -> None:
    """What refusals of lengths propose: seconds differ, since they take a year for 365.25 days."""
    short = [text for text in PEERS if text != "178000000 years"]
    pairs = [(one, other) for one in short for other in short]
    equal = "SELECT ?::INTERVAL = ?::INTERVAL"

    for one, other in pairs:
        assert rows_of(equal, one, other) == rows_of(
            "SELECT epoch_us(?::INTERVAL) = epoch_us(?::INTERVAL)", one, other
        )


def test_lengths_that_differ_as_data_may_be_peers() -> None:
    """A month has 30 days, and a day 24 hours, in the order of SQL."""
    tables = {"t": {"id": "BIGINT", "x": "INTERVAL"}}
    rows = [(at, {"id": at, "x": x}, 0) for at, x in enumerate([*PEERS, None])]
    ranks = "rank() OVER (ORDER BY x) AS a, dense_rank() OVER (ORDER BY x DESC) AS b"
    query = f"SELECT id, {ranks}, count(*) OVER (ORDER BY x) AS n FROM t"

    assert_answered(tables, [query], {"t": [*rows, (0, None, 1)]}, 2)
