"""The kinds of aggregates: one row for each, with all that others ask of it.

Nothing else asks for a kind by its name.  What is kept of a key for an aggregate is a count, a
total, and perhaps the values in an order; a kind says which of them, and what they come to.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Literal

from ikebana.codecs.canonical import INFINITY, NAN
from ikebana.processor.kernels.order import canonical_of, decimal_of

First = Callable[[int], list[Any]]
"""The first of the values that are kept, so many, each as often as it is there."""
Keeps = Literal["ascending", "descending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateKind:
    """What is special of a kind of aggregate."""

    result: Callable[[int, Decimal, First, int], Any]
    """The result, of the count, the total, the values and how many an aggregate lists of them."""
    of_squares: Callable[[int, Decimal, Decimal], Any] | None = None
    """The result in place of that, of the count, the total and the total of squares."""
    type: str = ""
    """The SQL type of results; empty: that of the arguments."""
    term: Callable[[Any], Decimal | None] | None = None
    """What an argument adds to the total; None: it cannot be added, which is an error."""
    beyond: Callable[[int, int, int, int], Any] = lambda *_: None
    """The result instead, of the count and the counts of `NOT_FINITE`, if there are any."""
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

    def come_to(
        self, count: int, total: Decimal, squares: Decimal, first: First, limit: int
    ) -> Any:
        """The result of what is kept of a key, of which all are zero if it has no values."""
        if self.of_squares is not None:
            return self.of_squares(count, total, squares)
        return self.result(count, total, first, limit)


NOT_FINITE = (NAN, INFINITY, f"-{INFINITY}")
"""How numbers are spelled that are not finite."""

_AVERAGE = Context(prec=15)
_FINE = Context(prec=60)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
# More than any key has.
_EVERY = 1 << 62
# 1e-999999 and 1 have a sum of a million digits: what lies further out is not added.
_SUMMED_DIGITS = 2_000


def _number(argument: Any) -> Decimal | None:
    """A number that can be added to any other; None for what is none."""
    if isinstance(argument, bool) or not isinstance(argument, int | float | Decimal):
        return None
    number = decimal_of(argument)
    lowest = number.adjusted() - len(number.as_tuple().digits) + 1
    return number if lowest >= -_SUMMED_DIGITS and number.adjusted() < _SUMMED_DIGITS else None


def as_double(argument: Any) -> Any:
    """The double that a number of single precision is; anything else as it is.

    Its text has only the digits that tell it from others of single precision.

    >>> as_double(0.1)
    0.10000000149011612
    """
    if isinstance(argument, bool) or not isinstance(argument, int | float | Decimal):
        return argument
    try:
        return _SINGLE.unpack(_SINGLE.pack(argument))[0]
    except OverflowError:
        return argument


_SINGLE = struct.Struct("<f")


def _boolean(argument: Any) -> Decimal | None:
    """1 for true, so that the total is how often it is there."""
    return Decimal(argument) if isinstance(argument, bool) else None


def _count(count: int, _: Decimal, __: First, ___: int) -> int:
    return count


def _sum(count: int, total: Decimal, _: First, __: int) -> Any:
    # Numbers of which as many were taken away as added may come to something.
    return canonical_of(total) if count or total else None


def _average(count: int, total: Decimal, _: First, __: int) -> Any:
    return canonical_of(_AVERAGE.divide(total, Decimal(count))) if count else None


def _sum_beyond(_: int, nans: int, ups: int, downs: int) -> str:
    """What numbers come to of which some are not finite, as SQL's doubles do."""
    # A count below zero takes away: less infinity is minus infinity.
    up, down = ups > 0 or downs < 0, downs > 0 or ups < 0
    return NAN if nans or (up and down) else INFINITY if up else f"-{INFINITY}"


def _any(count: int, total: Decimal, _: First, __: int) -> bool | None:
    return True if total > 0 else False if count > total else None


def _all(count: int, total: Decimal, _: First, __: int) -> bool | None:
    return False if count > total else True if total > 0 else None


def _spread(
    *, of_sample: bool, is_root: bool
) -> Callable[[int, Decimal, Decimal], Decimal | int | float | None]:
    """How far numbers lie apart, of exact totals: the variance, or its square root."""

    def found(count: int, total: Decimal, squares: Decimal) -> Decimal | int | float | None:
        by = count - 1 if of_sample else count
        if by < 1:
            return None
        # Exact, so that no digits cancel; only the quotient is rounded.
        apart = _EXACT.subtract(_EXACT.multiply(squares, count), _EXACT.multiply(total, total))
        if apart < 0:
            # Of counts below zero; there are no numbers that lie so.
            return None
        variance = _FINE.divide(apart, Decimal(count * by))
        # Rounded once more, to the digits of an average.
        return canonical_of(_AVERAGE.plus(_FINE.sqrt(variance) if is_root else variance))

    return found


def _population_beyond(count: int, *_: int) -> Any:
    # A single number lies nowhere apart, whatever it is.
    return NAN if count > 1 else 0 if count == 1 else None


def _sample_beyond(count: int, *_: int) -> Any:
    return NAN if count > 1 else None


def _extreme(_: int, __: Decimal, first: First, ___: int) -> Any:
    return next(iter(first(1)), None)


def _top(_: int, __: Decimal, first: First, limit: int) -> list[Any]:
    return first(limit)


def _list(_: int, __: Decimal, first: First, ___: int) -> list[Any]:
    return first(_EVERY)


KINDS: Mapping[str, AggregateKind] = {
    "count": AggregateKind(result=_count, type="BIGINT", is_of_rows=True),
    "sum": AggregateKind(
        result=_sum, beyond=_sum_beyond, type="JSON", term=_number, takes="number"
    ),
    "avg": AggregateKind(
        result=_average, beyond=_sum_beyond, type="DOUBLE", term=_number, takes="number"
    ),
    "min": AggregateKind(result=_extreme, keeps="ascending"),
    "max": AggregateKind(result=_extreme, keeps="descending"),
    "top": AggregateKind(result=_top, type="JSON", keeps="descending", is_limited=True),
    "bottom": AggregateKind(result=_top, type="JSON", keeps="ascending", is_limited=True),
    "list": AggregateKind(result=_list, type="JSON", keeps="ascending"),
    "distinct": AggregateKind(
        result=_count, type="BIGINT", keeps="ascending", is_of_distinct=True
    ),
    "bool_or": AggregateKind(result=_any, type="BOOLEAN", term=_boolean, takes="boolean"),
    "bool_and": AggregateKind(result=_all, type="BOOLEAN", term=_boolean, takes="boolean"),
    **{
        name: AggregateKind(
            result=_count,
            of_squares=_spread(of_sample=of_sample, is_root=is_root),
            beyond=_sample_beyond if of_sample else _population_beyond,
            type="DOUBLE",
            term=_number,
            takes="number",
        )
        for name, of_sample, is_root in (
            ("var_samp", True, False),
            ("var_pop", False, False),
            ("stddev_samp", True, True),
            ("stddev_pop", False, True),
        )
    },
}
