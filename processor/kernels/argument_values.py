"""The values of an argument of a window function: added up over rows, or listed in their order.

A stretch of rows has the sums of each argument that a function adds up.  Functions that sums do
not suffice for, such as lists and counts of distinct values, read all values of a frame; from one
row to the next, only what enters the frame and what leaves it is read.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.kernels.aggregate_kinds import KINDS, NOT_FINITE, as_double, not_finite
from ikebana.processor.kernels.order import SortOrder, ordered, value_of
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.stretches import Sums

_ZERO = Decimal(0)
_decode = canonical.decoder(Any)


class PresentValues(msgspec.Struct, frozen=True):
    """How a stretch of rows adds up an argument: it counts the rows that have it."""

    argument: str

    def of(self, value: Any) -> Sums:
        """The sums of one value; empty sums for null, and for a value that cannot be added."""
        return self.none if value is None else self._sums(value)

    def _sums(self, _: Any) -> Sums:
        return Sums(1)

    @property
    def none(self) -> Sums:
        """The sums of no values."""
        return Sums()


class ExtremeValues(PresentValues, frozen=True):
    """The least and the greatest value of an argument, in the order of its type."""

    order: SortOrder

    def _sums(self, value: Any) -> Sums:
        place = ordered(value, descending=False, order=self.order)
        return Sums(1, least=place, greatest=place)


class SummedTerms(PresentValues, frozen=True):
    """The sums of the terms that a kind of aggregate has."""

    kind: str
    is_single: bool

    def _sums(self, value: Any) -> Sums:
        kind = KINDS[self.kind]
        if self.is_single:
            value = as_double(value)
        if kind.may_be_beyond and (which := not_finite(value)) is not None:
            beyond = tuple(int(at == which) for at in range(len(NOT_FINITE)))
            return Sums(1, self.none.totals, beyond)  # type: ignore[arg-type]
        assert kind.terms is not None, "what is added has terms"
        terms = kind.terms(value)
        return self.none if terms is None else Sums(1, tuple(terms))

    @property
    def none(self) -> Sums:
        return Sums(totals=(_ZERO,) * KINDS[self.kind].totals)


RowPositions = tuple[int, int]
ArgumentsBetween = Callable[[int, int], Iterable[tuple[bytes | None, int]]]
"""Reads the argument of the rows between two positions, each with the number of its copies."""


class FrameValues:
    """The values of an argument in a frame, which goes from row to row.

    `places` has the values as bytes, in the order of their type: each as often as it is there, or
    each distinct one once.  `sums` are those of its terms, if distinct values are added up.
    """

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._is_turned = aggregate.traits.keeps == "descending"
        self._summed: SummedTerms | None = None
        if aggregate.is_of_set and aggregate.traits.terms is not None:
            self._summed = SummedTerms(aggregate.field, aggregate.kind, aggregate.is_single)
        self._clear()

    def _clear(self) -> None:
        self.places: list[bytes] = []
        self.sums = Sums() if self._summed is None else self._summed.none
        self._begin = self._end = 0
        self._counts: Counter[bytes] = Counter()

    def move(self, segments: Sequence[RowPositions], between: ArgumentsBetween) -> None:
        """Go to the frame with the rows of these segments, in their order."""
        if len(segments) != 1 or not self._begin <= segments[0][0] <= self._end <= segments[0][1]:
            self._clear()
            for segment in segments:
                self._enter(between(*segment))
        else:
            ((begin, end),) = segments
            self._leave(between(self._begin, begin))
            self._enter(between(self._end, end))
        # A frame with a gap is not the beginning of another.
        self._begin, self._end = segments[0] if len(segments) == 1 else (0, -1)

    def _enter(self, arguments: Iterable[tuple[bytes | None, int]]) -> None:
        new: list[bytes] = []
        for place, copies in self._placed(arguments):
            if not self._aggregate.is_of_set:
                new += [place] * copies
                continue
            self._counts[place] += copies
            if self._counts[place] == copies:
                new.append(place)
                self._add_up(place, 1)
        if len(new) > _FEW:
            self.places = sorted(self.places + new)
            return
        for place in new:
            insort(self.places, place)

    def _leave(self, arguments: Iterable[tuple[bytes | None, int]]) -> None:
        for place, copies in self._placed(arguments):
            at, gone = bisect_left(self.places, place), copies
            if self._aggregate.is_of_set:
                self._counts[place] -= copies
                gone = 0 if self._counts[place] else 1
                self._add_up(place, -gone)
            del self.places[at : at + gone]

    def _placed(
        self, arguments: Iterable[tuple[bytes | None, int]]
    ) -> Iterator[tuple[bytes, int]]:
        """The values that are no nulls, as bytes in the order of their type."""
        order = self._aggregate.order
        for argument, copies in arguments:
            if argument is not None:
                value = _decode(argument)
                yield ordered(value, descending=self._is_turned, order=order), copies

    def _add_up(self, place: bytes, times: int) -> None:
        if self._summed is not None and times:
            value = value_of(place)
            if isinstance(value, msgspec.Raw):
                value = _decode(value)
            self.sums += self._summed.of(value).times(times)


# More are sorted at once.
_FEW = 32
