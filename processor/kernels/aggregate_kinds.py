"""The kinds of aggregates: one row for each, with all that others ask of it.

Nothing else asks for a kind by its name.  What is kept of a key for an aggregate is a count, a
total, and perhaps the values in an order; a kind says which of them, and what they come to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Literal

from ikebana.processor.kernels.order import canonical_of, decimal_of

First = Callable[[int], list[Any]]
"""The first of the values that are kept, so many, each as often as it is there."""
Keeps = Literal["ascending", "descending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateKind:
    """What is special of a kind of aggregate."""

    result: Callable[[int, Decimal, First, int], Any]
    """The result, of the count, the total, the values and how many an aggregate lists of them."""
    type: str = ""
    """The SQL type of results; empty: that of the arguments."""
    term: Callable[[Any], Decimal | None] | None = None
    """What an argument adds to the total; None: it cannot be added, which is an error."""
    takes: str = ""
    """What an argument has to be to be added, as errors say it."""
    keeps: Keeps | None = None
    """In which order values are kept.  None: they are not, and the count is that of arguments."""
    is_of_distinct: bool = False
    """Whether its values need no order but are distinct, and the count is theirs."""
    is_limited: bool = False
    """Whether it says how many values it lists, as in `top(3, x)`."""
    is_of_rows: bool = False
    """Whether it may count rows instead of arguments, as in `count(*)`."""


_AVERAGE = Context(prec=15)
# 1e-999999 and 1 have a sum of a million digits: what lies further out is not added.
_SUMMED_DIGITS = 2_000


def _number(argument: Any) -> Decimal | None:
    """A number that can be added to any other; None for what is none."""
    if isinstance(argument, bool) or not isinstance(argument, int | float | Decimal):
        return None
    number = decimal_of(argument)
    lowest = number.adjusted() - len(number.as_tuple().digits) + 1
    return number if lowest >= -_SUMMED_DIGITS and number.adjusted() < _SUMMED_DIGITS else None


def _boolean(argument: Any) -> Decimal | None:
    """1 for true, so that the total is how often it is there."""
    return Decimal(argument) if isinstance(argument, bool) else None


def _count(count: int, _: Decimal, __: First, ___: int) -> int:
    return count


def _sum(count: int, total: Decimal, _: First, __: int) -> Any:
    return canonical_of(total) if count else None


def _average(count: int, total: Decimal, _: First, __: int) -> Any:
    return canonical_of(_AVERAGE.divide(total, Decimal(count))) if count else None


def _any(count: int, total: Decimal, _: First, __: int) -> bool | None:
    return True if total > 0 else False if count > total else None


def _all(count: int, total: Decimal, _: First, __: int) -> bool | None:
    return False if count > total else True if total > 0 else None


def _extreme(_: int, __: Decimal, first: First, ___: int) -> Any:
    return next(iter(first(1)), None)


def _top(_: int, __: Decimal, first: First, limit: int) -> list[Any]:
    return first(limit)


KINDS: Mapping[str, AggregateKind] = {
    "count": AggregateKind(result=_count, type="BIGINT", is_of_rows=True),
    "sum": AggregateKind(result=_sum, type="JSON", term=_number, takes="number"),
    "avg": AggregateKind(result=_average, type="DOUBLE", term=_number, takes="number"),
    "min": AggregateKind(result=_extreme, keeps="ascending"),
    "max": AggregateKind(result=_extreme, keeps="descending"),
    "top": AggregateKind(result=_top, type="JSON", keeps="descending", is_limited=True),
    "bottom": AggregateKind(result=_top, type="JSON", keeps="ascending", is_limited=True),
    "distinct": AggregateKind(
        result=_count, type="BIGINT", keeps="ascending", is_of_distinct=True
    ),
    "bool_or": AggregateKind(result=_any, type="BOOLEAN", term=_boolean, takes="boolean"),
    "bool_and": AggregateKind(result=_all, type="BOOLEAN", term=_boolean, takes="boolean"),
}
