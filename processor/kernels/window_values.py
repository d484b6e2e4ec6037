"""Window functions: the value of each at a row, and the frame of rows on which it depends.

They are those of SQL: ranks, values of rows before or behind, values at the ends of a frame, and
all aggregates of reductions over a frame; see docs/sql-groups.md.  Each says what it reads, what
its value at a row is, and which rows decide it.

A frame, the positions of the rows that a function sees, goes from one bound to another, counted in
rows, in groups of rows that are equal in the order (`groups`), or by values of the order
(`range`).  From one row to the next, neither end of the frame goes back, unless a distance differs
from row to row.  So the rows with a position in their frames are found by bisection.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any, Literal, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.kernels.aggregate_kinds import KINDS, AggregateKind, First
from ikebana.processor.kernels.argument_values import (
    ExtremeValues,
    FrameValues,
    PresentValues,
    RowPositions,
    SummedTerms,
)
from ikebana.processor.kernels.order import SortOrder, ordered, value_of
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.stretches import PartitionRow, Ranked, Stretch, Sums, running_sums
from ikebana.processor.kernels.user_calls import UserState

Unit = Literal["rows", "range", "groups"]
# Where a frame begins or ends; `all` is the first or the last row of the partition.
FrameEdge = Literal["all", "preceding", "current", "following"]
Exclude = Literal["", "row", "group", "ties"]
NumberOrSql = int | str
"""A number, or SQL of the number of each row."""


class FrameBound(msgspec.Struct, frozen=True, array_like=True):
    """A side of a frame: a number of rows or groups away, or up to a value of the order.

    `away` is that number, or SQL of the value, as the order is written.  The distance may differ
    from row to row, if it `is_of_row`.
    """

    side: FrameEdge
    away: NumberOrSql = 0
    is_of_row: bool = False

    @property
    def is_away(self) -> bool:
        """Whether it depends on where the row is, and is not at the row."""
        return self.side in ("preceding", "following")


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

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        """How far away it begins and ends."""
        return self.start.away, self.end.away


WHOLE_FRAME = Frame(end=ALL)
PlaceOfValue = Callable[[PartitionRow, str], bytes]
"""Encodes a value of the order, which is an argument of a row, as a place."""


class WindowRows:
    """The rows of a partition in their order, as long as it does not change.

    `fields` are the arguments, each with its number; `summed` are those that stretches add up.
    """

    def __init__(
        self,
        ranked: Ranked,
        place: PlaceOfValue,
        fields: Mapping[str, int],
        summed: Sequence[PresentValues],
    ) -> None:
        self.ranked, self.size = ranked, len(ranked)
        self._place, self._fields = place, fields
        self._summed = {each: at for at, each in enumerate(summed)}
        self._can_subtract = not any(isinstance(each, ExtremeValues) for each in summed)
        self._peers: tuple[bytes, RowPositions] | None = None
        self.matches: dict[RowPattern, Mapping[int, bytes]] = {}
        """The values of patterns, by position."""
        # By frame, the range that was asked for last, and its sums.
        self._folds: dict[Frame, tuple[int, int, Stretch]] = {}
        self.listed: dict[FrameAggregate, FrameValues] = {}
        """The values in the frame that was asked for last, by function."""

    def row(self, position: int) -> PartitionRow:
        """The row at a position."""
        return self.ranked.at(position)[0]

    def argument(self, row: PartitionRow, name: str) -> bytes | None:
        """An argument of a row, as canonical JSON; None if it is null."""
        return row.arguments[self._fields[name]]

    def number(self, row: PartitionRow, number: NumberOrSql) -> int | None:
        """A number, perhaps of a row."""
        if isinstance(number, int):
            return number
        written = self.argument(row, number)
        decoded: int | None = None if written is None else _decode(written)
        return decoded

    def peers(self, at: int, row: PartitionRow) -> RowPositions:
        """The positions of the rows that are equal in the order to the row at a position."""
        order = row.order
        if self._peers is None or self._peers[0] != order:
            rows = self.ranked
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
        return self.ranked.fold(0, self.peers(at, row)[0]).groups

    def present(self, argument: str, end: int) -> int:
        """How many rows before a position have an argument."""
        return self.sums(PresentValues(argument), self.ranked.fold(0, end)).count

    def nth_present(self, argument: str, number: int) -> int | None:
        """The position of the nth row that has an argument, from 0 on; None if there is none."""
        return self.ranked.nth(self._summed[PresentValues(argument)], number)

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
            return at + _signed(self, bound, row)
        if bound.side == "current":
            return self.peers(at, row)[0]
        if frame.unit == "groups":
            group = self.groups_before(at, row) + _signed(self, bound, row)
            return self.ranked.group(max(group, 0))
        return self.ranked.rank(self._place(row, str(bound.away)))

    def _end(self, frame: Frame, at: int, row: PartitionRow) -> int:
        bound = frame.end
        if frame.unit == "rows":
            return at + _signed(self, bound, row) + 1
        if bound.side == "current":
            return self.peers(at, row)[1]
        if frame.unit == "groups":
            group = self.groups_before(at, row) + _signed(self, bound, row)
            return 0 if group < 0 else self.ranked.group(group + 1)
        return self.ranked.peers(self._place(row, str(bound.away)))[1]

    def sums(self, summed: PresentValues, of: Stretch) -> Sums:
        """The sums of an argument in a stretch."""
        return of.sums[self._summed[summed]]

    def folded(self, frame: Frame, segments: Sequence[RowPositions]) -> Stretch:
        """The sums of the rows of segments; those of a frame are derived from one near it."""
        rows = self.ranked
        if len(segments) != 1:
            return running_sums([rows.fold(*each) for each in segments], rows.fold(0, 0))
        ((begin, end),) = segments
        was_begin, was_end, total = self._folds.get(frame, (0, 0, rows.fold(0, 0)))
        # What has left the frame is subtracted; from a least value it cannot be.
        is_near = was_begin <= begin <= was_begin + _NEAR * self._can_subtract
        if is_near and begin <= was_end <= end < was_end + _NEAR:
            for row, _, copies in self.between(was_begin, begin):
                total += row.alone.times(-copies)
            for row, _, copies in self.between(was_end, end):
                total += row.alone.times(copies)
        else:
            total = rows.fold(begin, end)
        self._folds[frame] = begin, end, total
        return total

    def between(self, begin: int, end: int) -> Iterator[tuple[PartitionRow, int, int]]:
        """The rows between two positions, each with the first position and the number of its
        copies there.
        """
        while begin < end:
            row, first = self.ranked.at(begin)
            copies = min(first + row.copies, end) - begin
            yield row, begin, copies
            begin += copies


def _signed(rows: WindowRows, bound: FrameBound, row: PartitionRow) -> int:
    away = rows.number(row, bound.away)
    assert away is not None, "a distance is no null"
    return -away if bound.side == "preceding" else away


# A frame that grows by fewer rows is added to.
_NEAR = 32
_ZERO = Decimal(0)
_decode = canonical.decoder(Any)


class SortedRows:
    """Rows of a partition in an order of a call: to its function they are the partition.

    `places` are those of the rows in this order, each with the position in the partition, which
    sorts ties.  `at` is where the row of the call stands, which may be outside of them.
    """

    def __init__(
        self, rows: WindowRows, places: list[tuple[bytes, int]], of_row: bytes, at: int
    ) -> None:
        self.argument, self.number = rows.argument, rows.number
        self._rows, self._places, self._of_row = rows, places, of_row
        self.size = len(places)
        self.at = bisect_left(places, (of_row, at))

    def row(self, position: int) -> PartitionRow:
        """The row at a position in this order."""
        return self._rows.row(self._places[position][1])

    def peers(self, _: int, __: PartitionRow) -> RowPositions:
        """Where the rows that are equal in this order to the row of the call begin and end."""
        # A position is neither below zero nor infinite.
        begin, end = ((self._of_row, -1), (self._of_row, inf))
        return bisect_left(self._places, begin), bisect_left(self._places, end)

    def groups_before(self, at: int, row: PartitionRow) -> int:
        """How many groups of equal rows come before these."""
        return len({place for place, _ in self._places[: self.peers(at, row)[0]]})

    def segments(self, frame: Frame, _: int, __: PartitionRow) -> list[RowPositions]:
        """The positions of all rows."""
        assert frame.is_whole, "the frame has been taken before rows were sorted"
        return [(0, self.size)]

    def present(self, argument: str, end: int) -> int:
        """How many rows before a position have an argument."""
        return sum(self.argument(self.row(at), argument) is not None for at in range(end))

    def nth_present(self, argument: str, number: int) -> int | None:
        """The position of the nth row that has an argument, from 0 on; None if there is none."""
        if number < 0:
            return None
        present = (at for at in range(self.size) if self.argument(self.row(at), argument))
        return next(islice(present, number, None), None)


RowsInOrder = WindowRows | SortedRows


class RankKind(NamedTuple):
    """A rank: its value, by a number of the call, at a row.

    The rows from the first one up to the row, up to its peers, or before these decide it.  If it
    `is_of_size`, so does how many rows there are.  `end` is the position up to which the rank is
    within a bound, if it grows along the order.
    """

    rank: Callable[[RowsInOrder, int, int, PartitionRow], float | None]
    reach: Literal["up to the row", "up to its peers", "before its peers"]
    type: str = "BIGINT"
    is_of_size: bool = False
    counts_groups: bool = False
    end: Callable[[WindowRows, int], int] | None = None


def _percent(of: RowsInOrder, _: int, at: int, row: PartitionRow) -> float:
    return of.peers(at, row)[0] / (of.size - 1) if of.size > 1 else 0


def _cumulated(of: RowsInOrder, _: int, at: int, row: PartitionRow) -> float:
    return of.peers(at, row)[1] / of.size if of.size else 0


def _tile(of: RowsInOrder, number: int, at: int, _: PartitionRow) -> int | None:
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


def _end_of_ranks(rows: WindowRows, most: int) -> int:
    # All rows of the group in which the last rank begins are within it.
    return rows.size if rows.size <= most else rows.peers(most - 1, rows.row(most - 1))[1]


RANKS: Mapping[str, RankKind] = {
    "row_number": RankKind(
        lambda _, __, at, ___: at + 1,
        "up to the row",
        end=lambda rows, most: min(rows.size, most),
    ),
    "rank": RankKind(
        lambda of, _, at, row: of.peers(at, row)[0] + 1, "before its peers", end=_end_of_ranks
    ),
    "dense_rank": RankKind(
        lambda of, _, at, row: of.groups_before(at, row) + 1,
        "before its peers",
        counts_groups=True,
        end=lambda rows, most: rows.ranked.group(most),
    ),
    "percent_rank": RankKind(_percent, "before its peers", "DOUBLE", is_of_size=True),
    "cume_dist": RankKind(_cumulated, "up to its peers", "DOUBLE", is_of_size=True),
    "ntile": RankKind(_tile, "up to the row", is_of_size=True),
}
OFFSETS = ("lag", "lead")
ENDS = ("first_value", "last_value", "nth_value")
NULL = b"null"


class _Function(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """A function; its arguments are SQL, and so is a number that differs from row to row."""

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        """All arguments that it reads, among numbers."""
        raise NotImplementedError

    @property
    def summed(self) -> PresentValues | None:
        """The sums of a stretch of rows that it needs beside their number."""
        return None

    @property
    def shifts(self) -> bool:
        """Whether rows that come or go between a row and its reach may change the value."""
        return False

    def value(self, rows: WindowRows, at: int, row: PartitionRow) -> bytes:
        """The value at a row, as canonical JSON."""
        raise NotImplementedError

    def reach(self, rows: WindowRows, at: int, row: PartitionRow) -> RowPositions:
        """The positions of all rows that decide the value at a row."""
        raise NotImplementedError


class Ranking(_Function, frozen=True, tag="rank"):
    """A rank; `number` is how many groups ntile makes."""

    name: str
    number: NumberOrSql = 1

    @property
    def kind(self) -> RankKind:
        """Its kind."""
        return RANKS[self.name]

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return (self.number,)

    def value(self, rows: RowsInOrder, at: int, row: PartitionRow) -> bytes:
        number = rows.number(row, self.number)
        return NULL if number is None else canonical.encode(self.kind.rank(rows, number, at, row))

    def reach(self, rows: WindowRows, at: int, row: PartitionRow) -> RowPositions:
        if self.kind.reach == "up to the row":
            return 0, at + 1
        return 0, rows.peers(at, row)[self.kind.reach == "up to its peers"]


class Offset(_Function, frozen=True, tag="offset"):
    """lag or lead: the value of an argument `number` rows away, else `default`."""

    name: str
    argument: str
    number: NumberOrSql = 1
    default: str = ""
    ignores_nulls: bool = False

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return self.argument, self.default, self.number

    @property
    def summed(self) -> PresentValues | None:
        return PresentValues(self.argument) if self.ignores_nulls else None

    def value(self, rows: RowsInOrder, at: int, row: PartitionRow) -> bytes:
        number = rows.number(row, self.number)
        if number is None:
            return NULL
        if (position := self._position(rows, number, at)) is not None:
            return rows.argument(rows.row(position), self.argument) or NULL
        return rows.argument(row, self.default) or NULL if self.default else NULL

    def _position(self, rows: RowsInOrder, number: int, at: int) -> int | None:
        """The position of the row that the value comes from; None if there is none."""
        away = -number if self.name == "lag" else number
        if not self.ignores_nulls or away == 0:
            return at + away if 0 <= at + away < rows.size else None
        if away < 0:
            return rows.nth_present(self.argument, rows.present(self.argument, at) + away)
        return rows.nth_present(self.argument, rows.present(self.argument, at + 1) + away - 1)

    def reach(self, rows: WindowRows, at: int, row: PartitionRow) -> RowPositions:
        if isinstance(self.number, str):
            return 0, rows.size
        position = self._position(rows, self.number, at)
        if self.name == "lag":
            return 0 if position is None else position, at + 1
        return at, rows.size if position is None else position + 1


class _FrameFunction(_Function, frozen=True, kw_only=True):
    """A function that reads the rows of its frame; others read those of the partition."""

    frame: Frame = Frame()

    @property
    def is_of_row(self) -> bool:
        """Whether it differs between rows with the same frame."""
        return self.frame.is_of_row

    @property
    def shifts(self) -> bool:
        frame = self.frame
        return frame.unit != "range" and (frame.start.is_away or frame.end.is_away)

    def reach(self, rows: WindowRows, at: int, row: PartitionRow) -> RowPositions:
        return (0, rows.size) if self.frame.is_of_row else rows.positions(self.frame, at, row)


class End(_FrameFunction, frozen=True, tag="end"):
    """The value of an argument at the first, last or nth row of a frame; `number` is the n."""

    name: str
    argument: str
    number: NumberOrSql = 1
    ignores_nulls: bool = False

    @property
    def is_of_row(self) -> bool:
        return self.frame.is_of_row or isinstance(self.number, str)

    @property
    def shifts(self) -> bool:
        start, end = self.frame.start, self.frame.end
        # The far side of a frame only decides whether it has the row at all.
        if self.frame.exclude:
            decides = True
        elif self.name == "last_value":
            decides = end.is_away or start.side == "following"
        else:
            decides = start.is_away or end.side == "preceding"
        return super().shifts and decides

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return self.argument, *self.frame.reads, self.number

    @property
    def summed(self) -> PresentValues | None:
        return PresentValues(self.argument) if self.ignores_nulls else None

    def value(self, rows: RowsInOrder, at: int, row: PartitionRow) -> bytes:
        position = self._position(rows, at, row)
        if position is None:
            return NULL
        return rows.argument(rows.row(position), self.argument) or NULL

    def _position(self, rows: RowsInOrder, at: int, row: PartitionRow) -> int | None:
        """The position of the row that the value comes from; None if there is none."""
        argument, spans = self.argument, rows.segments(self.frame, at, row)
        if self.ignores_nulls:
            # Positions among the rows that have it.
            spans = [
                (rows.present(argument, one), rows.present(argument, other))
                for one, other in spans
            ]
        number = rows.number(row, self.number)
        if self.name == "last_value":
            number = sum(end - begin for begin, end in spans)
        if number is None or number < 1:
            return None
        for begin, end in spans:
            if begin + number <= end:
                nth = begin + number - 1
                return rows.nth_present(argument, nth) if self.ignores_nulls else nth
            number -= end - begin
        return None

    def reach(self, rows: WindowRows, at: int, row: PartitionRow) -> RowPositions:
        begin, end = super().reach(rows, at, row)
        if self.frame.exclude or self.is_of_row:
            return begin, end
        position = self._position(rows, at, row)
        if position is None:
            return begin, end
        return (position, end) if self.name == "last_value" else (begin, position + 1)


class InOwnOrder(_FrameFunction, frozen=True, tag="in_own_order"):
    """A rank, an offset or an end over the rows of a frame, in an order of the call.

    To the function, these rows are the partition.  They are sorted by `by`; `order` is how the
    type of that orders values.
    """

    name: str
    function: Ranking | Offset | End
    by: str
    is_descending: bool = False
    order: SortOrder = ""

    @property
    def is_of_row(self) -> bool:
        of = self.function
        return not isinstance(of, End) or of.is_of_row or self.frame.is_of_row

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return *self.function.reads, self.by, *self.frame.reads

    def value(self, rows: WindowRows, at: int, row: PartitionRow) -> bytes:
        places = [
            (place, position)
            for segment in rows.segments(self.frame, at, row)
            for other, first, copies in rows.between(*segment)
            for place in (self._place(rows, other),)
            for position in range(first, first + copies)
        ]
        inner = SortedRows(rows, sorted(places), self._place(rows, row), at)
        return self.function.value(inner, inner.at, row)

    def _place(self, rows: WindowRows, row: PartitionRow) -> bytes:
        written = rows.argument(row, self.by)
        value = None if written is None else _decode(written)
        return ordered(value, descending=self.is_descending, order=self.order)


class FrameAggregate(_FrameFunction, frozen=True, tag="aggregate"):
    """An aggregate of reductions over a frame.

    A user-defined one has an object with its value, or with the error of the class.
    """

    aggregate: Aggregate

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return self.aggregate.field, *self.frame.reads

    @cached_property
    def kind(self) -> AggregateKind:
        """Its kind."""
        return self.aggregate.traits

    @cached_property
    def lists_values(self) -> bool:
        """Whether its result needs all values of a frame, since sums do not suffice."""
        kind, is_of_set = self.kind, self.aggregate.is_of_set
        keeps = is_of_set or kind.keeps is not None or kind.user_class is not None
        return keeps and not kind.is_extreme

    @cached_property
    def summed(self) -> PresentValues | None:
        kind, argument = self.kind, self.aggregate.field
        if not argument or self.lists_values:
            return None
        if kind.is_extreme:
            return ExtremeValues(argument, self.aggregate.order)
        if kind.terms is None:
            return PresentValues(argument)
        # Kinds that add the same share their sums.
        first = next(name for name, each in KINDS.items() if _alike(each, kind))
        return SummedTerms(argument, first, self.aggregate.is_single)

    def value(self, rows: WindowRows, at: int, row: PartitionRow) -> bytes:
        segments = rows.segments(self.frame, at, row)
        if self.lists_values:
            return canonical.write(self._of_values(rows, segments))
        kind, stretch = self.kind, rows.folded(self.frame, segments)
        if self.summed is None:
            return canonical.write(self._result(Sums(stretch.rows, self._zeros), _no_values))
        sums = rows.sums(self.summed, stretch)
        if not kind.is_extreme:
            return canonical.write(self._result(sums, _no_values))
        extreme = sums.least if kind.keeps == "ascending" else sums.greatest
        return canonical.write(None if extreme is None else value_of(extreme))

    def _of_values(self, rows: WindowRows, segments: Sequence[RowPositions]) -> Any:
        """The result over all values in a frame, or over each distinct one."""
        if self not in rows.listed:
            rows.listed[self] = FrameValues(self.aggregate)
        values, user_class = rows.listed[self], self.kind.user_class
        values.move(
            segments,
            lambda begin, end: (
                (rows.argument(row, self.aggregate.field), copies)
                for row, _, copies in rows.between(begin, end)
            ),
        )
        places = values.places

        def first(limit: int) -> list[Any]:
            return [value_of(place) for place in places[:limit]]

        if user_class is not None:
            state = UserState()
            failure = user_class.recompute(state, first(len(places)), self.aggregate.name)
            return {"error": failure} if failure else {"value": state.result}
        if self.kind.terms is None:
            return self._result(Sums(len(places), self._zeros), first)
        return self._result(values.sums, first)

    @property
    def _zeros(self) -> tuple[Decimal, ...]:
        return (_ZERO,) * self.kind.totals

    def _result(self, sums: Sums, first: First) -> Any:
        if any(sums.beyond):
            return self.kind.beyond(sums.count, *sums.beyond)
        return self.kind.result(sums.count, sums.totals, first, self.aggregate.limit)


def _alike(one: AggregateKind, other: AggregateKind) -> bool:
    return (one.takes, one.totals) == (other.takes, other.totals) and one.terms is not None


def _no_values(_: int) -> list[Any]:
    return []


class RowPattern(_Function, frozen=True, tag="pattern"):
    """The match of a row pattern that a row is in; see `row_patterns`.

    The argument is a number with a bit for each variable that a row may stand for.
    """

    argument: str
    pattern: str

    @property
    def reads(self) -> tuple[NumberOrSql, ...]:
        return (self.argument,)

    def value(self, rows: WindowRows, at: int, row: PartitionRow) -> bytes:
        return rows.matches[self][at]


WindowFunction = Ranking | Offset | End | InOwnOrder | FrameAggregate | RowPattern
