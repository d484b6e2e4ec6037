"""The updates of an output at an edit's time, written in portions and closed as a whole.

All updates that an output gets at the time t of an edit wait in its hold until the output's
collection has passed t.  If they are more than a batch should write, the output stays frozen at
t for some more batches.  Each writes a portion, in the order of the hold, while progress still
names the end offsets from before the first one.  So readers get all of them at once, with the
batch that closes t, and outputs that the edit does not change never wait for a batch of millions
of updates.
"""

# Decision (large differences in portions): An output at the edit's time writes beyond its end
# offsets, which readers do not see, and progress closes all of it at once. Formats of one value a
# key need all updates of a key together: one batch.

import msgspec

from ikebana.arrangements.frontier import Time
from ikebana.arrangements.store import Store
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold

# About how many updates a batch writes in each shard.
PORTION = 15_000
_PREFIX = b"w"


class _Ahead(msgspec.Struct, array_like=True):
    """How many updates of an output were written, and where the next one is in its hold."""

    count: int = 0
    next: bytes = b""


class WrittenAhead:
    """The portions of outputs that one shard has written at the time of an edit.

    `store` is the part of the edit.
    """

    def __init__(self, store: Store, time: Time) -> None:
        self._store, self._time = store, time

    def portion(self, output: str, held: Store) -> list[KeyedUpdate]:
        """Release the next portion of an output's hold."""
        ahead = self._of(output)
        updates, ahead.next = hold.portion(held, self._time, PORTION, ahead.next)
        ahead.count += len(updates)
        self._store.put(_place(output), msgspec.msgpack.encode(ahead))
        return updates

    def is_large(self, output: str, held: Store) -> bool:
        """Whether an output's hold has more than one portion."""
        return hold.has_more(held, self._time, PORTION, self._of(output).next)

    def closed(self, output: str) -> int:
        """How many updates were written before the batch that closes an output; reset it."""
        if count := self._of(output).count:
            self._store.delete(_place(output))
        return count

    def _of(self, output: str) -> _Ahead:
        (entry,) = self._store.get_many([_place(output)])
        return _Ahead() if entry is None else msgspec.msgpack.decode(entry, type=_Ahead)


def _place(output: str) -> bytes:
    return _PREFIX + output.encode()
