"""Each order with the price that its product had when the order was made."""

from datetime import timedelta
from typing import Annotated, TypedDict

import ikebana as ik


class Order(TypedDict):
    product: str
    quantity: int


class Price(TypedDict):
    price: Annotated[float, "DECIMAL(12,2)"]


shop = ik.Pipeline("priced-orders")
when = ik.event_time(clock="kafka", lateness=timedelta(seconds=5))
orders = shop.topic("orders", row=Order, event_time=when).upsert()
prices = shop.topic("prices", row=Price, event_time=when).upsert()
orders.as_of(
    prices,
    aliases=("o", "p"),
    on="o.product = p.key::VARCHAR",
    select={"product": "o.product", "quantity": "o.quantity", "price": "p.price"},
    retract="locked",
).to("priced")

if __name__ == "__main__":
    shop.run("localhost:9092", checkpoint="./priced-orders")
