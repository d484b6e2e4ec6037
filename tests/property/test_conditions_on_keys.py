"""Semi-joins, anti-joins and outer joins whose conditions read the keys of rows, against DuckDB.

Rows of equal values under different keys are several rows: a condition may be true of one of
them alone.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikebana as ik
from ikebana import Pipeline, evaluate
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at
from support.strategies import few

TIMES = 3
TABLES = {"t": {"a": "BIGINT", "c": "VARCHAR"}, "u": {"a": "BIGINT", "d": "BIGINT"}}
# What DuckDB is asked of has the key as a column.
KEYED = {name: {"key": "BIGINT", **columns} for name, columns in TABLES.items()}
CONDITIONS = [
    "y.d > x.key::BIGINT",
    "x.a = y.a AND y.d > x.key::BIGINT",
    "x.a = y.a AND x.key::BIGINT <> y.key::BIGINT",
    "x.a = y.a AND x.key::BIGINT > 2",
    "y.key::BIGINT > 2 AND x.a < y.d",
    "x.key::BIGINT + x.a = y.key::BIGINT AND x.a <= y.d",
    "x.key::BIGINT = y.key::BIGINT",
    "x.a < y.d AND x.key::BIGINT < 3 AND y.key::BIGINT > 1",
]
QUERIES = [
    "SELECT x.a FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE {on})",
    "SELECT x.a, x.c FROM t x WHERE NOT EXISTS (SELECT 1 FROM u y WHERE {on})",
    "SELECT x.a, x.key::BIGINT AS k, y.d FROM t x LEFT JOIN u y ON {on}",
    "SELECT x.c, y.d, y.key::BIGINT AS k FROM t x RIGHT JOIN u y ON {on}",
    "SELECT x.a, x.c, y.d FROM t x FULL JOIN u y ON {on}",
]


def history(choice: Random) -> dict[str, list[Change]]:
    """Changes of few values under more keys."""
    found: dict[str, list[Change]] = {}
    for name, columns in TABLES.items():
        last = next(reversed(columns))
        values = ["x", "y", None] if last == "c" else [0, 2, 4, None]
        times = sorted(choice.randrange(TIMES) for _ in range(choice.randrange(3, 9)))
        found[name] = []
        for time in times:
            row = {"a": choice.choice([1, 1, 2, None]), last: choice.choice(values)}
            key = choice.randrange(1, 6)
            if any((key, time) == (each[0], each[2]) for each in found[name]):
                continue
            found[name].append((key, None if choice.random() < 0.2 else row, time))
    return found


def with_keys(changes: Mapping[str, list[Change]], time: int) -> dict[str, list[Any]]:
    """The rows of the tables at a time, each with its key as a column."""
    told = {
        name: [(key, row and {"key": key, **row}, at) for key, row, at in each]
        for name, each in changes.items()
    }
    return tables_at(told, time)


@few
@given(st.sampled_from(QUERIES), st.sampled_from(CONDITIONS), st.randoms(use_true_random=False))
def test_a_condition_is_asked_of_each_row_with_its_own_key(
    query: str, on: str, choice: Random
) -> None:
    changes = history(choice)
    text = query.format(on=on)

    found = evaluate(plan_of(TABLES, {"view": text}), records_of(changes), shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(KEYED, with_keys(changes, time), text)
        assert shown_at(found["view"], names, time) == expected, (time, text, changes)


TWINS: dict[str, list[Change]] = {
    "t": [(1, {"a": 1, "c": "x"}, 0), (5, {"a": 1, "c": "x"}, 0)],
    "u": [(9, {"a": 1, "d": 3}, 0)],
}


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (QUERIES[0], [(1, {"a": 1})]),
        (QUERIES[1], [(5, {"a": 1, "c": "x"})]),
        (QUERIES[2], [(1, {"a": 1, "k": 1, "d": 3}), (5, {"a": 1, "k": 5, "d": None})]),
    ],
)
def test_rows_of_equal_values_are_told_apart_by_their_keys(
    query: str, rows: list[tuple[int, dict[str, Any]]]
) -> None:
    """What is met, or not met, also keeps its own key."""
    text = query.format(on=CONDITIONS[0])

    found = evaluate(plan_of(TABLES, {"view": text}), records_of(TWINS))

    assert sorted((u.data for u in found["view"]), key=str) == rows
    assert [u.diff for u in found["view"]] == [1] * len(rows)


@pytest.mark.parametrize(
    ("kind", "kept"), [("semi_join", [1]), ("anti_join", [5]), ("left", [1, 5])]
)
def test_sections_tell_rows_apart_by_their_keys(kind: str, kept: list[int]) -> None:
    """So do semi_join, anti_join and joins with left inputs of files and Python."""
    pipeline = Pipeline("p")
    t, u = (
        pipeline.topic(
            name, name=f"{name}_changes", columns=[ik.Column(*each) for each in columns.items()]
        ).upsert(name)
        for name, columns in TABLES.items()
    )
    on = CONDITIONS[0]
    match kind:
        case "semi_join":
            made = t.semi_join(u, on=on, aliases=("x", "y"), name="made")
        case "anti_join":
            made = t.anti_join(u, on=on, aliases=("x", "y"), name="made")
        case _:
            made = pipeline.join(
                {"x": t, "y": u}, left={"y": on}, select={"a": "x.a", "d": "y.d"}, name="made"
            )
    made.to("out")

    found = evaluate(pipeline, records_of(TWINS))

    assert sorted(u.data[0] for u in found["out"]) == kept
