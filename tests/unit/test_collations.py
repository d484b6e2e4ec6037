"""Collations: exact in a comparison, and refused wherever they would be lost."""

from collections.abc import Callable
from typing import Any

import pytest

import ikebana as ik
from ikebana import evaluate
from ikebana.errors import ConfigError, PlanError
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at

TABLES = {"t": {"a": "BIGINT", "c": "VARCHAR"}}
CHANGES: dict[str, list[Change]] = {
    "t": [
        (key, {"a": a, "c": c}, 0)
        for key, (a, c) in enumerate([(1, "x"), (1, "X"), (2, "y"), (2, None), (3, "W")])
    ]
}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, c FROM t WHERE c COLLATE NOCASE = 'x'",
        "SELECT a FROM t WHERE c COLLATE NOCASE IN ('w', 'Y')",
        "SELECT a FROM t WHERE c COLLATE NOCASE BETWEEN 'X' AND 'y'",
        "SELECT a FROM t WHERE lower(c COLLATE NOCASE || '!') IS DISTINCT FROM 'X!'",
        "SELECT c COLLATE NOCASE = 'x' AS m, count(*) AS n FROM t GROUP BY ALL",
        "SELECT CASE c COLLATE NOCASE WHEN 'X' THEN 1 ELSE 2 END AS m FROM t",
        "SELECT count(*) FILTER (c COLLATE NOCASE > 'w') AS n FROM t",
        "SELECT a FROM t GROUP BY a HAVING min(c) COLLATE NOCASE = 'x'",
        "SELECT x.a FROM t x JOIN t y ON x.a = y.a AND x.c COLLATE NOCASE <= y.c",
        "SELECT x.a FROM t x WHERE EXISTS (SELECT 1 FROM t y WHERE y.c COLLATE NOCASE > x.c)",
        "SELECT x.a FROM t x WHERE x.c COLLATE NOCASE < (SELECT max(c) FROM t)",
    ],
)
def test_a_comparison_by_a_collation_is_that_of_duckdb(query: str) -> None:
    found = evaluate(plan_of(TABLES, {"view": query}), records_of(CHANGES))

    assert found["errors"] == []
    names, expected = answer(TABLES, tables_at(CHANGES, 0), query)
    assert shown_at(found["view"], names, 0) == expected


ALONE = "COLLATE counts in a comparison alone, as in name COLLATE NOCASE = 'x'; select, group"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT count(*) AS n FROM t GROUP BY c COLLATE NOCASE", f"line 1, column 38: {ALONE}"),
        ("SELECT c COLLATE NOCASE AS k FROM t", ALONE),
        ("SELECT DISTINCT c COLLATE NOCASE AS k FROM t", ALONE),
        ("WITH v AS (SELECT c COLLATE NOCASE AS k FROM t) SELECT k FROM v", ALONE),
        ("SELECT c FROM t ORDER BY c COLLATE NOCASE LIMIT 1", ALONE),
        ("SELECT min(c COLLATE NOCASE) AS m FROM t", ALONE),
        ("SELECT count(DISTINCT c COLLATE NOCASE) AS m FROM t", ALONE),
        ("SELECT a FROM t GROUP BY a HAVING min(c COLLATE NOCASE) = 'x'", ALONE),
        ("SELECT string_agg(c ORDER BY c COLLATE NOCASE) AS m FROM t", ALONE),
        ("SELECT a FROM t QUALIFY row_number() OVER (ORDER BY c COLLATE NOCASE) = 1", ALONE),
        ("SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY c COLLATE NFC) = 1", ALONE),
        ("SELECT a FROM t WHERE c COLLATE NOCASE IN (SELECT c FROM t)", ALONE),
        ("SELECT a FROM t WHERE c IN (SELECT c COLLATE NOCASE FROM t)", ALONE),
        ("SELECT a FROM t WHERE c = (SELECT max(c COLLATE NOCASE) FROM t)", ALONE),
        ("SELECT c FROM t UNION SELECT c COLLATE NOCASE FROM t", ALONE),
        ("SELECT x.a FROM t x JOIN t y ON x.c COLLATE NOCASE = y.c", "a collation does not reach"),
        ("SELECT x.a FROM t x WHERE EXISTS (FROM t y WHERE y.c COLLATE NOCASE = x.c)", "lower("),
    ],
)
def test_a_collation_that_would_be_lost_is_refused(query: str, problem: str) -> None:
    """What groups, orders and joins is data, which have no collation."""
    tables = ik.Pipeline("p")
    tables.topic("t", columns=[ik.Column(*each) for each in TABLES["t"].items()]).upsert()

    with pytest.raises(ConfigError) as told:
        tables.sql(query, name="view")

    assert problem in str(told.value)


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows.select(k="c COLLATE NOCASE"),
        lambda rows: rows.rekey("c COLLATE NOCASE"),
        lambda rows: rows.reduce(by="c COLLATE NOCASE", n="count(*)"),
        lambda rows: rows.reduce(by="c", n="max(c COLLATE NOCASE)"),
    ],
)
def test_steps_refuse_a_collation_as_views_do(made: Callable[[Any], Any]) -> None:
    pipeline = ik.Pipeline("p")
    made(pipeline.topic("t", columns=[ik.Column("c", "VARCHAR")]).upsert()).to("out")

    with pytest.raises(PlanError, match="COLLATE counts in a comparison alone"):
        pipeline.plan()
