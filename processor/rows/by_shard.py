"""Updates by the shards that they go to, in portions that a packed row may have."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import KeyedUpdate

MOST_RECORDS = 5_000
MOST_BYTES = 1 << 20
_AT_ONCE = 1_000


def by_shard(
    updates: Iterable[KeyedUpdate], shards: int, keyless: bytes | None = None
) -> Iterator[tuple[int, list[KeyedUpdate]]]:
    """Yield (shard, updates), in the order of a shard's updates.

    A portion has at most `MOST_RECORDS`, and at most about `MOST_BYTES` unless one update is
    longer; about so much of each shard is held.  An update without a key goes where `keyless`
    belongs, or its value if that is None.
    """
    rest = iter(updates)
    held: list[list[KeyedUpdate]] = [[] for _ in range(shards)]
    size = 0
    while some := list(islice(rest, _AT_ONCE)):
        for update in some:
            if (placed := update[0]) is None:
                placed = update[1] if keyless is None else keyless
            held[shard_of(placed, shards)].append(update)
        size += _size(some)
        is_much = size >= MOST_BYTES * shards
        for at, own in enumerate(held):
            while len(own) >= MOST_RECORDS or (is_much and own):
                yield from ((at, portion) for portion in _bounded(own[:MOST_RECORDS]))
                del own[:MOST_RECORDS]
        if is_much:
            size = 0
    for at, own in enumerate(held):
        yield from ((at, portion) for portion in _bounded(own))


def _bounded(updates: list[KeyedUpdate]) -> Iterator[list[KeyedUpdate]]:
    """Halve updates until they are small enough."""
    if len(updates) > 1 and _size(updates) > MOST_BYTES:
        half = len(updates) // 2
        yield from _bounded(updates[:half])
        yield from _bounded(updates[half:])
    elif updates:
        yield updates


def _size(updates: Sequence[KeyedUpdate]) -> int:
    keys, values = map(itemgetter(0), updates), map(itemgetter(1), updates)
    return sum(map(len, filter(None, keys))) + sum(map(len, values))
