"""The rows of one partition in a store, in order, with the sums of stretches of them.

A skip list (Pugh, 1990); the hashes of rows' places decide the levels: about every 32nd row
begins a stretch of level 1, about every 32nd of these one of level 2, and so on.  The store has
each row, and the sums of each stretch.  So a few entries of each level suffice to find the row at
a position, the position of a place or the sums of a range, and to insert or remove a row.  The
contents of the store depend on the rows alone, not on the order in which they came.

Stretches are read when they are needed; `entries` returns the changes to write.

`Ranked` is the rows by position; any range can be counted and added up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import reduce
from hashlib import blake2b
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import Store
from ikebana.processor.kernels.layout import with_length

# This many zero bits of a hash are one level.
_LEVEL_BITS = 5
TOP = 8
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

KEY, ROW, STRETCH = b"k", b"r", b"s"
"""The places of an entry of a partition, of its rows, and of its stretches."""


class Sums(msgspec.Struct, array_like=True, frozen=True):
    """The sums of one argument in a stretch: the number of its values, and totals of their terms.

    `beyond` counts numbers that are not finite, in the order of `aggregate_kinds.NOT_FINITE`;
    `least` and `greatest` are values as `order.ordered` writes them.
    """

    count: int = 0
    totals: tuple[Decimal, ...] = ()
    beyond: tuple[int, int, int] = (0, 0, 0)
    least: bytes | None = None
    greatest: bytes | None = None

    def times(self, count: int) -> "Sums":
        """Return the sums of `count` copies; below zero, of retractions."""
        if count == 1:
            return self
        by = Decimal(count)
        ends = (self.least, self.greatest) if count else (None, None)
        beyond = tuple(each * count for each in self.beyond)
        totals = tuple(_EXACT.multiply(each, by) for each in self.totals)
        return Sums(self.count * count, totals, beyond, *ends)  # type: ignore[arg-type]

    def __add__(self, other: "Sums") -> "Sums":
        return _together((self, other))


def _together(sums: Sequence[Sums]) -> Sums:
    """The sums of one argument in several stretches."""
    beyond = [each.beyond for each in sums if any(each.beyond)]
    return Sums(
        sum([each.count for each in sums]),
        tuple(map(_total, zip(*[each.totals for each in sums], strict=False))),
        tuple(map(sum, zip(*beyond, strict=True))) if beyond else (0, 0, 0),  # type: ignore[arg-type]
        min([each.least for each in sums if each.least is not None], default=None),
        max([each.greatest for each in sums if each.greatest is not None], default=None),
    )


def _total(numbers: Iterable[Decimal]) -> Decimal:
    # Normalized: a total that is the same number has the same bytes.
    return _EXACT.normalize(reduce(_EXACT.add, numbers))


class Stretch(msgspec.Struct, array_like=True, frozen=True):
    """The sums of consecutive rows: their number, the number of their groups of equal order, the
    orders of the first and the last row; and sums by argument.
    """

    rows: int
    groups: int
    first: bytes
    last: bytes
    sums: tuple[Sums, ...]

    def __add__(self, other: "Stretch") -> "Stretch":
        return running_sums((self, other), self)

    def times(self, count: int) -> "Stretch":
        """Return the sums of copies of a single row."""
        if count == 1:
            return self
        groups = 1 if count else 0
        sums = tuple(each.times(count) for each in self.sums)
        return Stretch(count, groups, self.first, self.last, sums)


def running_sums(stretches: Iterable[Stretch], nothing: Stretch) -> Stretch:
    """The sums of stretches, each behind the one before; `nothing` if they have no rows."""
    present = [each for each in stretches if each.rows]
    if len(present) < 2:
        return present[0] if present else nothing
    groups = sum([each.groups for each in present])
    groups -= sum([one.last == other.first for one, other in pairwise(present)])
    sums = tuple(map(_together, zip(*[each.sums for each in present], strict=True)))
    rows = sum([each.rows for each in present])
    return Stretch(rows, groups, present[0].first, present[-1].last, sums)


class PartitionRow:
    """A row at its place; the first `size` bytes of the place are its order.

    The row is there `count` times; below zero, it was retracted before it was inserted.
    `shown` has the values of its window functions for each copy that shows, in canonical JSON.
    `sums_of` returns the sums of one copy, which are computed when they are needed.
    """

    __slots__ = ("_alone", "_sums_of", "arguments", "count", "place", "shown", "size")

    def __init__(
        self,
        place: bytes,
        entry: "RowEntry",
        sums_of: Callable[["PartitionRow"], tuple[Sums, ...]],
    ) -> None:
        self.place, self.size, self.count = place, entry.size, entry.times
        self.arguments, self.shown = entry.arguments, entry.shown
        self._sums_of = sums_of
        self._alone: Stretch | None = None

    @property
    def alone(self) -> Stretch:
        """The sums of one copy."""
        if self._alone is None:
            order = self.order
            self._alone = Stretch(1, 1, order, order, self._sums_of(self))
        return self._alone

    @property
    def order(self) -> bytes:
        """The order, which its peers share."""
        return self.place[: self.size]

    @property
    def copies(self) -> int:
        """How many copies are there."""
        return max(self.count, 0)


class RowEntry(NamedTuple):
    """An entry of a row in the store, without its place."""

    size: int
    times: int
    arguments: tuple[bytes | None, ...]
    shown: list[tuple[bytes, ...]]


_encode = msgspec.msgpack.encode
entry_of = msgspec.msgpack.Decoder(RowEntry).decode
_stretch_of = msgspec.msgpack.Decoder(Stretch).decode
_height_of = msgspec.msgpack.Decoder(int).decode


class StretchNode:
    """A stretch: its nodes or rows, once they have been read, and its sums, if they are known."""

    __slots__ = ("level", "nodes", "rows", "start", "stretch")

    def __init__(self, level: int, start: bytes, stretch: Stretch | None = None) -> None:
        self.level, self.start, self.stretch = level, start, stretch
        self.nodes: list[StretchNode] | None = None
        self.rows: list[PartitionRow] | None = None


def _level_of(place: bytes) -> int:
    number = int.from_bytes(blake2b(place, digest_size=8).digest(), "big")
    zeros = (number & -number).bit_length() - 1 if number else TOP * _LEVEL_BITS
    return min(zeros // _LEVEL_BITS, TOP - 1)


_by_start = attrgetter("start")
by_place = attrgetter("place")


Make = Callable[[bytes, RowEntry], PartitionRow]
"""Makes a row from its place and its entry."""


class Tree:
    """The stretches of one partition, from the root on; see the module."""

    def __init__(self, store: Store, key: bytes, make: Make, nothing: Stretch) -> None:
        self._store, self._key, self._make = store, key, make
        self._suffix = with_length(key)
        self.nothing = nothing
        self._gone: set[tuple[int, bytes]] = set()
        self._touched: dict[tuple[int, bytes], StretchNode] = {}
        (entry,) = store.get_many([KEY + key])
        self._is_new = entry is None
        self._height = 0 if entry is None else _height_of(entry)
        node = StretchNode(self._height + 1, b"")
        if self._is_new:
            node.rows = []
        while node.level < TOP:
            above = StretchNode(node.level + 1, b"")
            above.nodes = [node]
            node = above
        self.root = node

    @property
    def is_new(self) -> bool:
        """Whether there has never been a row, neither in the store nor in this batch."""
        return self._is_new and not self._touched

    def fill(self, rows: Iterable[PartitionRow]) -> None:
        """Insert all rows of a new partition, in the order of their places."""
        assert self.is_new, "it is filled once"
        # The last stretch of each level; the next row belongs to it.
        last = [self._new(level, b"") for level in range(1, TOP)]
        last[0].rows = []
        for lower, upper in pairwise(last):
            upper.nodes = [lower]
        self.root.nodes = [last[-1]]
        for row in rows:
            height = _level_of(row.place)
            for level in range(1, height + 1):
                node = self._new(level, row.place)
                if level == 1:
                    node.rows = []
                else:
                    node.nodes = [last[level - 2]]
                last[level - 1] = node
            if height:
                above = self.root if height + 1 == TOP else last[height]
                assert above.nodes is not None, "it has been filled"
                above.nodes.append(last[height - 1])
            assert last[0].rows is not None, "it has been filled"
            last[0].rows.append(row)

    def put(self, row: PartitionRow) -> None:
        """Insert a row at a free place."""
        path, level = self.path(row.place), _level_of(row.place)
        rows = self.rows_of(path[-1])
        at = bisect_left(rows, row.place, key=by_place)
        if level == 0:
            rows.insert(at, row)
        else:
            new = self._new(1, row.place)
            new.rows, rows[at:] = [row, *rows[at:]], []
            for above in range(2, TOP + 1):
                nodes = path[-above].nodes
                assert nodes is not None, "a path has been read"
                behind = nodes.index(path[1 - above]) + 1
                if level < above:
                    nodes.insert(behind, new)
                    break
                upper = self._new(above, row.place)
                upper.nodes, nodes[behind:] = [new, *nodes[behind:]], []
                new = upper
        self._touch(path)

    def remove(self, row: PartitionRow) -> None:
        """Remove a row; stretches that begin with it become part of those before them."""
        path, level = self.path(row.place), _level_of(row.place)
        if level == 0:
            self.rows_of(path[-1]).remove(row)
            self._touch(path)
            return
        before = self.path(row.place, strictly=True)
        self.rows_of(before[-1]).extend(self.rows_of(path[-1])[1:])
        for lower in range(1, level + 1):
            one, other = before[-lower], path[-lower]
            if lower > 1:
                assert one.nodes is not None and other.nodes is not None, "a path has been read"  # noqa: PT018
                one.nodes += other.nodes[1:]
            self._gone.add((lower, row.place))
            self._touched.pop((lower, row.place), None)
        nodes = path[-level - 1].nodes
        assert nodes is not None, "a path has been read"
        nodes.remove(path[-level])
        self._touch(before)

    def changed(self, row: PartitionRow) -> None:
        """Note that the count of a row has changed."""
        self._touch(self.path(row.place))

    def entries(self, rows: Iterable[PartitionRow]) -> Iterator[tuple[bytes, bytes | None]]:
        """The entries to write for rows that have changed, and for stretches."""
        for row in rows:
            place = ROW + self._suffix + row.place
            fields = RowEntry(row.size, row.count, row.arguments, row.shown)
            yield place, _encode(fields) if row.count else None
        height = self._new_height()
        for level, start in self._gone:
            yield self._place(level, start), None
        for (level, start), node in self._touched.items():
            is_stored = level <= height
            if is_stored or level <= self._height:
                yield self._place(level, start), _encode(self.sum(node)) if is_stored else None
        is_there = height > 0 or self._has_rows()
        if is_there != (not self._is_new) or height != self._height:
            yield KEY + self._key, _encode(height) if is_there else None

    def _has_rows(self) -> bool:
        """Whether there are rows, if no level has several stretches."""
        node = self.root
        while node.level > 1:
            node = self.nodes_of(node)[0]
        return bool(self.rows_of(node))

    def _new_height(self) -> int:
        """The highest level that has more than one stretch."""
        node = self.root
        while node.level > 1:
            nodes = self.nodes_of(node)
            if len(nodes) > 1:
                return node.level - 1
            node = nodes[0]
        return 0

    def _place(self, level: int, start: bytes) -> bytes:
        return STRETCH + self._suffix + bytes([level]) + start

    def _new(self, level: int, start: bytes) -> StretchNode:
        node = StretchNode(level, start)
        self._gone.discard((level, start))
        self._touched[level, start] = node
        return node

    def _touch(self, path: Sequence[StretchNode]) -> None:
        for node in path:
            node.stretch = None
            if node.level < TOP:
                self._touched[node.level, node.start] = node

    def path(self, place: bytes, *, strictly: bool = False) -> list[StretchNode]:
        """The stretches in which a place lies, from the highest level on; if `strictly`, none
        that begins with it.
        """
        node, path = self.root, [self.root]
        while node.level > 1:
            nodes = self.nodes_of(node)
            if len(nodes) == 1:
                node = nodes[0]
            else:
                at = (
                    bisect_left(nodes, place, key=_by_start)
                    if strictly
                    else count_up_to(nodes, place)
                )
                node = nodes[max(at - 1, 0)]
            path.append(node)
        return path

    def nodes_of(self, node: StretchNode) -> list[StretchNode]:
        """The stretches in one of a higher level than 1."""
        if node.nodes is None:
            level = node.level - 1
            node.nodes = [
                StretchNode(level, start, _stretch_of(entry))
                for start, entry in self._within(self._place(level, b""), node)
            ]
        return node.nodes

    def rows_of(self, node: StretchNode) -> list[PartitionRow]:
        """The rows in a stretch of level 1."""
        if node.rows is None:
            node.rows = [
                self._make(place, entry_of(entry))
                for place, entry in self._within(ROW + self._suffix, node)
            ]
        return node.rows

    def _within(self, prefix: bytes, node: StretchNode) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a stretch in the store, up to the next one of its level."""
        for place, entry in self._store.scan(prefix, node.start):
            start = place[len(prefix) :]
            if start != node.start and _level_of(start) >= node.level:
                return
            yield start, entry

    def sum(self, node: StretchNode) -> Stretch:
        """The sums of the rows of a stretch."""
        if node.stretch is None:
            if node.level > 1:
                parts = [self.sum(each) for each in self.nodes_of(node)]
            else:
                there = (row for row in self.rows_of(node) if row.count > 0)
                parts = [row.alone.times(row.count) for row in there]
            node.stretch = running_sums(parts, self.nothing)
        return node.stretch


def count_up_to(nodes: list[StretchNode], place: bytes) -> int:
    """How many stretches begin at a place or before it."""
    at = bisect_left(nodes, place, key=_by_start)
    return at + (at < len(nodes) and nodes[at].start == place)


# Behind the order of a place its row begins with "+" or "-".
_BEYOND = b"."


class Ranked:
    """The rows of one partition in a store, in order.

    A position counts copies: a row that is there twice has two of them.
    """

    def __init__(self, store: Store, key: bytes, make: Make, nothing: Stretch) -> None:
        self._tree = Tree(store, key, make, nothing)
        # The rows of the last stretch read, with the position of each.
        self._near: list[tuple[int, PartitionRow]] = []
        self._near_end = 0

    @property
    def is_new(self) -> bool:
        """Whether there has never been a row."""
        return self._tree.is_new

    def fill(self, rows: Iterable[PartitionRow]) -> None:
        """Insert all rows of a new partition."""
        self._tree.fill(sorted(rows, key=by_place))

    def put(self, row: PartitionRow) -> None:
        """Insert a row at a free place."""
        self._near = []
        self._tree.put(row)

    def remove(self, row: PartitionRow) -> None:
        """Remove a row."""
        self._near = []
        self._tree.remove(row)

    def changed(self, row: PartitionRow) -> None:
        """Note that the count of a row has changed."""
        self._near = []
        self._tree.changed(row)

    def entries(self, rows: Iterable[PartitionRow]) -> Iterator[tuple[bytes, bytes | None]]:
        """The entries to write for rows that have changed, and for stretches."""
        return self._tree.entries(rows)

    def __len__(self) -> int:
        return self._tree.sum(self._tree.root).rows

    def row(self, place: bytes) -> PartitionRow | None:
        """The row at a place."""
        rows = self._tree.rows_of(self._tree.path(place)[-1])
        at = bisect_left(rows, place, key=by_place)
        return rows[at] if at < len(rows) and rows[at].place == place else None

    def rank(self, place: bytes) -> int:
        """How many rows come before a place."""
        before, node = 0, self._tree.root
        while node.level > 1:
            nodes = self._tree.nodes_of(node)
            if len(nodes) == 1:
                node = nodes[0]
                continue
            at = max(count_up_to(nodes, place) - 1, 0)
            before += sum(self._tree.sum(each).rows for each in nodes[:at])
            node = nodes[at]
        rows = self._tree.rows_of(node)
        return before + sum(
            [row.count for row in rows[: bisect_left(rows, place, key=by_place)] if row.count > 0]
        )

    def ranks(self, places: Sequence[bytes]) -> list[int]:
        """How many rows come before each of these places, which are in order."""
        ranks: list[int] = []

        def count(node: StretchNode, begin: int, end: int, before: int) -> None:
            if node.level == 1:
                rows, at = self._tree.rows_of(node), 0
                for place in places[begin:end]:
                    while at < len(rows) and rows[at].place < place:
                        before += rows[at].copies
                        at += 1
                    ranks.append(before)
                return
            nodes = self._tree.nodes_of(node)
            for each, behind_it in zip_longest(nodes, nodes[1:]):
                upto = end
                if behind_it is not None:
                    upto = bisect_left(places, behind_it.start, begin, end)
                if begin < upto:
                    count(each, begin, upto, before)
                    begin = upto
                if begin == end:
                    return
                before += self._tree.sum(each).rows

        count(self._tree.root, 0, len(places), 0)
        return ranks

    def peers(self, order: bytes) -> tuple[int, int]:
        """The positions of the rows of an order: the first one, and the one behind the last."""
        return self.rank(order), self.rank(order + _BEYOND)

    def at(self, position: int) -> tuple[PartitionRow, int]:
        """The row at a position, and the position of its first copy."""
        if not (self._near and self._near[0][0] <= position < self._near_end):
            self._come_near(position)
        at = bisect_left(self._near, position + 1, key=_position) - 1
        return self._near[at][1], self._near[at][0]

    def nth(self, argument: int, number: int) -> int | None:
        """The position of the row with the nth value of an argument, from 0 on."""
        node, position = self._tree.root, 0
        if not 0 <= number < self._tree.sum(node).sums[argument].count:
            return None
        while node.level > 1:
            for each in self._tree.nodes_of(node):
                stretch = self._tree.sum(each)
                if number < (count := stretch.sums[argument].count):
                    node = each
                    break
                number, position = number - count, position + stretch.rows
        for row in self._tree.rows_of(node):
            count = row.copies * row.alone.sums[argument].count
            if number < count:
                return position + number
            number, position = number - count, position + row.copies
        raise AssertionError("counts of a stretch are those of its rows")

    def group(self, number: int) -> int:
        """The position at which the nth group begins, from 0 on; the end, if there are fewer."""
        node, before = self._tree.root, self._tree.nothing
        if number >= self._tree.sum(node).groups:
            return len(self)
        while node.level > 1:
            for each in self._tree.nodes_of(node):
                after = before + self._tree.sum(each)
                if after.groups > number:
                    node = each
                    break
                before = after
        for row in self._tree.rows_of(node):
            after = before + row.alone.times(row.copies)
            if after.groups > number:
                return before.rows
            before = after
        raise AssertionError("groups of a stretch are those of its rows")

    def fold(self, begin: int, end: int) -> Stretch:
        """The sums of the rows from one position up to another."""
        parts = self._parts(self._tree.root, begin, end) if begin < end else ()
        return running_sums(parts, self._tree.nothing)

    def _come_near(self, position: int) -> None:
        node, first = self._tree.root, 0
        while node.level > 1:
            for each in self._tree.nodes_of(node):
                rows = self._tree.sum(each).rows
                if position < first + rows:
                    node = each
                    break
                first += rows
            else:
                raise AssertionError(f"there is no row {position}")
        self._near = []
        for row in self._tree.rows_of(node):
            if row.count > 0:
                self._near.append((first, row))
                first += row.count
        self._near_end = first

    def _parts(self, node: StretchNode, begin: int, end: int) -> Iterator[Stretch]:
        """The sums of the parts of a stretch between two positions, counted from its begin."""
        whole = self._tree.sum(node)
        if begin <= 0 and end >= whole.rows:
            yield whole
            return
        at = 0
        if node.level > 1:
            for each in self._tree.nodes_of(node):
                rows = self._tree.sum(each).rows
                if begin < at + rows and at < end:
                    yield from self._parts(each, begin - at, end - at)
                at += rows
            return
        for row in self._tree.rows_of(node):
            if at >= end:
                break
            upto = at + row.copies
            if begin < upto:
                yield row.alone.times(min(end, upto) - max(begin, at))
            at = upto


def _position(near: tuple[int, PartitionRow]) -> int:
    return near[0]
