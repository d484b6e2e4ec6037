"""What operators had at an edit's time, while they go on: what they have, less what came since.

An edit goes through the contents of an operator in portions, in order of keys, as of one time.
The operator goes on meanwhile.  So each of its updates whose key is still to be read is kept
here, and taken back when the edit comes to the key.
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
    """The updates since an edit's time of one operator, by keys that are still to be read.

    `number` is the operator's among those that the edit reads.
    """

    def __init__(self, store: Store, number: int) -> None:
        self._part = Part(store, _PREFIX + number.to_bytes(_NUMBER_BYTES, "big"))

    def keep(self, updates: Iterable[KeyedUpdate], start: bytes = b"") -> None:
        """Keep what has come for keys from `start` on."""
        sums: dict[bytes, Counter[bytes]] = {}
        for key, value, _, diff in updates:
            assert key is not None, "contents have keys"
            if key >= start:
                sums.setdefault(key, Counter())[value] += diff
        keys = list(sums)
        for key, entry in zip(keys, self._part.get_many(keys), strict=True):
            found = sums[key]
            for value, diff in () if entry is None else _entry_of(entry):
                found[value] += diff
            if left := [(value, diff) for value, diff in found.items() if diff]:
                self._part.put(key, _encode(left))
            elif entry is not None:
                self._part.delete(key)

    def undone(
        self, contents: Sequence[Contents], start: bytes, end: bytes | None
    ) -> list[Contents]:
        """What keys from `start` up to `end` had, by all that they have now; forget them.

        Without an `end` it is all that is left.  Keys that have gone since then come last.
        """
        later = self._part.scan(b"", start)
        found = list(takewhile(lambda entry: end is None or entry[0] < end, later))
        since = {key: _entry_of(entry) for key, entry in found}
        for key in since:
            self._part.delete(key)
        had = [
            (key, _had(values, since.pop(key)), errors) if key in since else (key, values, errors)
            for key, values, errors in contents
        ]
        return [*had, *((key, _had((), updates), ()) for key, updates in since.items())]


def forget_all(store: Store) -> None:
    """Delete what an earlier edit may have left."""
    part = Part(store, _PREFIX)
    for place in [place for place, _ in part.scan(b"")]:
        part.delete(place)


def _had(values: Sequence[bytes], since: _Entry) -> tuple[bytes, ...]:
    counts = Counter(values)
    for value, diff in since:
        counts[value] -= diff
    assert all(count >= 0 for count in counts.values()), "more has come than is there"
    return tuple(counts.elements())
