"""Window functions: each row of a partition with values that depend on the rows around it.

The input is a collection of (key, row), where the key is that of the partition, and a row is
canonical JSON of an object with `o`, by which rows are ordered, `r`, the row that shows, and
arguments; the output is the collection of (key, {row, w0, w1, …}) with the value of each function.
Rows of equal order are sorted by `r`; each copy of a row has a separate position.  A row with a
count of zero or below is not there.

The store has the rows in order (`ranked`), each with its values as they were emitted.  At each
time at which rows change, the values of all rows that the change may reach (`window_reach`) are
computed again; those that differ are retracted and inserted.  So a change costs what it moves:
the rows behind it for a running sum, one row for lag.

With `most`, only rows show for which the first function, a rank, is at most that.  Others are
stored without values.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.typed_order import Order
from ikebana.processor.kernels import by_key
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    Contents,
    PartKind,
    StateLayout,
    with_length,
)
from ikebana.processor.kernels.order import ordered, value_of
from ikebana.processor.kernels.ranked import Ranked
from ikebana.processor.kernels.stretches import (
    KEY,
    ROW,
    STRETCH,
    PartitionRow,
    RowEntry,
    Stretch,
    Sums,
    entry_of,
)
from ikebana.processor.kernels.window_patterns import PatternMatches
from ikebana.processor.kernels.window_reach import Renewal, RowChange
from ikebana.processor.kernels.window_values import (
    PATTERN,
    SummedArgument,
    WindowFunction,
    WindowValues,
    summed_of,
)

ORDER, SHOWN = "o", "r"
"""The fields of a row by which rows are ordered, and that shows."""


class Window(msgspec.Struct, frozen=True, dict=True):
    """The functions to compute over a partition, and the order of its rows.

    `order` is how the type of `o` orders its values, None if rows have no order; `row` is that of
    `r`.  With `most`, the first function is a rank, and rows with a greater one do not show.
    """

    functions: tuple[WindowFunction, ...]
    order: Order | None
    row: Order
    is_descending: bool = False
    most: int = 0

    @cached_property
    def fields(self) -> Mapping[str, int]:
        """The arguments of all functions, with their places in a row's entry."""
        names = {name for function in self.functions for name in function.reads}
        return {name: at for at, name in enumerate(sorted(names))}

    @cached_property
    def summed(self) -> tuple[SummedArgument, ...]:
        """The arguments to add up over a stretch of rows."""
        sums = map(summed_of, self.functions)
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
            None if (value := data.get(name)) is None else canonical.write(value)
            for name in self.fields
        )
        return order + row, RowEntry(len(order), 0, arguments, [])

    def _ordered(self, value: Any) -> bytes:
        assert self.order is not None, "rows have an order"
        return ordered(value, descending=self.is_descending, order=self.order)


def step(
    store: Store, updates: Collection[KeyedUpdate], interval: Interval, window: Window
) -> list[KeyedUpdate]:
    """Apply the updates of one interval, which may come in any order."""
    changes = by_key.changes_by_key(updates, interval)
    emitted: list[KeyedUpdate] = []
    after: dict[bytes, bytes | None] = {}
    for key, times in changes.items():
        partition = _Partition(store, key, window)
        for time in sorted(times):
            differences = partition.changed(times[time])
            emitted += (KeyedUpdate(key, value, time, diff) for value, diff in differences)
        after |= partition.entries()
    by_key.write(store, after)
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
        self._values: WindowValues

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
            self._values = WindowValues(rows, window.place_of, window.fields, window.summed)
            end = self._shown_up_to()
            self._search(changes)
            reach = Renewal(self._values, changes, end)
            # A new partition has no values that could change.
            for at, function in enumerate(() if is_new else window.functions):
                reach.renew(function, lambda position, at=at: self._renew(at, position))  # type: ignore[misc]
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
            if function.kind == PATTERN:
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
        value = self._values.value(self._window.functions[function], position, row)
        shown = row.shown[copy]
        if value == shown[function]:
            return True
        self._touch(row)
        row.shown[copy] = (*shown[:function], value, *shown[function + 1 :])
        return False

    def _show(self, row: PartitionRow, at: int, begin: int, end: int) -> None:
        """Compute the values of the copies of a row, from one on up to a position."""
        functions, value = self._window.functions, self._values.value
        row.shown[begin:] = [
            tuple(value(function, position, row) for function in functions)
            for position in range(at + begin, end)
        ]

    def _shown_up_to(self) -> int:
        """The position up to which rows show."""
        size, most = len(self._rows), self._window.most
        if not most:
            return size
        frames, kind = self._values.frames, self._window.functions[0].kind
        if kind == "row_number":
            return min(size, most)
        if kind == "dense_rank":
            return self._rows.group(most)
        # All rows of the group in which the last rank begins show.
        return size if size <= most else frames.peers(most - 1, self._rows.at(most - 1)[0])[1]

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
