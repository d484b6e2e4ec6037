"""Which rows of a partition may have another value of a window function after some have changed.

Around a change, these are the rows that have it in their frames.  If frames begin with the
partition, these are all rows from the change to the end.  But changes may cancel, as when a row
moves to another place: then they reach up to the last of them.  And if a maximum is the same as
before at one row, it is the same at all rows behind it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ikebana.processor.kernels.stretches import PartitionRow, Sums
from ikebana.processor.kernels.window_values import (
    PATTERN,
    RANKS,
    SIZED,
    WindowFunction,
    WindowValues,
)

Renew = Callable[[int], bool]
"""Renews the value of a row at a position, and says whether it has stayed the same."""


class RowChange(NamedTuple):
    """A row with more or fewer copies than before, and its position."""

    row: PartitionRow
    at: int
    more: int

    @property
    def behind(self) -> int:
        """The position behind its copies."""
        return self.at + self.row.copies

    @property
    def is_new(self) -> bool:
        """Whether the row had no copies before."""
        return self.row.copies == self.more


class Renewal:
    """Renews the values that changes, in the order of their places, may have made different.

    `end` is the position up to which rows show.
    """

    def __init__(self, values: WindowValues, changes: Sequence[RowChange], end: int) -> None:
        self._values, self._changes, self._end = values, changes, end
        self._is_grown = sum(change.more for change in changes) != 0

    def renew(self, function: WindowFunction, renew: Renew) -> None:
        """Renew the values of a function where they may differ."""
        frame, kind = function.frame, function.kind
        if kind == PATTERN:
            for at in self._values.matches[function]:
                renew(at)
        elif kind in SIZED and not function.within and self._is_grown:
            for at in range(self._end):
                renew(at)
        elif function.is_of_row and function.is_of_frame:
            self._near(function, renew)
        elif function.is_of_frame and frame.is_whole:
            self._everywhere(renew)
        elif kind in RANKS:
            self._from_begin(function, renew)
        elif function.aggregate is None or frame.exclude:
            self._near(function, renew)
        elif frame.is_prefix:
            self._from_begin(function, renew)
        elif frame.is_suffix:
            self._up_to_end(function, renew)
        else:
            self._near(function, renew)

    def _everywhere(self, renew: Renew) -> None:
        """All rows have one value: if it is the same at one of them, it is the same at all."""
        for at in range(self._end):
            if renew(at):
                return

    def _near(self, function: WindowFunction, renew: Renew) -> None:
        """The rows with a change in their reach."""
        done = 0
        for change in self._changes:
            if self._is_before(function, change):
                continue
            # A removed row may have been in frames that now end before its place.
            more = 0 if change.is_new else 1
            begin = self._ending_behind(function, change.at - more)
            end = self._beginning_behind(function, change.behind - 1 + more)
            for at in range(max(begin, done), end):
                renew(at)
            done = max(done, end)

    def _is_before(self, function: WindowFunction, change: RowChange) -> bool:
        """Whether a change lies behind the frames of all rows so far."""
        frame = function.frame
        if function.kind not in ("first_value", "nth_value") or not frame.is_prefix:
            return False
        if function.ignores_nulls or frame.exclude or function.is_of_row or function.within:
            return False
        moved = sum(each.more for each in self._changes if each.at < change.at)
        return min(change.at, change.at - moved) >= function.number

    def _from_begin(self, function: WindowFunction, renew: Renew) -> None:
        """Frames that begin with the partition."""
        changes, size = self._changes, len(self._changes)
        deltas = self._deltas(function)
        next_one = 0
        while next_one < size:
            change = changes[next_one]
            begin = self._ending_behind(function, change.at - 1)
            if deltas is None:
                next_one = self._until_same(function, renew, begin, next_one)
                continue
            total = deltas[next_one]
            while _is_any(total) and next_one + 1 < size:
                next_one += 1
                total += deltas[next_one]
            end = self._end
            if not _is_any(total):
                end = self._ending_behind(function, changes[next_one].behind)
            for at in range(begin, end):
                renew(at)
            next_one += 1

    def _until_same(self, function: WindowFunction, renew: Renew, begin: int, change: int) -> int:
        """Renew from a change on until a value is the same; return the change that comes next."""
        changes = self._changes
        can_stop = not _counts_values(function)
        for at in range(begin, self._end):
            is_same = renew(at)
            reached = self._reach(function, at)[1]
            while change + 1 < len(changes) and changes[change + 1].at <= reached:
                change += 1
            if is_same and can_stop and reached > changes[change].behind:
                return change + 1
        return len(changes)

    def _up_to_end(self, function: WindowFunction, renew: Renew) -> None:
        """Frames that end with the partition."""
        first, last = self._changes[0], self._changes[-1]
        deltas = self._deltas(function)
        end = self._beginning_behind(function, last.behind)
        begin = self._beginning_behind(function, first.at - 1)
        if deltas is not None:
            total = deltas[0]
            for delta in deltas[1:]:
                total += delta
            for at in range(0 if _is_any(total) else begin, end):
                renew(at)
            return
        can_stop = not _counts_values(function)
        for at in range(end - 1, -1, -1):
            if renew(at) and can_stop and at < begin:
                return

    def _deltas(self, function: WindowFunction) -> list[Sums] | None:
        """The sums that each change adds; None if a change has no such sums."""
        if function.kind == "dense_rank":
            return list(self._of_groups())
        deltas = [self._values.delta(function, each.row, each.more) for each in self._changes]
        sums = [each for each in deltas if each is not None]
        return sums if len(sums) == len(deltas) else None

    def _of_groups(self) -> Iterator[Sums]:
        """How many groups each change adds; the first change of a group counts for it."""
        more: dict[bytes, int] = {}
        for change in self._changes:
            more[change.row.order] = more.get(change.row.order, 0) + change.more
        for change in self._changes:
            added = more.pop(change.row.order, None)
            if added is None:
                yield Sums()
                continue
            begin, end = self._values.rows.peers(change.row.order)
            yield Sums((end > begin) - (end - begin > added))

    def _reach(self, function: WindowFunction, at: int) -> tuple[int, int]:
        row, _ = self._values.rows.at(at)
        return self._values.reach(function, at, row)

    def _ending_behind(self, function: WindowFunction, position: int) -> int:
        """The first position of a row with a reach that ends behind a position."""
        return self._first(lambda at: self._reach(function, at)[1] > position, position)

    def _beginning_behind(self, function: WindowFunction, position: int) -> int:
        """The first position of a row with a reach that begins behind a position."""
        return self._first(lambda at: self._reach(function, at)[0] > position, position)

    def _first(self, holds: Callable[[int], bool], near: int) -> int:
        """The first position for which a condition holds, which then holds for all behind it.

        It is usually near another one, so the search begins there, in steps that double.
        """
        low, high, step = 0, self._end, 1
        at = min(max(near, 0), high - 1)
        while low <= at < high:
            if holds(at):
                high, at = at, at - step
            else:
                low, at = at + 1, at + step
            step *= 2
        return bisect_left(range(high), 1, low, key=holds)


def _counts_values(function: WindowFunction) -> bool:
    """Whether other values may have an equal result, which then says nothing about other rows."""
    kind = function.aggregate
    is_users = kind is not None and kind.user_class is not None
    return is_users or function.is_distinct or function.kind == "distinct"


def _is_any(sums: Sums) -> bool:
    return bool(sums.count or any(sums.totals) or any(sums.beyond))
