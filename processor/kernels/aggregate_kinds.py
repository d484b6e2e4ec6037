"""The kinds of aggregates, one row each; no other module tests for a kind by its name.

A class of a user is a kind under the long name that SQL has for it.  For each key, the store keeps
a count, totals and perhaps the ordered values of an aggregate.  A kind says which of these it
needs, and how its result follows from them.
"""

# Decision (a kind of aggregate is a row): Formats and operators are rows, too. Docs name each in
# one table, and tests compare it with the code, so what is forgotten fails.

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

from ikebana.codecs.canonical import INFINITY, NAN
from ikebana.processor.kernels.order import canonical_of, decimal_of
from ikebana.processor.kernels.user_calls import UserAggregate
from ikebana.processor.linear.sql_functions import function_of

First = Callable[[int], list[Any]]
"""Returns the first n stored values, each repeated as often as it occurs."""
Keeps = Literal["ascending", "descending"]
Totals = Sequence[Decimal]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateKind:
    """The properties of a kind of aggregate."""

    result: Callable[[int, Totals, First, int], Any]
    """The result, from the count, the totals, the first values, and the aggregate's limit."""
    type: str = ""
    """The SQL type of results; empty: the type of the arguments."""
    terms: Callable[[Any], Totals | None] | None = None
    """What an argument adds to each total; None: it cannot be added, which is an error."""
    totals: int = 1
    """How many totals there are."""
    beyond: Callable[[int, int, int, int], Any] = lambda *_: None
    """The result if some numbers are not finite, from the count and the counts of `NOT_FINITE`."""
    takes: str = ""
    """What kind of argument can be added, as error messages say it."""
    keeps: Keeps | None = None
    """The order in which values are stored.  None: they are not, and arguments are counted."""
    is_of_distinct: bool = False
    """Whether it counts distinct values, in no particular order."""
    is_limited: bool = False
    """Whether it says how many values it lists, as in `top(3, x)`."""
    is_of_rows: bool = False
    """Whether it may count rows instead of arguments, as in `count(*)`."""
    is_of_pairs: bool = False
    """Whether it has two arguments, y and x, and counts rows where neither is null."""
    user_class: UserAggregate | None = None
    """The class of a user-defined aggregate."""

    @property
    def may_be_beyond(self) -> bool:
        """Whether it adds numbers that need not be finite."""
        return self.takes in ("number", "pair")

    @property
    def is_extreme(self) -> bool:
        """Whether it is the least or the greatest value."""
        return self.result is _extreme


NOT_FINITE = (NAN, INFINITY, f"-{INFINITY}")
"""How numbers are spelled that are not finite."""

_AVERAGE = Context(prec=15)
_FINE = Context(prec=60)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
# More than any key has.
_EVERY = 1 << 62
# 1e-999999 and 1 have a sum of a million digits: what lies further out is not added.
_SUMMED_DIGITS = 2_000
# How many digits a bit has in a total: no bit is there as often as 10 to the power of it.
_BIT_DIGITS = 30
_MOST_BITS = 128


def not_finite(argument: Any) -> int | None:
    """Which of `NOT_FINITE` a number is, or a pair with one of them; None if it is finite.

    >>> not_finite("Infinity"), not_finite({"x": 1, "y": "Infinity"}), not_finite(1.5)
    (1, 0, None)
    """
    if isinstance(argument, str):
        return NOT_FINITE.index(argument) if argument in NOT_FINITE else None
    if isinstance(argument, dict) and any(each in NOT_FINITE for each in argument.values()):
        return 0
    return None


def _number(argument: Any) -> Decimal | None:
    """A number that can be added to any other; None for anything else."""
    if isinstance(argument, bool) or not isinstance(argument, int | float | Decimal):
        return None
    number = decimal_of(argument)
    lowest = number.adjusted() - len(number.as_tuple().digits) + 1
    return number if lowest >= -_SUMMED_DIGITS and number.adjusted() < _SUMMED_DIGITS else None


def as_double(argument: Any) -> Any:
    """The exact double of a number of single precision; anything else is returned unchanged.

    The text of such a number has only as many digits as single precision needs.

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


def _powers(most: int) -> Callable[[Any], Totals | None]:
    """A number, its square, and so on up to a power, so that their totals give moments."""

    def terms(argument: Any) -> Totals | None:
        if (number := _number(argument)) is None:
            return None
        powers = [number]
        while len(powers) < most:
            powers.append(_EXACT.multiply(powers[-1], number))
        return powers

    return terms


def _products(pair: Any) -> Totals | None:
    """Both numbers of a pair, and the products of each with itself and with the other."""
    if not isinstance(pair, dict):
        return None
    x, y = (_number(pair.get(name)) for name in ("x", "y"))
    if x is None or y is None:
        return None
    return x, y, _EXACT.multiply(x, x), _EXACT.multiply(y, y), _EXACT.multiply(x, y)


def _boolean(argument: Any) -> Totals | None:
    """1 for true, so that the total counts how often true occurs."""
    return (Decimal(argument),) if isinstance(argument, bool) else None


def _bits(argument: Any) -> Totals | None:
    """Encode a whole number as a total that counts each of its bits in separate decimal digits.

    The first digits count numbers below zero.  Such a number has exactly the bits that its
    complement lacks, so the complement's bits are subtracted.
    """
    if isinstance(argument, bool) or not isinstance(argument, int):
        return None
    positive = ~argument if argument < 0 else argument
    if positive.bit_length() > _MOST_BITS:
        return None
    counts = [int(argument < 0)]
    counts += [
        (-1 if argument < 0 else 1) * (positive >> bit & 1) for bit in range(positive.bit_length())
    ]
    return (Decimal(sum(count * 10 ** (_BIT_DIGITS * at) for at, count in enumerate(counts))),)


def _bit_counts(total: Decimal) -> list[int]:
    """How many numbers there are below zero, and how many have each bit, up to the last one."""
    counts: list[int] = []
    left, unit = int(total), 10**_BIT_DIGITS
    while left or not counts:
        count = left % unit
        count -= unit if 2 * count >= unit else 0
        counts.append(count)
        left = (left - count) // unit
    below, *others = counts
    # A number below zero has a bit where its complement has none.
    return [below, *(below + count for count in others)]


def _of_bits(is_set: Callable[[int, int], bool]) -> Callable[[int, Totals, First, int], Any]:
    """The number with each bit for which `is_set(count of the bit, count of numbers)` holds."""

    def compute(count: int, totals: Totals, _: First, __: int) -> int | None:
        if not count:
            return None
        below, *others = _bit_counts(totals[0])
        bits = sum(is_set(there, count) << at for at, there in enumerate(others))
        return bits - (1 << len(others)) if is_set(below, count) else bits

    return compute


def _count(count: int, _: Totals, __: First, ___: int) -> int:
    return count


def _count_beyond(count: int, *_: int) -> int:
    return count


def _sum(count: int, totals: Totals, _: First, __: int) -> Any:
    # The total may differ from zero although as many numbers were retracted as inserted.
    return canonical_of(totals[0]) if count or totals[0] else None


def _average(count: int, totals: Totals, _: First, __: int) -> Any:
    return canonical_of(_AVERAGE.divide(totals[0], Decimal(count))) if count else None


def _nearest(count: int, totals: Totals, _: First, __: int) -> Any:
    """The average as the double that is nearest to it."""
    if not count:
        return None
    quotient = _FINE.divide(totals[0], Decimal(count))
    double = float(quotient)
    return canonical_of(Decimal(repr(double)) if isfinite(double) else quotient)


def _sum_beyond(_: int, nans: int, ups: int, downs: int) -> str:
    """The sum of numbers of which some are not finite, as SQL sums doubles."""
    # A count below zero takes away: less infinity is minus infinity.
    up, down = ups > 0 or downs < 0, downs > 0 or ups < 0
    return NAN if nans or (up and down) else INFINITY if up else f"-{INFINITY}"


def _any(count: int, totals: Totals, _: First, __: int) -> bool | None:
    return True if totals[0] > 0 else False if count > totals[0] else None


def _all(count: int, totals: Totals, _: First, __: int) -> bool | None:
    return False if count > totals[0] else True if totals[0] > 0 else None


def _apart(count: int, products: Decimal, left: Decimal, right: Decimal) -> Decimal:
    """The covariance of a population, times the square of its count.

    It is exact, so that no digits cancel; only quotients are rounded.
    """
    return _EXACT.subtract(_EXACT.multiply(products, count), _EXACT.multiply(left, right))


def _rounded(number: Decimal) -> Any:
    """A quotient, to the digits of an average."""
    return canonical_of(_AVERAGE.plus(number))


Moments = Callable[[int, Totals], Decimal | str | None]


def _moments(of: Moments, least: int = 1) -> Callable[[int, Totals, First, int], Any]:
    """The result of totals of powers or products, if there are `least` numbers."""

    def compute(count: int, totals: Totals, _: First, __: int) -> Any:
        if count < least:
            return None
        result = of(count, totals)
        return _rounded(result) if isinstance(result, Decimal) else result

    return compute


def _spread(by: Callable[[int], int], *, is_root: bool) -> Moments:
    """How far numbers lie apart: the variance, by a number that the count gives, or its root."""

    def compute(count: int, totals: Totals) -> Decimal | None:
        apart = _apart(count, totals[1], totals[0], totals[0])
        if apart < 0:
            # Only counts below zero lead here: no numbers have such a variance.
            return None
        variance = _FINE.divide(apart, Decimal(by(count)))
        return _FINE.sqrt(variance) if is_root else variance

    return compute


def _skewness(count: int, totals: Totals) -> Decimal | None:
    """The skewness of a sample, by its adjusted Fisher-Pearson coefficient."""
    first, second, third = totals
    apart = _apart(count, second, first, first)
    if apart <= 0:
        return None
    cubes = _EXACT.multiply(third, count * count)
    cubes = _EXACT.subtract(cubes, _product(Decimal(3 * count), first, second))
    cubes = _EXACT.add(cubes, _product(Decimal(2), first, first, first))
    skew = _FINE.divide(cubes, _FINE.multiply(apart, _FINE.sqrt(apart)))
    of_sample = _FINE.divide(_FINE.sqrt(Decimal(count * (count - 1))), Decimal(count - 2))
    return _FINE.multiply(of_sample, skew)


def _kurtosis(*, of_sample: bool) -> Moments:
    """The excess kurtosis of a population, or that which a sample has without bias."""

    def compute(count: int, totals: Totals) -> Decimal | None:
        first, second, third, fourth = totals
        apart = _apart(count, second, first, first)
        if apart <= 0:
            return None
        powers = _product(Decimal(count**3), fourth)
        powers = _EXACT.subtract(powers, _product(Decimal(4 * count**2), first, third))
        powers = _EXACT.add(powers, _product(Decimal(6 * count), first, first, second))
        powers = _EXACT.subtract(powers, _product(Decimal(3), first, first, first, first))
        kurtosis = _FINE.divide(powers, _EXACT.multiply(apart, apart))
        if not of_sample:
            return _FINE.subtract(kurtosis, Decimal(3))
        excess = _FINE.subtract(_FINE.multiply(kurtosis, count + 1), Decimal(3 * (count - 1)))
        by = Decimal((count - 2) * (count - 3))
        return _FINE.divide(_FINE.multiply(excess, count - 1), by)

    return compute


def _product(first: Decimal, *others: Decimal) -> Decimal:
    for each in others:
        first = _EXACT.multiply(first, each)
    return first


def _related(of: Callable[[int, Decimal, Decimal, Decimal], Decimal | str | None]) -> Moments:
    """A result from the count and from `_apart` of x and x, of y and y, and of x and y."""

    def compute(count: int, totals: Totals) -> Decimal | str | None:
        x, y, xx, yy, xy = totals
        return of(count, _apart(count, xx, x, x), _apart(count, yy, y, y), _apart(count, xy, x, y))

    return compute


def _correlation(_: int, xx: Decimal, yy: Decimal, xy: Decimal) -> Decimal | str:
    by = _EXACT.multiply(xx, yy)
    return _FINE.divide(xy, _FINE.sqrt(by)) if by > 0 else NAN


def _slope(_: int, xx: Decimal, __: Decimal, xy: Decimal) -> Decimal | str:
    return _FINE.divide(xy, xx) if xx else NAN


def _fit(_: int, xx: Decimal, yy: Decimal, xy: Decimal) -> Decimal | None:
    if not xx:
        return None
    if not yy:
        return Decimal(1)
    return _FINE.divide(_EXACT.multiply(xy, xy), _EXACT.multiply(xx, yy))


def _intercept(count: int, totals: Totals) -> Decimal | None:
    x, y, xx, _, xy = totals
    apart = _apart(count, xx, x, x)
    if not apart:
        return None
    slope = _FINE.divide(_apart(count, xy, x, y), apart)
    return _FINE.divide(_FINE.subtract(y, _FINE.multiply(slope, x)), Decimal(count))


def _quotient(at: int) -> Moments:
    """The average of one of both numbers."""
    return lambda count, totals: _FINE.divide(totals[at], Decimal(count))


def _population_beyond(count: int, *_: int) -> Any:
    # The variance of a single number is 0, whatever it is.
    return NAN if count > 1 else 0 if count == 1 else None


def _beyond_of(least: int) -> Callable[[int, int, int, int], Any]:
    """Not a number, if there are enough numbers for a result."""
    return lambda count, *_: NAN if count >= least else None


def _extreme(_: int, __: Totals, first: First, ___: int) -> Any:
    return next(iter(first(1)), None)


def _top(_: int, __: Totals, first: First, limit: int) -> list[Any]:
    return first(limit)


def _list(_: int, __: Totals, first: First, ___: int) -> list[Any]:
    return first(_EVERY)


def _of_powers(most: int, of: Moments, least: int) -> AggregateKind:
    return AggregateKind(
        result=_moments(of, least),
        beyond=_beyond_of(max(least, 2)),
        type="DOUBLE",
        terms=_powers(most),
        totals=most,
        takes="number",
    )


def _of_pairs(of: Moments, least: int = 1) -> AggregateKind:
    return AggregateKind(
        result=_moments(of, least),
        beyond=_beyond_of(least),
        type="DOUBLE",
        terms=_products,
        totals=5,
        takes="pair",
        is_of_pairs=True,
    )


def _of_population(of: Moments) -> AggregateKind:
    return replace(_of_powers(2, of, 1), beyond=_population_beyond)


_BITS = {
    "bit_and": lambda there, count: there == count,
    "bit_or": lambda there, _: there > 0,
    "bit_xor": lambda there, _: there % 2 == 1,
}

KINDS: Mapping[str, AggregateKind] = {
    "count": AggregateKind(result=_count, type="BIGINT", is_of_rows=True),
    "sum": AggregateKind(
        result=_sum, beyond=_sum_beyond, type="JSON", terms=_powers(1), takes="number"
    ),
    "avg": AggregateKind(
        result=_average, beyond=_sum_beyond, type="DOUBLE", terms=_powers(1), takes="number"
    ),
    "favg": AggregateKind(
        result=_nearest, beyond=_sum_beyond, type="DOUBLE", terms=_powers(1), takes="number"
    ),
    "min": AggregateKind(result=_extreme, keeps="ascending"),
    "max": AggregateKind(result=_extreme, keeps="descending"),
    "top": AggregateKind(result=_top, type="JSON", keeps="descending", is_limited=True),
    "bottom": AggregateKind(result=_top, type="JSON", keeps="ascending", is_limited=True),
    "list": AggregateKind(result=_list, type="JSON", keeps="ascending"),
    "distinct": AggregateKind(
        result=_count, type="BIGINT", keeps="ascending", is_of_distinct=True
    ),
    "bool_or": AggregateKind(result=_any, type="BOOLEAN", terms=_boolean, takes="boolean"),
    "bool_and": AggregateKind(result=_all, type="BOOLEAN", terms=_boolean, takes="boolean"),
    **{
        name: AggregateKind(result=_of_bits(is_set), type="", terms=_bits, takes="whole number")
        for name, is_set in _BITS.items()
    },
    "var_samp": _of_powers(2, _spread(lambda n: n * (n - 1), is_root=False), 2),
    "stddev_samp": _of_powers(2, _spread(lambda n: n * (n - 1), is_root=True), 2),
    "var_pop": _of_population(_spread(lambda n: n * n, is_root=False)),
    "stddev_pop": _of_population(_spread(lambda n: n * n, is_root=True)),
    "sem": _of_population(_spread(lambda n: n**3, is_root=True)),
    "skewness": _of_powers(3, _skewness, 3),
    "kurtosis": _of_powers(4, _kurtosis(of_sample=True), 4),
    "kurtosis_pop": _of_powers(4, _kurtosis(of_sample=False), 2),
    "corr": _of_pairs(_related(_correlation)),
    "covar_pop": _of_pairs(_related(lambda n, _, __, xy: _FINE.divide(xy, Decimal(n * n)))),
    "covar_samp": _of_pairs(
        _related(lambda n, _, __, xy: _FINE.divide(xy, Decimal(n * (n - 1)))), 2
    ),
    "regr_count": replace(
        _of_pairs(_quotient(0)), result=_count, beyond=_count_beyond, type="BIGINT"
    ),
    "regr_avgx": _of_pairs(_quotient(0)),
    "regr_avgy": _of_pairs(_quotient(1)),
    "regr_sxx": _of_pairs(_related(lambda n, xx, _, __: _FINE.divide(xx, Decimal(n)))),
    "regr_syy": _of_pairs(_related(lambda n, _, yy, __: _FINE.divide(yy, Decimal(n)))),
    "regr_sxy": _of_pairs(_related(lambda n, _, __, xy: _FINE.divide(xy, Decimal(n)))),
    "regr_slope": _of_pairs(_related(_slope)),
    "regr_intercept": _of_pairs(_intercept),
    "regr_r2": _of_pairs(_related(_fit)),
}


@lru_cache(maxsize=256)
def user_kind(name: str) -> AggregateKind | None:
    """The kind of a user-defined aggregate, by its long name; None if it is none.

    Raises: FunctionError, if there is no such class.
    """
    function = function_of(name)
    if function is None or not function.is_aggregate:
        return None
    user_class = UserAggregate(function)
    keeps: Keeps | None = None if user_class.retracts else "ascending"
    return AggregateKind(result=_list, type=function.returns, keeps=keeps, user_class=user_class)
