"""Collations: SQL gives them to texts for comparisons, but data do not have them.

A collation counts within one expression only: the result of an expression is a plain text for
whatever reads it, be it a group, an order or a join.
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
    """The collations in a tree that no comparison of the same expression uses.

    The arguments of a subquery, an aggregate or a window are computed before the comparison around
    it, so collations in them do not count.
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
