"""A replay: a shard takes in portions what something new needs of the past.

A *past* is the contents of something as of a time: a part of the state, the first input of a join,
the hold of an output.  A portion of it is read in the order of keys, and the cursor is in the
state of the shard.  All cursors are in the part of transitions, which each edit empties as it
begins, so they are of no earlier one.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Time
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.transition import Transition
from ikebana.processor.checkpoint import parts
from ikebana.processor.kernels import hold
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.upsert import UpsertArrangement

# About how many keys, data or updates a batch takes in each shard.
PORTION = 15_000
_BEGUN = b"a"
_CURSOR = b"c"


class PastPortion(NamedTuple):
    """Rows of a past from some `keys` or data, its errors, and the next key, None at the end."""

    rows: Sequence[KeyedUpdate]
    keys: int
    next: bytes | None
    errors: Sequence[KeyedUpdate] = ()


class PastContents(Protocol):
    """Contents that are read in portions."""

    def portion(self, start: bytes, most: int) -> PastPortion:
        """Read contents of about `most` keys, from the key `start` on."""
        ...


class ArrangementPast(NamedTuple):
    """The data of an arrangement as of just before a time, as changes at that time."""

    arrangement: Arrangement | UpsertArrangement
    time: Time

    def portion(self, start: bytes, most: int) -> PastPortion:
        rows: list[KeyedUpdate] = []
        contents = self.arrangement.contents(self.time, start)
        for key, data in groupby(contents, key=itemgetter(0)):
            if len(rows) >= most:
                return PastPortion(rows, len(rows), key)
            rows += [KeyedUpdate(key, datum, self.time, count) for _, datum, count in data]
        return PastPortion(rows, len(rows), None)


class HoldPast(NamedTuple):
    """The updates of one time in a hold, which are released as they are read."""

    held: Store
    time: Time

    def portion(self, start: bytes, most: int) -> PastPortion:
        updates, after = hold.portion(self.held, self.time, most, start)
        return PastPortion(updates, len(updates), after)


class _Cursor(msgspec.Struct, array_like=True):
    """The next key, None at the end, and how much was taken before it."""

    next: bytes | None = b""
    count: int = 0


class Replay:
    """How far a shard is in one past of a transition."""

    def __init__(self, store: Store, kind: str, name: str) -> None:
        """Read the cursor; `store` is that of the shard."""
        self._place = parts.EDIT.of(store, "")
        self._at = _CURSOR + f"{kind} {name}".encode()
        (entry,) = self._place.get_many([self._at])
        cursor = _Cursor() if entry is None else msgspec.msgpack.decode(entry, type=_Cursor)
        self.next, self.count = cursor.next, cursor.count

    @property
    def is_done(self) -> bool:
        """Whether the last portion was taken, in this batch or an earlier one."""
        return self.next is None

    def take(self, past: PastContents, most: int | None = None) -> PastPortion:
        """The next portion of a past, which is always the same one for this replay."""
        if self.next is None:
            return PastPortion([], 0, None)
        portion = past.portion(self.next, PORTION if most is None else most)
        self.go(portion.next, portion.keys)
        return portion

    def go(self, next: bytes | None, count: int = 0) -> None:  # noqa: A002 -- as in `PastPortion`
        """Move the cursor."""
        self.next, self.count = next, self.count + count
        self._place.put(self._at, msgspec.msgpack.encode(_Cursor(self.next, self.count)))

    def forget(self) -> None:
        """Delete the cursor: the replay is over."""
        self._place.delete(self._at)


def is_first_portion(store: Store, transition: Transition) -> bool:
    """Whether this is a shard's first portion of an edit; forget all of earlier edits if so."""
    place = parts.EDIT.of(store, "")
    mark = msgspec.msgpack.encode((transition.at, transition.edits))
    if place.get_many([_BEGUN]) == [mark]:
        return False
    for each in [each for each, _ in place.scan(b"")]:
        place.delete(each)
    place.put(_BEGUN, mark)
    return True
