"""Updates in columns, since most updates of a batch are never looked at one by one.

They become rows when they are iterated over.  Compiled code converts both ways, if it is there.
"""

# Decision (updates stay in columns): They do from the exchange to the stages of joins; rows are
# made only where somebody iterates. Loops of joins take and give columns.

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from ikebana.processor.base.rows import KeyedUpdate, in_columns, updates_from

try:
    from ikebana.compiled import _joins as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

_AT_ONCE = 10_000

Item = TypeVar("Item")
# Keys, values, times and diffs.
InColumns = tuple[list[bytes | None], list[bytes], list[int], list[int]]


class Columned(Collection[KeyedUpdate]):
    """Updates that can be read in columns."""

    @abstractmethod
    def in_columns(self, most: int) -> Iterator["Columns"]:
        """All updates in order, at most `most` at a time."""

    def __contains__(self, update: object) -> bool:
        return any(update == each for each in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columned | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 10 else ""
        return f"{type(self).__name__}({list(islice(self, 10))}{more})"


class Columns(Columned):
    """Updates in columns of one length; only the owner may change them.

    >>> [*Columns([b"1"], [b"{}"], [3], [1])]
    [KeyedUpdate(key=b'1', value=b'{}', time=3, diff=1)]
    """

    __slots__ = ("diffs", "keys", "times", "values")

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes],
        times: list[int],
        diffs: list[int],
    ) -> None:
        self.keys, self.values, self.times, self.diffs = keys, values, times, diffs

    @staticmethod
    def of(updates: Sequence[KeyedUpdate]) -> "Columns":
        """The columns of rows."""
        return Columns(*columns_of(updates)) if updates else Columns([], [], [], [])

    def extend(self, other: "Columns") -> None:
        """Add the updates of other columns."""
        self.keys += other.keys
        self.values += other.values
        self.times += other.times
        self.diffs += other.diffs

    def part(self, begin: int, end: int) -> "Columns":
        """The updates at the positions from `begin` up to `end`."""
        if begin == 0 and end >= len(self.times):
            return self
        columns = self.keys, self.values, self.times, self.diffs
        return Columns(*(column[begin:end] for column in columns))  # type: ignore[arg-type]

    def in_columns(self, most: int) -> Iterator["Columns"]:
        for begin in range(0, len(self.times), most):
            yield self.part(begin, begin + most)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[KeyedUpdate]:
        for some in self.in_columns(_AT_ONCE):
            yield from rows_of(some.keys, some.values, some.times, some.diffs)


def in_columns_of(updates: Iterable[KeyedUpdate], most: int) -> Iterator[Columns]:
    """Updates in order, at most `most` at a time."""
    if isinstance(updates, Columned):
        yield from updates.in_columns(most)
        return
    rest = iter(updates)
    while some := list(islice(rest, most)):
        yield Columns.of(some)


def columns_of(
    updates: Sequence[KeyedUpdate] | Columns,
) -> InColumns:
    """The columns of updates, of which there is at least one."""
    if isinstance(updates, Columns):
        return updates.keys, updates.values, updates.times, updates.diffs
    columns = None if compiled is None else compiled.columns_of([*updates])
    return in_columns(updates) if columns is None else columns


def rows_of(
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    times: Sequence[int],
    diffs: Sequence[int],
) -> list[KeyedUpdate]:
    """Updates from their columns.

    >>> rows_of(*columns_of([KeyedUpdate(b"1", b"{}", 3, 1)]))
    [KeyedUpdate(key=b'1', value=b'{}', time=3, diff=1)]
    """
    if compiled is None:
        return list(updates_from(keys, values, times, diffs))
    columns: Iterable[list[Any]] = map(_listed, (keys, values, times, diffs))
    return compiled.rows_from(KeyedUpdate, *columns)


def pick(column: Sequence[Item], places: list[int]) -> list[Item]:
    """The items of a column at these positions.

    >>> pick([b"1", b"2", b"3"], [2, 0])
    [b'3', b'1']
    """
    if compiled is None:
        return [column[at] for at in places]
    return compiled.taken(_listed(column), places)


def _listed(column: Sequence[Any]) -> list[Any]:
    return column if type(column) is list else [*column]
