"""What the outputs are by definition: plain folds over all symbols, with no batches.

A history is a list of symbols in their order: of two symbols with one time, the one
that comes later in the list counts as later.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class BadValue(NamedTuple):
    """What could not be decoded, as its error record."""

    record: bytes


class Symbol(NamedTuple):
    """What `key` is from `time` on: a value, nothing (None), or something unreadable.

    A key of None could not be read itself; all that is left of it is an error record.
    """

    key: bytes | None
    value: bytes | BadValue | None
    time: int


def collection(symbols: Sequence[Symbol], as_of: int) -> Counter[tuple[bytes, bytes]]:
    """Each key with the last good value that it was given, unless removed since."""
    current: dict[bytes, bytes] = {}
    for key, value, _ in _up_to(symbols, as_of):
        if key is None or isinstance(value, BadValue):
            continue
        if value is None:
            current.pop(key, None)
        else:
            current[key] = value
    return Counter(current.items())


def errors(symbols: Sequence[Symbol], as_of: int) -> Counter[bytes]:
    """The record of each key whose last symbol is bad, and of every unreadable key."""
    keyless: Counter[bytes] = Counter()
    last: dict[bytes, bytes | BadValue | None] = {}
    for key, value, _ in _up_to(symbols, as_of):
        if key is not None:
            last[key] = value
        elif isinstance(value, BadValue):
            keyless[value.record] += 1
    return keyless + Counter(v.record for v in last.values() if isinstance(v, BadValue))


def times(symbols: Iterable[Symbol]) -> range:
    """Every time at which there is something to compare, and one on either side."""
    found = [symbol.time for symbol in symbols]
    return range(min(found, default=0) - 1, max(found, default=0) + 2)


def _up_to(symbols: Sequence[Symbol], as_of: int) -> Iterator[Symbol]:
    # sorted() is stable: symbols of one time stay in order.
    yield from sorted((s for s in symbols if s.time <= as_of), key=lambda s: s.time)
