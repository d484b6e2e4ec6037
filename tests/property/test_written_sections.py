"""Window functions and recursions as sections and in Python, against DuckDB at every time."""

from collections.abc import Mapping
from random import Random

import pytest

import ikebana as ik
from ikebana import evaluate
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from support.sql_oracle import Change, answer, records_of, shown_at, tables_at

TABLES = {
    "orders": {"customer": "VARCHAR", "amount": "BIGINT", "placed": "DATE"},
    "edges": {"a": "BIGINT", "b": "BIGINT"},
}
TIMES = 5
OVER = "PARTITION BY customer ORDER BY amount DESC, placed"
AROUND = "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
REACH = "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM reach r JOIN edges e ON r.b = e.a"
YAML = f"""
pipeline: sections
inputs:
  orders_changes: {{topic: orders, columns: {{customer: VARCHAR, amount: BIGINT, placed: DATE}}}}
  edges_changes: {{topic: edges, columns: {{a: BIGINT, b: BIGINT}}}}
operators:
  orders: {{upsert: orders_changes}}
  edges: {{upsert: edges_changes}}
  best:
    window: orders
    partition: customer
    order: [amount DESC, placed]
    functions: {{place: rank(), "so far": sum(amount), before: "lag(amount, 1, 0)"}}
    having: [place <= 2, before >= 0]
  around: {{window: orders, order: [placed, amount, customer], frame: {AROUND},
            functions: {{mean: avg(amount) FILTER (WHERE amount > 1)}}}}
  reach: {{iterate: "{REACH}", columns: {{a: BIGINT, b: BIGINT}}, rounds: 20}}
outputs:
  best: {{from: best, topic: best}}
  around: {{from: around, topic: around}}
  reach: {{from: reach, topic: reach}}
kafka: {{bootstrap.servers: localhost:9092}}
run: {{checkpoint: ./checkpoint}}
"""
QUERIES = {
    "best": f"SELECT *, rank() OVER ({OVER}) AS place, sum(amount) OVER ({OVER}) AS 'so far', "
    f"lag(amount, 1, 0) OVER ({OVER}) AS before FROM orders QUALIFY place <= 2 AND before >= 0",
    "around": "SELECT *, avg(amount) FILTER (WHERE amount > 1) OVER (ORDER BY placed, amount, "
    f"customer {AROUND}) AS mean FROM orders",
    "reach": f"WITH RECURSIVE reach AS ({REACH}) SELECT * FROM reach",
}


def history(choice: Random) -> dict[str, list[Change]]:
    """Rows and edges that come, change and go; no row is there twice, so none are tied."""

    def row(key: int) -> Mapping[str, object]:
        day = f"2024-01-{key + 1:02}"
        return {"customer": choice.choice("ab"), "amount": choice.randint(0, 3), "placed": day}

    def edge(_: int) -> Mapping[str, object]:
        return {"a": choice.randrange(6), "b": choice.randrange(6)}

    return {
        name: [
            (key, None if time and choice.random() < 0.4 else made(key), time)
            for time in range(TIMES)
            for key in choice.sample(range(8), 8 if time == 0 else 3)
        ]
        for name, made in (("orders", row), ("edges", edge))
    }


def plan_of(text: str) -> ik.Plan:
    return pipeline.parse(text, "sections.yaml", environ={}).plan


def test_sections_are_what_duckdb_answers_at_every_time() -> None:
    changes = history(Random(5))

    found = evaluate(plan_of(YAML), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        for name, query in QUERIES.items():
            columns, expected = answer(TABLES, tables_at(changes, time), query)
            assert shown_at(found[name], columns, time) == expected, (name, time)


def test_python_says_the_same() -> None:
    shop = ik.Pipeline("sections")
    topics = {
        name: shop.topic(
            name, name=f"{name}_changes", columns=[ik.Column(*each) for each in of.items()]
        )
        for name, of in TABLES.items()
    }
    orders = topics["orders"].upsert("orders")
    topics["edges"].upsert("edges")
    best = orders.window(
        name="best",
        partition="customer",
        order=["amount DESC", "placed"],
        functions={"place": "rank()", "so far": "sum(amount)"},
        before="lag(amount, 1, 0)",
        having=["place <= 2", "before >= 0"],
    )
    best.to("best")
    around = orders.window(
        name="around",
        order=["placed", "amount", "customer"],
        frame=AROUND,
        mean="avg(amount) FILTER (WHERE amount > 1)",
    )
    around.to("around")
    columns = {"a": "BIGINT", "b": "BIGINT"}
    shop.iterate("reach", REACH, columns=columns, rounds=20).to("reach")

    assert shop.plan() == plan_of(YAML)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "place: rank()",
            'place: "rank() OVER (), 1"',
            "functions: rank() OVER (), 1: syntax error",
        ),
        ("place: rank()", "place: amount", "functions: amount: syntax error"),
        ("place: rank()", 'place: "1, rank()"', '"1, rank()" must be one window function without'),
        ("place: rank()", "amount: rank()", 'functions: "orders" has a column "amount" already'),
        ("place <= 2", "place <= 2 LIMIT 3", 'having: "place <= 2 LIMIT 3" must be one condition'),
        ("amount DESC", "amount DESC LIMIT 3", 'order: "amount DESC LIMIT 3" must be an order'),
        (AROUND, "ROWS BETWEEN", "around.frame: ROWS BETWEEN: syntax error"),
        ("partition: customer", "partition: custome", 'partition: there is no column "custome"'),
        ("window: orders", "window: ordes", "no operator 'ordes'; did you mean \"orders\"?"),
        ("r.b = e.a", "r.b = e.c", 'iterate: line 1, column 81: there is no column "c" of "e"'),
        ("{a: BIGINT, b: BIGINT}, rounds", "{a: BIGINT}, rounds", 'no column "b" of "r"'),
        (", columns: {a: BIGINT, b: BIGINT}, rounds", ", rounds", "columns: are missing, with"),
        ("FROM edges UNION", "FROM edgs UNION", "there is no input or operator"),
    ],
)
def test_what_a_section_cannot_be_is_refused(old: str, new: str, problem: str) -> None:
    assert old in YAML
    with pytest.raises(ConfigError) as refused:
        plan_of(YAML.replace(old, new, 1))

    assert problem in str(refused.value)
