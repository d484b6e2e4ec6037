"""What an edit gives an output at its time, written in portions, and closed as a whole.

All that an output gets at the time t of an edit waits in its hold until all that it shows has
passed t.  If that is more than a batch should write, the output stands at t for some batches
more.  Each writes a portion, in the order of the hold, and progress says nothing of it: it names
the end offsets of before.  So readers get all of it at once, with the batch that closes t, and
outputs that the edit does not change never wait for a batch of millions of updates.
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
    """How many updates of an output were written, and where in its hold the next one lies."""

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
        found, ahead.next = hold.portion(held, self._time, PORTION, ahead.next)
        ahead.count += len(found)
        self._store.put(_place(output), msgspec.msgpack.encode(ahead))
        return found

    def is_large(self, output: str, held: Store) -> bool:
        """Whether more than a portion is left in an output's hold."""
        return hold.has_more(held, self._time, PORTION, self._of(output).next)

    def closed(self, output: str) -> int:
        """Return how much was written ahead of the batch that closes an output; forget it."""
        if count := self._of(output).count:
            self._store.delete(_place(output))
        return count

    def _of(self, output: str) -> _Ahead:
        (entry,) = self._store.get_many([_place(output)])
        return _Ahead() if entry is None else msgspec.msgpack.decode(entry, type=_Ahead)


def _place(output: str) -> bytes:
    return _PREFIX + output.encode()
