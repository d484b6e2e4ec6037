"""Subqueries in all places are at every closed time what DuckDB answers over the tables then."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, note, reject
from hypothesis import strategies as st

from ikebana import evaluate
from ikebana.processor.linear.bound_query import BindingError
from support.random_queries import TABLES, history
from support.random_subqueries import Nesting
from support.sql_oracle import (
    Change,
    answer,
    assert_answered,
    plan_of,
    records_of,
    shown_at,
    tables_at,
)
from support.strategies import few

TIMES = 3


@few
@given(st.randoms(use_true_random=False))
def test_a_view_with_subqueries_is_what_duckdb_answers(choice: Random) -> None:
    query = Nesting(choice).query()
    changes = history(choice, TIMES, stay=choice.randint(0, 4))
    note(query)

    try:
        assert_answered(TABLES, [query], changes, TIMES)
    except BindingError:
        # Nothing else is refused of what the grammar has.
        reject()


NEAREST = "ORDER BY u.d DESC, u.e LIMIT 1"
SHAPES = {
    "in the select list": (
        "SELECT t.a, (SELECT max(u.d) FROM u WHERE u.a = t.a) AS m FROM t",
        "SELECT t.a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
        "SELECT t.a, (SELECT count(*) + 1 FROM u WHERE u.a < t.a) AS n FROM t",
        "SELECT t.a, (SELECT coalesce(sum(u.d), -1) FROM u WHERE u.a = t.a) AS n FROM t",
        "SELECT t.a, t.c, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e FROM t",
        "SELECT t.a, t.a IN (SELECT u.d FROM u) AS i, t.a NOT IN (SELECT u.d FROM u) AS n FROM t",
        f"SELECT t.a, (SELECT u.d FROM u WHERE u.a = t.a {NEAREST}) AS d FROM t",
        f"SELECT t.a, (SELECT u.d FROM u WHERE u.d < t.a {NEAREST}) AS d FROM t",
        "SELECT t.a, (SELECT max(u.d) FROM u) AS m, (SELECT min(u.d) FROM u) AS n FROM t",
        "SELECT (SELECT max(d) FROM u) AS m FROM t WHERE m > 1",
    ),
    "under OR, NOT, CASE, BETWEEN and in arguments": (
        "SELECT t.a FROM t WHERE t.a = 1 OR EXISTS (SELECT 1 FROM u WHERE u.d > t.a)",
        "SELECT t.a FROM t WHERE NOT (t.a = 1 AND t.a IN (SELECT u.d FROM u WHERE u.a = t.a))",
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a) THEN (SELECT min(d) FROM u "
        "WHERE u.a >= t.a) ELSE t.a END AS x FROM t",
        "SELECT t.a FROM t WHERE t.a BETWEEN (SELECT min(d) FROM u WHERE u.a = t.a) AND "
        "(SELECT max(d) FROM u)",
        "SELECT greatest(t.a, (SELECT max(d) FROM u WHERE u.a <> t.a)) AS g FROM t",
        "SELECT sum((SELECT count(*) FROM u WHERE u.a = t.a)) AS s FROM t",
        "SELECT t.a FROM t WHERE ((SELECT max(d) FROM u WHERE u.a = t.a) IS NULL) = true",
        "SELECT t.a FROM t WHERE coalesce((SELECT max(d) FROM u WHERE u.a = t.a), 1) = 1",
        "SELECT t.a FROM t WHERE t.b < (SELECT sum(d) FROM u WHERE u.a = t.a AND u.a = t.b + 1)",
    ),
    "compared with all rows": (
        *(
            f"SELECT t.a, t.a {op} {which} (SELECT u.d FROM u{where}) AS x FROM t"
            for op, which in product(("=", "<>", "<", ">="), ("ANY", "ALL"))
            for where in ("", " WHERE u.a = t.a")
        ),
        "SELECT t.a FROM t WHERE t.a > ALL (SELECT u.d FROM u WHERE u.a <> t.a)",
        "SELECT t.a FROM t WHERE t.a >= ANY (SELECT u.d FROM u WHERE u.a = t.a)",
        "SELECT t.a FROM t WHERE NOT (t.a = ANY (SELECT max(u.d) FROM u WHERE u.a = t.a))",
    ),
    "rows of several values compared with all rows": (
        *(
            f"SELECT t.a, (t.a, t.c) {op} (SELECT u.d, u.e::VARCHAR FROM u{where}) AS x FROM t"
            for op in ("IN", "NOT IN", "= ANY", "<> ALL")
            for where in ("", " WHERE u.e IS NOT NULL", " WHERE u.d IS NOT NULL AND u.a = 1")
        ),
        "SELECT t.a FROM t WHERE (t.a, t.a) IN (SELECT u.a, u.d FROM u)",
        "SELECT t.a FROM t WHERE (t.a, t.a) NOT IN (SELECT u.a, u.d FROM u WHERE u.a > 0)",
        "SELECT t.a, t.b FROM t WHERE (t.a, 1) NOT IN (SELECT u.a, u.d FROM u WHERE u.d = 1)",
        "SELECT t.a, (t.a, t.b) > ANY (SELECT u.d, u.a FROM u) AS x FROM t",
        "SELECT t.a, (t.a, t.b) <= ALL (SELECT u.d, u.a FROM u) AS x FROM t",
        "SELECT t.a, count(*) AS n FROM t GROUP BY t.a HAVING (t.a, count(*)) IN "
        "(SELECT u.a, u.d FROM u)",
    ),
    "in ON": (
        "SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND u.d = (SELECT max(d) FROM u z "
        "WHERE z.a = t.a)",
        "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a AND EXISTS (SELECT 1 FROM u z "
        "WHERE z.d > u.d AND z.a <= t.a)",
        "SELECT t.a, u.d FROM t FULL JOIN u ON t.a = u.a AND t.a NOT IN (SELECT d FROM u z)",
        "SELECT a, c, d FROM t RIGHT JOIN u USING (a) WHERE a IN (SELECT z.a FROM t z)",
        "SELECT t.a, t.c FROM t SEMI JOIN u ON t.a = u.a AND u.d > (SELECT min(d) FROM u z)",
        "SELECT t.* FROM t SEMI JOIN u ON t.a < u.d AND EXISTS (SELECT 1 FROM t z "
        "WHERE z.a = u.a AND z.b > t.b)",
        "SELECT t.a, t.c FROM t ANTI JOIN u ON t.a = u.a AND u.d IN (SELECT z.a FROM t z)",
    ),
    "of groups": (
        "SELECT t.a, count(*) AS n, (SELECT max(d) FROM u WHERE u.a = t.a) AS m FROM t "
        "GROUP BY t.a",
        "SELECT t.a, count(*) AS n FROM t GROUP BY t.a HAVING count(*) > 1 OR t.a IN "
        "(SELECT u.d FROM u WHERE u.a >= t.a)",
        "SELECT (SELECT max(d) FROM u WHERE u.a = t.a) AS m, count(*) AS n FROM t GROUP BY m",
        "SELECT (SELECT max(d) FROM u WHERE u.a = t.a) AS m, count(*) AS n FROM t GROUP BY 1",
        "SELECT (SELECT count(*) FROM u WHERE u.a = t.a) AS m, count(*) AS n FROM t GROUP BY ALL",
        "SELECT t.a FROM t WHERE EXISTS (SELECT u.a FROM u WHERE u.a = t.a GROUP BY u.a "
        "HAVING sum(u.d) > t.a)",
        "SELECT t.a, (SELECT max(n) FROM (SELECT count(*) AS n FROM u WHERE u.a <= t.a "
        "GROUP BY u.d) z) AS m FROM t",
        "SELECT t.a FROM t WHERE t.a = (SELECT count(*) FROM u WHERE u.d = t.a "
        "HAVING count(*) > 0)",
        "SELECT t.a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a HAVING count(*) = 0)",
        "SELECT t.a, (SELECT count(*) FROM u WHERE u.d < max(t.b)) AS n FROM t GROUP BY t.a",
    ),
    "of texts of which several are equal to one number": (
        *(
            template.format("(SELECT unnest([d::VARCHAR, '0' || d]) AS s, a, d FROM u)")
            for template in (
                "SELECT t.a FROM t SEMI JOIN {} y ON t.a = y.s",
                "SELECT t.a FROM t ANTI JOIN {} y ON t.a = y.s",
                "SELECT t.a, y.s FROM t LEFT JOIN {} y ON t.a = y.s",
                "SELECT t.a FROM t WHERE EXISTS (SELECT 1 FROM {} y WHERE y.s = t.a)",
                "SELECT t.a, EXISTS (SELECT 1 FROM {} y WHERE y.s = t.a) AS e FROM t",
                "SELECT t.a, (SELECT count(*) FROM {} y WHERE y.s = t.a) AS n FROM t",
                "SELECT t.a, z.m FROM t, LATERAL (SELECT max(d) AS m FROM {} y WHERE y.s = t.a) z",
                "SELECT t.a, z.d FROM t, LATERAL (SELECT d FROM {} y WHERE y.s = t.a "
                "ORDER BY d, a LIMIT 1) z",
                "SELECT t.a, y.s FROM t ASOF JOIN (SELECT DISTINCT ON (s::INTEGER, d) * FROM {} "
                "ORDER BY s::INTEGER, d, s, a) y ON t.a = y.s AND t.b >= y.d",
            )
        ),
        "SELECT t.a FROM t WHERE t.a NOT IN (SELECT d FROM u WHERE d IS NOT NULL "
        "GROUP BY ROLLUP (d))",
    ),
    "of grouping sets, of which one is of nothing": (
        "SELECT t.a, z.* FROM t, LATERAL (SELECT d, count(*) AS n, sum(d) AS s, grouping(d) AS g "
        "FROM u WHERE u.a = t.a GROUP BY ROLLUP (d)) z",
        "SELECT t.a, z.* FROM t, LATERAL (SELECT d, count(e) AS n FROM u WHERE u.a < t.a "
        "GROUP BY CUBE (d, e)) z",
        "SELECT t.a FROM t WHERE t.a IN "
        "(SELECT max(a) FROM u WHERE u.d > t.a GROUP BY ROLLUP (a))",
        "SELECT t.a FROM t WHERE 0 IN (SELECT count(*) FROM u WHERE u.a < t.a "
        "GROUP BY GROUPING SETS ((), (d)))",
        "SELECT t.a, (SELECT count(*) FROM (SELECT sum(u.d) AS n FROM u WHERE u.a = t.a "
        "GROUP BY GROUPING SETS ((), (u.d), ()))) AS n FROM t",
        "SELECT t.a, (SELECT count(n) FROM (SELECT count(*) AS n FROM u WHERE u.a = t.a "
        "GROUP BY GROUPING SETS ((), ()) HAVING count(*) < 2)) AS n FROM t",
    ),
    "with windows": (
        "SELECT t.a, (SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY u.d, u.e) AS n "
        "FROM u WHERE u.a = t.a) z) AS m FROM t",
        "SELECT t.a FROM t WHERE 1 IN (SELECT rank() OVER (ORDER BY u.d) FROM u WHERE u.a < t.a)",
        "SELECT t.a, count(*) OVER (PARTITION BY EXISTS (SELECT 1 FROM u WHERE u.a = t.a)) AS n "
        "FROM t",
        "SELECT t.a FROM t QUALIFY rank() OVER (ORDER BY t.a) <= (SELECT max(d) FROM u)",
    ),
    "of sets, levels and views": (
        "SELECT t.a FROM t WHERE t.a IN (SELECT u.d FROM u WHERE u.a = t.a UNION "
        "SELECT z.a + 1 FROM t z WHERE z.a < t.a)",
        "SELECT t.a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND EXISTS "
        "(SELECT 1 FROM t z WHERE z.a = u.d AND z.b < t.b))",
        "SELECT t.a, (SELECT sum((SELECT count(*) FROM t z WHERE z.a = u.d AND z.a = t.a)) "
        "FROM u) AS s FROM t",
        "SELECT t.a FROM t WHERE EXISTS (WITH w AS (SELECT u.d FROM u WHERE u.a = t.a) "
        "SELECT 1 FROM w WHERE w.d > 0)",
        "SELECT t.a, (SELECT count(DISTINCT u.d) FROM u WHERE u.a >= t.a) AS n FROM t",
        "SELECT t.a, (SELECT max(z.d) FROM u LEFT JOIN u z ON z.a = u.a AND z.d > t.a) AS n "
        "FROM t",
        "SELECT t.a, (SELECT t.a + 1) AS n FROM t",
        "SELECT t.a FROM t WHERE (SELECT count(*) FROM u WHERE u.a IS NOT DISTINCT FROM t.a) > 1",
    ),
    "with aliases of the select list": (
        "SELECT a + 1 AS k, (SELECT max(d) FROM u WHERE u.a < k) AS m FROM t",
        "SELECT t.a + z.a AS k FROM t, u z WHERE EXISTS (SELECT 1 FROM u WHERE u.d = k)",
        "SELECT a, count(*) AS n, (SELECT max(d) FROM u WHERE u.a < n) AS m FROM t GROUP BY a",
        "SELECT a + 1 AS k FROM t GROUP BY k HAVING EXISTS (SELECT 1 FROM u WHERE u.d = k)",
        "SELECT 1 AS k, a, (SELECT max(d) FROM u WHERE u.a = k) AS m FROM t",
    ),
    "with a column of the name of a table around": (
        "SELECT d.a, (SELECT max(u.d) FROM u WHERE u.a = d.a) AS m FROM t d",
        "SELECT d.a, (SELECT max(z.d) FROM (SELECT * FROM u) z WHERE z.a > d.a) AS m FROM t d",
        "SELECT e.f FROM t d, (SELECT a AS f FROM u) e WHERE EXISTS (SELECT 1 FROM "
        "(SELECT {'f': d} AS e FROM u) z WHERE d.a = e.f)",
    ),
    "LATERAL": (
        "SELECT t.a, z.m FROM t, LATERAL (SELECT max(d) AS m FROM u WHERE u.a = t.a) z",
        "SELECT t.a, z.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.d < t.a) z",
        "SELECT t.a, z.d FROM t CROSS JOIN LATERAL (SELECT u.d FROM u WHERE u.a <> t.a) z",
        "SELECT t.a, z.d FROM t, LATERAL (SELECT u.d FROM u WHERE u.a = t.a "
        "ORDER BY u.d DESC, u.e LIMIT 2) z",
        "SELECT t.a, z.d FROM t LEFT JOIN LATERAL (SELECT u.d FROM u WHERE u.a = t.a "
        "ORDER BY u.d, u.e LIMIT 1) z ON true",
        "SELECT t.a, z.n FROM t LEFT JOIN LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a) z "
        "ON z.n > 1",
        "SELECT t.a, z.s, y.n FROM t, LATERAL (SELECT t.a + 1 AS s) z, "
        "LATERAL (SELECT count(*) AS n FROM u WHERE u.d = z.s) y",
        "SELECT * FROM t, LATERAL (SELECT u.d, u.a AS o FROM u WHERE u.a = t.a) z",
        "SELECT t.a, z.n FROM t JOIN LATERAL (SELECT u.a, count(*) AS n FROM u WHERE u.d >= t.a "
        "GROUP BY u.a) z ON z.a = t.a",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_subqueries_of_a_shape_are_what_duckdb_answers(shape: str) -> None:
    """Over some rows that stay, and others that change."""
    changes = history(Random(shape), TIMES, stay=6)

    assert_answered(TABLES, SHAPES[shape], changes, TIMES)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.a, (SELECT u.d FROM u WHERE u.a = t.a) AS d FROM t",
        "SELECT t.a, t.a AS d FROM t WHERE (SELECT u.d FROM u WHERE u.a = t.a) >= 0",
        "SELECT t.a, (SELECT u.d FROM u WHERE u.a <= t.a AND u.a >= t.a) AS d FROM t",
    ],
)
def test_a_value_of_several_rows_is_an_error_until_there_is_one(query: str) -> None:
    """Of the rows around that meet several; DuckDB refuses the whole query meanwhile."""
    changes: dict[str, list[Change]] = {
        "t": [(1, {"a": 1}, 0), (2, {"a": 2}, 0)],
        "u": [
            *((key, {"a": 1, "d": key}, 0) for key in (1, 2)),
            *((key, {"a": 7, "d": key}, 0) for key in (3, 4)),
            (2, None, 1),
        ],
    }

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), 2)

    assert [(each.time, each.diff) for each in found["errors"]] == [(0, 1), (1, -1)]
    assert "a subquery for one value has several rows" in found["errors"][0].data["reason"]
    names, expected = answer(TABLES, tables_at(changes, 1), query)
    assert shown_at(found["view"], names, 1) == expected
