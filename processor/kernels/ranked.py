"""The rows of one partition by position; any range can be counted and added up."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from ikebana.arrangements.store import Store
from ikebana.processor.kernels.stretches import (
    Make,
    PartitionRow,
    Stretch,
    StretchNode,
    Tree,
    behind,
    by_place,
    in_turn,
)

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
            at = max(behind(nodes, place) - 1, 0)
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
        return in_turn(parts, self._tree.nothing)

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
