"""Functions of reductions, of which one takes the place of another."""

from typing import Any

from ikebana.processor.kernels.user_calls import Refused

Rows = list[tuple[Any, int]]


def most(key: Any, rows: Rows) -> list[Any]:
    """The greatest quantity."""
    return [max(row["quantity"] for row, _ in rows)]


def two(key: Any, rows: Rows) -> list[Any]:
    """The two least quantities; more than five are refused."""
    if max(row["quantity"] for row, _ in rows) > 5:
        raise Refused("more than five")
    return sorted(row["quantity"] for row, _ in rows)[:2]
