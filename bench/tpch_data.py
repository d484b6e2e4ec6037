"""TPC-H's tables as upserts, always the same, its queries 1, 3, 5 and 17, and DuckDB's answers.

Columns that no query reads are left out, but for a comment of each order and line, as filler.
Values are drawn evenly, so that more rows meet the conditions than in TPC-H's own data.
"""

import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import duckdb
import pyarrow as pa
from join_data import Message, Row, Verdict

from support import tpch

# The columns that are written, keys first; their types are those of the tests' tables.
_COLUMNS = {
    "region": "r_regionkey r_name",
    "nation": "n_nationkey n_name n_regionkey",
    "supplier": "s_suppkey s_nationkey",
    "customer": "c_custkey c_nationkey c_mktsegment",
    "part": "p_partkey p_brand p_container",
    "orders": "o_orderkey o_custkey o_orderdate o_shippriority o_comment",
    "lineitem": "l_orderkey l_linenumber l_partkey l_suppkey l_quantity l_extendedprice "
    "l_discount l_tax l_returnflag l_linestatus l_shipdate l_comment",
}
_COMMENT = {"l_comment": "VARCHAR"}
TABLES: Mapping[str, Mapping[str, str]] = {
    name: {column: {**tpch.TABLES[name], **_COMMENT}[column] for column in columns.split()}
    for name, columns in _COLUMNS.items()
}
KEYS = {name: tuple(columns)[: 1 + (name == "lineitem")] for name, columns in TABLES.items()}
_FIRST, _DAYS = date(1992, 1, 1), 2_500
_SEGMENTS = ("BUILDING", "MACHINERY", "AUTOMOBILE", "FURNITURE", "HOUSEHOLD")
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_CONTAINERS = ("MED BOX", "MED BAG", "SM CASE", "LG CASE", "JUMBO JAR")


class View(NamedTuple):
    """A query, as both systems take it, and the types of its result, key first."""

    sql: str
    columns: Mapping[str, str]
    keys: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that no two rows are equal in."""
        return tuple(self.columns)[: self.keys]


QUERIES = {
    "q1": View(
        """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
           sum(l_extendedprice) AS sum_base_price,
           sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
           sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
           avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price,
           avg(l_discount) AS avg_disc, count(*) AS count_order
           FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
           GROUP BY l_returnflag, l_linestatus""",
        {
            **dict.fromkeys(("l_returnflag", "l_linestatus"), "VARCHAR"),
            **dict.fromkeys(("sum_qty", "sum_base_price"), "DECIMAL(38,2)"),
            **{"sum_disc_price": "DECIMAL(38,4)", "sum_charge": "DECIMAL(38,6)"},
            **dict.fromkeys(("avg_qty", "avg_price", "avg_disc"), "DECIMAL(38,6)"),
            "count_order": "BIGINT",
        },
        keys=2,
    ),
    "q3": View(
        """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate,
           o_shippriority
           FROM customer, orders, lineitem
           WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
           AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
           GROUP BY l_orderkey, o_orderdate, o_shippriority
           ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
        {
            "l_orderkey": "BIGINT",
            "revenue": "DECIMAL(38,4)",
            "o_orderdate": "DATE",
            "o_shippriority": "BIGINT",
        },
    ),
    "q5": View(
        """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
           FROM customer, orders, lineitem, supplier, nation, region
           WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
           AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
           AND n_regionkey = r_regionkey AND r_name = 'ASIA'
           AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
           GROUP BY n_name""",
        {"n_name": "VARCHAR", "revenue": "DECIMAL(38,4)"},
    ),
    "q17": View(
        """SELECT 1 AS nr, sum(l_extendedprice) / 7.0 AS avg_yearly
           FROM lineitem, part
           WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
           AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem
                             WHERE l_partkey = p_partkey)""",
        {"nr": "INTEGER", "avg_yearly": "DECIMAL(38,6)"},
    ),
}


class Warehouse:
    """All tables as they stand after the messages that were taken from it."""

    def __init__(self, scale: float) -> None:
        self._draw = draw = random.Random(7)
        sizes = {"supplier": 10_000, "customer": 150_000, "part": 200_000, "orders": 1_500_000}
        self._sizes = {name: max(int(size * scale), 10) for name, size in sizes.items()}
        makers: dict[str, Callable[[int], Row]] = {
            "supplier": lambda at: (at, draw.randrange(25)),
            "customer": lambda at: (at, draw.randrange(25), draw.choice(_SEGMENTS)),
            "part": lambda at: (at, f"Brand#{draw.randrange(21, 26)}", draw.choice(_CONTAINERS)),
            "orders": self._order,
        }
        self.rows: dict[str, dict[tuple[Any, ...], Row]] = {
            "region": {(at,): (at, name) for at, name in enumerate(_REGIONS)},
            "nation": {(at,): (at, f"NATION {at}", at % 5) for at in range(25)},
            **{
                name: {(at,): make(at) for at in range(self._sizes[name])}
                for name, make in makers.items()
            },
        }
        keys = [(order, line) for order in range(self._sizes["orders"]) for line in range(4)]
        self.rows["lineitem"] = {key: self._line(key) for key in keys}
        self._keys = keys

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.rows.values()))

    def load(self, tables: Sequence[str]) -> dict[str, Iterator[Message]]:
        """The rows of tables as they stand."""
        return {name: self._loaded(name) for name in tables}

    def updates(self, count: int) -> Iterator[Message]:
        """So many updates of lines, of which 30% are deletes."""
        lines = self.rows["lineitem"]
        for _ in range(count):
            key = self._draw.choice(self._keys)
            if self._draw.random() < 0.3:
                lines.pop(key, None)
            else:
                lines[key] = self._line(key)
            yield _message("lineitem", key, lines.get(key))

    def judged(self, view: View, found: Sequence[Row]) -> Verdict:
        """Compare rows with the query's answer on the tables as they stand."""
        database = duckdb.connect(config={"threads": 1})
        for name, columns in TABLES.items():
            by_column = list(zip(*self.rows[name].values(), strict=True)) or [()] * len(columns)
            given = pa.table([pa.array(list(map(str, each))) for each in by_column], list(columns))
            database.register("given", given)
            listed = ", ".join(f"{column}::{kind} AS {column}" for column, kind in columns.items())
            database.execute(f"CREATE TABLE {name} AS SELECT {listed} FROM given")
            database.unregister("given")
        wanted = {row[: view.keys]: row for row in database.execute(view.sql).fetchall()}
        by_key = {row[: view.keys]: row for row in found}
        equal = [key for key in wanted if key in by_key and _equal(wanted[key], by_key[key])]
        # Rows of one key are more than there should be.
        return Verdict(len(wanted), len(wanted) - len(equal), len(found) - len(equal))

    def _loaded(self, table: str) -> Iterator[Message]:
        for key, row in self.rows[table].items():
            yield _message(table, key, row)

    def _order(self, key: int) -> Row:
        draw = self._draw.randrange
        return key, draw(self._sizes["customer"]), self._day(), 0, f"order {key} of somebody"

    def _line(self, key: tuple[int, int]) -> Row:
        draw, choice = self._draw.randrange, self._draw.choice
        amounts = draw(1, 51), draw(100, 10_000_000) / 100, draw(11) / 100, draw(9) / 100
        whose = draw(self._sizes["part"]), draw(self._sizes["supplier"])
        filler = f"line {key[1]} of {key[0]}"
        return (*key, *whose, *amounts, choice("ANR"), choice("FO"), self._day(), filler)

    def _day(self) -> str:
        return str(_FIRST + timedelta(days=self._draw.randrange(_DAYS)))


def _message(table: str, key: tuple[Any, ...], row: Row | None) -> Message:
    columns = tuple(TABLES[table])
    named = json.dumps(dict(zip(KEYS[table], key, strict=True))).encode()
    return named, None if row is None else json.dumps(
        dict(zip(columns, row, strict=True))
    ).encode()


def _equal(wanted: Row, found: Row) -> bool:
    """Whether two rows agree; averages have as many digits as each system gives them."""
    return all(
        math.isclose(float(one), float(other), rel_tol=1e-6, abs_tol=1e-5)
        if isinstance(one, int | float | Decimal) and other is not None
        else str(one) == str(other)
        for one, other in zip(wanted, found, strict=True)
    )
