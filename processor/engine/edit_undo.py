"""The contents of running operators as of an edit's time: contents now, minus later updates.

An edit reads the contents of an operator in portions, in order of keys, as of one time, while
the operator goes on.  So its updates of keys that the edit has not read yet are stored here,
and are subtracted when the edit reads the key.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

import msgspec

from ikebana.arrangements.store import Part, Store
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.layout import Contents

_Entry = list[tuple[bytes, int]]
_PREFIX = b"u"
_NUMBER_BYTES = 4
_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(_Entry).decode


class Undo:
    """The updates of one operator since an edit's time, of keys that the edit has not read yet.

    `number` is the position of the operator among those that the edit reads.
    """

    def __init__(self, store: Store, number: int) -> None:
        self._part = Part(store, _PREFIX + number.to_bytes(_NUMBER_BYTES, "big"))

    def keep(self, updates: Iterable[KeyedUpdate], start: bytes = b"") -> None:
        """Store updates of keys from `start` on."""
        sums: dict[bytes, Counter[bytes]] = {}
        for key, value, _, diff in updates:
            assert key is not None, "contents have keys"
            if key >= start:
                sums.setdefault(key, Counter())[value] += diff
        keys = list(sums)
        for key, entry in zip(keys, self._part.get_many(keys), strict=True):
            counts = sums[key]
            for value, diff in () if entry is None else _entry_of(entry):
                counts[value] += diff
            if left := [(value, diff) for value, diff in counts.items() if diff]:
                self._part.put(key, _encode(left))
            elif entry is not None:
                self._part.delete(key)

    def undone(
        self, contents: Sequence[Contents], start: bytes, end: bytes | None
    ) -> list[Contents]:
        """Contents of keys in `[start, end)` as of the edit's time, from the `contents` now.

        The stored updates of these keys are deleted.  Without an `end` these are all other keys.
        Keys that have no contents any more come last.
        """
        later = self._part.scan(b"", start)
        entries = list(takewhile(lambda entry: end is None or entry[0] < end, later))
        since = {key: _entry_of(entry) for key, entry in entries}
        for key in since:
            self._part.delete(key)
        had = [
            (key, _had(values, since.pop(key)), errors) if key in since else (key, values, errors)
            for key, values, errors in contents
        ]
        return [*had, *((key, _had((), updates), ()) for key, updates in since.items())]


def forget_all(store: Store) -> None:
    """Delete the updates that an earlier edit may have left."""
    part = Part(store, _PREFIX)
    for place in [place for place, _ in part.scan(b"")]:
        part.delete(place)


def _had(values: Sequence[bytes], since: _Entry) -> tuple[bytes, ...]:
    counts = Counter(values)
    for value, diff in since:
        counts[value] -= diff
    assert all(count >= 0 for count in counts.values()), "more has come than is there"
    return tuple(counts.elements())
