"""The queries of docs/sql-recursive.md give what they say, and go on when rows go."""

from collections import Counter
from typing import Any

import pytest

from ikebana import evaluate
from support.doc_blocks import blocks
from support.sql_oracle import plan_of, records_of, shown_at

TABLES = {
    "edges": {"a": "BIGINT", "b": "BIGINT", "length": "BIGINT"},
    "parts": {"whole": "VARCHAR", "part": "VARCHAR", "quantity": "BIGINT"},
}
EDGES = [(0, 1, 4), (1, 2, 1), (2, 1, 1), (0, 2, 9), (5, 6, 1)]
PARTS = [("bicycle", "wheel", 2), ("wheel", "spoke", 32), ("bicycle", "spoke", 1)]
COLUMNS = {
    "All nodes": "a b",
    "How many": "whole part n",
    "A sequence": "n",
    "The shortest": "node far",
    "The connected": "node least",
}
# Of each query the rows over all of these, and without the first edge and the first part.
SHOWN: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "All nodes": (
        [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (5, 6)],
        [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (5, 6)],
    ),
    "How many": (
        [("bicycle", "wheel", 2), ("wheel", "spoke", 32), ("bicycle", "spoke", 65)],
        [("wheel", "spoke", 32), ("bicycle", "spoke", 1)],
    ),
    "A sequence": ([(n,) for n in range(1, 11)], [(n,) for n in range(1, 11)]),
    "The shortest": ([(0, 0), (1, 4), (2, 5)], [(0, 0), (1, 10), (2, 9)]),
    "The connected": (
        [(0, 0), (1, 0), (2, 0), (5, 5), (6, 5)],
        [(0, 0), (1, 0), (2, 0), (5, 5), (6, 5)],
    ),
}


def documented() -> dict[str, str]:
    """The queries of the page, by the first two words of the comment before each."""
    page = [each.text for each in blocks("sql") if each.name.startswith("sql-recursive-")]
    return {" ".join(text.split()[1:3]).rstrip("."): text for text in page}


def test_there_is_a_result_of_each() -> None:
    assert [*documented()] == [*SHOWN]


@pytest.mark.parametrize("named", SHOWN)
def test_a_query_gives_what_it_says(named: str) -> None:
    edges: list[Any] = [
        (at, dict(zip(("a", "b", "length"), row, strict=True)), 0) for at, row in enumerate(EDGES)
    ]
    parts: list[Any] = [
        (at, dict(zip(("whole", "part", "quantity"), row, strict=True)), 0)
        for at, row in enumerate(PARTS)
    ]
    gone = {"edges": [*edges, (0, None, 1)], "parts": [*parts, (0, None, 1)]}
    plan = plan_of(TABLES, {"view": documented()[named]})
    found = evaluate(plan, records_of(gone), 2)

    for time, rows in enumerate(SHOWN[named]):
        assert shown_at(found["view"], COLUMNS[named].split(), time) == Counter(rows)
