"""Views in SQL are at every closed time what DuckDB answers over the tables as they are then."""

from random import Random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ikebana import evaluate
from support.random_queries import TABLES, Drawing, history
from support.sql_oracle import answer, plan_of, records_of, shown_at, tables_at
from support.strategies import few

TIMES = 4


@few
@given(st.randoms(use_true_random=False))
def test_a_view_is_what_duckdb_answers_at_every_time(choice: Random) -> None:
    query = Drawing(choice).query()
    changes = history(choice, TIMES)
    note(query)

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), query, time)
        assert shown_at(found["view"], names, time) == expected, (time, changes)


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
)


@pytest.mark.parametrize("query", TEMPORAL)
def test_a_view_has_the_rows_that_count_at_each_time(query: str) -> None:
    """DuckDB is told what the time is; the rows change as well."""
    changes = history(Random(query), TIMES)

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), query, time)
        assert shown_at(found["view"], names, time) == expected, (time, changes)
