"""Window functions: the value of each at a row, and the frame of rows on which it depends.

Kinds are ranks, values of rows before or behind, values at the ends of a frame, and
all aggregates of reductions over a frame.  They are those of SQL; see docs/sql-groups.md.

A frame, the positions of the rows that a function sees, goes from one bound to another, counted in
rows, in groups of rows that are equal in the order (`groups`), or by values of the order
(`range`).  From one row to the next, neither end of the frame goes back, unless a distance differs
from row to row.  So the rows with a position in their frames are found by bisection.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Any, Literal

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.kernels.aggregate_kinds import (
    KINDS,
    NOT_FINITE,
    AggregateKind,
    as_double,
    not_finite,
    user_kind,
)
from ikebana.processor.kernels.order import SortOrder, ordered, value_of
from ikebana.processor.kernels.stretches import PartitionRow, Ranked, Stretch, Sums, running_sums
from ikebana.processor.kernels.user_calls import UserState

Unit = Literal["rows", "range", "groups"]
# Where a frame begins or ends; `all` is the first or the last row of the partition.
FrameEdge = Literal["all", "preceding", "current", "following"]
Exclude = Literal["", "row", "group", "ties"]


class FrameBound(msgspec.Struct, frozen=True, array_like=True):
    """A side of a frame: a number of rows or groups away, or up to a value of the order.

    `at` is the value, as the order is written: in a plan as SQL, here as an argument.  If the
    distance `is_of_row`, it differs from row to row, and `at` may be a number of rows or groups.
    """

    side: FrameEdge
    offset: int = 0
    at: str = ""
    is_of_row: bool = False


ALL, CURRENT = FrameBound("all"), FrameBound("current")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A frame, which is by default that of SQL: up to the row and its peers."""

    unit: Unit = "range"
    start: FrameBound = ALL
    end: FrameBound = CURRENT
    exclude: Exclude = ""

    @property
    def is_prefix(self) -> bool:
        """Whether it begins with the partition."""
        return self.start.side == "all"

    @property
    def is_suffix(self) -> bool:
        """Whether it ends with the partition."""
        return self.end.side == "all"

    @property
    def is_of_row(self) -> bool:
        """Whether it may begin or end farther back than that of the row before."""
        return self.start.is_of_row or self.end.is_of_row

    @property
    def is_whole(self) -> bool:
        """Whether all rows have the same one, that of all rows."""
        return self.is_prefix and self.is_suffix and not self.exclude


RowPositions = tuple[int, int]
PlaceOfValue = Callable[[PartitionRow, str], bytes]
"""Encodes a value of the order, which is an argument of a row, as a place."""
Distance = Callable[[PartitionRow, str], int]
"""Reads a number of rows or groups, which is an argument of a row."""


class Frames:
    """The frames of the rows of a partition, as long as it does not change."""

    def __init__(self, rows: Ranked, place: PlaceOfValue, distance: Distance) -> None:
        self.rows = rows
        self.size = len(rows)
        self._place = place
        self._distance = distance
        self._peers: tuple[bytes, RowPositions] | None = None

    def peers(self, at: int, row: PartitionRow) -> RowPositions:
        """The positions of the rows that are equal in the order to the row at a position."""
        order = row.order
        if self._peers is None or self._peers[0] != order:
            rows = self.rows
            _, begin = rows.at(at)
            end = begin + row.copies
            # Mostly a row has no peers.
            if begin > 0 and rows.at(begin - 1)[0].order == order:
                begin = rows.peers(order)[0]
            if end < self.size and rows.at(end)[0].order == order:
                end = rows.peers(order)[1]
            self._peers = order, (begin, end)
        return self._peers[1]

    def groups_before(self, at: int, row: PartitionRow) -> int:
        """How many groups come before the group of the row at a position."""
        return self.rows.fold(0, self.peers(at, row)[0]).groups

    def positions(self, frame: Frame, at: int, row: PartitionRow) -> RowPositions:
        """The first position of the frame of a row at a position, and the one behind its last."""
        begin = 0 if frame.is_prefix else self._begin(frame, at, row)
        end = self.size if frame.is_suffix else self._end(frame, at, row)
        begin = min(max(begin, 0), self.size)
        return begin, max(begin, min(end, self.size))

    def segments(self, frame: Frame, at: int, row: PartitionRow) -> list[RowPositions]:
        """The positions of a frame without those that it excludes."""
        begin, end = self.positions(frame, at, row)
        if not frame.exclude:
            return [(begin, end)]
        left, right = (at, at + 1) if frame.exclude == "row" else self.peers(at, row)
        segments = [(begin, min(left, end)), (max(right, begin), end)]
        if frame.exclude == "ties":
            segments.insert(1, (max(at, begin), min(at + 1, end)))
        return [(one, other) for one, other in segments if one < other]

    def _begin(self, frame: Frame, at: int, row: PartitionRow) -> int:
        bound = frame.start
        if frame.unit == "rows":
            return at + self._signed(bound, row)
        if bound.side == "current":
            return self.peers(at, row)[0]
        if frame.unit == "groups":
            return self.rows.group(max(self.groups_before(at, row) + self._signed(bound, row), 0))
        return self.rows.rank(self._place(row, bound.at))

    def _end(self, frame: Frame, at: int, row: PartitionRow) -> int:
        bound = frame.end
        if frame.unit == "rows":
            return at + self._signed(bound, row) + 1
        if bound.side == "current":
            return self.peers(at, row)[1]
        if frame.unit == "groups":
            group = self.groups_before(at, row) + self._signed(bound, row)
            return 0 if group < 0 else self.rows.group(group + 1)
        return self.rows.peers(self._place(row, bound.at))[1]

    def _signed(self, bound: FrameBound, row: PartitionRow) -> int:
        away = self._distance(row, bound.at) if bound.at else bound.offset
        return -away if bound.side == "preceding" else away


RANKS = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile")
SIZED = ("percent_rank", "cume_dist", "ntile")
"""Ranks that depend on how many rows there are."""
OFFSETS = ("lag", "lead")
ENDS = ("first_value", "last_value", "nth_value")
PATTERN = "pattern"
"""The match of a row pattern that a row is in; see `row_patterns`."""
NULL = b"null"


class WindowFunction(msgspec.Struct, frozen=True, array_like=True):
    """A function: an aggregate of reductions, one of `RANKS`, `OFFSETS` and `ENDS`, or `PATTERN`.

    A user-defined aggregate has an object with its value, or with the error of the class.

    `argument`, the `default` of an offset, and values at bounds of the frame are SQL in a plan,
    and names of fields here.  `number` is how far away lag and lead look, which value nth_value
    takes, how many groups ntile makes, or how many values top lists; `number_by` is the same of
    each row, as `argument` is.  `within` is an order of the call, by which a rank, an offset or an
    end sorts the rows of the frame.  `order` is how the type of the argument, or of `within`,
    orders its values; if it `is_single`, it has numbers of single precision.  An aggregate that
    `is_distinct` takes each value once.  The argument of a `pattern` is a number with a bit for
    each of its variables that a row may stand for.
    """

    name: str
    kind: str
    argument: str = ""
    default: str = ""
    number: int = 1
    ignores_nulls: bool = False
    is_distinct: bool = False
    frame: Frame = Frame()
    order: SortOrder = ""
    is_single: bool = False
    pattern: str = ""
    number_by: str = ""
    within: str = ""
    is_descending: bool = False

    @property
    def aggregate(self) -> AggregateKind | None:
        """Its kind of aggregate; None if it is no aggregate."""
        return KINDS.get(self.kind) or user_kind(self.kind)

    @property
    def lists_values(self) -> bool:
        """Whether its result needs all values of a frame, since sums do not suffice."""
        kind = self.aggregate
        if kind is None or self.kind in ("min", "max"):
            return False
        return kind.keeps is not None or self.is_distinct or kind.user_class is not None

    @property
    def is_of_frame(self) -> bool:
        """Whether it reads the rows of its frame; others read those of the partition."""
        return bool(self.within) or self.aggregate is not None or self.kind in ENDS

    @property
    def is_of_row(self) -> bool:
        """Whether it differs between rows with the same frame."""
        ranks = bool(self.within) and self.kind not in ENDS
        return ranks or bool(self.number_by) or self.frame.is_of_row

    @property
    def reads(self) -> Iterator[str]:
        """All arguments that it reads."""
        ends = self.frame.start.at, self.frame.end.at
        every = (self.argument, self.default, *ends, self.number_by, self.within)
        return (each for each in every if each)


class SummedArgument(msgspec.Struct, frozen=True):
    """How a stretch of rows adds up an argument: by the terms of a `kind`, or in its order."""

    argument: str
    kind: str = ""
    in_order: bool = False
    order: SortOrder = ""
    is_single: bool = False

    def of(self, value: Any) -> Sums:
        """The sums of one value; empty sums for null, and for a value that cannot be added."""
        if value is None:
            return self.none
        if self.in_order:
            place = ordered(value, descending=False, order=self.order)
            return Sums(1, least=place, greatest=place)
        if not self.kind:
            return Sums(1)
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
        """The sums of no values."""
        return Sums(totals=(_ZERO,) * (KINDS[self.kind].totals if self.kind else 0))


_ZERO = Decimal(0)


def summed_of(function: WindowFunction) -> SummedArgument | None:
    """The sums of a stretch of rows that a function needs beside their number."""
    kind = function.aggregate
    if kind is None:
        counts_nulls = function.ignores_nulls and not function.within
        return SummedArgument(function.argument) if counts_nulls else None
    if not function.argument or function.lists_values:
        return None
    if kind.keeps is not None:
        return SummedArgument(function.argument, in_order=True, order=function.order)
    if kind.terms is None:
        return SummedArgument(function.argument)
    # Kinds that add the same share their sums.
    first = next(name for name, each in KINDS.items() if _alike(each, kind))
    return SummedArgument(function.argument, first, is_single=function.is_single)


def _alike(one: AggregateKind, other: AggregateKind) -> bool:
    return (one.takes, one.totals) == (other.takes, other.totals) and one.terms is not None


class WindowValues:
    """The values of functions at the rows of a partition, as long as it does not change."""

    def __init__(
        self,
        rows: Ranked,
        place: PlaceOfValue,
        fields: Mapping[str, int],
        summed: Sequence[SummedArgument],
    ) -> None:
        self.rows = rows

        def distance(row: PartitionRow, argument: str) -> int:
            return _integer(row.arguments[fields[argument]])

        self.frames = Frames(rows, place, distance)
        self._fields = fields
        self._summed = {each: at for at, each in enumerate(summed)}
        self._can_subtract = not any(each.in_order for each in summed)
        self._needs: dict[WindowFunction, SummedArgument | None] = {}
        self.matches: dict[WindowFunction, Mapping[int, bytes]] = {}
        """The values of patterns, by position."""
        # By frame, the range that was asked for last, and its sums.
        self._folds: dict[Frame, tuple[int, int, Stretch]] = {}

    def value(self, function: WindowFunction, at: int, row: PartitionRow) -> bytes:
        """The value of a function at a row, as canonical JSON."""
        if function.aggregate is not None:
            return canonical.write(self._aggregated(function, function.aggregate, at, row))
        if function.kind == PATTERN:
            return self.matches[function][at]
        number = self._number(function, row)
        if number is None:
            return NULL
        if function.kind in RANKS:
            ranked = _RANKS[function.kind]
            if not function.within:
                return canonical.encode(ranked(self.frames, number, at, row))
            inner = self._in_own_order(function, at, row)
            return canonical.encode(ranked(inner, number, inner.at, row))
        position = self._other(function, number, at, row)
        if position is not None:
            return self.rows.at(position)[0].arguments[self._fields[function.argument]] or NULL
        return row.arguments[self._fields[function.default]] or NULL if function.default else NULL

    def reach(self, function: WindowFunction, at: int, row: PartitionRow) -> RowPositions:
        """The positions of all rows that decide the value at a row."""
        frames, frame, kind = self.frames, function.frame, function.kind
        if frame.is_of_row or (kind in OFFSETS and function.number_by and not function.within):
            return 0, frames.size
        if function.within:
            return frames.positions(frame, at, row)
        if kind in RANKS:
            first, behind = frames.peers(at, row)
            return 0, at + 1 if kind in _BY_ROW else behind if kind == "cume_dist" else first
        if kind in OFFSETS:
            position = self._other(function, function.number, at, row)
            if kind == "lag":
                return 0 if position is None else position, at + 1
            return at, frames.size if position is None else position + 1
        begin, end = frames.positions(frame, at, row)
        if kind in ENDS and not (frame.exclude or function.number_by):
            position = self._other(function, function.number, at, row)
            if kind == "last_value":
                return begin if position is None else position, end
            return begin, end if position is None else position + 1
        return begin, end

    def delta(self, function: WindowFunction, row: PartitionRow, more: int) -> Sums | None:
        """What `more` copies of a row add to a function's sums; None if it has no sums."""
        kind = function.aggregate
        if kind is None:
            return Sums(more) if function.kind in RANKS and not function.within else None
        if kind.keeps is not None or function.lists_values:
            return None
        summed = summed_of(function)
        return Sums(more) if summed is None else row.alone.sums[self._summed[summed]].times(more)

    def _number(self, function: WindowFunction, row: PartitionRow) -> int | None:
        """The number of a function at a row."""
        if not function.number_by:
            return function.number
        written = row.arguments[self._fields[function.number_by]]
        return None if written is None else _integer(written)

    def _in_own_order(self, function: WindowFunction, at: int, row: PartitionRow) -> "InOwnOrder":
        """The rows of a frame in the order of the call."""
        field = self._fields[function.within]

        def place(of: PartitionRow) -> bytes:
            written = of.arguments[field]
            value = None if written is None else _decode(written)
            return ordered(value, descending=function.is_descending, order=function.order)

        places = [
            (one, position)
            for begin, end in self.frames.segments(function.frame, at, row)
            for other, first, copies in self._between(begin, end)
            for one in (place(other),)
            for position in range(first, first + copies)
        ]
        return InOwnOrder(sorted(places), place(row), at)

    def _other_in_own_order(
        self, function: WindowFunction, number: int, at: int, row: PartitionRow
    ) -> int | None:
        """The same as `_other`, by an order of the call."""
        inner = self._in_own_order(function, at, row)
        positions = [position for _, position in inner.places]
        if function.ignores_nulls:
            field, rows = self._fields[function.argument], self.rows
            positions = [each for each in positions if rows.at(each)[0].arguments[field]]
        if function.kind in OFFSETS:
            index = inner.at + (number if function.kind == "lead" else -number)
        else:
            index = len(positions) - 1 if function.kind == "last_value" else number - 1
        return positions[index] if 0 <= index < len(positions) else None

    def _other(
        self, function: WindowFunction, number: int, at: int, row: PartitionRow
    ) -> int | None:
        """The position of the row that the value comes from; None if there is none."""
        if function.within:
            return self._other_in_own_order(function, number, at, row)
        kind = function.kind
        if kind in OFFSETS:
            if number < 0:
                kind, number = ("lead" if kind == "lag" else "lag"), -number
            if not function.ignores_nulls or number == 0:
                position = at - number if kind == "lag" else at + number
                return position if 0 <= position < self.frames.size else None
            if kind == "lag":
                return self._nth(function, self._there(function, at) - number)
            return self._nth(function, self._there(function, at + 1) + number - 1)
        segments = self.frames.segments(function.frame, at, row)
        if kind == "last_value":
            for begin, end in reversed(segments):
                if not function.ignores_nulls:
                    return end - 1 if begin < end else None
                nth = self._nth(function, self._there(function, end) - 1)
                if nth is not None and nth >= begin:
                    return nth
            return None
        left = number - 1
        if left < 0:
            return None
        for begin, end in segments:
            if not function.ignores_nulls:
                if begin + left < end:
                    return begin + left
                left -= end - begin
                continue
            before = self._there(function, begin)
            count = self._there(function, end) - before
            if left < count:
                return self._nth(function, before + left)
            left -= count
        return None

    def _there(self, function: WindowFunction, end: int) -> int:
        """How many rows before a position have the argument."""
        at = self._summed[SummedArgument(function.argument)]
        return self.rows.fold(0, end).sums[at].count

    def _nth(self, function: WindowFunction, number: int) -> int | None:
        return self.rows.nth(self._summed[SummedArgument(function.argument)], number)

    def _aggregated(
        self, function: WindowFunction, kind: AggregateKind, at: int, row: PartitionRow
    ) -> Any:
        segments = self.frames.segments(function.frame, at, row)

        if function.lists_values:
            return self._of_values(function, kind, segments)
        stretch = self._folded(function.frame, segments)
        if function not in self._needs:
            self._needs[function] = summed_of(function)
        needs = self._needs[function]
        if needs is None:
            return kind.result(stretch.rows, (_ZERO,) * kind.totals, _no_values, 0)
        sums = stretch.sums[self._summed[needs]]
        if needs.in_order:
            end = sums.least if function.kind == "min" else sums.greatest
            return None if end is None else value_of(end)
        if any(sums.beyond):
            return kind.beyond(sums.count, *sums.beyond)
        return kind.result(sums.count, sums.totals, _no_values, function.number)

    def _of_values(
        self, function: WindowFunction, kind: AggregateKind, segments: Sequence[RowPositions]
    ) -> Any:
        """The result of an aggregate over all values in a frame, or over each distinct one."""
        places = self._places(function, kind, segments)
        is_of_set = function.is_distinct or kind.is_of_distinct
        if is_of_set:
            places = sorted(set(places))

        def first(limit: int) -> list[Any]:
            return [value_of(place) for place in places[:limit]]

        if kind.user_class is not None:
            state = UserState()
            failure = kind.user_class.recompute(state, first(len(places)), function.name)
            return {"error": failure} if failure else {"value": state.result}
        if kind.terms is None:
            return kind.result(len(places), (_ZERO,) * kind.totals, first, function.number)
        summed = SummedArgument(function.argument, function.kind, is_single=function.is_single)
        sums = summed.none
        for place in places:
            value = value_of(place)
            sums += summed.of(_decode(value) if isinstance(value, msgspec.Raw) else value)
        if any(sums.beyond):
            return kind.beyond(sums.count, *sums.beyond)
        return kind.result(sums.count, sums.totals, first, function.number)

    def _folded(self, frame: Frame, segments: Sequence[RowPositions]) -> Stretch:
        """The sums of the rows of segments; those of a frame are derived from one near it."""
        if len(segments) != 1:
            return running_sums([self.rows.fold(*each) for each in segments], self.rows.fold(0, 0))
        ((begin, end),) = segments
        was_begin, was_end, total = self._folds.get(frame, (0, 0, self.rows.fold(0, 0)))
        # What has left the frame is subtracted; from a least value it cannot be.
        is_near = was_begin <= begin <= was_begin + _NEAR * self._can_subtract
        if is_near and begin <= was_end <= end < was_end + _NEAR:
            for row, _, copies in self._between(was_begin, begin):
                total += row.alone.times(-copies)
            for row, _, copies in self._between(was_end, end):
                total += row.alone.times(copies)
        else:
            total = self.rows.fold(begin, end)
        self._folds[frame] = begin, end, total
        return total

    def _between(self, begin: int, end: int) -> Iterator[tuple[PartitionRow, int, int]]:
        """The rows between two positions, each with the first position and the number of its
        copies there.
        """
        while begin < end:
            row, first = self.rows.at(begin)
            copies = min(first + row.copies, end) - begin
            yield row, begin, copies
            begin += copies

    def _places(
        self, function: WindowFunction, kind: AggregateKind, segments: Sequence[RowPositions]
    ) -> list[bytes]:
        """The values of rows in segments, as bytes in their order."""
        field = self._fields[function.argument]
        places: list[bytes] = []
        for segment in segments:
            for row, _, some in self._between(*segment):
                if (written := row.arguments[field]) is not None:
                    value = _decode(written)
                    is_turned = kind.keeps == "descending"
                    place = ordered(value, descending=is_turned, order=function.order)
                    places += [place] * some
        return sorted(places)


# A frame that grows by fewer rows is added to.
_NEAR = 32
_decode = canonical.decoder(Any)


def _integer(written: bytes | None) -> int:
    assert written is not None, "it is no null"
    number: int = _decode(written)
    return number


def _no_values(_: int) -> list[Any]:
    return []


_BY_ROW = ("row_number", "ntile")


class InOwnOrder:
    """The rows of a frame in an order of the call: `Frames` has the same of a partition.

    `places` are those of the rows in this order, each with the position in the partition, which
    sorts ties.  `at` is where the row of the call stands, which may be outside of the frame.
    """

    def __init__(self, places: list[tuple[bytes, int]], of_row: bytes, at: int) -> None:
        self.places, self.size = places, len(places)
        self.at = bisect_left(places, (of_row, at))
        self._of_row = of_row

    def peers(self, _: int, __: PartitionRow) -> RowPositions:
        """Where the rows that are equal in this order to the row of the call begin and end."""
        # A position is neither below zero nor infinite.
        return bisect_left(self.places, (self._of_row, -1)), bisect_left(
            self.places, (self._of_row, inf)
        )

    def groups_before(self, at: int, row: PartitionRow) -> int:
        """How many groups of equal rows come before these."""
        return len({place for place, _ in self.places[: self.peers(at, row)[0]]})


FrameValues = Frames | InOwnOrder


def _percent(of: FrameValues, _: int, at: int, row: PartitionRow) -> float:
    return of.peers(at, row)[0] / (of.size - 1) if of.size > 1 else 0


def _cumulated(of: FrameValues, _: int, at: int, row: PartitionRow) -> float:
    return of.peers(at, row)[1] / of.size if of.size else 0


def _tile(of: FrameValues, number: int, at: int, _: PartitionRow) -> int | None:
    """Which of `number` groups a row is in; the first groups may have one row more."""
    if not of.size:
        return None
    small, large = divmod(of.size, min(number, of.size))
    in_large = large * (small + 1)
    # A row outside of its frame may stand behind it.
    at = min(at, of.size - 1)
    if at < in_large:
        return 1 + at // (small + 1)
    return 1 + large + (at - in_large) // small


_RANKS: Mapping[str, Callable[[FrameValues, int, int, PartitionRow], float | None]] = {
    "row_number": lambda _, __, at, ___: at + 1,
    "rank": lambda of, _, at, row: of.peers(at, row)[0] + 1,
    "dense_rank": lambda of, _, at, row: of.groups_before(at, row) + 1,
    "percent_rank": _percent,
    "cume_dist": _cumulated,
    "ntile": _tile,
}
