"""The values of one key with their counts, in order, as a reduction keeps them in the store."""

import bisect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.processor.kernels.order import value_of

# What a list may take in memory: its values as they are kept, and a pointer for each.
_MOST_BYTES = 1 << 28
_POINTER_BYTES = 8


class TooLongError(Exception):
    """A list would take too much memory; `count` values of it are there at least."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} values")
        self.count = count


class Values:
    """The values of one key in one order, of which only as many are read as are asked for.

    Known are the counts that were loaded and those of all places up to `_read_to`; it is
    None when all are known.
    """

    def __init__(self, store: Store, start: bytes) -> None:
        self._store = store
        self._start = start
        self._counts: dict[bytes, int] = {}
        self._loaded: set[bytes] = set()
        # The known places whose values are there, in order.
        self._there: list[bytes] = []
        self._unread: Iterator[tuple[bytes, bytes]] | None = None
        self._read_to: bytes | None = b""

    def load(self, found: Mapping[bytes, bytes | None]) -> None:
        """Know these counts; before anything else is done."""
        for place, entry in found.items():
            if place not in self._loaded:
                self._loaded.add(place)
                self._know(place, 0 if entry is None else int(entry))

    def add(self, diffs: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
        """Add to loaded counts; the places of values that come (1) or go (-1) by that."""
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
        """The first values, `limit` in all, each as often as it is there, or `once`.

        Raises: TooLongError, before much memory is taken.
        """
        found: list[Any] = []
        at = taken = 0
        while len(found) < limit:
            # What is read next may come before what is known.
            while self._read_to is not None and (
                at == len(self._there) or self._there[at] > self._read_to
            ):
                self._read()
            if at == len(self._there):
                break
            place = self._there[at]
            times = 1 if once else min(self._counts[place], limit - len(found))
            taken += times * (len(place) - len(self._start) + _POINTER_BYTES)
            if taken > _MOST_BYTES:
                raise TooLongError(len(found) + times)
            found += [value_of(place[len(self._start) :])] * times
            at += 1
        return found

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
