"""Views with window functions in a run: restarts, rescalings, edits, and what explains them."""

from random import Random

import pytest

import ikebana as ik
from ikebana.processor.explain import operators
from ikebana.processor.planning.plan import Reduce, WindowFunctions
from ikebana.testing import Run
from support.random_queries import TABLES, history
from support.sql_oracle import answer, plain, plan_of, tables_at

NUMBERED = (
    "SELECT a, d, row_number() OVER w AS n, sum(d) OVER w AS s, max(d) OVER (PARTITION BY a) AS m "
    "FROM u WHERE a IS NOT NULL WINDOW w AS (PARTITION BY a ORDER BY d, e)"
)
RANKED = "SELECT * FROM (SELECT a, d, rank() OVER (ORDER BY d DESC) AS n FROM u) WHERE n <= {}"
LIVES = ((2, NUMBERED, RANKED.format(2)), (3, NUMBERED, RANKED.format(1)), (1, NUMBERED, NUMBERED))


def test_views_go_on_through_restarts_rescalings_and_edits() -> None:
    """At each moment they have what DuckDB answers over the rows that there are."""
    changes = history(Random(7), 12)
    run = Run(plan_of(TABLES, {"one": NUMBERED, "other": RANKED.format(2)}), shards=2)
    for time in range(12):
        shards, *queries = LIVES[time // 4]
        if time % 2 == 0:
            plan = plan_of(TABLES, dict(zip(("one", "other"), queries, strict=True)))
            run.restart(plan, shards=shards)
        for key, row, at in changes["u"]:
            if at == time:
                run.send("u", key, row)
        run.read()
        for name, query in zip(("one", "other"), queries, strict=True):
            names, expected = answer(TABLES, tables_at(changes, time), query)
            shown = [tuple(plain(row[each]) for each in names) for _, row in run.collection(name)]
            assert sorted(map(str, shown)) == sorted(map(str, expected.elements()))


@pytest.mark.parametrize(
    ("query", "kind", "most"),
    [
        (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY d) AS n FROM u) "
            "WHERE n <= 10",
            Reduce,
            0,
        ),
        (
            "SELECT auction, bidder FROM (SELECT a AS auction, d AS bidder, "
            "ROW_NUMBER() OVER (PARTITION BY a, d ORDER BY e DESC) AS rank_number FROM u) "
            "WHERE rank_number = 1",
            Reduce,
            0,
        ),
        (
            "WITH r AS (SELECT *, rank() OVER (PARTITION BY a ORDER BY d) AS n FROM u) "
            "SELECT a, d FROM r WHERE n BETWEEN 2 AND 3",
            WindowFunctions,
            3,
        ),
        ("SELECT a FROM u QUALIFY dense_rank() OVER (ORDER BY d) < 5", WindowFunctions, 4),
        (
            "WITH r AS (SELECT *, rank() OVER (ORDER BY d) AS n FROM u) "
            "SELECT x.a FROM r x JOIN r y ON x.n = y.n WHERE x.n <= 2",
            WindowFunctions,
            0,
        ),
        (
            "SELECT a FROM (SELECT a, rank() OVER (ORDER BY d) AS n FROM u LIMIT 5) WHERE n <= 2",
            WindowFunctions,
            0,
        ),
    ],
)
def test_a_condition_bounds_a_rank(query: str, kind: type, most: int) -> None:
    """Unless another one reads the rows beyond, or they count for a LIMIT."""
    plan = plan_of(TABLES, {"view": query})

    found = [each for each in plan.operators if isinstance(each, Reduce | WindowFunctions)]

    assert isinstance(found[0], kind)
    assert getattr(found[0], "most", 0) == most


# How many other rows of a partition of a hundred a change touches on average.
TOUCHED = (
    "lag(x) OVER (ORDER BY y)",
    "avg(x) OVER (ORDER BY y ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING)",
    "row_number() OVER (ORDER BY y)",
    "sum(x) OVER (ORDER BY y)",
    "sum(x) OVER ()",
    "rank(ORDER BY x) OVER (ORDER BY y ROWS 5 PRECEDING)",
    "lag(x, x % 3) OVER (ORDER BY y)",
)


@pytest.mark.parametrize("function", TOUCHED)
def test_estimates_are_within_a_factor_of_two(function: str) -> None:
    """Of what changes that move a row to another place come to."""
    choice = Random(function)
    shop = ik.Pipeline("p", time="offset")
    columns = [ik.Column("x", "BIGINT"), ik.Column("y", "BIGINT")]
    shop.topic("t", columns=columns).upsert()
    shop.sql(f"SELECT x, y, {function} AS w FROM t", name="view").to("view")
    plan = shop.plan()

    def row() -> dict[str, int]:
        return {"x": choice.randrange(10**6), "y": choice.randrange(10**6)}

    records = [(key, row(), key) for key in range(operators.PARTITION)]
    changes = [(choice.randrange(operators.PARTITION), row(), 100 + at) for at in range(20)]
    found = shop.evaluate(t=[*records, *changes])["view"]
    made = sum(abs(diff) for _, time, diff in found if time >= 100) / 20

    (operator,) = [each for each in plan.operators if isinstance(each, WindowFunctions)]
    estimated = 2 + 2 * operators.rows_touched(operator)
    assert estimated / 2 <= made <= estimated * 2
    assert "a change touches" in operators.state_of(operator)
