"""The values of one key with their counts, in order, as a reduction stores them."""

import bisect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.processor.kernels.order import value_of

# The most memory that a list may take: its stored values, and a pointer for each.
_MOST_BYTES = 1 << 28
_POINTER_BYTES = 8


class TooLongError(Exception):
    """A list would take too much memory; it has at least `count` values."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} values")
        self.count = count


class OrderedValues:
    """The values of one key in one order; only as many are read as are asked for.

    It knows the loaded counts and those of all places up to `_read_to`, which is None when all are
    known.
    """

    def __init__(self, store: Store, start: bytes) -> None:
        self._store = store
        self._start = start
        self._counts: dict[bytes, int] = {}
        self._loaded: set[bytes] = set()
        # The known places with a count above zero, in order.
        self._there: list[bytes] = []
        self._unread: Iterator[tuple[bytes, bytes]] | None = None
        self._read_to: bytes | None = b""

    def load(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Set these counts; call it before any other method."""
        for place, entry in entries.items():
            if place not in self._loaded:
                self._loaded.add(place)
                self._know(place, 0 if entry is None else int(entry))

    def add(self, diffs: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
        """Add to loaded counts; return the places of values that appear (1) or vanish (-1)."""
        turned = []
        for place, diff in diffs.items():
            old = self._counts[place]
            new = self._counts[place] = old + diff
            if old <= 0 < new:
                bisect.insort(self._there, place)
                turned.append((place, 1))
            elif new <= 0 < old:
                del self._there[bisect.bisect_left(self._there, place)]
                turned.append((place, -1))
        return turned

    def value(self, place: bytes) -> Any:
        """The value of a place, as data."""
        value = value_of(place[len(self._start) :])
        return canonical.decode(bytes(value)) if isinstance(value, msgspec.Raw) else value

    def first(self, limit: int, *, once: bool = False) -> list[Any]:
        """The first `limit` values, each repeated as often as it occurs, or `once`.

        Raises: TooLongError, before much memory is taken.
        """
        values: list[Any] = []
        at = size = 0
        while len(values) < limit:
            # Values not read yet may come before loaded ones.
            while self._read_to is not None and (
                at == len(self._there) or self._there[at] > self._read_to
            ):
                self._read()
            if at == len(self._there):
                break
            place = self._there[at]
            times = 1 if once else min(self._counts[place], limit - len(values))
            size += times * (len(place) - len(self._start) + _POINTER_BYTES)
            if size > _MOST_BYTES:
                raise TooLongError(len(values) + times)
            values += [value_of(place[len(self._start) :])] * times
            at += 1
        return values

    def entries(self) -> dict[bytes, bytes | None]:
        """The loaded counts as entries; None where zero."""
        return {
            place: b"%d" % count if (count := self._counts[place]) else None
            for place in self._loaded
        }

    def _read(self) -> None:
        if self._unread is None:
            self._unread = self._store.scan(self._start)
        place, entry = next(self._unread, (None, b""))
        self._read_to = place
        if place is not None and place not in self._counts:
            self._know(place, int(entry))

    def _know(self, place: bytes, count: int) -> None:
        self._counts[place] = count
        if count > 0:
            bisect.insort(self._there, place)
