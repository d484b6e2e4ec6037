"""Joins through Kafka and Spark: TPC-H's third query, and prices as of orders."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import msgspec
import pytest

from support.output_judge import committed, progress_of
from support.pipeline_processes import WrittenOver
from support.sums import summed

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

Row = tuple[Any, ...]
Message = tuple[bytes, bytes | None]

TABLES = {
    "customer": {"custkey": "BIGINT", "mktsegment": "VARCHAR"},
    "orders": {
        "orderkey": "BIGINT",
        "custkey": "BIGINT",
        "orderdate": "DATE",
        "shippriority": "INTEGER",
    },
    "lineitem": {
        "orderkey": "BIGINT",
        "linenumber": "INTEGER",
        "extendedprice": "DECIMAL(12,2)",
        "discount": "DECIMAL(12,2)",
        "shipdate": "DATE",
    },
}
KEYS = {"customer": 1, "orders": 1, "lineitem": 2}
"""How many of a table's first columns are its key."""

Q3 = """
    SELECT l.orderkey, l.linenumber, l.extendedprice * (1 - l.discount) AS revenue,
        o.orderdate, o.shippriority
    FROM customer c JOIN orders o ON c.custkey = o.custkey JOIN lineitem l
        ON l.orderkey = o.orderkey
    WHERE c.mktsegment = 'BUILDING' AND o.orderdate < DATE '1995-03-15'
        AND l.shipdate > DATE '1995-03-15'
"""
BY_ORDER = f"""
    SELECT orderkey, orderdate, shippriority, sum(revenue) FROM ({Q3}) GROUP BY ALL
"""


class Shop:
    """TPC-H's customers, orders and lines around the dates of its third query."""

    def __init__(self, choice: Random) -> None:
        self.rows: dict[str, dict[Row, Row]] = {name: {} for name in TABLES}
        self._choice = choice

    def changes(self, count: int) -> Iterator[tuple[str, Message]]:
        """Rows of all tables that are new, changed in any of their columns, or gone."""
        for _ in range(count):
            table = self._choice.choices(list(TABLES), [1, 3, 8])[0]
            row = self._row(table)
            key = row[: KEYS[table]]
            gone = key in self.rows[table] and self._choice.random() < 0.25
            if gone:
                del self.rows[table][key]
            else:
                self.rows[table][key] = row
            yield table, _message(table, key, None if gone else row)

    def _row(self, table: str) -> Row:
        choice = self._choice
        custkey, orderkey = choice.randrange(20), choice.randrange(60)
        if table == "customer":
            return custkey, choice.choice(["BUILDING", "MACHINERY"])
        day = date(1995, 3, 15) + timedelta(choice.randrange(-9, 4))
        if table == "orders":
            return orderkey, custkey, day, choice.randrange(2)
        price, discount = Decimal(choice.randrange(10**6)), Decimal(choice.randrange(11))
        ship = day + timedelta(choice.randrange(12))
        return orderkey, choice.randrange(1, 5), price / 100, discount / 100, ship


def _message(table: str, key: Row, row: Row | None) -> Message:
    names = list(TABLES[table])
    encode = msgspec.json.Encoder(decimal_format="number").encode
    value = None if row is None else encode(dict(zip(names, row, strict=True)))
    return encode(dict(zip(names, key, strict=False))), value


def shop_sections(pipeline: str) -> dict[str, Any]:
    """The third query as a delta join, and its revenue by order as a reduction of that."""
    return {
        "inputs": {
            name: {"topic": f"{pipeline}.{name}", "columns": columns}
            for name, columns in TABLES.items()
        },
        "operators": {
            "c": {"upsert": "customer"},
            "o": {"upsert": "orders"},
            "l": {"upsert": "lineitem"},
            "q3": {
                "delta_join": {"c": "c", "o": "o", "l": "l"},
                "where": [
                    "c.custkey = o.custkey",
                    "l.orderkey = o.orderkey",
                    "c.mktsegment = 'BUILDING'",
                    "o.orderdate < DATE '1995-03-15'",
                    "l.shipdate > DATE '1995-03-15'",
                ],
                "select": {
                    "orderkey": "l.orderkey",
                    "linenumber": "l.linenumber",
                    "revenue": "l.extendedprice * (1 - l.discount)",
                    "orderdate": "o.orderdate",
                    "shippriority": "o.shippriority",
                },
                "key": "{'orderkey': l.orderkey, 'linenumber': l.linenumber}",
            },
            "by_order": {
                "reduce": "q3",
                "by": "{'orderkey': orderkey, 'orderdate': orderdate, "
                "'shippriority': shippriority}",
                "aggregates": {"revenue": "sum(revenue)"},
            },
        },
        "outputs": {
            name: {"from": name, "topic": f"{pipeline}.{name}"} for name in ("q3", "by_order")
        },
    }


def rows_of(servers: str, topic: str, columns: Sequence[str]) -> Counter[Row]:
    """The rows of a diff topic, which its progress covers: columns of its values or its keys."""
    decode = msgspec.json.Decoder(float_hook=Decimal).decode
    rows: list[tuple[Row, int]] = []
    upper = progress_of(servers, topic)[-1].upper
    for message in committed(servers, topic):
        headers = dict(message.headers())
        assert int(headers["time"]) < upper
        row = {**decode(message.key()), **decode(message.value())}
        rows.append((tuple(row[column] for column in columns), int(headers["diff"])))
    return summed(rows)


def answer(database: duckdb.DuckDBPyConnection, query: str) -> Counter[Row]:
    """DuckDB's answer, with dates as JSON has them."""
    return Counter(
        tuple(value.isoformat() if isinstance(value, date) else value for value in row)
        for row in database.execute(query).fetchall()
    )


def filled(tables: Mapping[str, tuple[Mapping[str, str], list[Row]]]) -> duckdb.DuckDBPyConnection:
    """A database of these tables: columns with types, and rows."""
    database = duckdb.connect()
    for name, (columns, rows) in tables.items():
        declared = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        database.execute(f"CREATE TABLE {name} ({declared})")
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return database


def test_the_third_query_of_tpch_follows_all_of_its_tables(written_over: WrittenOver) -> None:
    """After updates and deletes in all, and a death between, it is DuckDB's on the tables."""
    pipeline = written_over(*TABLES, limit=150)
    servers, name = pipeline.servers, pipeline.name
    pipeline = pipeline.having(shop_sections(name))
    shop = Shop(Random(8))

    def send(count: int) -> None:
        by_table: dict[str, list[Message]] = {table: [] for table in TABLES}
        for table, message in shop.changes(count):
            by_table[table].append(message)
        for table, messages in by_table.items():
            pipeline.send_to(table, messages)

    send(600)
    pipeline.dies("after_commit:3:1")
    send(600)
    pipeline.drained()

    database = filled(
        {table: (TABLES[table], list(rows.values())) for table, rows in shop.rows.items()}
    )
    wanted, by_order = answer(database, Q3), answer(database, BY_ORDER)
    order = ("orderdate", "shippriority")
    assert len(wanted) > 10
    assert rows_of(servers, f"{name}.q3", ("orderkey", "linenumber", "revenue", *order)) == wanted
    assert rows_of(servers, f"{name}.by_order", ("orderkey", *order, "revenue")) == by_order


ORDERS = {"id": "BIGINT", "product": "VARCHAR", "placed": "BIGINT"}
PRICES = {"product": "VARCHAR", "price": "BIGINT", "since": "BIGINT"}
PRICED = """
    SELECT o.id, p.price FROM orders o
    ASOF LEFT JOIN prices p ON o.product = p.product AND o.placed >= p.since
    WHERE o.placed < {frontier}
"""


def market_sections(name: str) -> dict[str, Any]:
    """Orders, which stay as they are, with the prices of their times."""
    return {
        "inputs": {
            "orders": {
                "topic": f"{name}.orders",
                "format": "debezium-json",
                "mode": "diffs",
                "key": "id",
                "columns": ORDERS,
                "event_time": {"of": "placed", "lateness": "20ms", "idle": "never"},
            },
            "prices": {
                "topic": f"{name}.prices",
                "columns": PRICES,
                "event_time": {"of": "since", "lateness": "20ms", "idle": "never"},
            },
        },
        "operators": {
            "current": {"upsert": "prices"},
            "priced": {
                "as_of_join": {"o": "orders", "p": "current"},
                "on": ["o.product = p.product"],
                "select": {"id": "o.id", "price": "p.price"},
                "outer": True,
            },
        },
        "outputs": {"priced": {"from": "priced", "topic": f"{name}.priced"}},
    }


def ties(database: duckdb.DuckDBPyConnection) -> int:
    """How many orders are of the very time of a price of their product."""
    found = database.execute(
        "SELECT count(*) FROM orders o JOIN prices p "
        "ON o.product = p.product AND o.placed = p.since"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_orders_have_the_prices_of_their_times(written_over: WrittenOver) -> None:
    """Shuffled within the lateness and over a restart, they are those of DuckDB's ASOF JOIN."""
    choice = Random(12)
    pipeline = written_over("orders", "prices", limit=120)
    pipeline = pipeline.having(market_sections(pipeline.name))
    # Many an order is of the very millisecond of a price change of its product.
    prices = sorted({(f"p{choice.randrange(6)}", choice.randrange(1, 450)) for _ in range(250)})
    rows: dict[str, list[Row]] = {
        "orders": [(at, f"p{choice.randrange(7)}", choice.randrange(450)) for at in range(400)],
        "prices": [(product, choice.randrange(100), at) for product, at in prices],
    }
    end = 500
    shuffled = {
        table: sorted(given, key=lambda row: row[2] + choice.uniform(0, 19))
        for table, given in rows.items()
    }

    def send(table: str, given: Sequence[Row], partition: int) -> None:
        messages = []
        for row in given:
            if table == "orders":
                after = dict(zip(ORDERS, row, strict=True))
                value = {"op": "c", "before": None, "after": after}
                messages.append((b"%d" % row[0], json.dumps(value).encode()))
            else:
                value = dict(zip(PRICES, row, strict=True))
                messages.append((json.dumps(row[0]).encode(), json.dumps(value).encode()))
        pipeline.send_to(table, messages, partition)

    for half in (0, 1):
        for table, given in shuffled.items():
            for partition in (0, 1):
                part = [row for row in given if (row[2] >= 225) == half]
                send(table, part[partition::2], partition)
        if half:
            for partition in (0, 1):
                send("orders", [(-1 - partition, "end", end)], partition)
                send("prices", [(f"end{partition}", 0, end)], partition)
        pipeline.drained()

    servers, target = pipeline.servers, f"{pipeline.name}.priced"
    frontier = progress_of(servers, target)[-1].upper
    assert frontier == end - 20
    database = filled({"orders": (ORDERS, rows["orders"]), "prices": (PRICES, rows["prices"])})
    wanted = answer(database, PRICED.format(frontier=frontier))
    assert ties(database) > 10
    assert any(price is None for _, price in wanted)
    assert rows_of(servers, target, ("id", "price")) == wanted
