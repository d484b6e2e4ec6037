"""Hold: updates of the future wait here until the frontier has passed their time.

Updates that cancel before they are due vanish.  Entries lie in order of their due time,
so a batch looks only at what is due, however much is waiting, and begins where the last
one ended, for what is deleted may still lie in the way.  What is released is
consolidated.  Times are 64-bit integers that are not negative, as time is everywhere.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from ikebana.arrangements.store import Part, Store
from ikebana.arrangements.update import sums
from ikebana.processor.batch.rows import KeyedUpdate

_Entry = tuple[bytes | None, bytes, int]
_TIME_BYTES = 8
_END = 1 << 64
_HELD = b"h"
# Here stands a time that none of what is held is before.
_LEAST = b"l"


def step(store: Store, updates: Sequence[KeyedUpdate], upper: int) -> list[KeyedUpdate]:
    """Release what is due before `upper`, of `updates` and of what is held; hold the rest."""
    held = Part(store, _HELD)
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
            diff += msgspec.msgpack.decode(entry, type=_Entry)[2]
        if diff:
            held.put(place, msgspec.msgpack.encode((key, value, diff)))
        elif entry is not None:
            held.delete(place)
    released = []
    known = _least(store)
    least = min([known, *(update.time for update in later.values())])
    for place, entry in held.scan(b"", _packed(least)) if least < upper else ():
        time = _time_of(place)
        # Entries lie in order of time, so the first one beyond the frontier ends it.
        if time >= upper:
            least = time
            break
        key, value, diff = msgspec.msgpack.decode(entry, type=_Entry)
        due[key, value, time] = due.get((key, value, time), 0) + diff
        released.append(place)
    else:
        least = max(least, min(upper, _END - 1))
    for place in released:
        held.delete(place)
    if least < known or (least > known and (released or later)):
        store.put(_LEAST, _packed(least))
    return [KeyedUpdate(*at, diff) for at, diff in due.items() if diff]


def is_due(store: Store, upper: int) -> bool:
    """Whether anything that is held is due before `upper`."""
    least = _least(store)
    if least >= upper:
        return False
    first = next(iter(Part(store, _HELD).scan(b"", _packed(least))), None)
    return first is not None and _time_of(first[0]) < upper


def due_times(store: Store) -> list[int]:
    """The times of all that is held, in order."""
    found = Part(store, _HELD).scan(b"", _packed(_least(store)))
    return [_time_of(place) for place, _ in found]


def of_one_shard(place: bytes) -> bool:
    """Whether an entry says something of what its shard holds, and is no update itself.

    Nothing is wrong without it, but it is wrong elsewhere.
    """
    return place == _LEAST


def key_of(entry: bytes) -> bytes:
    """What decides the shard of an entry.

    Any shard would do: what cancels after its release cancels as well.
    """
    key: bytes | None
    key, value, _ = msgspec.msgpack.decode(entry, type=_Entry)
    return bytes(value) if key is None else key


def combined(one: bytes, other: bytes) -> bytes | None:
    """The entry that two of one place come to, from shards that become one."""
    key, value, diff = msgspec.msgpack.decode(one, type=_Entry)
    diff += msgspec.msgpack.decode(other, type=_Entry)[2]
    return msgspec.msgpack.encode((key, value, diff)) if diff else None


def _place(key: bytes | None, value: bytes, time: int) -> bytes:
    # Data may be long, and differ only at the end: of equal time they lie by their digest.
    data = msgspec.msgpack.encode((key, value))
    return _packed(time) + blake2b(data, digest_size=16).digest()


def _least(store: Store) -> int:
    (found,) = store.get_many([_LEAST])
    return 0 if found is None else _time_of(found)


def _packed(time: int) -> bytes:
    return time.to_bytes(_TIME_BYTES, "big")


def _time_of(place: bytes) -> int:
    return int.from_bytes(place[:_TIME_BYTES], "big")
