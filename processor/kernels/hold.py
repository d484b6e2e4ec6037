"""Hold: keep updates at future times until the frontier has passed these times.

Updates that cancel before they are due vanish.  Entries are sorted by time, so a batch reads
only those that are due.  It begins where the last batch ended, because RocksDB would
otherwise step over deleted entries.  Released updates are consolidated.  Times are
non-negative 64-bit integers; a sum of diffs beyond 64 bits is held as decimal digits, and
released as several updates.
"""

# Decision (scans go on where they ended): RocksDB walks over every deleted key before the first
# live one, so whatever waits in order of time is scanned from where the last batch ended.

import operator
from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import LARGEST, pieces, sums
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.layout import (
    OF_SHARD,
    TIME_BYTES,
    OfKeys,
    PartKind,
    ShardOf,
    StateLayout,
    packed_time,
    time_in,
)

_Entry = tuple[bytes | None, bytes, int | str]
_END = 1 << 64
_HELD = b"h"
# An entry is one update, or this + a block of neighbours; the place has the time of the first.
_BLOCK_TAG = b"b"
_BLOCK = 256
_block_of = msgspec.msgpack.Decoder(list[KeyedUpdate]).decode
_time = operator.attrgetter("time")
# The key of a lower bound on the times of held updates.
_LEAST = b"l"


def step(store: Store, updates: Collection[KeyedUpdate], upper: int) -> list[KeyedUpdate]:
    """Release the updates before `upper`, new and held ones; hold the rest."""
    held = PrefixStore(store, _HELD)
    due: dict[tuple[bytes | None, bytes, int], int] = {}
    later: dict[bytes, KeyedUpdate] = {}
    for (key, value, time), diff in sums(updates).items():
        assert 0 <= time < _END, f"time {time} is none of 64 bits"
        if time < upper:
            due[key, value, time] = diff
        else:
            later[_place(key, value, time)] = KeyedUpdate(key, value, time, diff)
    places = list(later)
    for place, entry in zip(places, held.get_many(places), strict=True):
        key, value, _, diff = later[place]
        if entry is not None:
            diff += _entry_of(entry)[2]
        if diff:
            held.put(place, _entry(key, value, diff))
        elif entry is not None:
            held.delete(place, len(entry))
    released: dict[bytes, int] = {}
    stored_least = _least(store)
    least = min([stored_least, *(update.time for update in later.values())])
    for place, entry in held.scan(b"", packed_time(least)) if least < upper else ():
        time = time_in(place)
        # Entries lie in order of time, so the first one beyond the frontier ends it.
        if time >= upper:
            least = time
            break
        key, value, diff = _entry_of(entry)
        due[key, value, time] = due.get((key, value, time), 0) + diff
        released[place] = len(entry)
    else:
        least = max(least, min(upper, _END - 1))
    for place, size in released.items():
        held.delete(place, size)
    if least < stored_least or (least > stored_least and (released or later)):
        store.put(_LEAST, packed_time(least))
    return [KeyedUpdate(*at, diff) for at, total in due.items() for diff in pieces(total)]


def portion(store: Store, time: int, most: int, start: bytes) -> tuple[list[KeyedUpdate], bytes]:
    """Release about `most` of the updates of one time, in order of their places.

    Return them, and the place at which the next portion starts; the first one starts at b"".
    """
    held, at = PrefixStore(store, _HELD), packed_time(time)
    updates: list[KeyedUpdate] = []
    released: dict[bytes, int] = {}
    after = start
    for place, entry in held.scan(at, start):
        if len(updates) >= most:
            break
        updates += _held_by(place, entry)
        released[place] = len(entry)
        after = place[TIME_BYTES:] + b"\x00"
    for place, size in released.items():
        held.delete(place, size)
    return updates, after


def has_more(store: Store, time: int, most: int, start: bytes) -> bool:
    """Whether there are more than `most` entries of one time at or after the place `start`."""
    later = PrefixStore(store, _HELD).scan(packed_time(time), start)
    return next(islice(later, most, None), None) is not None


def step_in_blocks(
    store: Store, updates: Collection[KeyedUpdate], upper: int
) -> list[KeyedUpdate]:
    """Like `step`, for updates that arrive shortly before they are due, as events do.

    Neighbours in time are stored in one block; the rest of a block that is partly due is
    stored again.  Updates that cancel are held too, and released updates are not consolidated.
    """
    held = PrefixStore(store, _HELD)
    due = [update for update in updates if update.time < upper]
    later = [update for update in updates if update.time >= upper]
    stored_least = _least(store)
    released: dict[bytes, int] = {}
    stored: list[KeyedUpdate] = []
    for place, entry in held.scan(b"", packed_time(stored_least)) if stored_least < upper else ():
        if (time := time_in(place)) >= upper:
            least = time
            break
        stored += _held_by(place, entry)
        released[place] = len(entry)
    else:
        least = max(stored_least, upper)
    for place, size in released.items():
        held.delete(place, size)
    for update in stored:
        (due if update.time < upper else later).append(update)
    later.sort(key=_time)
    blocks: dict[bytes, bytes] = {}
    for at in range(0, len(later), _BLOCK):
        block = later[at : at + _BLOCK]
        entry = _BLOCK_TAG + msgspec.msgpack.encode(block)
        place = packed_time(block[0].time) + blake2b(entry, digest_size=16).digest()
        same = blocks.get(place)
        blocks[place] = entry if same is None else _joined(same, entry)
    for place, known_entry in zip(blocks, held.get_many(list(blocks)), strict=True):
        # The same updates may come more than once.
        entry = blocks[place]
        held.put(place, entry if known_entry is None else _joined(known_entry, entry))
    if later:
        least = min(least, later[0].time)
    if least < stored_least or (least > stored_least and (released or later)):
        store.put(_LEAST, packed_time(min(least, _END - 1)))
    return due


def _joined(one: bytes, other: bytes) -> bytes:
    """Two blocks as one."""
    both = [*_block_of(memoryview(one)[1:]), *_block_of(memoryview(other)[1:])]
    return _BLOCK_TAG + msgspec.msgpack.encode(sorted(both, key=_time))


def _held_by(place: bytes, entry: bytes) -> list[KeyedUpdate]:
    """The updates of an entry of either kind."""
    if entry[:1] == _BLOCK_TAG:
        return _block_of(memoryview(entry)[1:])
    key, value, total = _entry_of(entry)
    return [KeyedUpdate(key, value, time_in(place), diff) for diff in pieces(total)]


def is_due(store: Store, upper: int) -> bool:
    """Whether any held update is due before `upper`."""
    least = _least(store)
    if least >= upper:
        return False
    first = next(iter(PrefixStore(store, _HELD).scan(b"", packed_time(least))), None)
    return first is not None and time_in(first[0]) < upper


def held_updates(store: Store) -> Iterator[KeyedUpdate]:
    """Yield all held updates, in order of time except within a block."""
    for place, entry in PrefixStore(store, _HELD).scan(b"", packed_time(_least(store))):
        yield from _held_by(place, entry)


def due_times(store: Store) -> list[int]:
    """The times of all held updates, in order."""
    return sorted(update.time for update in held_updates(store))


def waiting(store: Store, most: int) -> int:
    """The number of held updates, counted up to about `most`."""
    count = 0
    for place, entry in PrefixStore(store, _HELD).scan(b"", packed_time(_least(store))):
        count += len(_held_by(place, entry))
        if count >= most:
            break
    return count


def _divided(rest: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
    """Divide an entry by the shards of its updates; each part has the same place in its shard.

    Updates without a key may go to any shard: if they cancel, they still do after release.
    """
    if entry[:1] != _BLOCK_TAG:
        update, *_ = _held_by(rest, entry)
        return {shard_of(_deciding(update)): entry}
    blocks: dict[int, list[KeyedUpdate]] = {}
    for update in _block_of(memoryview(entry)[1:]):
        blocks.setdefault(shard_of(_deciding(update)), []).append(update)
    return {shard: _BLOCK_TAG + msgspec.msgpack.encode(block) for shard, block in blocks.items()}


def _united(one: bytes, other: bytes) -> bytes | None:
    """Unite the entries of two shards at one place; None if they cancel."""
    if one[:1] == _BLOCK_TAG:
        return _joined(one, other)
    key, value, diff = _entry_of(one)
    diff += _entry_of(other)[2]
    return _entry(key, value, diff) if diff else None


# A shard works without the lower bound; the bound of another shard would be wrong.
_LAYOUT = StateLayout({_HELD: OfKeys(_divided, _united), _LEAST: OF_SHARD})
OUT = PartKind("hold ", _LAYOUT)
"""Updates that wait before an output."""
IN = PartKind("hold-in ", _LAYOUT)
"""Updates that wait before an operator that reads by key."""


def _entry(key: bytes | None, value: bytes, diff: int) -> bytes:
    fits = -LARGEST <= diff <= LARGEST
    return msgspec.msgpack.encode((key, value, diff if fits else str(diff)))


def _entry_of(entry: bytes) -> tuple[bytes | None, bytes, int]:
    key, value, diff = _decoded(entry)
    return key, value, int(diff)


_decoded = msgspec.msgpack.Decoder(_Entry).decode


def _deciding(update: KeyedUpdate) -> bytes:
    return update.value if update.key is None else update.key


def _place(key: bytes | None, value: bytes, time: int) -> bytes:
    # Data may be long, and differ only at the end: of equal time they lie by their digest.
    data = msgspec.msgpack.encode((key, value))
    return packed_time(time) + blake2b(data, digest_size=16).digest()


def _least(store: Store) -> int:
    (entry,) = store.get_many([_LEAST])
    return 0 if entry is None else time_in(entry)
