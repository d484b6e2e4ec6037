"""Views in SQL are at every closed time what DuckDB answers over the tables as they are then."""

from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from ikebana import evaluate
from support.random_queries import TABLES, Drawing, history
from support.sql_oracle import answer, plan_of, records_of, shown_at, tables_at

TIMES = 4


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_view_is_what_duckdb_answers_at_every_time(choice: Random) -> None:
    query = Drawing(choice).query()
    changes = history(choice, TIMES)
    note(query)

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), query)
        assert shown_at(found["view"], names, time) == expected, (time, changes)
