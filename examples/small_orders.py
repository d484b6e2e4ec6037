"""The orders of at most nine pieces: the old value leaves when an order changes."""

from typing import TypedDict

import ikebana as ik


class Order(TypedDict):
    product: str
    quantity: int


shop = ik.Pipeline("small-orders")
orders = shop.topic("orders", row=Order).upsert()
orders.where("quantity <= 9").to("small")

if __name__ == "__main__":
    shop.run("localhost:9092", checkpoint="./small-orders")
