"""Pipelines in Python make the plans that pipeline files make, and say where they are wrong."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest

import ikebana as ik
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.building.parts import calling_place

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Order(TypedDict):
    id: int
    customer: int
    amount: float
    product: str


def first() -> ik.Pipeline:
    made = ik.Pipeline("first", time="offset")
    made.topic("flights", key_format="bytes").upsert("aircraft").to("whereabouts", name="diffs")
    return made


def whereabouts() -> ik.Pipeline:
    made = ik.Pipeline("whereabouts", error_topic="whereabouts.errors")
    aircraft = made.topic("flights", key_format="bytes").upsert("aircraft")
    aircraft.to("whereabouts", name="diffs", partitions=4)
    return made


def orders() -> ik.Pipeline:
    made = ik.Pipeline("orders")
    columns = (
        ik.Column("id", "BIGINT"),
        ik.Column("customer", "BIGINT"),
        ik.Column("amount", "DECIMAL(12,2)", "decimal"),
        ik.Column("placed", "TIMESTAMP", "timestamp-micros"),
        ik.Column("lines", "JSON"),
    )
    current = made.topic(
        "shop.public.orders", name="orders", format="debezium-json", key=["id"], columns=columns
    ).upsert("current")
    large = current.where("amount >= 1000").select("id", "customer", "amount").named("large")
    large.to("orders.large", name="large")
    large.to("orders.large.by-key", name="large_by_key", format="upsert")
    lines = current.unnest("line", "lines").select(
        sku="line->>'sku'",
        quantity="(line->'quantity')::INTEGER",
        key="{'order': id, 'sku': line->>'sku'}",
    )
    lines.named("lines").to("orders.lines", name="lines")
    recent = current.sql(
        select={"id": '"id"', "customer": '"customer"', "amount": '"amount"'},
        valid_until="placed + INTERVAL 30 DAYS",
    )
    recent.named("recent").to("orders.recent", name="recent")
    return made


def orders_priced() -> ik.Pipeline:
    made = ik.Pipeline("orders-priced")
    when = ik.event_time(clock="kafka", lateness=timedelta(seconds=5))

    def table(topic: str, called: str, **columns: str) -> ik.Collection[Any, Any]:
        types = [ik.Column(column, kind) for column, kind in columns.items()]
        return made.topic(topic, columns=types, event_time=when).upsert(called)

    customer = table("customers", "customer", name="VARCHAR", country="VARCHAR")
    price = table("prices", "price", price="DECIMAL(12,2)")
    order = table("orders", "order", customer="JSON", product="JSON", quantity="BIGINT")
    shipment = table("shipments", "shipment", order="JSON", carrier="VARCHAR")
    order.as_of(
        price,
        on="o.product = p.key",
        select={"product": "o.product", "price": "p.price", "amount": "o.quantity * p.price"},
        retract="locked",
        aliases=("o", "p"),
        name="priced",
    ).to("priced")
    made.join(
        {"o": order, "c": customer, "s": shipment},
        where=["o.customer = c.key", 's."order" = o.key'],
        select={
            "customer": "c.name",
            "product": "o.product",
            "quantity": "o.quantity",
            "carrier": "s.carrier",
        },
        key="s.key",
        name="dispatched",
    ).to("dispatched", format="upsert")
    return made


def in_the_air() -> ik.Pipeline:
    made = ik.Pipeline("in-the-air")
    columns = [
        ik.Column("origin", "VARCHAR"),
        ik.Column("scheduled", "TIMESTAMP"),
        ik.Column("departed", "TIMESTAMP"),
        ik.Column("minutes", "INTEGER"),
    ]
    departed = ik.event_time(
        "coalesce(departed, scheduled)", lateness=timedelta(hours=6), idle=None
    )
    flights = made.topic(
        "flights.departures", name="departures", columns=columns, event_time=departed
    ).upsert("flights")
    aloft = flights.sql(
        where="minutes IS NOT NULL",
        select={"origin": '"origin"'},
        valid_from="departed",
        valid_until="departed + to_minutes(minutes)",
    ).named("aloft")
    aloft.reduce(by="origin", name="by_origin", flights="count(*)").to(
        "in-the-air", name="by_origin"
    )
    return made


def life_cycle() -> ik.Pipeline:
    made = ik.Pipeline("life-cycle")
    columns = [ik.Column("event", "VARCHAR"), ik.Column("happened", "TIMESTAMP")]
    happened = ik.event_time("happened", lateness=timedelta(hours=6), idle=None)
    events = made.topic("flights.events", name="events", columns=columns, event_time=happened)
    states = events.machine("life_cycle:next_state", name="states")
    states.to("life-cycle.states", name="states")
    states.reduce(by="value", name="by_state", flights="count(*)").to(
        "life-cycle.by-state", name="by_state"
    )
    return made


def views() -> ik.Pipeline:
    made = ik.Pipeline("views")

    def table(topic: str, **columns: str) -> None:
        own = [ik.Column(*each) for each in columns.items()]
        made.topic(topic, columns=own).upsert(f"{topic}.rows")

    table("orders", customer="VARCHAR", product="VARCHAR", quantity="BIGINT")
    table("prices", price="DECIMAL(12,2)")
    revenue = made.sql(
        """
        SELECT o.product, sum(o.quantity * p.price) AS total, count(*) AS orders
        FROM orders o JOIN prices p ON o.product = p.key::VARCHAR
        GROUP BY o.product
        """,
        name="revenue",
    )
    table("customers", name="VARCHAR", country="VARCHAR", segment="VARCHAR")
    modest = made.sql(
        """
        SELECT c.name, c.country FROM customers c
        WHERE NOT EXISTS (SELECT 1 FROM orders o
                          WHERE o.customer = c.key::VARCHAR AND o.quantity >= 8)
        """,
        name="modest",
    )
    best = made.sql(
        "SELECT * FROM revenue ORDER BY total DESC LIMIT 3", name="best", key="product"
    )
    revenue.to("revenue", name="revenue", format="upsert")
    modest.to("modest", name="modest")
    best.to("best", name="best")
    return made


BUILT: dict[str, Callable[[], ik.Pipeline]] = {
    "first": first,
    "whereabouts": whereabouts,
    "orders": orders,
    "orders-priced": orders_priced,
    "in-the-air": in_the_air,
    "life-cycle": life_cycle,
    "views": views,
}


def test_every_example_is_here() -> None:
    """A new example is written in Python, too."""
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(BUILT)


@pytest.mark.parametrize("name", sorted(BUILT))
def test_a_pipeline_in_python_makes_the_plan_of_its_file(name: str) -> None:
    """So a checkpoint of the one goes on with the other."""
    made, read = BUILT[name]().plan(), ik.load(EXAMPLES / f"{name}.yaml").plan()

    assert made == read
    assert made.fingerprint() == read.fingerprint()


def test_steps_in_a_row_are_one_operator_made_once() -> None:
    """Whoever uses the collection."""
    made = ik.Pipeline("p")
    large = made.topic("orders", row=Order).upsert().where("amount > 9").filter(bool)
    large.to("one")
    large.reduce(by="product", n="count(*)").to("two")

    plan = made.plan()

    assert [type(o).__name__ for o in plan.operators] == ["Upsert", "Linear", "Reduce"]
    assert [o.source for o in plan.outputs] == ["orders_1", "orders_1_by_product"]


def test_conditions_go_into_the_step_behind_them() -> None:
    """As a file has them; what a step has made is for the next one."""
    made = ik.Pipeline("p")
    current = made.topic("orders", row=Order).upsert()
    current.where("amount > 9").where("id > 1").select("id").where("id < 5").to("o")

    (linear,) = [o for o in made.plan().operators if isinstance(o, ik.Linear)]

    assert linear.steps == (
        ik.steps.Sql(where=("amount > 9", "id > 1"), select=(("id", '"id"'),)),
        ik.steps.where("id < 5"),
    )


def test_collections_are_added_and_subtracted() -> None:
    """All orders without the large ones are the small ones."""
    made = ik.Pipeline("p")
    current = made.topic("orders", row=Order).upsert()
    (current - current.where("amount > 9")).to("small")
    row = {"id": 1, "customer": 1, "amount": 5.0, "product": "tea"}

    found = made.evaluate(orders=[(1, row, 0), (2, {**row, "amount": 10.0}, 0)])

    assert found["small"] == [((1, row), 0, 1)]


def test_a_problem_has_the_line_of_the_code() -> None:
    """That of the step, also where the operator has several."""
    made = ik.Pipeline("p")
    current = made.topic("orders", row=Order).upsert()
    line = calling_place().line + 2
    narrow = current.select("id", "amount")
    narrow.select(big="amuont").to("o")

    with pytest.raises(PlanError) as raised:
        made.plan()

    assert f"({__file__}, line {line})" in str(raised.value)


def test_one_name_for_two_operators_is_told_with_both_places() -> None:
    """And what gives another name."""
    made = ik.Pipeline("p")
    orders = made.topic("orders", row=Order).upsert("one")
    begin = calling_place().line
    orders.reduce(by="product", n="count(*)")

    with pytest.raises(ConfigError) as raised:
        orders.reduce(by="product", n="sum(amount)")

    message = str(raised.value)
    assert "operators.one_by_product twice" in message
    assert f"line {begin + 1} and " in message
    assert "name=" in message


def test_what_is_of_another_pipeline_is_refused() -> None:
    """Its data are in other shards."""
    one, two = ik.Pipeline("one"), ik.Pipeline("two")
    ours = one.topic("a", row=Order).upsert()
    theirs = two.topic("b", row=Order).upsert()

    with pytest.raises(ConfigError, match=r'"b" of pipeline "two".*\n.*Publish it'):
        one.join({"a": ours, "b": theirs}, where="a.key = b.key", select={"x": "a.id"})


def test_a_collection_that_has_a_name_gets_no_other() -> None:
    """A name is given where the operator is made."""
    made = ik.Pipeline("p")

    with pytest.raises(ConfigError, match='cannot name "orders" "current"'):
        made.topic("orders").upsert().named("current")


def test_a_type_checker_knows_the_columns() -> None:
    """`make types` refuses the comment below where the wrong column is not found."""
    made = ik.Pipeline("p")

    def customer_of(data: tuple[Any, Order]) -> tuple[int, float]:
        return data[1]["customer"], data[1]["amount"]

    def misspelt(data: tuple[Any, Order]) -> bool:
        return data[1]["amuont"] > 9  # type: ignore[typeddict-item, no-any-return]

    current = made.topic("orders", row=Order).upsert()
    paid: ik.Collection[int, float] = current.map(customer_of)
    paid.to("paid")
    row: Order = {"id": 1, "customer": 7, "amount": 5.0, "product": "tea"}

    assert made.evaluate({"orders": [(1, row, 0)]})["paid"] == [((7, 5.0), 0, 1)]
    assert misspelt.__name__ == "misspelt"
