"""What readers that lag still see: recent counts, the queue of entries to compact, recent updates.

Counts are `[base, time, diff, time, diff, ...]` with ascending times.  The base is the sum of
updates before `since`, which every lookup sees; later updates keep their times.

Entries of a store that keep times are queued, each once, by the latest of its times when it was
queued.  When `since` has passed that time the entry is due.  A search for due entries reads
nothing else; it begins where the last search ended, because a scan would step over deleted
entries.

The recent updates of a relation lie in blocks beside the entries of its arrangement, which hold
the current relation.  Its readers may lag by a few batches, and
see it as of their own times: `seen` subtracts the updates of these batches again.  A block is
written once, read only if a reader needs it, and deleted whole when `since` has passed its times.
So lagging readers cost an update neither a second entry nor a second write.

A reader that lags by many batches, such as a join that is being filled, would make each batch
read the blocks of all of them.  So only the blocks of the last few batches stay; older blocks are
deleted, and their updates become histories of entries.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import EntryDict, Store
from ikebana.arrangements.update import pieces, sums
from ikebana.processor.base.rows import KeyedUpdate, updates_from
from ikebana.processor.kernels.layout import (
    OF_SHARD,
    TIME_BYTES,
    Entries,
    OfKey,
    OfKeys,
    ShardOf,
    packed_time,
    time_in,
)

EntryCounts = list[int]

_QUEUE, _SINCE = b"q", b"s"


def count_before(counts: EntryCounts, time: int) -> int:
    """The multiplicity of updates before a time.

    >>> count_before([1, 5, 1, 7, -2], 7)
    2
    """
    count = counts[0]
    for at in range(1, len(counts), 2):
        if counts[at] >= time:
            break
        count += counts[at + 1]
    return count


def add(counts: EntryCounts, time: int, diff: int) -> None:
    """Add a diff at a time; a time whose diffs sum to 0 is removed.

    >>> counts = [1, 5, 1]
    >>> add(counts, 7, -2), add(counts, 5, -1)
    (None, None)
    >>> counts
    [1, 7, -2]
    """
    at = len(counts)
    # Nearly always at the end: times go up from batch to batch.
    if at == 1 or counts[-2] < time:
        counts += (time, diff)
        return
    while at > 1 and counts[at - 2] > time:
        at -= 2
    if at > 1 and counts[at - 2] == time:
        counts[at - 1] += diff
        if not counts[at - 1]:
            del counts[at - 2 : at]
    else:
        counts[at:at] = [time, diff]


def fold(counts: EntryCounts, since: int) -> None:
    """Compact the updates before `since` into the base.

    >>> counts = [1, 5, 1, 7, -2]
    >>> fold(counts, 7)
    >>> counts
    [2, 7, -2]
    """
    at = len(counts)
    while at > 1 and counts[at - 2] >= since:
        at -= 2
    if at > 1:
        counts[:at] = [counts[0] + sum(counts[2:at:2])]


class Due(NamedTuple):
    """The store key of an entry that is due for compaction."""

    time: int
    place: bytes


class Queue:
    """The entries of a store that keep times, and the `since` to which it was compacted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        (entry,) = store.get_many([_SINCE])
        self.since = 0 if entry is None else int.from_bytes(entry, "big")

    def due(self, since: int) -> Iterator[Due]:
        """Yield the entries that are queued for times before `since`, in order."""
        for queued, _ in self._store.scan(_QUEUE, packed_time(self.since)):
            due = Due(time_in(queued[1:]), queued[1 + TIME_BYTES :])
            if due.time >= since:
                return
            yield due

    def empty(self) -> bool:
        """Whether no entry keeps times."""
        return next(iter(self._store.scan(_QUEUE, packed_time(self.since))), None) is None

    def write(self, changes: EntryDict, since: int) -> None:
        """Write changes to the store, which is compacted to `since` now."""
        if not changes:
            # Nothing was folded, so nothing is lost if this `since` is not written.
            return
        if since > self.since:
            self._store.put(_SINCE, packed_time(since))
            self.since = since
        self._store.change(changes)


def move(changes: EntryDict, place: bytes, old: int | None, new: int | None) -> None:
    """Add the changes that queue a place by the time `new` in place of `old`; None: not queued."""
    if old == new:
        return
    if old is not None:
        changes[_QUEUE + packed_time(old) + place] = None
    if new is not None:
        changes[_QUEUE + packed_time(new) + place] = b""


def queue_time(queued: int | None, newest: int, since: int) -> int:
    """The time by which to queue an entry with the newest time `newest`.

    An entry stays where it is as long as that time is to come; otherwise entries that change often
    would move often.
    """
    return newest if queued is None or queued < since else queued


def layout(entries: Mapping[bytes, OfKey]) -> dict[bytes, Entries]:
    """The layout of the queue, and of `since`, beside the entries that keep times."""

    def key(rest: bytes, _: bytes) -> bytes:
        place = rest[TIME_BYTES:]
        return entries[place[:1]].key(place[1:], b"")

    return {_QUEUE: OfKey(key), _SINCE: OF_SHARD, **entries}


# Decision (recent updates lie beside entries): Lagging readers take off the updates since their
# time, from blocks that are deleted whole. Before, each changed entry got its updates with times
# and was rewritten two batches later. A reader more than four batches behind keeps a history.


try:
    from ikebana.compiled import _arranged as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

# The batches before this one whose updates stay in blocks; two exchanges lag by two.
MOST_BATCHES = 4
# A place is this + the upper of the batch + the number of earlier batches with that upper + the
# number of the block in it.  While an edit fills, several batches have the same upper.
_BLOCK = b"u"
_NUMBER_BYTES = 4
_OF_BATCH = slice(1, 1 + TIME_BYTES + _NUMBER_BYTES)
_AT_ONCE = 2_000
_NOTHING = [0]

ByKey = dict[bytes, list[KeyedUpdate]]
_Columns = tuple[list[bytes], list[bytes], list[int], list[int]]
_encode = msgspec.msgpack.encode
_columns_of = msgspec.msgpack.Decoder(_Columns).decode


class RecentUpdates:
    """The updates of recent batches; lookups at or after `since` may not see all of them."""

    def __init__(self, store: Store, since: int, passed: int) -> None:
        """Read the blocks; those up to `passed` have been deleted before."""
        self._since = since
        self.fresh: ByKey = {}
        """The updates of this batch, by key."""
        self._stored: dict[bytes, bytes] = dict(store.scan(_BLOCK, packed_time(passed)))
        self._read: ByKey | None = None

    def add(self, updates: Mapping[bytes, list[KeyedUpdate]]) -> None:
        """Add updates of this batch."""
        fresh = self.fresh
        if not fresh:
            fresh.update(updates)
            return
        for key, key_updates in updates.items():
            if key in fresh:
                fresh[key] += key_updates
            else:
                fresh[key] = key_updates

    def earlier(self) -> ByKey:
        """The updates of earlier batches, by key."""
        if self._read is None:
            self._read = _by_key(
                update
                for place, block in self._stored.items()
                if time_in(place[1:]) > self._since
                for update in _updates_of(block)
                if update.time >= self._since
            )
        return self._read

    def of(self, key: bytes) -> list[KeyedUpdate]:
        """The updates of a key, of earlier batches and of this one."""
        return [*self.earlier().get(key, ()), *self.fresh.get(key, ())]

    def settle(self, changes: EntryDict, upper: int, since: int) -> list[KeyedUpdate]:
        """Stage the blocks that lookups from `since` on need; return the updates of old blocks."""
        left = {place: place[_OF_BATCH] for place in self._stored if time_in(place[1:]) > since}
        old = set(sorted(set(left.values()))[:-MOST_BATCHES])
        leaving: list[KeyedUpdate] = []
        for place, block in self._stored.items():
            of = left.get(place)
            if of in old:
                leaving += _updates_of(block)
            if of is None or of in old:
                changes[place] = None
        if since < upper:
            now = packed_time(upper)
            same = [batch[TIME_BYTES:] for batch in left.values() if batch.startswith(now)]
            number = int.from_bytes(max(same), "big") + 1 if same else 0
            changes |= _blocks(self.fresh, upper, number, since)
        self.fresh, self._read = {}, None
        return [update for update in leaving if update.time >= since]


def seen(
    data: Iterable[tuple[bytes, EntryCounts]], updates: Iterable[KeyedUpdate]
) -> Iterator[tuple[bytes, EntryCounts]]:
    """Data with counts in which these updates count only from their times on.

    Data are in order, unless they come from an iterator, which is read one by one.
    """
    changes: dict[bytes, list[KeyedUpdate]] = {}
    for update in updates:
        changes.setdefault(update.value, []).append(update)
    if not isinstance(data, Iterator):
        counted = dict(data)
        for datum, datum_updates in changes.items():
            counted[datum] = _before(counted.get(datum, _NOTHING), datum_updates)
        yield from sorted(counted.items())
        return
    for datum, counts in data:
        if (recent := changes.pop(datum, None)) is None:
            yield datum, counts
        else:
            yield datum, _before(counts, recent)
    for datum, datum_updates in changes.items():
        yield datum, _before([0], datum_updates)


def _divided(_: bytes, block: bytes, shard_of: ShardOf) -> dict[int, bytes]:
    """Divide a block by the shards of its keys; each part has the same place in its shard."""
    by_shard: dict[int, list[KeyedUpdate]] = {}
    for update in _updates_of(block):
        assert update.key is not None, "an arranged row has no key"
        by_shard.setdefault(shard_of(update.key), []).append(update)
    return {shard: _block(updates) for shard, updates in by_shard.items()}


def _united(one: bytes, other: bytes) -> bytes:
    """Unite the blocks of two shards at one place."""
    return _block(sorted([*_updates_of(one), *_updates_of(other)]))


LAYOUT = {_BLOCK: OfKeys(_divided, _united)}
"""Blocks, which have updates of many keys."""


def _before(counts: EntryCounts, updates: Iterable[KeyedUpdate]) -> EntryCounts:
    result = list(counts)
    for _, _, time, diff in updates:
        result[0] -= diff
        add(result, time, diff)
    return result


def _by_key(updates: Iterable[KeyedUpdate]) -> ByKey:
    by_key: ByKey = {}
    for update in updates:
        assert update.key is not None, "an arranged row has no key"
        by_key.setdefault(update.key, []).append(update)
    return by_key


def _blocks(by_key: ByKey, upper: int, batch: int, since: int) -> dict[bytes, bytes]:
    """The blocks of a batch; updates before `since` are seen by all."""
    of = _BLOCK + packed_time(upper) + _counted(batch)
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
    updates: list[KeyedUpdate] = []
    for key in sorted(by_key):
        key_updates = by_key[key]
        if len(key_updates) > 1:
            key_updates = _summed(key_updates)
        updates += [update for update in key_updates if update.time >= since]
    keys, values, times, diffs = (
        map(list, zip(*updates, strict=True)) if updates else ([], [], [], [])
    )
    return keys, values, times, diffs


def _summed(updates: list[KeyedUpdate]) -> list[KeyedUpdate]:
    """The updates of a key, in order, with one diff for each datum and time."""
    if len(updates) == 2 and updates[0].value != updates[1].value:
        return sorted(updates)
    return sorted(
        KeyedUpdate(*at, diff) for at, total in sums(updates).items() for diff in pieces(total)
    )


def _block(updates: list[KeyedUpdate]) -> bytes:
    return _encode(tuple(zip(*updates, strict=True)))


def _updates_of(block: bytes) -> Iterator[KeyedUpdate]:
    return updates_from(*_columns_of(block))


def _counted(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")
