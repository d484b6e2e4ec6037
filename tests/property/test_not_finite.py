"""Infinity and NaN are numbers as in DuckDB; JSON, which lacks them, has their names."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ikebana import Input, Linear, Output, Plan, ReduceRows, StateMachine, Upsert, evaluate, steps
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at
from support.strategies import unhurried

TABLES = {
    "t": {"g": "BIGINT", "d": "DOUBLE", "f": "FLOAT", "l": "DOUBLE[]"},
    "u": {"g": "BIGINT", "d": "DOUBLE"},
}
TIMES = 3
NUMBERS = st.sampled_from([None, "NaN", "Infinity", "-Infinity", 0, 1.5, -2.5, 1.5])
QUERIES = [
    "SELECT g, d, l FROM t",
    "SELECT d + 1 AS x, -d AS y, d * 0 AS z, 10 / d AS w, sqrt(abs(d)) AS v FROM t",
    "SELECT [d, g] AS x, {'a': d, 'b': l} AS y, l[1] AS z, d::VARCHAR AS v FROM t",
    "SELECT d, count(*) AS n FROM t GROUP BY d",
    "SELECT 10 / d AS q, count(*) AS n FROM t GROUP BY q",
    "SELECT g, sum(d) AS a, avg(d) AS b, min(d) AS c, max(d) AS e FROM t GROUP BY g",
    "SELECT g, sum(f) AS a, avg(f) AS b, min(f) AS c, max(f) AS e FROM t GROUP BY g",
    "SELECT var_pop(d) AS a, var_samp(d) AS b, stddev_pop(d) AS c, stddev_samp(d) AS e FROM t",
    "SELECT g, var_pop(d) AS a, stddev_samp(d) AS b, count(DISTINCT d) AS n FROM t GROUP BY g",
    "SELECT min(l) AS a, max(l) AS b, bool_or(isnan(d)) AS c FROM t",
    "SELECT sum(x) AS a, max(x) AS b FROM (SELECT sum(d) AS x FROM t GROUP BY g) s",
    "SELECT g FROM t WHERE d > 1 OR d < -100",
    "SELECT g FROM t WHERE isnan(d) OR d = 'infinity'::DOUBLE",
    "SELECT t.g, u.g AS h FROM t JOIN u ON t.d = u.d",
    "SELECT t.g, u.g AS h FROM t LEFT JOIN u ON t.d = u.d",
    "SELECT t.d, u.d AS e FROM t, u WHERE t.g = u.g AND t.d > u.d",
    "SELECT g FROM t WHERE d IN (SELECT d FROM u)",
    "SELECT d FROM t UNION SELECT d FROM u",
    "SELECT d FROM t EXCEPT SELECT d FROM u",
    "SELECT DISTINCT d FROM t",
    "SELECT d FROM t ORDER BY d DESC LIMIT 2",
    "SELECT d FROM t ORDER BY d LIMIT 2",
    "SELECT g, d FROM t ORDER BY g, d DESC LIMIT 3",
    "SELECT g, d FROM t ORDER BY g DESC, d LIMIT 3",
]


def row_of(number: Any) -> dict[str, Any]:
    """A row of the first group."""
    return {"g": 0, "d": number, "f": number, "l": [number, 1]}


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[Change]]:
    """Inserts, updates and deletes of few keys."""
    found: dict[str, list[Change]] = {}
    for name, columns in TABLES.items():
        changes: list[Change] = []
        for time in range(TIMES):
            for key in draw(st.sets(st.integers(0, 3), max_size=3)):
                number = draw(NUMBERS)
                row = {"g": key % 2, "d": number, "f": number, "l": [draw(NUMBERS), 1]}
                row = {column: row[column] for column in columns}
                changes.append((key, draw(st.sampled_from([row, row, row, None])), time))
        found[name] = changes
    return found


@pytest.mark.parametrize("query", QUERIES)
@settings(unhurried, max_examples=max(5, settings().max_examples // 10))
@given(histories())
@example({"t": [(at, row_of(d), 0) for at, d in enumerate(["NaN", 1.5, 0, -2.5])], "u": []})
def test_a_view_is_what_duckdb_answers(query: str, changes: dict[str, list[Change]]) -> None:
    """At every time, also when what is not finite has gone again."""
    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), query, time)
        assert shown_at(found["view"], names, time) == expected, time


def made(*operators: Any, records: list[tuple[Any, Any, int]]) -> list[Any]:
    """The values of the last of these operators."""
    first = () if isinstance(operators[0], StateMachine) else (Upsert("u", "t"),)
    name = operators[-1].name
    plan = Plan("p", (Input("t", ("t",)),), (*first, *operators), (Output("o", name, "o"),))
    found = evaluate(plan, {"t": records})
    assert found["errors"] == []
    return [value for (_, value), _, _ in found["o"]]


def test_functions_may_give_what_is_not_finite() -> None:
    """Functions of a linear step, a state machine and a reduction; they are given its name."""
    records: list[tuple[Any, Any, int]] = [(1, {"d": nan, "e": [inf, None]}, 0)]
    taken: list[Any] = []

    def mapped(data: Any) -> Any:
        taken.append(data[1])
        return data[0], {"x": -inf, "y": {"z": nan}}

    assert made(Linear("l", "u", (steps.map_(mapped),)), records=records) == [
        {"x": "-Infinity", "y": {"z": "NaN"}}
    ]
    assert taken == [{"d": "NaN", "e": ["Infinity", None]}]
    machine = StateMachine("m", "t", lambda states, event, time: [inf])
    assert made(machine, records=records) == ["Infinity"]
    reduction = ReduceRows("r", "u", function=lambda key, rows: [nan, nan])
    assert set(made(reduction, records=records)) == {"NaN"}


def test_json_that_duckdb_writes_has_the_names() -> None:
    """In it they stand bare, which is no JSON."""
    divided = "10 / n::BIGINT"
    step = steps.select(
        a=f"to_json({divided})", b=f"json_object('NaN', -{divided})", c=f"[{divided}]::JSON"
    )

    assert made(Linear("l", "u", (step,)), records=[(1, {"n": 0}, 0), (2, {"n": 5}, 0)]) == [
        {"a": "Infinity", "b": {"NaN": "-Infinity"}, "c": ["Infinity"]},
        {"a": 2, "b": {"NaN": -2}, "c": [2]},
    ]


def test_infinity_and_its_opposite_have_no_sum() -> None:
    """It is no number, and one again as soon as one of them has gone."""
    rows = [(1, {"g": 1, "d": "Infinity"}, 0), (2, {"g": 1, "d": "-Infinity"}, 0), (1, None, 1)]
    plan = plan_of({"t": {"g": "BIGINT", "d": "DOUBLE"}}, {"v": "SELECT sum(d) AS s FROM t"})

    updates = evaluate(plan, {"t_changes": rows})["v"]

    assert [(u.data[1]["s"], u.time, u.diff) for u in updates] == [
        ("NaN", 0, 1),
        ("NaN", 1, -1),
        ("-Infinity", 1, 1),
    ]
