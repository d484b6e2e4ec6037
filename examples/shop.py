"""A small shop: the topics that the examples and the docs read.

    python examples/shop.py                            # to localhost:9092
    python examples/shop.py --orders 5000 --bootstrap-servers broker:9092

Customers, products with prices that change, orders with items, shipments, clicks, and the
change data of the table of orders as Debezium writes it.  The same seed gives the same
messages.  Each run appends the whole history: keys that are there already are upserted.
"""

import argparse
import base64
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin

BEGIN = datetime(2024, 1, 1, 8, tzinfo=UTC)
STEP = timedelta(minutes=3)
PRODUCTS = {"coffee": "8.50", "ink": "3.20", "rice": "1.95", "soap": "2.40", "tea": "5.00"}
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
CITIES = {"NZ": "Wellington", "JP": "Kyoto", "DE": "Bremen"}
SEGMENTS = ("home", "trade")
CARRIERS = ("post", "ship", "bike")
# What becomes of an order; a few are cancelled before they are shipped.
LIFE = ("place", "pay", "ship")


class Message(NamedTuple):
    """A record of a topic: key and value are data, which Kafka gets as JSON.

    A value of None is a tombstone, a key of None is no key.
    """

    topic: str
    key: Any
    value: Any
    time: datetime


def history(orders: int = 200, seed: int = 1) -> list[Message]:
    """All messages of a shop that sells so many orders, in order of time."""
    choice = Random(seed)
    found = [*_customers(choice), *_prices(choice, orders)]
    for number in range(1, orders + 1):
        found += _order(choice, number, BEGIN + number * STEP)
    found.sort(key=lambda message: message.time)
    return found


def _customers(choice: Random) -> Iterator[Message]:
    for number, name in enumerate(NAMES, 1):
        country = choice.choice(list(CITIES))
        segment = SEGMENTS[number % len(SEGMENTS)]
        value = {"name": name, "city": CITIES[country], "country": country, "segment": segment}
        yield Message("customers", f"c{number}", value, BEGIN)


def _prices(choice: Random, orders: int) -> Iterator[Message]:
    """The first price of each product, and a change for every tenth order."""
    for product, price in PRODUCTS.items():
        yield Message("prices", product, {"price": float(price)}, BEGIN)
    for number in range(10, orders, 10):
        product = choice.choice(sorted(PRODUCTS))
        cents = int(Decimal(PRODUCTS[product]) * 100) + choice.randrange(-90, 90)
        at = BEGIN + number * STEP + STEP / 2
        yield Message("prices", product, {"price": cents / 100}, at)


def _order(choice: Random, number: int, at: datetime) -> Iterator[Message]:
    customer = f"c{choice.randrange(len(NAMES)) + 1}"
    bought = choice.sample(sorted(PRODUCTS), choice.randrange(1, 4))
    lines: list[dict[str, Any]] = [
        {"sku": sku, "quantity": choice.randrange(1, 9)} for sku in bought
    ]
    order = {
        "customer": customer,
        "product": bought[0],
        "quantity": lines[0]["quantity"],
        "amount": round(Decimal(PRODUCTS[bought[0]]) * lines[0]["quantity"]),
        "ordered": at.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    yield Message("clicks", None, {"customer": customer, "at": order["ordered"]}, at)
    yield Message("orders", number, order, at)
    for line in lines:
        item = {"order": number, **line, "price": float(PRODUCTS[str(line["sku"])])}
        yield Message("items", f"{number}/{line['sku']}", item, at)
    yield from _changes(choice, number, customer, lines, at)
    for event in LIFE:
        yield Message("order-events", number, event, at)
        at += STEP
        if event != LIFE[-1] and choice.random() < 0.1:
            yield Message("order-events", number, "cancel", at)
            return
    carrier = choice.choice(CARRIERS)
    yield Message("shipments", f"s{number}", {"order": number, "carrier": carrier}, at)


def _changes(
    choice: Random, number: int, customer: str, lines: list[dict[str, Any]], at: datetime
) -> Iterator[Message]:
    """What Debezium says of an order's row: it is made, may change, and may be deleted."""
    total = sum(Decimal(PRODUCTS[line["sku"]]) * line["quantity"] for line in lines)
    row = {
        "id": number,
        "customer": int(customer[1:]),
        "amount": _decimal(total * choice.choice((1, 100))),
        "placed": int(at.timestamp() * 1_000_000),
        # Debezium writes a JSON column as a text.
        "lines": json.dumps(lines),
    }
    yield _change(number, "c", None, row, at)
    before = row
    if choice.random() < 0.3:
        before = {**row, "amount": _decimal(total * 2)}
        yield _change(number, "u", row, before, at + STEP)
    if choice.random() < 0.1:
        yield _change(number, "d", before, None, at + 2 * STEP)
        yield Message("shop.public.orders", {"id": number}, None, at + 2 * STEP)


def _change(number: int, op: str, before: Any, after: Any, at: datetime) -> Message:
    source = {"db": "shop", "schema": "public", "table": "orders"}
    value = {"op": op, "before": before, "after": after, "source": source}
    return Message("shop.public.orders", {"id": number}, value, at)


def _decimal(value: Decimal) -> str:
    """A DECIMAL(12,2) as Debezium writes it by default: its digits in bytes, in base64."""
    digits = int(value * 100)
    size = digits.bit_length() // 8 + 1
    return base64.b64encode(digits.to_bytes(size, "big", signed=True)).decode()


def encoded(data: Any) -> bytes | None:
    """JSON, or nothing for what is not there."""
    return None if data is None else json.dumps(data).encode()


def main() -> None:
    """Write the topics."""
    parser = argparse.ArgumentParser(description="Write the topics of a small shop.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    messages = history(given.orders, given.seed)
    counts = Counter(message.topic for message in messages)
    make_topics(given.bootstrap_servers, list(counts), given.partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": given.bootstrap_servers})
    # The last messages are of now, so that none is ahead of the clock.
    shift = datetime.now(UTC) - messages[-1].time
    for message in messages:
        producer.produce(
            message.topic,
            encoded(message.value),
            encoded(message.key),
            timestamp=int((message.time + shift).timestamp() * 1000),
        )
        producer.poll(0)
    producer.flush()
    for topic, count in sorted(counts.items()):
        print(f"{count:7,} records are in {topic}")


def make_topics(servers: str, topics: list[str], partitions: int) -> None:
    """Make the topics that do not exist yet."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
    there = admin.list_topics(timeout=10).topics
    new = [
        confluent_kafka.admin.NewTopic(topic, partitions, 1)
        for topic in topics
        if topic not in there
    ]
    for made in admin.create_topics(new).values() if new else ():
        made.result()


if __name__ == "__main__":
    main()
