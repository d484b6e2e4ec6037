"""The data of the joins' benchmarks, always the same, and what DuckDB says of them.

Q3: customers, their orders, and the orders' lines, as upserts; then backlogs of random
lines, 70% written anew and 30% deleted.  As-of: a price change each 100 ms, orders evenly
between them, of which one in five hundred or so is in the very millisecond of a price
change of its product.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

Message = tuple[bytes, bytes | None]
Row = tuple[Any, ...]

BEGIN_MS = 1_700_000_000_000
PRICE_EACH_MS = 100
# As long as topics have four partitions, each of them gets one of these.
PARTITIONS = 4
_CUSTOMER = ("ck", "seg", "name")
_ORDER = ("ok", "ck", "odate", "prio")
_LINE = ("ok", "ln", "ship", "price", "disc")
RESULT = ("ok", "ln", "revenue", "odate", "prio", "ck")
PRICED = ("id", "product", "qty", "ts", "price", "pts")


class Verdict(NamedTuple):
    """How a collection differs from what it should be."""

    rows: int
    missing: int
    extra: int

    @property
    def exact(self) -> bool:
        """Whether it does not."""
        return self.missing == self.extra == 0


class Shop:
    """Three relations as they stand after the messages that were taken from it."""

    def __init__(self, customers: int, orders: int, lines: int) -> None:
        self._draw = draw = random.Random(21)
        self.customers: list[Row] = [
            (at, draw.randrange(5), f"Customer#{at:09d}") for at in range(customers)
        ]
        self.orders: list[Row] = [
            (at, draw.randrange(customers), draw.randrange(1000), draw.randrange(5))
            for at in range(orders)
        ]
        each = lines // orders
        self._keys = [(at // each, at % each) for at in range(each * orders)]
        self.lines: dict[tuple[int, int], Row] = {key: self._line(key) for key in self._keys}

    def load(self) -> dict[str, Iterator[Message]]:
        """All rows as they stand, by relation."""
        return {
            "customer": (
                (b'{"ck":%d}' % row[0], b'{"ck":%d,"seg":%d,"name":"%b"}' % _bytes(row))
                for row in self.customers
            ),
            "orders": (
                (b'{"ok":%d}' % row[0], b'{"ok":%d,"ck":%d,"odate":%d,"prio":%d}' % row)
                for row in self.orders
            ),
            "lineitem": (_line_message(key, row) for key, row in self.lines.items()),
        }

    def updates(self, count: int) -> Iterator[Message]:
        """So many updates and deletes of lines."""
        for _ in range(count):
            key = self._draw.choice(self._keys)
            if self._draw.random() < 0.3:
                self.lines.pop(key, None)
            else:
                self.lines[key] = self._line(key)
            yield _line_message(key, self.lines.get(key))

    def judged(self, found: Sequence[Row], conditions: str = "") -> Verdict:
        """Compare rows of `RESULT` with the query's answer on the rows as they stand."""
        database = duckdb.connect(config={"threads": 1})
        _fill(database, "c", _CUSTOMER, self.customers)
        _fill(database, "o", _ORDER, self.orders)
        _fill(database, "l", _LINE, list(self.lines.values()))
        return _judged(
            database,
            "SELECT l.ok, l.ln, l.price * (100 - l.disc), o.odate, o.prio, c.ck "
            "FROM c JOIN o USING (ck) JOIN l USING (ok) "
            f"WHERE c.seg = 0 AND o.odate < 500 AND l.ship > 500 {conditions}",
            RESULT,
            found,
        )

    def _line(self, key: tuple[int, int]) -> Row:
        draw = self._draw.randrange
        return (*key, draw(1001), draw(100, 10_000_000), draw(11))


class Market:
    """Orders and price changes, in the order of time."""

    def __init__(self, orders: int, prices: int, products: int) -> None:
        draw, span = random.Random(11), prices * PRICE_EACH_MS
        self.products = products
        self.prices: list[Row] = [
            (draw.randrange(products), draw.randrange(1, 100_000), BEGIN_MS + at * PRICE_EACH_MS)
            for at in range(prices)
        ]
        self.orders: list[Row] = [
            (at, draw.randrange(products), draw.randrange(1, 50), BEGIN_MS + at * span // orders)
            for at in range(orders)
        ]
        self.end = BEGIN_MS + span + 1_000_000
        """A time behind all others, which those of `last` have."""

    def last(self) -> tuple[list[Row], list[Row]]:
        """A price and an order for each partition that push the frontier behind all others."""
        products = range(self.products, self.products + PARTITIONS)
        prices = [(product, 1, self.end) for product in products]
        return prices, [(-1 - at, product, 1, self.end) for at, product in enumerate(products)]

    def judged(self, found: Sequence[Row]) -> Verdict:
        """Compare rows of `PRICED` with DuckDB's ASOF JOIN."""
        database = duckdb.connect(config={"threads": 1})
        _fill(database, "o", ("id", "product", "qty", "ts"), self.orders)
        _fill(database, "p", ("product", "price", "ts"), self.prices)
        return _judged(
            database,
            "SELECT o.id, o.product, o.qty, o.ts, p.price, p.ts FROM o "
            "ASOF LEFT JOIN p ON o.product = p.product AND o.ts >= p.ts",
            PRICED,
            found,
        )


def price_messages(prices: Iterable[Row]) -> Iterator[Message]:
    """Price changes, keyed by product."""
    for row in prices:
        yield b'{"product":%d}' % row[0], b'{"product":%d,"price":%d,"ts":%d}' % row


def order_messages(orders: Iterable[Row]) -> Iterator[Message]:
    """Orders, keyed by product."""
    for row in orders:
        value = b'{"id":%d,"product":%d,"qty":%d,"ts":%d}' % row
        yield b'{"product":%d}' % row[1], value


def _line_message(key: tuple[int, int], row: Row | None) -> Message:
    value = None if row is None else b'{"ok":%d,"ln":%d,"ship":%d,"price":%d,"disc":%d}' % row
    return b'{"ok":%d,"ln":%d}' % key, value


def _bytes(row: Row) -> Row:
    return tuple(value.encode() if isinstance(value, str) else value for value in row)


def _fill(
    database: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str], rows: Sequence[Row]
) -> None:
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    text = [bool(column) and isinstance(column[0], str) for column in by_column]
    given = pa.table(
        [
            pa.array(column, pa.string() if is_text else pa.int64())
            for column, is_text in zip(by_column, text, strict=True)
        ],
        names=list(columns),
    )
    database.register("given", given)
    database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    database.unregister("given")


def _judged(
    database: duckdb.DuckDBPyConnection, query: str, columns: Sequence[str], found: Sequence[Row]
) -> Verdict:
    database.execute(f"CREATE TABLE wanted AS {query}")
    _fill(database, "found", columns, found)

    def count(what: str) -> int:
        answer = database.execute(f"SELECT count(*) FROM ({what})").fetchone()
        assert answer is not None
        return int(answer[0])

    return Verdict(
        count("FROM wanted"),
        count("FROM wanted EXCEPT ALL FROM found"),
        count("FROM found EXCEPT ALL FROM wanted"),
    )
