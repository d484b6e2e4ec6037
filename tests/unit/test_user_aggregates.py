"""Aggregates of one's own: declared in a file or in Python, called in reductions and views."""

import pytest

import ikebana as ik
import user_aggregates
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from support.sql_oracle import rows_at

YAML = """
pipeline: sums
functions:
  total: {aggregate: "user_aggregates:Total", parameters: {n: BIGINT}, returns: VARCHAR}
  weighed:
    aggregate: "user_aggregates:Weighed"
    parameters: {x: BIGINT, weight: BIGINT}
    returns: DOUBLE
inputs:
  orders: {topic: orders, columns: {g: VARCHAR, n: BIGINT}}
operators:
  rows: {upsert: orders}
  reduced: {reduce: rows, by: g, aggregates: {t: Total(n + 1), w: "weighed(n, 2)"}}
  view:
    sql: |
      SELECT g, total(DISTINCT n) AS once, weighed(n, n) FILTER (WHERE n > 1) AS w, total(n)
      FROM orders GROUP BY g HAVING total(n) <> '3 of 1'
outputs:
  reduced: {from: reduced, topic: reduced}
  view: {from: view, topic: view}
kafka: {bootstrap.servers: localhost:9092}
run: {checkpoint: ./checkpoint}
"""
SQL = """
CREATE PIPELINE sums WITH (
    kafka = (bootstrap.servers = 'localhost:9092'), run = (checkpoint = './checkpoint'));
CREATE AGGREGATE total(n BIGINT) RETURNS VARCHAR LANGUAGE PYTHON AS 'user_aggregates:Total';
CREATE AGGREGATE weighed(x BIGINT, weight BIGINT) RETURNS DOUBLE LANGUAGE PYTHON
    AS 'user_aggregates:Weighed';
CREATE SOURCE orders (g VARCHAR, n BIGINT) FROM KAFKA (topic = 'orders');
CREATE OPERATOR rows WITH (upsert = orders);
CREATE OPERATOR reduced WITH (
    reduce = rows, by = g, aggregates = (t = 'Total(n + 1)', w = 'weighed(n, 2)'));
CREATE VIEW view AS
      SELECT g, total(DISTINCT n) AS once, weighed(n, n) FILTER (WHERE n > 1) AS w, total(n)
      FROM orders GROUP BY g HAVING total(n) <> '3 of 1';
CREATE SINK reduced FROM reduced INTO KAFKA (topic = 'reduced');
CREATE SINK view FROM view INTO KAFKA (topic = 'view');
"""
ORDERS = [
    *((key, {"g": "a", "n": number}, 0) for key, number in enumerate((1, 3, 3))),
    (7, {"g": "b", "n": None}, 0),
    (8, {"g": "c", "n": 3}, 0),
    (0, None, 1),
]


def plan_of(text: str, name: str = "sums.yaml") -> ik.Plan:
    return pipeline.parse(text, name, environ={}).plan


def test_an_aggregate_is_of_the_rows_of_a_group_and_gives_back_those_that_go() -> None:
    found = ik.evaluate(plan_of(YAML), {"orders": ORDERS})

    assert found["errors"] == []
    assert rows_at(found["reduced"], 1) == [
        {"t": "4 of 1", "w": 3.0},
        {"t": "8 of 2", "w": 3.0},
        {"t": None, "w": None},
    ]
    assert rows_at(found["view"], 0) == [{"g": "a", "once": "4 of 2", "w": 3.0, "total": "7 of 3"}]
    assert rows_at(found["view"], 1) == [{"g": "a", "once": "3 of 1", "w": 3.0, "total": "6 of 2"}]


def test_both_forms_of_a_file_are_one_plan_and_that_of_python() -> None:
    shop = ik.Pipeline("sums")
    kinds = {"x": "BIGINT", "weight": "BIGINT"}
    shop.aggregate("total", user_aggregates.Total, parameters={"n": "BIGINT"}, returns="VARCHAR")
    shop.aggregate("weighed", "user_aggregates:Weighed", parameters=kinds, returns="DOUBLE")
    columns = [ik.Column("g", "VARCHAR"), ik.Column("n", "BIGINT")]
    rows = shop.topic("orders", columns=columns).upsert("rows")
    rows.reduce(name="reduced", by="g", t="Total(n + 1)", w="weighed(n, 2)").to("reduced")

    assert plan_of(YAML) == plan_of(SQL, "sums.sql")
    assert shop.plan().operators[1] == plan_of(YAML).operators[1]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (":Total", ":Away", 'functions.total.aggregate: module "user_aggregates" has no "Away"'),
        (":Total", ":NoResult", "user_aggregates:NoResult has no method result()"),
        (":Total", ":Decimal.from_float", "is no class whose instances have attributes"),
        ("returns: VARCHAR", "returns: DATE", "gives JSON data, not DATE: give a VARCHAR, and"),
        ("{n: BIGINT}, ret", "{}, ret", "an aggregate has parameters"),
        (
            'aggregate: "user_aggregates:Total"',
            'python: "m:f", aggregate: "m:C"',
            "functions.total: has either python, a function, or aggregate, a class",
        ),
        ("weighed(n, 2)", "weighed(n)", "weighed() has 2 arguments, not 1"),
        ("by: g", "by: total(n)", "total() is an aggregate, which has no meaning over one datum"),
        ("total(n)\n", "total(n ORDER BY n)\n", "total() has no ORDER BY: its result depends on"),
    ],
)
def test_what_is_no_aggregate_is_refused(old: str, new: str, problem: str) -> None:
    assert old in YAML
    with pytest.raises(ConfigError) as refused:
        plan_of(YAML.replace(old, new, 1))

    assert problem in str(refused.value)


def test_an_aggregate_of_ones_own_sees_the_frame_of_a_window() -> None:
    """Where a call fails, the row has an error record, which goes when its frame changes."""
    shop = ik.Pipeline("sums")
    columns = {"n": "BIGINT"}
    shop.aggregate("total", user_aggregates.Total, parameters=columns, returns="VARCHAR")
    shop.aggregate("fussy", user_aggregates.Fussy, parameters=columns, returns="VARCHAR")
    listed = [ik.Column("g", "VARCHAR"), ik.Column("n", "BIGINT")]
    shop.topic("orders", columns=listed).upsert("rows")
    query = (
        "SELECT n, total(n) OVER (w ROWS 1 PRECEDING) AS t, "
        "total(DISTINCT n) FILTER (WHERE n < 9) OVER (PARTITION BY g) AS u, "
        "fussy(n) OVER (w ROWS CURRENT ROW) AS f "
        "FROM rows WINDOW w AS (PARTITION BY g ORDER BY n)"
    )
    shop.sql(query, name="view").to("view", name="view")
    changes = [(at, {"g": "x", "n": n}, 0) for at, n in enumerate((1, 2, 2, 500))]
    changes.append((3, {"g": "x", "n": 7}, 1))

    results = ik.evaluate(shop.plan(), {"orders": changes}, 2)

    def shown(time: int) -> list[tuple[object, ...]]:
        rows = ik.accumulate(results["view"], time)
        names = ("n", "t", "u", "f")
        return sorted(
            tuple(dict(value)[name] for name in names)
            for (_, value), many in rows.items()
            for _ in range(many)
        )

    first = [(1, "1 of 1"), (2, "3 of 2"), (2, "4 of 2")]
    assert shown(0) == [(n, t, "3 of 2", f"{n} of 1") for n, t in first]
    after = [*first, (7, "9 of 2")]
    assert shown(1) == [(n, t, "10 of 3", f"{n} of 1") for n, t in after]
    assert [(each.time, each.diff) for each in results["errors"]] == [(0, 1), (1, -1)]
    # What the class says may have the payload, which no reason has.
    assert "cannot aggregate: " in results["errors"][0].data["reason"]


def test_python_says_of_a_class_what_it_lacks() -> None:
    shop = ik.Pipeline("sums")

    with pytest.raises(
        ConfigError, match=r'declare the aggregate "none": .* no method result\(\)'
    ):
        shop.aggregate("none", user_aggregates.NoResult, parameters={"x": "INT"}, returns="INT")
