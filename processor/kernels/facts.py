"""Facts of CDCv2: updates that arrive in any order and repeatedly, each kept once.

A fact is held until the frontier has passed its time, and is then released with all others
of that time.  Two facts of one (key, value, time) with different diffs are an error.

The interval ends at a frontier: all facts before it arrived in earlier batches.  So a fact with
a time before `upper` is a repetition: of a held fact, or, before `lower`, of a released one,
which the store has forgotten.  A fact in the interval that is not held is one more than progress
has counted, and an error.

An input may begin when times are closed already: one that is added later, or one beside a topic
that begins at a snapshot.  Its facts of these times are held for the first time that is open.
Entries lie in order of time, and a batch reads only those that arrive again or are due.
Times are 64-bit integers; negative ones lie before every `lower`.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.diff_reader import ContradictionError
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate
from ikebana.processor.kernels.layout import OfKey, PartKind, StateLayout, packed_time, time_in

_Entry = tuple[bytes | None, bytes, int]


class ReleasedFacts(NamedTuple):
    """The updates that are released in the interval, and the counts of a batch.

    `counts` has the number of new facts by time, all at or beyond `upper`; `repeated` is how many
    of a batch's facts were held already.
    """

    updates: list[KeyedUpdate]
    counts: dict[int, int]
    repeated: int


def step(
    store: Store,
    facts: Sequence[KeyedUpdate],
    interval: Interval,
    *,
    since: int | None = None,
) -> ReleasedFacts:
    """Hold new facts, and release those of the interval.

    All facts before `since` arrived in earlier batches; by default those before the interval.
    Later facts of times before the interval are released at its lower.

    Raises:
        ContradictionError: a fact contradicts another one, or the frontier.
    """
    held = PrefixStore(store, b"f")
    lower, upper = interval.lower, interval.upper
    since = lower if since is None else min(since, lower)
    arriving: dict[bytes, KeyedUpdate] = {}
    for fact in facts:
        if fact.time >= since:
            _agree(arriving.setdefault(_place(fact, lower), fact), fact.diff)
    counts: Counter[int] = Counter()
    places = list(arriving)
    for place, entry in zip(places, held.get_many(places), strict=True):
        fact = arriving[place]
        if entry is not None:
            _agree(fact, msgspec.msgpack.decode(entry, type=_Entry)[2])
            continue
        if fact.time < upper and lower < upper:
            raise ContradictionError(fact.time, "there are more of them than progress counts")
        counts[fact.time] += 1
        held.put(place, msgspec.msgpack.encode((fact.key, fact.value, fact.diff)))
    released, updates = [], []
    # Nothing is held for earlier times, but the scan would step over deleted entries.
    for place, entry in held.scan(b"", packed_time(lower)):
        time = time_in(place)
        # Entries lie in order of time, so the first one beyond the frontier ends it.
        if time >= upper or lower == upper:
            break
        key, value, diff = msgspec.msgpack.decode(entry, type=_Entry)
        updates.append(KeyedUpdate(key, value, time, diff))
        released.append(place)
    for place in released:
        held.delete(place)
    return ReleasedFacts(updates, dict(counts), len(facts) - counts.total())


def waiting(store: Store, upper: int, most: int) -> int:
    """The number of held facts with times from `upper` on, counted up to `most`."""
    return sum(1 for _ in islice(PrefixStore(store, b"f").scan(b"", packed_time(upper)), most))


def due_times(store: Store) -> list[int]:
    """The times of all facts that are held, in order."""
    return [time_in(place) for place, _ in PrefixStore(store, b"f").scan(b"")]


def _key_of(_: bytes, entry: bytes) -> bytes:
    """The key that decides the shard of an entry; its repetitions arrive in the same shard."""
    key: bytes | None = msgspec.msgpack.decode(entry, type=_Entry)[0]
    return NO_KEY if key is None else key


PART = PartKind("facts ", StateLayout({b"f": OfKey(_key_of)}), waiting=waiting, times=due_times)


def _agree(fact: KeyedUpdate, diff: int) -> None:
    if fact.diff != diff:
        raise ContradictionError(fact.time, "one of them comes with two diffs")


def _place(fact: KeyedUpdate, lower: int) -> bytes:
    # Data may be long, and differ only at the end: of equal time they lie by their digest.
    if fact.time < lower:
        # One datum may have facts of several times that are closed.
        data = msgspec.msgpack.encode((fact.key, fact.value, fact.time))
        return packed_time(lower) + blake2b(data, digest_size=16).digest()
    data = msgspec.msgpack.encode((fact.key, fact.value))
    return packed_time(fact.time) + blake2b(data, digest_size=16).digest()
