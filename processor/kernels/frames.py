"""Frames of window functions: the positions of the rows that a row's function sees.

A frame goes from one bound to another, counted in rows, in groups of rows that are equal in the
order (`groups`), or by values of the order (`range`).  From one row to the next, neither end of
the frame goes back, unless a distance differs from row to row.  So the rows with a position in
their frames are found by bisection.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from ikebana.processor.kernels.ranked import Ranked
from ikebana.processor.kernels.stretches import PartitionRow

Unit = Literal["rows", "range", "groups"]
# Where a frame begins or ends; `all` is the first or the last row of the partition.
Side = Literal["all", "preceding", "current", "following"]
Exclude = Literal["", "row", "group", "ties"]


class FrameBound(msgspec.Struct, frozen=True, array_like=True):
    """A side of a frame: a number of rows or groups away, or up to a value of the order.

    `at` is the value, as the order is written: in a plan as SQL, here as an argument.  If the
    distance `is_of_row`, it differs from row to row, and `at` may be a number of rows or groups.
    """

    side: Side
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


Positions = tuple[int, int]
Place = Callable[[PartitionRow, str], bytes]
"""Encodes a value of the order, which is an argument of a row, as a place."""
Distance = Callable[[PartitionRow, str], int]
"""Reads a number of rows or groups, which is an argument of a row."""


class Frames:
    """The frames of the rows of a partition, as long as it does not change."""

    def __init__(self, rows: Ranked, place: Place, distance: Distance) -> None:
        self.rows = rows
        self.size = len(rows)
        self._place = place
        self._distance = distance
        self._peers: tuple[bytes, Positions] | None = None

    def peers(self, at: int, row: PartitionRow) -> Positions:
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

    def positions(self, frame: Frame, at: int, row: PartitionRow) -> Positions:
        """The first position of the frame of a row at a position, and the one behind its last."""
        begin = 0 if frame.is_prefix else self._begin(frame, at, row)
        end = self.size if frame.is_suffix else self._end(frame, at, row)
        begin = min(max(begin, 0), self.size)
        return begin, max(begin, min(end, self.size))

    def segments(self, frame: Frame, at: int, row: PartitionRow) -> list[Positions]:
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
