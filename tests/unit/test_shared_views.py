"""Views that are made of equal parts share them: state is kept once, and explained so."""

from random import Random

import pytest

from ikebana import evaluate
from ikebana.processor.explain.explanation import explained
from ikebana.processor.planning.joins.stages import arrangements
from ikebana.processor.planning.plan import Linear, Loop, Plan, Reduce, WindowFunctions
from ikebana.testing import Run
from support.random_queries import TABLES, history
from support.sql_oracle import answer, plan_of, records_of, shown_at, tables_at

SUMS = "SELECT a, sum(b) AS s FROM t GROUP BY a"
JOINED = f"WITH s AS ({SUMS}) SELECT s.a, s.s, u.d FROM s JOIN u ON s.a = u.a"
VIEWS = {
    "sums": SUMS,
    "joined": JOINED,
    "again": JOINED,
    "most": f"WITH s AS ({SUMS}) SELECT max(s) AS m FROM s",
    "large": f"{JOINED} WHERE s.s > 1",
}


def kept(plan: Plan) -> tuple[int, int]:
    """How many reductions and arrangements a plan has."""
    return len(plan.reductions), len(arrangements(plan))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["joined"], (1, 2), id="a join and its groups"),
        pytest.param(["joined", "again"], (1, 2), id="the same view twice"),
        pytest.param(["sums", "joined"], (1, 2), id="a view and another that has it within"),
        pytest.param(["joined", "sums"], (1, 2), id="the other way around"),
        pytest.param(["joined", "most"], (2, 2), id="other aggregates of the same groups"),
        pytest.param(list(VIEWS), (2, 3), id="all: one more filter is one more arrangement"),
    ],
)
def test_equal_parts_of_views_are_kept_once(names: list[str], expected: tuple[int, int]) -> None:
    assert kept(plan_of(TABLES, {name: VIEWS[name] for name in names})) == expected


_MOST = "(SELECT max(d) FROM u WHERE u.a = t.a)"
_EXISTS = "EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > 1)"
_SO_FAR = "SELECT a, b, sum(b) OVER (PARTITION BY a ORDER BY b) AS s FROM t"
_REACH = (
    "WITH RECURSIVE r(x, y) AS (SELECT a, d FROM u "
    "UNION SELECT r.x, u.d FROM r JOIN u ON r.y = u.a)"
)


@pytest.mark.parametrize(
    ("views", "reductions", "windows"),
    [
        pytest.param(
            [f"SELECT a, {_MOST} AS m FROM t", f"SELECT b, {_MOST} AS m FROM t WHERE b > 1"],
            *(2, 0),
            id="a scalar subquery",
        ),
        pytest.param(
            [f"SELECT a FROM t WHERE {_EXISTS}", f"SELECT b FROM t WHERE c = 'x' AND {_EXISTS}"],
            *(1, 0),
            id="EXISTS",
        ),
        pytest.param(
            [_SO_FAR, f"SELECT a, max(s) AS m FROM ({_SO_FAR}) AS w GROUP BY a"],
            *(1, 1),
            id="window functions, and groups over them",
        ),
        pytest.param(
            [
                f"{_REACH} SELECT x, y FROM r",
                f"{_REACH} SELECT x, count(*) AS n FROM r GROUP BY x",
            ],
            *(2, 0),
            id="a recursion, and groups over it",
        ),
    ],
)
def test_what_rewrites_make_of_equal_parts_is_kept_once(
    views: list[str], reductions: int, windows: int
) -> None:
    plan = plan_of(TABLES, {f"v{at}": query for at, query in enumerate(views)})

    assert sum(isinstance(each, Reduce | Loop) for each in plan.operators) == reductions
    assert sum(isinstance(each, WindowFunctions) for each in plan.operators) == windows


def test_a_view_that_is_there_under_another_name_keeps_nothing() -> None:
    plan = plan_of(TABLES, {"joined": JOINED, "again": JOINED})

    (again,) = [each for each in plan.operators if each.name.startswith("again")]
    assert isinstance(again, Linear)
    assert again.source == "joined"


def test_it_is_explained_what_a_view_adds() -> None:
    told = explained(plan_of(TABLES, VIEWS)).sharing

    assert [line for line in told if line.startswith("output")] == [
        "output joined adds arrangement u(a), arrangement sums(a), upsert u; it shares "
        "reduce sums.groups with sums",
        "output again adds no state; it shares arrangement u(a), arrangement sums(a), "
        "reduce sums.groups with joined, sums",
        "output most adds reduce most.groups2; it shares reduce sums.groups with sums",
        "output large adds arrangement sums(a) where (s > 1); it shares arrangement u(a), "
        "reduce sums.groups with joined, sums",
    ]


def test_shared_views_are_what_duckdb_answers_at_every_time() -> None:
    changes = history(Random(11), 4)

    found = evaluate(plan_of(TABLES, VIEWS), records_of(changes), 4, shards=2)

    assert found["errors"] == []
    for name, query in VIEWS.items():
        for time in range(4):
            columns, expected = answer(TABLES, tables_at(changes, time), query)
            assert shown_at(found[name], columns, time) == expected, (name, time)


def test_a_view_goes_on_when_the_one_that_it_shares_with_is_removed() -> None:
    """What has had the other's name is made anew, and filled by the edit."""
    shown = {"joined": JOINED, "most": VIEWS["most"]}
    run = Run(plan_of(TABLES, shown), shards=2)
    for key, a in enumerate((1, 1, 2)):
        run.send("t", key, {"a": a, "b": 2, "c": "x"})
    run.read()
    assert [value for _, value in run.collection("most")] == [{"m": 4}]

    run.restart(plan_of(TABLES, {"most": VIEWS["most"]}))
    run.read()
    assert [value for _, value in run.collection("most")] == [{"m": 4}]

    run.send("t", 2, {"a": 1, "b": 2, "c": "x"})
    run.read()
    assert [value for _, value in run.collection("most")] == [{"m": 6}]
