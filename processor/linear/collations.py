"""Collations, which SQL gives a text for comparisons, and data do not have.

A text compares by its collation within one expression: what an expression makes is a plain text
for all that reads it, be it a group, an order or a join.
"""

from collections.abc import Iterator
from typing import Any

from ikebana.processor.linear.allowed import aggregates
from ikebana.processor.linear.syntax import Node

LOOSE = (
    "COLLATE counts in a comparison alone, as in name COLLATE NOCASE = 'x'; select, group, order "
    "and join by a text that is made alike instead, as in lower(name)"
)
_COMPARISONS = ("COMPARISON", "BETWEEN")
_MEMBERSHIPS = ("COMPARE_IN", "COMPARE_NOT_IN")


def loose(value: Any, *, within: bool = False) -> Iterator[Node]:
    """The collations in a tree that no comparison of the same expression sees.

    What a subquery, an aggregate or a window is asked for is computed before what is around it.
    """
    if isinstance(value, list):
        for item in value:
            yield from loose(item, within=within)
    elif isinstance(value, dict):
        kind = value.get("class")
        if kind == "COLLATE" and not within:
            yield value
        name = str(value.get("function_name", "")).lower()
        if kind in ("SUBQUERY", "WINDOW") or (kind == "FUNCTION" and name in aggregates()):
            within = False
        elif kind in _COMPARISONS or value.get("type") in _MEMBERSHIPS:
            within = True
        for item in value.values():
            yield from loose(item, within=within)
