"""Window functions: each row of a partition with values that depend on the rows around it.

The input is a collection of (key, row), where the key is that of the partition, and a row is
canonical JSON of an object with `o`, by which rows are ordered, `r`, the row that shows, and
arguments `a0` and so on; the output is the collection of (key, {row, w0, w1, …}) with the value of
each function.  Rows of equal order are sorted by `r`; each copy of a row has a separate position.
A row with a count of zero or below is not there.

The store has the rows in order (`stretches`), each with its values as they were emitted.  At each
time at which rows change, the values of all rows that the change may reach (`Renewal`) are
computed again; those that differ are retracted and inserted.  So a change costs what it moves:
the rows behind it for a running sum, one row for lag.

With `most`, only rows show for which the first function, a rank, is at most that.  Others are
stored without values.

Around a change, the rows that may have another value are those that have it in their frames, and
those with a frame some rows away that it moves, since it lies between the row and the frame.  If
frames begin with the partition, these are all rows from the change to the end.  But changes may
cancel, as when a row moves to another place: then they reach up to the last of them.  And if a
maximum is the same as before at one row behind the changes, it is the same at all rows behind it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.argument_values import PresentValues, RowPositions
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    Contents,
    PartKind,
    StateLayout,
    changes_by_key,
    with_length,
    write_entries,
)
from ikebana.processor.kernels.order import SortOrder, ordered, value_of
from ikebana.processor.kernels.row_patterns import Search, parsed
from ikebana.processor.kernels.stretches import (
    KEY,
    ROW,
    STRETCH,
    PartitionRow,
    Ranked,
    RowEntry,
    Stretch,
    Sums,
    entry_of,
)
from ikebana.processor.kernels.window_values import (
    FrameAggregate,
    Offset,
    Ranking,
    RowPattern,
    WindowFunction,
    WindowRows,
)


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
    """Renews the values of a function that changes may have made different.

    The changes are in the order of their places, and `end` is the position up to which rows show.
    `renew` renews the value at a position, and says whether it has stayed the same.
    """

    def __init__(
        self,
        function: WindowFunction,
        rows: WindowRows,
        changes: Sequence[RowChange],
        end: int,
        renew: Callable[[int], bool],
    ) -> None:
        self._function, self._rows, self._end = function, rows, end
        self._changes, self._renew = changes, renew
        self._is_grown = sum(change.more for change in changes) != 0
        self._shifts = function.shifts

    def run(self) -> None:
        """Renew the values."""
        match self._function:
            case RowPattern() as function:
                for at in self._rows.matches[function]:
                    self._renew(at)
            case Ranking() as rank if rank.kind.is_of_size and self._is_grown:
                for at in range(self._end):
                    self._renew(at)
            case Ranking():
                self._from_begin()
            case Offset():
                self._near()
            case function if function.is_of_row:
                self._near()
            case function if function.frame.is_whole:
                self._everywhere()
            case FrameAggregate(frame=frame) if frame.is_prefix and not frame.exclude:
                self._from_begin()
            case FrameAggregate(frame=frame) if frame.is_suffix and not frame.exclude:
                self._up_to_end()
            case _:
                self._near()

    def _everywhere(self) -> None:
        """All rows have one value: if it is the same at one of them, it is the same at all."""
        for at in range(self._end):
            if self._renew(at):
                return

    def _near(self) -> None:
        """The rows with a change in their reach."""
        done = 0
        for change in self._changes:
            # A removed row may have been in frames that now end before its place.
            more = 0 if change.is_new else 1
            begin = self._ending_behind(self._outer, change.at - more)
            end = self._beginning_behind(self._outer, change.behind - 1 + more)
            for at in range(max(begin, done), end):
                self._renew(at)
            done = max(done, end)

    def _from_begin(self) -> None:
        """Frames that begin with the partition."""
        changes, size = self._changes, len(self._changes)
        deltas = self._deltas()
        next_one = 0
        while next_one < size:
            begin = self._ending_behind(self._outer, changes[next_one].at - 1)
            if deltas is None:
                next_one = self._until_same(begin, next_one)
                continue
            total = deltas[next_one]
            while _is_any(total) and next_one + 1 < size:
                next_one += 1
                total += deltas[next_one]
            end = self._end
            if not _is_any(total):
                end = self._ending_behind(self._inner, changes[next_one].behind)
            for at in range(begin, end):
                self._renew(at)
            next_one += 1

    def _until_same(self, begin: int, change: int) -> int:
        """Renew from a change on until a value is the same; return the change that comes next."""
        changes, can_stop = self._changes, self._can_stop
        for at in range(begin, self._end):
            is_same = self._renew(at)
            reached = self._inner(at)[1]
            while change + 1 < len(changes) and changes[change + 1].at <= reached:
                change += 1
            if is_same and can_stop and reached > changes[change].behind:
                return change + 1
        return len(changes)

    def _up_to_end(self) -> None:
        """Frames that end with the partition."""
        first, last = self._changes[0], self._changes[-1]
        deltas = self._deltas()
        end = self._beginning_behind(self._outer, last.behind)
        begin = self._beginning_behind(self._inner, first.at - 1)
        if deltas is not None:
            total = deltas[0]
            for delta in deltas[1:]:
                total += delta
            for at in range(0 if _is_any(total) else begin, end):
                self._renew(at)
            return
        can_stop = self._can_stop
        for at in range(end - 1, -1, -1):
            if self._renew(at) and can_stop and at < begin:
                return

    @property
    def _can_stop(self) -> bool:
        """Whether a value that is the same says that those of other rows are the same, too."""
        function = self._function
        assert isinstance(function, FrameAggregate), "others have sums"
        return function.kind.user_class is None and not function.aggregate.is_of_set

    def _deltas(self) -> list[Sums] | None:
        """The sums that each change adds; None if the function has no such sums."""
        function, changes = self._function, self._changes
        if isinstance(function, Ranking):
            if function.kind.counts_groups:
                return list(_of_groups(self._rows, changes))
            return [Sums(change.more) for change in changes]
        assert isinstance(function, FrameAggregate), "others are renewed near changes"
        if function.lists_values or function.kind.is_extreme:
            return None
        if (summed := function.summed) is None:
            return [Sums(change.more) for change in changes]
        return [self._rows.sums(summed, each.row.alone).times(each.more) for each in changes]

    def _outer(self, at: int) -> RowPositions:
        """The positions where a change may make the value at a row another one."""
        begin, end = self._reach(at)
        return (min(begin, at), max(end, at + 1)) if self._shifts else (begin, end)

    def _inner(self, at: int) -> RowPositions:
        """The positions where all that a change does to a frame is to add or remove its rows."""
        begin, end = self._reach(at)
        return (max(begin, at), min(end, at + 1)) if self._shifts else (begin, end)

    def _reach(self, at: int) -> RowPositions:
        return self._function.reach(self._rows, at, self._rows.row(at))

    def _ending_behind(self, reach: Callable[[int], RowPositions], position: int) -> int:
        """The first position of a row with a reach that ends behind a position."""
        return _first(lambda at: reach(at)[1] > position, position, self._end)

    def _beginning_behind(self, reach: Callable[[int], RowPositions], position: int) -> int:
        """The first position of a row with a reach that begins behind a position."""
        return _first(lambda at: reach(at)[0] > position, position, self._end)


def _of_groups(rows: WindowRows, changes: Sequence[RowChange]) -> Iterator[Sums]:
    """How many groups each change adds; the first change of a group counts for it."""
    more: dict[bytes, int] = {}
    for change in changes:
        more[change.row.order] = more.get(change.row.order, 0) + change.more
    for change in changes:
        added = more.pop(change.row.order, None)
        if added is None:
            yield Sums()
            continue
        begin, end = rows.ranked.peers(change.row.order)
        yield Sums((end > begin) - (end - begin > added))


def _first(holds: Callable[[int], bool], near: int, size: int) -> int:
    """The first position for which a condition holds, which then holds for all behind it.

    It is usually near another one, so the search begins there, in steps that double.  Otherwise it
    is often an end.
    """
    low, high, step = 0, size, 1
    at = min(max(near, 0), high - 1)
    while low <= at < high:
        if holds(at):
            high, at = at, at - step
        else:
            low, at = at + 1, at + step
        step *= 2
        if step == _FAR and high == size and not holds(size - 1):
            return size
        if step == _FAR and low == 0 and holds(0):
            return 0
    return bisect_left(range(high), 1, low, key=holds)


# Nearer rows are mostly read together.
_FAR = 64


def _is_any(sums: Sums) -> bool:
    return bool(sums.count or any(sums.totals) or any(sums.beyond))


ORDER, SHOWN, ARGUMENT = "o", "r", "a"
"""The fields of a row by which rows are ordered, that shows, and with numbers, of arguments."""


def argument_numbers(functions: Iterable[WindowFunction]) -> dict[str, int]:
    """The numbers of the arguments of functions; those with the same argument share it."""
    reads = (each for function in functions for each in function.reads)
    arguments = dict.fromkeys(each for each in reads if isinstance(each, str) and each)
    return {argument: at for at, argument in enumerate(arguments)}


class Window(msgspec.Struct, frozen=True, dict=True):
    """The functions to compute over a partition, and the order of its rows.

    `order` is how the type of `o` orders its values, None if rows have no order; `row` is that of
    `r`.  With `most`, the first function is a rank, and rows with a greater one do not show.
    """

    functions: tuple[WindowFunction, ...]
    order: SortOrder | None
    row: SortOrder
    is_descending: bool = False
    most: int = 0

    @cached_property
    def fields(self) -> Mapping[str, int]:
        """The arguments of all functions, with their places in a row's entry."""
        return argument_numbers(self.functions)

    @cached_property
    def summed(self) -> tuple[PresentValues, ...]:
        """The arguments to add up over a stretch of rows."""
        sums = (function.summed for function in self.functions)
        return tuple(dict.fromkeys(each for each in sums if each is not None))

    @cached_property
    def nothing(self) -> Stretch:
        """The sums of no rows."""
        return Stretch(0, 0, b"", b"", tuple(each.none for each in self.summed))

    def row_of(self, place: bytes, entry: RowEntry) -> PartitionRow:
        """Make a row from its entry."""
        return PartitionRow(place, entry, self._sums_of)

    def _sums_of(self, row: PartitionRow) -> tuple[Sums, ...]:
        """The sums of one copy of a row."""
        return tuple([each.of(_decoded(row, self.fields[each.argument])) for each in self.summed])

    def place_of(self, row: PartitionRow, argument: str) -> bytes:
        """The place of a value of the order, which is an argument of a row."""
        return self._ordered(_decoded(row, self.fields[argument]))

    def read(self, written: bytes) -> tuple[bytes, RowEntry]:
        """The place of a row, and its entry."""
        data = _decode_row(written)
        order = b"" if self.order is None else self._ordered(data.get(ORDER))
        row = ordered(data[SHOWN], descending=self.is_descending, order=self.row)
        arguments = tuple(
            None if (value := data.get(f"{ARGUMENT}{at}")) is None else canonical.write(value)
            for at in range(len(self.fields))
        )
        return order + row, RowEntry(len(order), 0, arguments, [])

    def _ordered(self, value: Any) -> bytes:
        assert self.order is not None, "rows have an order"
        return ordered(value, descending=self.is_descending, order=self.order)


def step(
    store: Store, updates: Collection[KeyedUpdate], interval: Interval, window: Window
) -> list[KeyedUpdate]:
    """Apply the updates of one interval, which may come in any order."""
    changes = changes_by_key(updates, interval)
    emitted: list[KeyedUpdate] = []
    after: dict[bytes, bytes | None] = {}
    for key, times in changes.items():
        partition = _Partition(store, key, window)
        for time in sorted(times):
            differences = partition.changed(times[time])
            emitted += (KeyedUpdate(key, value, time, diff) for value, diff in differences)
        after |= partition.entries()
    write_entries(store, after)
    # Stable: of one time and key the retractions stay first.
    emitted.sort(key=lambda update: update.time)
    return emitted


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its rows and their values."""
    for key_place, _ in store.scan(KEY, start):
        key = key_place[1:]
        prefix = ROW + with_length(key)
        values = [
            _written(place[len(prefix) + entry.size :], shown)
            for place, written in store.scan(prefix)
            for entry in (entry_of(written),)
            for shown in entry.shown
        ]
        yield key, tuple(values), ()


PART = PartKind(
    "window-functions ",
    StateLayout({KEY: KEY_IS_REST, ROW: KEY_WITH_LENGTH, STRETCH: KEY_WITH_LENGTH}),
    contents,
)
_decode_row = canonical.decoder(dict[str, Any])
_decode = canonical.decoder(Any)


def _decoded(of: PartitionRow, at: int) -> Any:
    written = of.arguments[at]
    return None if written is None else _decode(written)


def _written(row: bytes, shown: tuple[bytes, ...]) -> bytes:
    """A row with the values of its functions, as it is emitted."""
    # Canonical: fields are sorted by their names.
    names = sorted((b"w%d" % at, value) for at, value in enumerate(shown))
    values = b"".join(b',"%b":%b' % each for each in names)
    return b'{"row":%b%b}' % (bytes(value_of(row)), values)


class _Partition:
    """One partition in the course of a batch."""

    def __init__(self, store: Store, key: bytes, window: Window) -> None:
        self._window = window
        self._rows = Ranked(store, key, window.row_of, window.nothing)
        # All rows changed in the batch; and those changed at this time, with their old values.
        self._touched: dict[bytes, PartitionRow] = {}
        self._showed: dict[bytes, list[tuple[bytes, ...]]] = {}
        self._fresh: set[bytes] = set()
        self._values: WindowRows

    def changed(self, diffs: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
        """Apply the changes of one time; return the retractions, then the insertions."""
        window, rows = self._window, self._rows
        self._showed = {}
        is_new = rows.is_new
        more = dict(self._filled(diffs) if is_new else self._counted(diffs))
        self._fresh = set(more)
        places = sorted(more)
        changes = [
            RowChange(self._touched[place], rank, more[place])
            for place, rank in zip(places, rows.ranks(places), strict=True)
        ]
        if changes:
            self._values = WindowRows(rows, window.place_of, window.fields, window.summed)
            end = self._shown_up_to()
            self._search(changes)
            # A new partition has no values that could change.
            for at, function in enumerate(() if is_new else window.functions):
                Renewal(function, self._values, changes, end, partial(self._renew, at)).run()
            for change in changes:
                self._show(change.row, change.at, 0, min(change.behind, end))
            if window.most:
                self._enter(end)
                self._leave(end)
        return list(self._differences())

    def entries(self) -> dict[bytes, bytes | None]:
        """All changes as entries; None deletes."""
        return dict(self._rows.entries(self._touched.values()))

    def _search(self, changes: Sequence[RowChange]) -> None:
        """Compute the values of patterns that changes may have reached."""
        window = self._window
        for at, function in enumerate(window.functions):
            if isinstance(function, RowPattern):
                argument = window.fields[function.argument]
                of = PatternMatches(self._rows, function.pattern, at, argument, self._fresh)
                self._values.matches[function] = of.searched(changes)

    def _filled(self, diffs: Mapping[bytes, int]) -> Iterator[tuple[bytes, int]]:
        """Insert the rows of a new partition; yield the places with copies, and their number."""
        rows: dict[bytes, PartitionRow] = {}
        for written, diff in diffs.items():
            place, entry = self._window.read(written)
            if place not in rows:
                rows[place] = self._window.row_of(place, entry)
            rows[place].count += diff
        counted = [row for row in rows.values() if row.count]
        self._rows.fill(counted)
        for row in counted:
            self._touch(row)
            if row.copies:
                yield row.place, row.copies

    def _counted(self, diffs: Mapping[bytes, int]) -> Iterator[tuple[bytes, int]]:
        """Count rows; yield the places with more or fewer copies, and the difference."""
        rows = self._rows
        for written, diff in diffs.items():
            place, entry = self._window.read(written)
            row = rows.row(place)
            if row is None:
                row, before = self._window.row_of(place, entry), 0
                row.count = diff
                rows.put(row)
            else:
                before = row.copies
                row.count += diff
                if row.count:
                    rows.changed(row)
                else:
                    rows.remove(row)
            self._touch(row)
            if row.copies != before:
                yield place, row.copies - before

    def _touch(self, row: PartitionRow) -> None:
        self._touched[row.place] = row
        self._showed.setdefault(row.place, list(row.shown))

    def _renew(self, function: int, position: int) -> bool:
        """Renew the value of a function at a position; return whether it has stayed the same."""
        row, first = self._rows.at(position)
        copy = position - first
        if row.place in self._fresh or copy >= len(row.shown):
            return False
        value = self._window.functions[function].value(self._values, position, row)
        shown = row.shown[copy]
        if value == shown[function]:
            return True
        self._touch(row)
        row.shown[copy] = (*shown[:function], value, *shown[function + 1 :])
        return False

    def _show(self, row: PartitionRow, at: int, begin: int, end: int) -> None:
        """Compute the values of the copies of a row, from one on up to a position."""
        functions, values = self._window.functions, self._values
        row.shown[begin:] = [
            tuple(function.value(values, position, row) for function in functions)
            for position in range(at + begin, end)
        ]

    def _shown_up_to(self) -> int:
        """The position up to which rows show."""
        window = self._window
        if not window.most:
            return len(self._rows)
        rank = window.functions[0]
        assert isinstance(rank, Ranking) and rank.kind.end is not None, "it grows"  # noqa: PT018
        return rank.kind.end(self._values, window.most)

    def _enter(self, end: int) -> None:
        """Show the rows before the end that did not show before."""
        at = end - 1
        while at >= 0:
            row, first = self._rows.at(at)
            copies = min(row.copies, end - first)
            if row.place not in self._fresh:
                if len(row.shown) >= copies:
                    return
                self._touch(row)
                self._show(row, first, len(row.shown), first + copies)
            at = first - 1

    def _leave(self, end: int) -> None:
        """Show no row from the end on."""
        at = end
        while at < len(self._rows):
            row, first = self._rows.at(at)
            visible = max(end - first, 0)
            if len(row.shown) > visible:
                self._touch(row)
                del row.shown[visible:]
            elif row.place not in self._fresh:
                return
            at = first + row.copies

    def _differences(self) -> Iterator[tuple[bytes, int]]:
        """The rows that show less often than before, then those that show more often."""
        differences = []
        for place, before in self._showed.items():
            row = self._touched[place]
            now = row.shown if row.count > 0 else []
            row.shown = now
            if now != before:
                diffs = Counter(now)
                diffs.subtract(before)
                shown_row = place[row.size :]
                differences += [(_written(shown_row, each), n) for each, n in diffs.items() if n]
        return iter(sorted(differences, key=lambda each: (each[1] > 0, each[0])))


# Matches of a row pattern are computed again around the rows that changed.  The value at a row
# says how many rows were pending behind it: those of the match that was sought then.  So where
# rows change, the search goes on from the first row that was pending before them.  It ends where
# as many rows are pending as before, all of them behind the change: from there on, all matches are
# the same.  A row that is appended costs the rows that are pending, not the partition.


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
