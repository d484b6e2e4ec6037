"""The queries of TPC-H as views, over tables whose rows change and go, against DuckDB."""

from random import Random

import pytest

from ikebana import evaluate
from support.sql_oracle import answer, plan_of, records_of, shown_at, tables_at
from support.tpch import QUERIES, TABLES, history

TIMES = 3
CHANGES = history(Random(7), TIMES)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_what_duckdb_answers_at_every_time(name: str) -> None:
    query = QUERIES[name]

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(CHANGES))

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(CHANGES, time), query)
        assert shown_at(found["view"], names, time) == expected
