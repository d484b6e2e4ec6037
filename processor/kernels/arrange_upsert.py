"""The state of an upsert as an arrangement of its output by its own key.

The upsert keeps the current value of each key.  Readers that lag behind it also need the
value before each change at or after `since`.  These old values are in the same part of the
store under separate keys, which the upsert neither reads nor writes.  There are none if
all readers are at the upsert's frontier.

A `UpsertArrangement` lives for one micro-batch, like an `Arrangement`, from the updates
that the upsert has emitted in it.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.processor.base.rows import KeyedUpdate, datum_of
from ikebana.processor.kernels import history, upsert
from ikebana.processor.kernels.history import Counts, Queue

# Keys are read together, for a store answers many faster than one by one.
_AT_ONCE = 5_000
# Ascending times of changes, each with the value before it.
_Past = list[tuple[int, bytes | None]]
_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(tuple[int, _Past]).decode


class UpsertArrangement:
    """The output of an upsert by its key, for lookups at or after `since`."""

    def __init__(
        self, store: Store, updates: Iterable[KeyedUpdate], interval: Interval, since: int
    ) -> None:
        self._store = store
        self._queue = Queue(store)
        assert self._queue.since <= since, f"since goes back from {self._queue.since} to {since}"
        assert since <= interval.lower, f"since {since} is beyond the lower {interval.lower}"
        self.since = since
        self.upper = interval.upper
        self._lags = not self._queue.empty()
        self._fresh: dict[bytes, _Past] = {}
        for key, value, time, diff in updates:
            assert key is not None, "an upsert's row has no key"
            changes = self._fresh.setdefault(key, [])
            # The upsert emits a retraction before the insertion of the same time.
            if diff < 0:
                changes.append((time, value))
            elif not changes or changes[-1][0] != time:
                changes.append((time, None))

    def groups(self, keys: Sequence[bytes]) -> Iterator[Iterable[tuple[bytes, Counts]]]:
        """Yield for each key, in the order asked, each datum that it has or had."""
        entries, fresh = self._entries(keys), self._fresh
        for key, value in zip(keys, upsert.read(self._store, keys), strict=True):
            entry = entries.get(key)
            if entry is None and key not in fresh:
                yield () if value is None else ((datum_of(key, value), [1]),)
            else:
                past = [*(entry[1] if entry else ()), *fresh.get(key, ())]
                yield _counted(key, past, value)

    def contents(self, before: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, datum, 1) of the relation before a time, in order of keys from `start` on.

        The time is from `since` on, and no later than the interval's lower.
        """
        # Keys deleted since then have no state, but old values.
        gone = (place[1:] for place, _ in self._store.scan(upsert.BEFORE, start))
        # The old values of this batch are not in the store yet.
        fresh = sorted(key for key in self._fresh if key >= start)
        there = heapq.merge(upsert.scan(self._store, start), gone, fresh)
        merged = (key for key, _ in groupby(there))
        while keys := list(islice(merged, _AT_ONCE)):
            for key, group in zip(keys, self.groups(keys), strict=True):
                for datum, counts in group:
                    if history.count_before(counts, before):
                        yield key, datum, 1

    def sizes(self, keys: Sequence[bytes]) -> list[int]:
        """How many data each key has or had at any time from `since` on."""
        return [sum(1 for _ in group) for group in self.groups(keys)]

    def settle(self, since: int) -> None:
        """Write the old values that lookups at or after `since` need."""
        assert self.since <= since <= self.upper, f"since {since} is not reached yet"
        keys = dict.fromkeys(place[1:] for _, place in self._queue.due(since))
        if since < self.upper or self._lags:
            keys |= dict.fromkeys(self._fresh)
        entries = self._entries(list(keys))
        changes: history.Changes = {}
        for key in keys:
            entry, place = entries.get(key), upsert.BEFORE + key
            old, queued = (entry[1], entry[0]) if entry else ([], None)
            past = [change for change in (*old, *self._fresh.get(key, ())) if change[0] >= since]
            moved = history.requeued(queued, past[-1][0], since) if past else None
            if entry or past:
                changes[place] = _encode((moved, past)) if past else None
            history.move(changes, place, queued, moved)
        self._queue.write(changes, since)
        self._fresh = {}

    def _entries(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, _Past]]:
        if not self._lags:
            return {}
        entries = self._store.get_many([upsert.BEFORE + key for key in keys])
        return {
            key: _entry_of(entry)
            for key, entry in zip(keys, entries, strict=True)
            if entry is not None
        }


def _counted(key: bytes, changes: _Past, value: bytes | None) -> Iterator[tuple[bytes, Counts]]:
    """All data of a key with their counts, from its value before each change."""
    by_value: dict[bytes, Counts] = {}
    (_, old), *_ = changes
    if old is not None:
        by_value[old] = [1]
    after = [*(before for _, before in changes[1:]), value]
    for (time, before), new in zip(changes, after, strict=True):
        if before is not None:
            by_value[before] += [time, -1]
        if new is not None:
            by_value.setdefault(new, [0]).extend((time, 1))
    return ((datum_of(key, each), counts) for each, counts in by_value.items())
