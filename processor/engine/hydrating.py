"""Hydrate a join that is new in a running pipeline.

At the time at which the join begins, the former contents of its first input go through the
path of that input, as changes at that time that see the other inputs strictly before it.  Their
results are the whole join as of that time, because the first input counts before all others
(`planning.joins.paths`).  Later changes go through all paths.  Hydration works in portions, and
the state of a shard has its progress.
"""

from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.frontier import Time
from ikebana.arrangements.store import Store
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.arrange_upsert import UpsertArrangement

# How many data a batch takes from each shard.
PORTION = 20_000
_AT = b"at"


class _At(msgspec.Struct, array_like=True):
    """The progress of a shard: the next key of the join's first input; None if it is done."""

    begin: int
    next: bytes | None = b""


class Hydrated(NamedTuple):
    """A portion of data as changes at the join's first time, and whether it is the last."""

    rows: list[KeyedUpdate]
    done: bool


def portion(store: Store, origin: Arrangement | UpsertArrangement, begin: Time) -> Hydrated:
    """The next portion of an arrangement's data, as of just before a time."""
    at = _reached(store, begin)
    if at.next is None:
        return Hydrated([], done=True)
    rows, reached = data_from(origin, begin, at.next, PORTION)
    store.put(_AT, msgspec.msgpack.encode(_At(begin, reached)))
    return Hydrated(rows, done=reached is None)


def is_done(store: Store, begin: Time) -> bool:
    """Whether the last portion was taken, in this batch or an earlier one."""
    return _reached(store, begin).next is None


def _reached(store: Store, begin: Time) -> _At:
    (entry,) = store.get_many([_AT])
    at = _At(begin) if entry is None else msgspec.msgpack.decode(entry, type=_At)
    # With another time it is the progress of an earlier join of this name.
    return at if at.begin == begin else _At(begin)


def data_from(
    origin: Arrangement | UpsertArrangement, begin: Time, start: bytes, most: int
) -> tuple[list[KeyedUpdate], bytes | None]:
    """About `most` data of an arrangement as of just before `begin`, as changes at `begin`.

    They begin at the key `start`.  Also returns the next key, None if there is none.
    """
    rows: list[KeyedUpdate] = []
    for key, data in groupby(origin.contents(begin, start), key=itemgetter(0)):
        if len(rows) >= most:
            return rows, key
        rows += [KeyedUpdate(key, datum, begin, count) for _, datum, count in data]
    return rows, None
