"""The matches of a row pattern in a partition, computed again around the rows that changed.

The value at a row says how many rows were pending behind it: those of the match that was sought
then.  So where rows change, the search goes on from the first row that was pending before them.
It ends where as many rows are pending as before, all of them behind the change: from there on, all
matches are the same.  A row that is appended costs the rows that are pending, not the partition.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from ikebana.processor.kernels.ranked import Ranked
from ikebana.processor.kernels.row_patterns import Search, parsed
from ikebana.processor.kernels.stretches import PartitionRow
from ikebana.processor.kernels.window_reach import RowChange


class MatchedRow(msgspec.Struct, frozen=True):
    """The value of a pattern at a row.

    `match` names the match by its first row; it is null if the row is in none.  `variable` is the
    one that the row stands for, `number` its place in the match, from 1 on, and `pending` counts
    the rows of the match that was sought behind this row.
    """

    match: str | None
    number: int
    pending: int
    variable: str | None


_matched_row = msgspec.json.Decoder(MatchedRow).decode


class PatternMatches:
    """The values of a pattern at the positions that changes may have reached.

    `function` is its place among the values of a row, `argument` that of its argument; `fresh` are
    the places of rows with values that say nothing.
    """

    def __init__(
        self, rows: Ranked, pattern: str, function: int, argument: int, fresh: set[bytes]
    ) -> None:
        self._rows, self._pattern = rows, parsed(pattern)
        self._function, self._argument, self._fresh = function, argument, fresh
        self._pending: dict[int, int] = {}
        self._stands: dict[int, tuple[str, int, int] | None] = {}

    def searched(self, changes: Sequence[RowChange]) -> dict[int, bytes]:
        """The values of all rows that changes, in the order of their places, may have reached."""
        next_one = 0
        while next_one < len(changes):
            begin = changes[next_one].at
            begin -= self._pending_at(begin - 1) if begin else 0
            next_one = self._search(begin, changes, next_one)
        return {at: msgspec.json.encode(self._value(at)) for at in sorted(self._pending)}

    def _search(self, begin: int, changes: Sequence[RowChange], number: int) -> int:
        """Search from a position on until matches are the same as before some changes.

        Returns the number of the next change.
        """
        search, at, first = Search(self._pattern), begin, number
        for position in range(begin, len(self._rows)):
            while number < len(changes) and changes[number].at <= position:
                number += 1
            at = self._take(at, search.take(self._bits(position)))
            self._pending[position] = search.pending
            if number > first and position + 1 - search.pending >= changes[number - 1].behind:
                before = self._stored(position)
                if before is not None and before.pending == search.pending:
                    return number
        self._take(at, search.end())
        return len(changes)

    def _take(self, at: int, decisions: Iterator[tuple[int, ...]]) -> int:
        """Note what rows from a position on stand for; return the position behind them."""
        for variables in decisions:
            row, first = self._rows.at(at)
            named = blake2b(b"%b/%d" % (row.place, at - first), digest_size=15).hexdigest()
            self._stands[at] = None
            for number, variable in enumerate(variables):
                self._stands[at + number] = named, number + 1, variable
            at += len(variables) or 1
        return at

    def _value(self, position: int) -> MatchedRow:
        pending = self._pending[position]
        if position not in self._stands:
            before = self._stored(position)
            assert before is not None, "a row that is still pending has not changed"
            return msgspec.structs.replace(before, pending=pending)
        if (stands := self._stands[position]) is None:
            return MatchedRow(None, 0, pending, None)
        match, number, variable = stands
        return MatchedRow(match, number, pending, self._pattern.variables[variable])

    def _pending_at(self, position: int) -> int:
        if position in self._pending:
            return self._pending[position]
        value = self._stored(position)
        assert value is not None, "a row that is not searched has a value"
        return value.pending

    def _stored(self, position: int) -> MatchedRow | None:
        """The value that a row had before; None if it has none that counts."""
        row, first = self._rows.at(position)
        if row.place in self._fresh or position - first >= len(row.shown):
            return None
        return _matched_row(row.shown[position - first][self._function])

    def _bits(self, position: int) -> int:
        row: PartitionRow = self._rows.at(position)[0]
        return int(row.arguments[self._argument] or 0)
