"""Texts of SQL as arguments of a pipeline that is written in Python."""

from collections.abc import Iterable


def conditions(given: str | Iterable[str]) -> tuple[str, ...]:
    """SQL conditions, given as one text or as several.

    >>> conditions("a > 1"), conditions(["a > 1", "b"])
    (('a > 1',), ('a > 1', 'b'))
    """
    return (given,) if isinstance(given, str) else tuple(given)


def identifier(expression: str) -> str:
    """Make an identifier from the letters and digits of an expression.

    >>> identifier("orders.country || '!'")
    'orders_country'
    """
    return "_".join("".join(c if c.isalnum() else " " for c in expression).split()) or "key"
