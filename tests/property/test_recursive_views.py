"""Recursive views are at every time what DuckDB answers; it has no mutual recursion, which is
compared with its queries over the rows of the round before, until nothing changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import evaluate
from ikebana.errors import ConvergenceError
from ikebana.processor.explain.operators import state_of
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.planning.plan import Loop
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at
from support.strategies import few

TABLES = {
    "edges": {"a": "BIGINT", "b": "BIGINT", "w": "BIGINT"},
    "nodes": {"n": "BIGINT", "name": "VARCHAR"},
}
TIMES = 5
PLAIN = {
    "reachability": "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges UNION "
    "SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a) SELECT * FROM r",
    "from some nodes, with their names": "WITH RECURSIVE r AS (SELECT n FROM nodes WHERE n < 2 "
    "UNION SELECT DISTINCT e.b FROM edges e, r WHERE r.n = e.a AND e.w > 1) "
    "SELECT r.n, name FROM r LEFT JOIN nodes USING (n)",
    "both directions": "WITH RECURSIVE r AS (SELECT a AS x, b AS y FROM edges UNION "
    "SELECT b, a FROM edges UNION (SELECT r.x, e.b FROM r JOIN edges e ON r.y = e.a "
    "UNION ALL SELECT r.x, e.a FROM r JOIN edges e ON r.y = e.b)) SELECT x, min(y) AS least "
    "FROM r GROUP BY x",
    "parts": "WITH RECURSIVE p(a, b, n, depth) AS (SELECT a, b, w, 1 FROM edges UNION ALL "
    "SELECT p.a, e.b, p.n * e.w, depth + 1 FROM p JOIN edges e ON p.b = e.a WHERE depth < 4) "
    "SELECT a, b, sum(n) AS n FROM p GROUP BY ALL",
    "the rows of a round with each other": "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges "
    "UNION SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a) SELECT * FROM r",
    "groups of a round": "WITH RECURSIVE r(a, b, n) AS (SELECT a, b, 1 FROM edges UNION ALL "
    "SELECT min(a), b, sum(n)::INTEGER + 1 FROM r WHERE n < 4 GROUP BY b) SELECT * FROM r",
    "what a round has not": "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges WHERE w > 1 UNION "
    "SELECT e.a, e.b FROM edges e WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.a = e.b)) "
    "SELECT * FROM r",
    "a row of each key": "WITH RECURSIVE r(n, far) USING KEY (n, min(far)) AS "
    "(SELECT n, 0 FROM nodes WHERE n < 2 UNION SELECT e.b, far + abs(e.w) FROM r "
    "JOIN edges e ON e.a = r.n WHERE far < 9) SELECT * FROM r",
    "from each row around": "SELECT n, (WITH RECURSIVE r(x) AS (SELECT nodes.n UNION "
    "SELECT e.b FROM r JOIN edges e ON e.a = r.x) SELECT count(*) FROM r) AS many FROM nodes",
    "every way": "WITH RECURSIVE p AS (SELECT a, b FROM edges UNION ALL "
    "SELECT p.a, e.b FROM p JOIN edges e ON p.b = e.a AND e.b > e.a AND p.b > p.a) "
    "SELECT * FROM p",
    "a sequence": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 10) "
    "SELECT t.n, e.b FROM t JOIN edges e ON t.n = e.a",
    "a sequence of each row": "WITH RECURSIVE t AS (SELECT a, w FROM edges UNION ALL "
    "SELECT a, w - 1 FROM t WHERE w > 0) SELECT w, count(*) AS n FROM t GROUP BY w",
    "without what is left out": "WITH RECURSIVE r AS (SELECT a AS n FROM edges WHERE a = 0 UNION "
    "SELECT e.b FROM r JOIN edges e ON r.n = e.a WHERE e.b NOT IN (SELECT n FROM nodes "
    "WHERE name = 'x' AND n IS NOT NULL) AND e.b IS NOT NULL) SELECT * FROM r",
    "rows without a match": "WITH RECURSIVE r AS (SELECT n, n AS node FROM nodes UNION "
    "SELECT r.n, e.b FROM r LEFT JOIN edges e ON r.node = e.a WHERE r.node IS NOT NULL) "
    "SELECT n, count(*) AS there, count(node) AS known FROM r GROUP BY n",
    "two of them": "WITH RECURSIVE up AS (SELECT a AS n FROM edges WHERE w = 1 UNION "
    "SELECT e.b FROM up JOIN edges e ON up.n = e.a), down AS (SELECT n FROM up WHERE n > 0 "
    "UNION SELECT e.a FROM down JOIN edges e ON down.n = e.b) SELECT n FROM down",
    "texts": "WITH RECURSIVE r(n, way) AS (SELECT n, name FROM nodes UNION ALL "
    "SELECT e.b, way || e.b::VARCHAR FROM r JOIN edges e ON e.a = r.n WHERE len(way) < 3) "
    "SELECT * FROM r",
    "divided by a column that stays": "WITH RECURSIVE r AS (SELECT w, a, b FROM edges UNION "
    "SELECT e.w, r.a, e.b FROM r JOIN edges e ON r.w = e.w AND r.b = e.a) SELECT * FROM r",
    "divided by one of constants, too": "WITH RECURSIVE r(who, n, far) AS (SELECT n, n, 0 "
    "FROM nodes UNION ALL SELECT who, n + 1, far + 1 FROM r WHERE far < 3) "
    "SELECT who, max(n) AS n FROM r GROUP BY who",
    "keys of a table": "WITH RECURSIVE r AS (SELECT n FROM nodes UNION "
    "SELECT e.b FROM r JOIN edges e ON e.key::BIGINT % 5 = r.n) SELECT n FROM r",
}


def drawn(choice: Random) -> dict[str, list[Change]]:
    """Rows that come, become others, and go."""
    node = choice.choice([range(4), range(6)])
    found: dict[str, list[Change]] = {"edges": [], "nodes": []}
    for time in range(TIMES):
        for _ in range(choice.randrange(5)):
            row: dict[str, Any] = {
                "a": choice.choice(node),
                "b": choice.choice(node),
                "w": choice.randrange(4),
            }
            row |= {choice.choice("ab"): None} if choice.random() < 0.05 else {}
            gone = choice.random() < 0.3
            found["edges"].append((choice.randrange(8), None if gone else row, time))
        if choice.random() < 0.5:
            row = {"n": choice.choice(node), "name": choice.choice(["x", "yy", None])}
            gone = choice.random() < 0.2
            found["nodes"].append((choice.randrange(3), None if gone else row, time))
    return found


def keyed(query: str) -> str:
    """A query whose keys DuckDB does not have."""
    return query.replace("e.key::BIGINT", "e.key")


@few
@given(st.sampled_from(sorted(PLAIN)), st.randoms(use_true_random=False))
def test_a_recursive_view_is_what_duckdb_answers_at_every_time(named: str, choice: Random) -> None:
    assert_answered(PLAIN[named], drawn(choice))


@pytest.mark.parametrize("named", sorted(PLAIN))
def test_each_of_them(named: str) -> None:
    """Also those that the property does not draw."""
    assert_answered(PLAIN[named], drawn(Random(named)))


def assert_answered(query: str, changes: Mapping[str, Sequence[Change]]) -> None:
    """A view has at each time what DuckDB answers then."""
    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    with_keys = {
        name: [(key, None if row is None else {**row, "key": key}, at) for key, row, at in each]
        for name, each in changes.items()
    }
    tables = {name: {**columns, "key": "BIGINT"} for name, columns in TABLES.items()}
    for time in range(TIMES):
        names, expected = answer(tables, tables_at(with_keys, time), keyed(query), time)
        assert shown_at(found["view"], names, time) == expected, (time, changes)


MUTUAL: dict[str, tuple[dict[str, tuple[dict[str, str], str]], str]] = {
    "shortest paths": (
        {
            "near": (
                {"n": "BIGINT", "d": "BIGINT"},
                "SELECT n, min(d) AS d FROM (SELECT n, 0 AS d FROM nodes WHERE n = 0 UNION ALL "
                "SELECT e.b, near.d + e.w + 1 FROM near JOIN edges e ON near.n = e.a) GROUP BY n",
            )
        },
        "SELECT * FROM near",
    ),
    "components": (
        {
            "sides": (
                {"x": "BIGINT", "y": "BIGINT"},
                "SELECT a, b FROM edges UNION SELECT b, a FROM edges",
            ),
            "label": (
                {"n": "BIGINT", "least": "BIGINT"},
                "SELECT n, min(least) AS least FROM (SELECT x AS n, x AS least FROM sides UNION "
                "ALL SELECT sides.y, label.least FROM label JOIN sides ON label.n = sides.x) "
                "GROUP BY n",
            ),
        },
        "SELECT least, count(*) AS nodes FROM label GROUP BY least",
    ),
    "even and odd": (
        {
            "odd": (
                {"n": "BIGINT"},
                "SELECT b AS n FROM edges WHERE a = 0 UNION "
                "SELECT e.b FROM even JOIN edges e ON even.n = e.a",
            ),
            "even": ({"n": "BIGINT"}, "SELECT DISTINCT e.b FROM odd JOIN edges e ON odd.n = e.a"),
        },
        "SELECT n FROM odd WHERE n IN (SELECT n FROM even)",
    ),
    "its own rows joined": (
        {
            "r": (
                {"a": "BIGINT", "b": "BIGINT"},
                "SELECT a, b FROM edges UNION SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a",
            )
        },
        "SELECT * FROM r",
    ),
    "the best two of each": (
        {
            "best": (
                {"n": "BIGINT", "d": "BIGINT"},
                "SELECT n, d FROM (SELECT a AS n, w AS d FROM edges UNION SELECT e.b, best.d + 1 "
                "FROM best JOIN edges e ON e.a = best.n) WHERE n IS NOT NULL "
                "QUALIFY row_number() OVER (PARTITION BY n ORDER BY d) <= 2",
            )
        },
        "SELECT * FROM best",
    ),
}


def spelt(queries: Mapping[str, tuple[Mapping[str, str], str]], last: str) -> str:
    """Queries as one text."""
    listed = (
        f"{name} ({', '.join(map(' '.join, columns.items()))}) AS (\n{text})"
        for name, (columns, text) in queries.items()
    )
    return f"WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 200) {', '.join(listed)}\n{last}"


def fixpoint(
    queries: Mapping[str, tuple[Mapping[str, str], str]], last: str, contents: Mapping[str, Any]
) -> tuple[list[str], Counter[Any]]:
    """What the last query answers when nothing changes any more."""
    tables = {**TABLES, **{name: columns for name, (columns, _) in queries.items()}}
    now: dict[str, list[dict[str, Any]]] = {name: [] for name in queries}
    for _ in range(50):
        after = {}
        for name, (columns, text) in queries.items():
            _, rows = answer(tables, {**contents, **now}, text)
            listed = sorted(rows.elements(), key=repr)
            after[name] = [dict(zip(columns, row, strict=True)) for row in listed]
        if after == now:
            return answer(tables, {**contents, **now}, last)
        now = after
    raise AssertionError("there is no end")


def assert_fixpoint(named: str, changes: Mapping[str, Sequence[Change]]) -> None:
    """A view has at each time what the rounds come to then."""
    queries, last = MUTUAL[named]
    plan = plan_of(TABLES, {"view": spelt(queries, last)})
    found = evaluate(plan, records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = fixpoint(queries, last, tables_at(changes, time))
        assert shown_at(found["view"], names, time) == expected, (time, changes)


@few
@given(st.sampled_from(sorted(MUTUAL)), st.randoms(use_true_random=False))
def test_a_mutually_recursive_view_is_what_its_rounds_come_to(named: str, choice: Random) -> None:
    assert_fixpoint(named, drawn(choice))


@pytest.mark.parametrize("named", sorted(MUTUAL))
def test_each_of_the_mutual_ones(named: str) -> None:
    """Also those that the property does not draw."""
    assert_fixpoint(named, drawn(Random(named)))


@pytest.mark.parametrize("named", sorted(PLAIN))
def test_a_recursion_is_divided_by_what_it_carries_unchanged(named: str) -> None:
    """Each value of it has a loop of its own, in its shard; else one shard has all."""
    plan = plan_of(TABLES, {"view": PLAIN[named]})
    loops = [each for each in plan.operators if isinstance(each, Loop)]
    is_divided = named.startswith("divided") or named == "a sequence of each row"

    assert loops and all((each.by is None) == is_divided for each in loops)  # noqa: PT018
    for each in loops:
        where = "by key" if is_divided else "all in one shard"
        assert state_of(each).endswith(f"by the rounds in which they change, {where}")


def test_counting_up_without_end_is_an_error() -> None:
    """It names the view, and says what to write."""
    query = (
        "WITH RECURSIVE (ERROR AT RECURSION LIMIT 20) t(n) AS "
        "(SELECT a FROM edges UNION ALL SELECT n + 1 FROM t) SELECT n FROM t"
    )
    plan = plan_of(TABLES, {"view": query})
    with pytest.raises(ConvergenceError, match=r'"view.recursive" still changes after 20 rounds'):
        evaluate(plan, records_of({"edges": [(1, {"a": 1, "b": 1, "w": 1}, 0)]}), 1)


def test_what_fails_within_a_recursion_is_an_error_record_until_its_row_goes() -> None:
    """It names the operator of the loop; other rows go on."""
    query = (
        "WITH RECURSIVE r AS (SELECT name AS x FROM nodes UNION ALL "
        "SELECT (x::BIGINT + 1)::VARCHAR FROM r WHERE x::BIGINT < 3) SELECT x FROM r"
    )
    rows: list[Change] = [(1, {"n": 1, "name": "1"}, 0), (2, {"n": 2, "name": "no"}, 1)]
    changes = {"nodes": [*rows, (2, None, 3)]}
    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES)

    assert [(error.time, error.diff) for error in found["errors"]] == [(1, 1), (3, -1)]
    assert "operator view.recursive: " in found["errors"][0].data["reason"]
    assert shown_at(found["view"], ["x"], 1) == Counter([("1",), ("2",), ("3",), ("no",)])
    assert shown_at(found["view"], ["x"], 4) == Counter([("1",), ("2",), ("3",)])


R = "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges UNION"
REFUSED = {
    f"{R} SELECT a, b FROM r WHERE make_timestamp(a) > ikebana_now()) SELECT * FROM r": (
        "rows that come and go in time cannot be within a recursion"
    ),
    "WITH MUTUALLY RECURSIVE r AS (SELECT a FROM edges) SELECT * FROM r": (
        "the columns with their types are missing; write WITH MUTUALLY RECURSIVE name"
    ),
    "WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT a, b FROM edges) SELECT * FROM r": (
        '"r" has 1 column, and its query 2 columns: a, b'
    ),
    "WITH MUTUALLY RECURSIVE r (a BIGINTS) AS (SELECT a FROM edges) SELECT * FROM r": "BIGINTS",
    "WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT count(*) FROM r) SELECT * FROM r": (
        "an aggregate without GROUP BY has a row where there is none to read"
    ),
    "WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT sum(n) OVER (ORDER BY n) FROM "
    "(SELECT a AS n FROM r UNION SELECT a FROM edges)) SELECT * FROM r": (
        "window functions cannot be within a recursion"
    ),
    "WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT c FROM r) SELECT * FROM r": (
        'there is no column "c"'
    ),
    "WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT a FROM r), r (a BIGINT) AS "
    "(SELECT a FROM r) SELECT * FROM r": '"r" is named twice',
    "WITH RECURSIVE (ERROR AT RECURSION LIMIT no) r AS (SELECT a FROM edges UNION "
    "SELECT a FROM r) SELECT * FROM r": "a limit is a number, as in",
    "WITH RECURSIVE (RETURN AT RECURSION LIMIT 9) r AS (SELECT a FROM edges UNION "
    "SELECT a FROM r) SELECT * FROM r": "has no result before its end; count rounds in a column",
    "SELECT (WITH MUTUALLY RECURSIVE r (a BIGINT) AS (SELECT a FROM edges) SELECT max(a) FROM r) "
    "AS m": "WITH MUTUALLY RECURSIVE begins a view: make one of it",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_refused_says_what_to_write(query: str) -> None:
    with pytest.raises(SqlQueryError) as refused:
        plan_of(TABLES, {"view": query})

    assert REFUSED[query] in refused.value.problem


def test_a_place_in_a_mutual_query_is_that_in_the_whole_text() -> None:
    query = (
        "WITH MUTUALLY RECURSIVE\n  r (a BIGINT) AS (\n    SELECT a FROM edges UNION "
        "SELECT c FROM r)\nSELECT * FROM r"
    )
    with pytest.raises(SqlQueryError) as refused:
        plan_of(TABLES, {"view": query})

    assert refused.value.with_place(query).startswith('line 3, column 38: there is no column "c"')
