"""Views in SQL are at every closed time what DuckDB answers over the tables as they are then."""

from random import Random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from support.random_forms import Forms
from support.random_queries import TABLES, Drawing, history
from support.sql_oracle import assert_answered
from support.strategies import few

TIMES = 4


@few
@given(st.randoms(use_true_random=False))
def test_a_view_is_what_duckdb_answers_at_every_time(choice: Random) -> None:
    query = Drawing(choice).query()
    changes = history(choice, TIMES)
    note(query)

    assert_answered(TABLES, [query], changes, TIMES)


@few
@given(st.randoms(use_true_random=False))
def test_a_view_of_a_further_form_is_what_duckdb_answers(choice: Random) -> None:
    query = Forms(choice).query()
    changes = history(choice, TIMES)
    note(query)

    assert_answered(TABLES, [query], changes, TIMES)


MOMENT = "make_timestamp(x.a * 1000 + {})"
TEMPORAL = (
    *(f"SELECT x.a, x.c FROM t x WHERE {MOMENT.format(500)} {op} ikebana_now()" for op in "<>"),
    *(f"SELECT x.a FROM t x WHERE ikebana_now() {op} {MOMENT.format(0)}" for op in ("<=", ">=")),
    "SELECT x.a, count(*) AS n FROM t x, u y WHERE x.a = y.a "
    "AND ikebana_now() BETWEEN make_timestamp_ms(x.a) AND make_timestamp_ms(y.d) GROUP BY x.a",
    "SELECT count(*) AS n FROM t x WHERE NOT EXISTS "
    "(SELECT 1 FROM u y WHERE y.a = x.a AND make_timestamp_ms(y.d) >= ikebana_now())",
    "SELECT x.a FROM t x WHERE x.a IN (SELECT y.a FROM u y, t z "
    "WHERE y.a = z.a AND make_timestamp_ms(y.d + z.a) > ikebana_now())",
    "SELECT x.c FROM t x LEFT JOIN u y ON x.a = y.a "
    "WHERE make_timestamp_ms(coalesce(y.d, x.a)) > ikebana_now() AND x.a >= 0",
    *(
        f"SELECT a, c FROM t WHERE make_timestamp_ms(a) {condition}"
        for condition in (
            "> now()",
            "<= now() - INTERVAL '1 millisecond'",
            ">= mz_now() - INTERVAL '2 milliseconds' + INTERVAL '1 millisecond'",
            "> INTERVAL '1 millisecond' + now()",
            "BETWEEN now() - INTERVAL '1 millisecond' AND now()",
            "BETWEEN TIMESTAMP '1970-01-01 00:00:00.001' AND ikebana_now()",
            "- now() < INTERVAL '1 millisecond'",
            "- now() >= INTERVAL '-1 millisecond'",
            "+ INTERVAL '1 millisecond' - now() BETWEEN INTERVAL 0 SECONDS AND INTERVAL 1 SECOND",
            "< now()::TIMESTAMP OR c = 'x'",
        )
    ),
    *(
        f"SELECT a, c FROM t x WHERE {condition}"
        for condition in (
            f"now() - {MOMENT.format(500)} < INTERVAL '1 millisecond'",
            f"INTERVAL '1 millisecond' >= now() - {MOMENT.format(0)}",
            f"(now() - INTERVAL '1 millisecond') - {MOMENT.format(0)} <= INTERVAL 0 SECONDS",
            f"now() - {MOMENT.format(0)} < INTERVAL 1 MONTH",
            f"NOT now() > {MOMENT.format(500)}",
            f"c = 'x' OR b > 1 OR {MOMENT.format(500)} > now()",
            f"a = 1 OR now() BETWEEN {MOMENT.format(0)} AND {MOMENT.format(1500)}",
            f"(c IS NULL OR NOT {MOMENT.format(0)} > now()) AND (b > 0 OR a > 1)",
        )
    ),
    "SELECT x.a, y.d FROM t x JOIN u y ON x.a = y.a "
    "WHERE y.d > 1 OR make_timestamp_ms(x.a + y.d) > now()",
    "SELECT a FROM t WHERE now() - INTERVAL '500 microseconds' < make_timestamp(a * 1000)",
    "SELECT d FROM u WHERE e > now() - INTERVAL '19782 days' AND now() >= make_timestamp_ms(d)",
)


@pytest.mark.parametrize("query", TEMPORAL)
def test_a_view_has_the_rows_that_count_at_each_time(query: str) -> None:
    """DuckDB is told what the time is; the rows change as well."""
    assert_answered(TABLES, [query], history(Random(query), TIMES), TIMES)


LISTED = "list_transform([10, 20], lambda"
OF_U = "SELECT a, d AS f FROM u"
SHAPES = {
    "a query in FROM without a name beside a table t": (
        "SELECT t.c FROM (SELECT a, 'no' AS c FROM u) JOIN t ON t.a = 2",
        "SELECT t.* FROM t JOIN (SELECT a AS z FROM u) ON t.a = z",
        "SELECT unnamed_subquery.a, unnamed_subquery2.d FROM (SELECT a FROM t) "
        "JOIN (SELECT a, d FROM u) ON unnamed_subquery.a = unnamed_subquery2.a",
    ),
    "each row_number of QUALIFY ranks all rows": (
        "SELECT a, d FROM u QUALIFY row_number() OVER (PARTITION BY d ORDER BY a DESC, e) = 1 "
        "AND row_number() OVER (ORDER BY a, d, e) <= 2",
        "SELECT a FROM u QUALIFY row_number() OVER (PARTITION BY a ORDER BY d, e) = 1 "
        "AND row_number() OVER (ORDER BY d DESC, a DESC, e) <= 3 ORDER BY a LIMIT 1",
        "SELECT DISTINCT d FROM u QUALIFY row_number() OVER (PARTITION BY a ORDER BY d, e) = 1 "
        "AND row_number() OVER (ORDER BY d, a, e) <= 3 ORDER BY d LIMIT 1",
    ),
    "a parameter of a lambda is no column": (
        f"SELECT {LISTED} a: a + t.a) AS x FROM t",
        f"SELECT {LISTED} A: a + t.a) AS x FROM t",
        f"SELECT {LISTED} t: t + t.a) AS x FROM t",
        f"SELECT {LISTED} a, i: a + i + t.a) AS x FROM t",
        f"SELECT {LISTED} a: {LISTED} a: a + t.a)) AS x FROM t",
        f"SELECT {LISTED} a: {LISTED} i: a + i + t.a)) AS x FROM t",
        "SELECT [a + t.a FOR a IN [1, 2] IF a > t.a] AS x FROM t",
        "SELECT list_transform([{'q': 5}], lambda t: t.q + t.a) AS x FROM t",
        f"SELECT a, {LISTED} sum: sum + sum(b)) AS x FROM t GROUP BY a",
        f"SELECT x.a FROM t x JOIN u y ON x.a = y.a AND list_sum({LISTED} d: d + y.d)) > 31",
        f"SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE {LISTED} d: d + u.d)[t.a] > 11)",
    ),
    "a column may be named as what a subquery gives": (
        "SELECT x.a FROM (SELECT a, d AS v FROM u) x WHERE x.a < (SELECT max(d) FROM u)",
        "SELECT x.a FROM (SELECT a, {'v': d} AS v FROM u) x WHERE x.a < (SELECT max(d) FROM u)",
    ),
    "columns of *": (
        "SELECT * REPLACE (a + 1 AS a) RENAME (c AS z) FROM t",
        "SELECT max(COLUMNS('[ad]')) FROM u",
        "SELECT c, COLUMNS(lambda n: n < 'c') FROM t",
        "SELECT * FROM t UNION ALL BY NAME SELECT * FROM u",
        f"SELECT * EXCLUDE (x.a) FROM u x JOIN ({OF_U}) y USING (a)",
        f"SELECT * EXCLUDE (y.a) FROM u x JOIN ({OF_U}) y USING (a)",
        "SELECT * EXCLUDE (y.a) FROM u x JOIN (SELECT a, d AS f FROM u) y ON x.d = y.f",
        f"SELECT * EXCLUDE (y.a, z.a, z.d) FROM ({OF_U}) x JOIN t y USING (a) JOIN u z ON z.d = f",
        f"SELECT * FROM u x JOIN (({OF_U}) y JOIN t z USING (a)) USING (a)",
    ),
    "* of IN": (
        "SELECT a FROM t WHERE a IN (SELECT * FROM (SELECT d FROM u) x)",
        "SELECT a FROM t WHERE a NOT IN (SELECT x.* FROM (SELECT d FROM u) x WHERE d > 0)",
    ),
    "GROUP BY nothing, ALL and null": (
        "SELECT a FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a > 100 GROUP BY ())",
        "SELECT 1 AS one FROM t WHERE a > 100 GROUP BY ()",
        "SELECT 1 AS one, count(*) AS n FROM t WHERE a > 100 GROUP BY ALL",
        "SELECT 1 AS one, count(*) AS n FROM t WHERE a > 100 GROUP BY one",
        "SELECT 1 AS one, 2 AS two FROM t GROUP BY ALL",
        "SELECT NULL AS x, count(*) AS n FROM t GROUP BY x",
        "SELECT NULL AS x, a, count(*) AS n FROM t WHERE a > 0 GROUP BY x, a",
        "SELECT s.v, count(*) AS n FROM (SELECT {'v': a} AS s FROM t) x GROUP BY s HAVING s.v > 0",
    ),
    "conditions of HAVING in any order": (
        "SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1 "
        "AND a NOT IN (SELECT d FROM u WHERE d IS NOT NULL AND d > 1)",
        "SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 0 AND NOT EXISTS "
        "(SELECT 1 FROM u WHERE d > 1) AND a IN (SELECT a FROM u) AND sum(b) > "
        "(SELECT min(d) FROM u) AND max(b) NOT IN (SELECT b FROM t WHERE b > 1.5)",
        "SELECT a, sum(d) AS d FROM u GROUP BY a HAVING d > 1",
        "SELECT a, count(*) AS n FROM t GROUP BY a "
        "HAVING NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > 0) AND n > 0",
        "SELECT a, count(*) AS n FROM t GROUP BY a "
        "HAVING count(*) >= (SELECT max(d) FROM u WHERE u.a = t.a)",
    ),
    "a view hides a table of its name": (
        "WITH t AS (SELECT a FROM t WHERE a > 1) SELECT a FROM t",
        "WITH t AS (SELECT a FROM T WHERE a > 0), u AS (SELECT a FROM t) SELECT a FROM u",
        "SELECT a FROM t WHERE a IN (WITH t AS (SELECT a FROM t WHERE a = 2) SELECT a FROM t)",
        "WITH u AS (SELECT a FROM t) SELECT a FROM u "
        "UNION (WITH u AS (SELECT 9 AS a FROM t) SELECT a FROM u)",
    ),
    "an order that says nothing": (
        "SELECT a FROM t ORDER BY (SELECT max(d) FROM u)",
        "SELECT a FROM (SELECT a FROM t UNION SELECT 2 ORDER BY 1 + (SELECT max(d) FROM u)) v",
    ),
    "conditions that read nothing": (
        "SELECT x.a, y.n FROM t x LEFT JOIN (SELECT count(*) AS n FROM u) y ON true",
        "SELECT x.a, y.d FROM t x JOIN u y ON true",
        "SELECT x.a, y.d FROM t x JOIN u y ON 1 = 2",
        "SELECT x.a, y.d FROM t x LEFT JOIN u y ON x.a = y.a AND 1 = 2",
        "SELECT x.a, y.d FROM t x FULL JOIN u y ON false",
        "SELECT c FROM t WHERE 7 NOT IN (SELECT d FROM u)",
        "SELECT c FROM t WHERE NULL NOT IN (SELECT d FROM u)",
    ),
    "names of tables": (
        "SELECT _x.c FROM t _x JOIN u y ON _x.a = y.a",
        'SELECT "1x".c FROM t "1x" JOIN u "\u00e9" ON "1x".a = "\u00e9".a',
    ),
    "an as-of join meets the nearest row": tuple(
        f"SELECT x.c, y.d FROM t x ASOF {way}JOIN u y ON {on}x.b {comparison} y.d"
        for way in ("", "LEFT ", "RIGHT ", "FULL ")
        for comparison in (">=", ">", "<=", "<")
        for on in ("x.a = y.a AND ", "", "y.e IS NOT NULL AND ")
        # DuckDB takes no further condition in these.
        if not (way in ("RIGHT ", "FULL ") and "NULL" in on)
    ),
    "macros over macros that aggregate": (
        "SELECT c, wavg(a, b) AS w, geometric_mean(abs(b) + 1) AS m FROM t GROUP BY c",
    ),
    "an as-of join of other forms": (
        "SELECT y.a, d FROM u x ASOF JOIN (SELECT DISTINCT a, d FROM u) y USING (a, d)",
        "SELECT x.c FROM t x ASOF ANTI JOIN u y ON x.a = y.a AND x.b >= y.d",
        "SELECT x.c, y.d FROM t x ASOF LEFT JOIN u y ON x.b >= y.d AND (x.a = y.a OR x.a = 0)",
        "SELECT c, max(d) AS m FROM t x ASOF JOIN u y ON x.a = y.a AND y.d <= x.b GROUP BY c",
    ),
    "DISTINCT ON of one column twice, and COLUMNS in orders": (
        "SELECT DISTINCT ON (a, a) a, d, e FROM u ORDER BY a, a, d, e",
        "SELECT DISTINCT ON (COLUMNS('[ad]')) a, d, e FROM u ORDER BY a, d, e",
        "SELECT a, d, e FROM u ORDER BY COLUMNS('[ade]') LIMIT 2",
    ),
    "rows that divide and order": (
        "SELECT a, d, row_number() OVER (PARTITION BY (a, d) ORDER BY (e, (g, d)) DESC) n FROM u",
        "SELECT DISTINCT ON ((a, d)) a, d, e FROM u ORDER BY (a, d), ROW(e, g)",
        "SELECT a, list(b ORDER BY (c, b)) AS l FROM t GROUP BY a ORDER BY (a, l) LIMIT 2",
    ),
    "a table's name alone is a struct of its columns": (
        "SELECT x.a, u FROM t x LEFT JOIN u ON x.a = u.a",
        "SELECT a, list(u ORDER BY d, e, g) AS l FROM u GROUP BY a HAVING max(u) IS NOT NULL",
        "SELECT u, c FROM (SELECT a, e FROM u) u LEFT JOIN t ON t.a = u.a",
        "WITH u AS (SELECT a, d AS t FROM u) SELECT u, t FROM u LEFT JOIN t ON t.a = u.a",
        "SELECT c FROM t c SEMI JOIN (SELECT a, d AS c FROM u) u ON c.a = u.a",
        # It comes before a column of a query around.
        "SELECT b, (SELECT count(c) FROM u c WHERE c.a = t.a AND c.a > 1) AS n FROM t",
    ),
    "columns without names by their names": (
        "SELECT 1 UNION ALL BY NAME SELECT 999 UNION ALL BY NAME SELECT 1",
        "SELECT a + 1, sum(b), 1 FROM t GROUP BY a UNION BY NAME SELECT sum(a), a + 1 FROM u "
        "GROUP BY a",
    ),
    "joins by columns of two types": (
        "SELECT x.c, y.d FROM t x JOIN u y ON x.b::DOUBLE = y.d",
        "SELECT x.c, y.e FROM t x LEFT JOIN u y ON (y.a + 1)::VARCHAR = x.a",
        "SELECT c FROM t WHERE a::DOUBLE IN (SELECT d FROM u WHERE d > 0)",
        "SELECT x.c, y.d FROM t x FULL JOIN u y ON [x.a::INTEGER] = [y.a]",
    ),
    "columns of rows by name, of queries around": (
        "SELECT a FROM t WHERE a IN (SELECT a FROM u WHERE u.d > t.a UNION BY NAME "
        "SELECT a FROM u z WHERE z.d = t.a)",
    ),
    "joins by columns of one name": (
        "SELECT * FROM (SELECT a, c FROM t) x NATURAL JOIN (SELECT a, d FROM u) y",
        "SELECT * FROM (SELECT a, c FROM t) x NATURAL FULL JOIN (SELECT a, d FROM u) y",
        "SELECT a, x.a AS b, y.a AS c FROM t x FULL JOIN u y USING (a)",
        "SELECT a, x.a AS b, y.a AS c FROM t x RIGHT JOIN u y USING (a) WHERE a > 0",
        "SELECT a, z.d AS z FROM t x FULL JOIN u y USING (a) FULL JOIN u z USING (a)",
        "SELECT a, count(*) AS n FROM t RIGHT JOIN u USING (a) LEFT JOIN t z USING (a) GROUP BY a",
        "SELECT * FROM t JOIN LATERAL (SELECT a, d + t.b AS s FROM u WHERE d > t.a) USING (a)",
        "SELECT * FROM t NATURAL LEFT JOIN LATERAL (SELECT max(a) AS a, sum(d) AS s FROM u "
        "WHERE d > t.b)",
        "WITH RECURSIVE r AS (SELECT a, d FROM u UNION SELECT a, x.d + y.d FROM r x JOIN r y "
        "USING (a) WHERE x.d + y.d < 9) SELECT * FROM r",
    ),
    "semi-joins and anti-joins as words": (
        "SELECT x.a, c FROM t x SEMI JOIN u USING (a)",
        "SELECT x.a, c FROM t x ANTI JOIN u ON x.a = u.a AND u.d > x.b",
        "SELECT x.a, c FROM t x JOIN u y USING (a) SEMI JOIN u z ON z.d = y.d "
        "ANTI JOIN t w ON w.b > y.d",
    ),
    "QUALIFY in place of a LIMIT that changes": (
        "SELECT a, b FROM t QUALIFY row_number() OVER (ORDER BY a, b) <= (SELECT max(d) FROM u)",
    ),
    "ranks that WHERE bounds, where all rows matter": (
        "SELECT x.a FROM (SELECT a, a AS rn FROM t) x ANTI JOIN (SELECT a, row_number() OVER "
        "(ORDER BY d, a, e, g) AS rn FROM u) y ON x.a = y.a WHERE rn <= 1",
        "SELECT x.a FROM (SELECT a, a AS rn FROM t) x SEMI JOIN (SELECT a, row_number() OVER "
        "(ORDER BY d, a, e, g) AS rn FROM u) y ON x.a = y.a WHERE rn <= 1",
        "SELECT x.a, y.rn FROM t x ASOF JOIN (SELECT a, row_number() OVER (ORDER BY a DESC) AS rn "
        "FROM (SELECT DISTINCT a FROM u)) y ON x.a >= y.a WHERE rn <= 1",
        "SELECT * FROM (SELECT a, d, row_number() OVER (ORDER BY a, d, e, g) AS rn FROM u) "
        "UNPIVOT (rn FOR n IN (rn, d)) WHERE rn <= 1",
        "SELECT a, d FROM u QUALIFY row_number() OVER (ORDER BY a, d, e, g) BETWEEN 2 AND 1",
        "SELECT a, d FROM u QUALIFY row_number() OVER (ORDER BY a, d, e, g) BETWEEN 1 AND 2",
        "SELECT a, d FROM u QUALIFY row_number() OVER (ORDER BY d, a, e, g) BETWEEN a AND 1",
    ),
    "lists in GROUP BY, and lists of rows that WHERE leaves": (
        "SELECT unnest([a, d]) AS x, count(*) AS n FROM u GROUP BY x HAVING count(*) > 1",
        "SELECT unnest([a, a + 1]) + 1 AS x, unnest([c]) AS y, sum(b) AS s FROM t GROUP BY 1, 2",
        "SELECT t.a, (SELECT count(*) FROM (SELECT unnest([d, a]) AS x, max(d) AS m FROM u "
        "WHERE u.a = t.a GROUP BY x)) AS n FROM t",
        "SELECT t.a, x FROM t, generate_series(0, CASE WHEN a < 2 THEN a "
        "ELSE 1000000000000 END) s(x) WHERE t.a < 2",
        "SELECT t.a, u.d, x FROM t JOIN u ON t.a = u.a, generate_series(1, CASE WHEN d < 3 "
        "THEN d ELSE 1000000000000 END) s(x) WHERE u.d < 3 AND t.a + u.d < 4 AND x > 0",
    ),
    "rows apart by intervals, where conditions other than equalities join": (
        "SELECT x.a FROM (SELECT a, to_days(a::INTEGER) AS i FROM t) x SEMI JOIN u ON x.a < u.d",
        "SELECT x.a FROM (SELECT a, to_days(a::INTEGER) AS i FROM t) x WHERE NOT EXISTS "
        "(SELECT 1 FROM u WHERE x.a < u.d)",
        "SELECT x.a FROM (SELECT a, to_days(a::INTEGER) AS i FROM t) x ANTI JOIN u "
        "ON x.a = u.a AND u.d IN (SELECT a FROM t)",
        "SELECT x.a, x.i IS NULL AS n, u.d FROM (SELECT a, to_days(a::INTEGER) AS i FROM t) x "
        "LEFT JOIN u ON x.a = u.a AND u.d IN (SELECT a FROM t)",
    ),
    "LIMIT and OFFSET of nothing": (
        "SELECT a FROM t ORDER BY a LIMIT ALL OFFSET 1",
        "SELECT a FROM t ORDER BY a LIMIT 2 OFFSET NULL",
    ),
    "UNPIVOT": (
        "UNPIVOT u ON a, d INTO NAME n VALUE v",
        "SELECT * FROM u UNPIVOT INCLUDE NULLS (v FOR n IN (A, D AS x)) AS r",
        "SELECT n, sum(v) AS s FROM (UNPIVOT (SELECT a, d FROM u) ON *) AS p(n, v) GROUP BY n",
        "SELECT * FROM t UNPIVOT ((v, w) FOR n IN ((a, b), (b, a) AS z))",
        "SELECT c, n, v FROM (UNPIVOT t ON COLUMNS('[ab]') INTO NAME n VALUE v) WHERE v > 1",
        "SELECT x.n, y.d FROM t UNPIVOT (v FOR n IN (a)) AS x JOIN u AS y ON x.v = y.a",
        "SELECT a, (SELECT max(v) FROM u UNPIVOT (v FOR n IN (a, d)) q WHERE q.v < t.b) m FROM t",
        "SELECT * FROM (t JOIN u USING (a)) UNPIVOT (v FOR n IN (b, d))",
        "SELECT * FROM t UNPIVOT (v FOR n IN (a)) UNPIVOT (w FOR m IN (b))",
    ),
    "PIVOT with a list of values": (
        "PIVOT t ON c IN ('x', 'y') USING sum(b) GROUP BY a",
        "PIVOT t ON c IN ('x', 'y') USING sum(b), count(*)",
        "PIVOT (SELECT x.a, y.d, c FROM t x JOIN u y ON x.a = y.a) ON c IN ('x', 'y') "
        "USING max(d), count(*) AS n ORDER BY ALL LIMIT 2",
        "WITH p AS (PIVOT t ON C IN ('x', 'y') USING sum(B) AS total GROUP BY A) "
        "SELECT a, x_total FROM p WHERE y_total > 0",
        "SELECT * FROM t PIVOT (sum(b) AS s, count(*) FOR c IN ('x', y AS z) a IN (1, 2)) p(h, i)",
        "SELECT * FROM t PIVOT (list(b ORDER BY b), sum(b) + 1 FOR c IN (x, NULL) GROUP BY a)",
        "SELECT * FROM t PIVOT (sum(b) FOR (c, a) IN (('x', 1), ('y', 2)))",
        "SELECT * FROM (SELECT b, c FROM t WHERE a > 1) PIVOT (sum(b), count(*) FOR c IN ('x'))",
        "SELECT * FROM u PIVOT (count(*) FOR e IN ('2024-01-01', DATE '2024-02-29' AS leap))",
        # The text of a value decides.
        "SELECT * FROM t PIVOT (count(*) FOR h IN (0.5, 0.999, '0.500') GROUP BY a)",
        "SELECT __unnamed_pivot.x, y.d FROM t PIVOT (sum(b) FOR c IN ('x') GROUP BY a) "
        "LEFT JOIN u y USING (a)",
        "SELECT a FROM u WHERE d IN (SELECT x FROM t PIVOT (count(*) FOR c IN ('x') GROUP BY a))",
    ),
    "a column of FROM comes before an alias in GROUP BY": (
        "SELECT (SELECT max(b) FROM t) AS a, count(*) AS n FROM u GROUP BY a",
        "SELECT (SELECT max(d) FROM u z WHERE z.a = u.a) AS a, count(*) AS n FROM u GROUP BY a",
        "SELECT (SELECT max(d) FROM u z WHERE z.a = u.a) AS m, count(*) AS n FROM u GROUP BY m",
    ),
    "rows of no table": (
        "SELECT 1 AS x",
        "SELECT x, count(a) AS n FROM (VALUES (0), (1), (5)) v(x) LEFT JOIN t ON a = x GROUP BY x",
        "VALUES (1, DATE '2024-01-01'), (NULL, NULL)",
        "SELECT x FROM (SELECT 1 AS x UNION ALL SELECT a FROM t) v",
    ),
    "elements of lists": (
        "SELECT a, i FROM t, generate_series(0, a) s(i)",
        "SELECT x.a, y.d, i FROM t x JOIN u y ON x.a = y.a, range(y.d + x.a) s(i)",
        "SELECT a, i, n FROM t LEFT JOIN range(a) WITH ORDINALITY AS s(i, n) ON true",
        "SELECT a, unnest([a, b]) AS x, unnest(['one']) AS y FROM t",
        "SELECT unnest(list(a ORDER BY a)) AS x, c FROM t GROUP BY c",
        "SELECT 1 AS a, 2 AS d, 3 AS b, 4 AS i UNION ALL SELECT * FROM (SELECT a, d FROM u) x, "
        "(SELECT b FROM t) y, range(a) s(i) WHERE d = b",
    ),
    "names of the select list": (
        "SELECT a + 1 AS x, x + 1 AS y, y + 1 AS z FROM u WHERE z > 3",
        "SELECT d AS a2, a FROM u ORDER BY a2, a LIMIT 2",
        "SELECT A, x.C, z FROM (SELECT a, c, b AS Z FROM T) X GROUP BY A, C, Z",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_views_of_a_shape_are_what_duckdb_answers(shape: str) -> None:
    """Over some rows that stay, and others that change."""
    changes = history(Random(shape), TIMES, stay=8)

    assert_answered(TABLES, SHAPES[shape], changes, TIMES)
