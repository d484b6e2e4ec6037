"""The queries of the pages give what DuckDB answers over a shop."""

from random import Random
from typing import Any

import pytest

import ikebana as ik
from support.doc_blocks import Block, blocks
from support.sql_oracle import answer, plan_of, records_of, shown_at, tables_at

TABLES = {
    "customers": {"id": "BIGINT", "name": "VARCHAR"},
    "orders": {
        "id": "BIGINT",
        "customer": "BIGINT",
        "product": "VARCHAR",
        "quantity": "BIGINT",
        "placed": "TIMESTAMP",
    },
    "prices": {"product": "VARCHAR", "price": "DECIMAL(12,2)"},
    "offers": {"product": "VARCHAR", "price": "DECIMAL(12,2)", "since": "TIMESTAMP"},
}
PRODUCTS = ("coffee", "rice", "tea")
TIMES = 4
# What DuckDB has under another name.
IN_DUCKDB = {
    "tumble(orders, placed, INTERVAL '1 hour')": (
        "(SELECT *, time_bucket(INTERVAL '1 hour', placed) AS window_start FROM orders)"
    ),
}
# Files have a test of their own, as have the tutorial and the recursive queries.
QUERIES = [
    each
    for each in blocks("sql")
    if "CREATE " not in each.text and not each.name.startswith(("tutorial-", "sql-recursive-"))
]


def shop(choice: Random) -> dict[str, list[Any]]:
    """Changes of all tables at a few times; rows change and go."""
    found: dict[str, list[Any]] = {
        "customers": [(at, {"id": at, "name": name}, 0) for at, name in enumerate("abc", 1)],
        "prices": [(each, {"product": each, "price": at}, 0) for at, each in enumerate("xyz")],
        "orders": [],
        "offers": [],
    }
    for time in range(TIMES):
        product = choice.choice(PRODUCTS)
        found["prices"].append((product, {"product": product, "price": choice.randrange(9)}, time))
        for _ in range(6):
            order = choice.randrange(12)
            row = {
                "id": order,
                "customer": choice.randrange(4),
                "product": choice.choice(PRODUCTS),
                "quantity": choice.randrange(9),
                # Not the order's number alone: no two orders are placed at one time.
                "placed": f"2024-01-01T{choice.randrange(24):02d}:{order:02d}:00",
            }
            found["orders"].append((order, row if choice.random() < 0.8 else None, time))
            offer = choice.randrange(6)
            since = f"2024-01-01T{choice.randrange(24):02d}:00:{offer:02d}"
            row = {"product": choice.choice(PRODUCTS), "price": offer, "since": since}
            found["offers"].append((offer, row, time))
    return found


@pytest.mark.parametrize("block", QUERIES, ids=lambda block: block.name)
def test_a_documented_query_gives_what_duckdb_answers(block: Block) -> None:
    """At every time, over tables with rows that change and go."""
    changes = shop(Random(7))
    found = ik.evaluate(plan_of(TABLES, {"view": block.text}), records_of(changes), TIMES)
    assert found["errors"] == []
    asked = block.text
    for ours, theirs in IN_DUCKDB.items():
        asked = asked.replace(ours, theirs)

    rows = 0
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), asked, time)
        assert shown_at(found["view"], names, time) == expected
        rows += len(expected)
    assert rows, "no row of the query was ever compared"
