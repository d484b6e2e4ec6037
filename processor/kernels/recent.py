"""The recent updates of a relation, in blocks beside the entries of its arrangement.

Entries of an arrangement have the relation as it is now.  Its readers may lag by a few batches,
and see it as of their own times: with the updates of these batches at hand, what has come since
then is taken off again (`seen`).  A block is written once, read only if anybody asks while it is
needed, and deleted whole when `since` has passed its times.  So lagging readers cost an update
neither a second entry nor a second write.

A reader that lags by many batches, such as a join that is being filled, would make each batch
read the blocks of all of them.  So the blocks of few batches are kept; those of older ones leave,
and their updates become histories of entries (`kernels.history`).
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import pieces, sums
from ikebana.processor.base.rows import KeyedUpdate, updates_from
from ikebana.processor.kernels.history import Changes, Counts, add
from ikebana.processor.kernels.layout import OfKeys, ShardOf

try:
    from ikebana.compiled import _arranged as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

# The batches before this one whose updates stay in blocks; two exchanges lag by two.
MOST_BATCHES = 4
# A place is this + the upper of the batch + how many of that upper were before it + the number of
# the block in it.  While an edit fills, time stands still, and several batches have one upper.
_BLOCK = b"u"
_TIME_BYTES, _NUMBER_BYTES = 8, 4
_OF_BATCH = slice(1, 1 + _TIME_BYTES + _NUMBER_BYTES)
_AT_ONCE = 2_000
_NOTHING = [0]

ByKey = dict[bytes, list[KeyedUpdate]]
_Columns = tuple[list[bytes], list[bytes], list[int], list[int]]
_encode = msgspec.msgpack.encode
_columns_of = msgspec.msgpack.Decoder(_Columns).decode


class Recent:
    """The updates of recent batches, of which lookups at or after `since` may not see all."""

    def __init__(self, store: Store, since: int, passed: int) -> None:
        """Find the blocks; those up to `passed` have been deleted before."""
        self._since = since
        self.fresh: ByKey = {}
        """The updates of this batch, by key."""
        self._kept: dict[bytes, bytes] = dict(store.scan(_BLOCK, _packed(passed)))
        self._read: ByKey | None = None

    def add(self, updates: Mapping[bytes, list[KeyedUpdate]]) -> None:
        """Take updates of this batch."""
        fresh = self.fresh
        if not fresh:
            fresh.update(updates)
            return
        for key, own in updates.items():
            if key in fresh:
                fresh[key] += own
            else:
                fresh[key] = own

    def kept(self) -> ByKey:
        """The updates of batches before this one, by key."""
        if self._read is None:
            self._read = _by_key(
                update
                for place, block in self._kept.items()
                if _upper_of(place) > self._since
                for update in _updates_of(block)
                if update.time >= self._since
            )
        return self._read

    def of(self, key: bytes) -> list[KeyedUpdate]:
        """The updates of a key, of batches before and of this one."""
        return [*self.kept().get(key, ()), *self.fresh.get(key, ())]

    def settle(self, changes: Changes, upper: int, since: int) -> list[KeyedUpdate]:
        """Stage the blocks that lookups from `since` on need; return what is to leave them."""
        left = {place: place[_OF_BATCH] for place in self._kept if _upper_of(place) > since}
        old = set(sorted(set(left.values()))[:-MOST_BATCHES])
        found: list[KeyedUpdate] = []
        for place, block in self._kept.items():
            of = left.get(place)
            if of in old:
                found += _updates_of(block)
            if of is None or of in old:
                changes[place] = None
        if since < upper:
            now = _packed(upper)
            same = [batch[_TIME_BYTES:] for batch in left.values() if batch.startswith(now)]
            number = int.from_bytes(max(same), "big") + 1 if same else 0
            changes |= _blocks(self.fresh, upper, number, since)
        self.fresh, self._read = {}, None
        return [update for update in found if update.time >= since]


def seen(
    data: Iterable[tuple[bytes, Counts]], updates: Iterable[KeyedUpdate]
) -> Iterator[tuple[bytes, Counts]]:
    """Data with counts in which these updates have their times, and are not there before.

    They are in order, unless they are many, which are read one by one.
    """
    changes: dict[bytes, list[KeyedUpdate]] = {}
    for update in updates:
        changes.setdefault(update.value, []).append(update)
    if not isinstance(data, Iterator):
        counted = dict(data)
        for datum, own in changes.items():
            counted[datum] = _before(counted.get(datum, _NOTHING), own)
        yield from sorted(counted.items())
        return
    for datum, counts in data:
        if (known := changes.pop(datum, None)) is None:
            yield datum, counts
        else:
            yield datum, _before(counts, known)
    for datum, own in changes.items():
        yield datum, _before([0], own)


def _divided(_: bytes, block: bytes, shard_of: ShardOf) -> dict[int, bytes]:
    """A block as those of its place in other shards, by what decides a key's shard."""
    found: dict[int, list[KeyedUpdate]] = {}
    for update in _updates_of(block):
        assert update.key is not None, "an arranged row has no key"
        found.setdefault(shard_of(update.key), []).append(update)
    return {shard: _block(updates) for shard, updates in found.items()}


def _united(one: bytes, other: bytes) -> bytes:
    """The block that two of one place come to, from shards that become one."""
    return _block(sorted([*_updates_of(one), *_updates_of(other)]))


LAYOUT = {_BLOCK: OfKeys(_divided, _united)}
"""Blocks, which have updates of many keys."""


def _before(counts: Counts, updates: Iterable[KeyedUpdate]) -> Counts:
    found = list(counts)
    for _, _, time, diff in updates:
        found[0] -= diff
        add(found, time, diff)
    return found


def _by_key(updates: Iterable[KeyedUpdate]) -> ByKey:
    found: ByKey = {}
    for update in updates:
        assert update.key is not None, "an arranged row has no key"
        found.setdefault(update.key, []).append(update)
    return found


def _blocks(by_key: ByKey, upper: int, batch: int, since: int) -> dict[bytes, bytes]:
    """The blocks of a batch; updates before `since` are seen by all."""
    of = _BLOCK + _packed(upper) + _counted(batch)
    if compiled is None:
        columns = _since(by_key, since)
    else:
        columns = compiled.since_columns(by_key, since, _summed)
    return {
        of + _counted(number): _encode(tuple(column[at : at + _AT_ONCE] for column in columns))
        for number, at in enumerate(range(0, len(columns[0]), _AT_ONCE))
    }


def _since(by_key: ByKey, since: int) -> _Columns:
    """The columns of updates from a time on, by key and in order."""
    kept: list[KeyedUpdate] = []
    for key in sorted(by_key):
        own = by_key[key]
        if len(own) > 1:
            own = _summed(own)
        kept += [update for update in own if update.time >= since]
    keys, values, times, diffs = map(list, zip(*kept, strict=True)) if kept else ([], [], [], [])
    return keys, values, times, diffs


def _summed(own: list[KeyedUpdate]) -> list[KeyedUpdate]:
    """The updates of a key, in order, with one diff for each datum and time."""
    if len(own) == 2 and own[0].value != own[1].value:
        return sorted(own)
    return sorted(
        KeyedUpdate(*at, diff) for at, total in sums(own).items() for diff in pieces(total)
    )


def _block(updates: list[KeyedUpdate]) -> bytes:
    return _encode(tuple(zip(*updates, strict=True)))


def _updates_of(block: bytes) -> Iterator[KeyedUpdate]:
    return updates_from(*_columns_of(block))


def _counted(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _packed(time: int) -> bytes:
    return time.to_bytes(_TIME_BYTES, "big")


def _upper_of(place: bytes) -> int:
    return int.from_bytes(place[1 : 1 + _TIME_BYTES], "big")
