"""`examples/orders-priced.yaml`: prices of their time, and shipments that follow changes."""

from pathlib import Path
from typing import Any

from ikebana import evaluate
from ikebana.arrangements.update import Update, accumulate
from ikebana.processor.authoring import pipeline
from ikebana.processor.planning.plan import Plan

FILE = Path(__file__).resolve().parents[2] / "examples" / "orders-priced.yaml"
TEA = {"customer": "ann", "product": "tea", "quantity": 3}
RECORDS: dict[str, list[tuple[Any, Any, int]]] = {
    "customers": [
        ("ann", {"name": "Ann", "country": "NZ"}, 10),
        ("ann", {"name": "Anne", "country": "NZ"}, 60),
    ],
    "prices": [("tea", {"price": 5.0}, 10), ("tea", {"price": 7.0}, 30)],
    "orders": [(1, TEA, 20), (2, TEA, 40), (1, None, 50)],
    "shipments": [("s1", {"order": 2, "carrier": "ship"}, 45)],
}


def example() -> Plan:
    """The plan of the example."""
    return pipeline.read(FILE, environ={}).plan


def test_an_order_has_the_price_of_its_time() -> None:
    """And one that is taken back takes back that price."""
    found = evaluate(example(), RECORDS)

    def priced(order: int, price: int) -> tuple[int, dict[str, object]]:
        return order, {"product": "tea", "price": price, "amount": 3 * price}

    assert found["errors"] == []
    assert found["priced"] == [
        Update(priced(1, 5), 20, 1),
        Update(priced(2, 7), 40, 1),
        Update(priced(1, 5), 50, -1),
    ]


def test_a_shipment_follows_its_customer() -> None:
    """A name that changes later changes what was joined."""
    found = [
        Update((update.data[0], update.data[1]["customer"]), update.time, update.diff)
        for update in evaluate(example(), RECORDS)["dispatched"]
    ]

    assert accumulate(found, 45) == {("s1", "Ann"): 1}
    assert accumulate(found, 60) == {("s1", "Anne"): 1}
