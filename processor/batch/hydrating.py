"""How a join that is new in a running pipeline gets what was there before it.

At the time at which it begins, what its first input has been until then goes the way of
that input's changes, as changes at that time which see the others strictly before it: that
is the join as it would have been by then (`joins.paths`: the first input counts before
all others).  All paths take what changes from then on.  It is done in portions, and how far
a shard is lies in its state.
"""

from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.frontier import Time
from ikebana.arrangements.store import Store
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.arrange_upsert import UpsertArrangement
from ikebana.processor.rows.rows import KeyedUpdate

# So many data go their way in a batch, from each shard.
PORTION = 20_000
_AT = b"at"


class _At(msgspec.Struct, array_like=True):
    """How far a shard is: the next key of those that a join begins with; None is done."""

    begin: int
    next: bytes | None = b""


class Hydrated(NamedTuple):
    """Data as changes at the time at which a join begins, and whether that was all."""

    rows: list[KeyedUpdate]
    done: bool


def portion(store: Store, origin: Arrangement | UpsertArrangement, begin: Time) -> Hydrated:
    """The next data of an arrangement, as they were before a time."""
    (entry,) = store.get_many([_AT])
    at = _At(begin) if entry is None else msgspec.msgpack.decode(entry, type=_At)
    if at.begin != begin:
        # Of a join of this name that there was before.
        at = _At(begin)
    if at.next is None:
        return Hydrated([], done=True)
    rows: list[KeyedUpdate] = []
    reached: bytes | None = None
    for key, data in groupby(origin.contents(begin, at.next), key=itemgetter(0)):
        if len(rows) >= PORTION:
            reached = key
            break
        rows += [KeyedUpdate(key, datum, begin, count) for _, datum, count in data]
    store.put(_AT, msgspec.msgpack.encode(_At(begin, reached)))
    return Hydrated(rows, done=reached is None)
