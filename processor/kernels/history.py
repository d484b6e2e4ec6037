"""The recent history of multiplicities, and the queue of entries to compact.

Counts are `[base, time, diff, time, diff, ...]` with ascending times.  The base is the sum of
updates before `since`, which every lookup sees; later updates keep their times.

Entries of a store that keep times are queued, each once, by the latest of its times when it was
queued.  When `since` has passed that time the entry is due.  A search for due entries reads
nothing else; it begins where the last search ended, because a scan would step over deleted
entries.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ikebana.arrangements.store import Store
from ikebana.processor.kernels.layout import OF_SHARD, Entries, OfKey

Counts = list[int]
# Entries to be written; None is to be deleted.
Changes = dict[bytes, bytes | None]

_QUEUE, _SINCE = b"q", b"s"
_TIME_BYTES = 8


def count_before(counts: Counts, time: int) -> int:
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


def add(counts: Counts, time: int, diff: int) -> None:
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


def fold(counts: Counts, since: int) -> None:
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
        for queued, _ in self._store.scan(_QUEUE, _packed(self.since)):
            due = Due(_time_of(queued), queued[1 + _TIME_BYTES :])
            if due.time >= since:
                return
            yield due

    def empty(self) -> bool:
        """Whether no entry keeps times."""
        return next(iter(self._store.scan(_QUEUE, _packed(self.since))), None) is None

    def write(self, changes: Changes, since: int) -> None:
        """Write changes to the store, which is compacted to `since` now."""
        if not changes:
            # Nothing was folded, so nothing is lost if this `since` is not written.
            return
        if since > self.since:
            self._store.put(_SINCE, _packed(since))
            self.since = since
        self._store.change(changes)


def move(changes: Changes, place: bytes, old: int | None, new: int | None) -> None:
    """Add the changes that queue a place by the time `new` in place of `old`; None: not queued."""
    if old == new:
        return
    if old is not None:
        changes[_QUEUE + _packed(old) + place] = None
    if new is not None:
        changes[_QUEUE + _packed(new) + place] = b""


def requeued(queued: int | None, newest: int, since: int) -> int:
    """The time by which to queue an entry with the newest time `newest`.

    An entry stays where it is as long as that time is to come; otherwise entries that change often
    would move often.
    """
    return newest if queued is None or queued < since else queued


def layout(entries: Mapping[bytes, OfKey]) -> dict[bytes, Entries]:
    """The layout of the queue, and of `since`, beside the entries that keep times."""

    def key(rest: bytes, _: bytes) -> bytes:
        place = rest[_TIME_BYTES:]
        return entries[place[:1]].key(place[1:], b"")

    return {_QUEUE: OfKey(key), _SINCE: OF_SHARD, **entries}


def _packed(time: int) -> bytes:
    return time.to_bytes(_TIME_BYTES, "big")


def _time_of(queued: bytes) -> int:
    return int.from_bytes(queued[1 : 1 + _TIME_BYTES], "big")
