"""The places that messages come from, and the shards that their rows go to.

The shard of a key is the CRC-32 of its canonical bytes modulo the number of shards;
`ikebana rescale` relies on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from ikebana.processor.base.judged import Judged


def shard_of(key: bytes, shards: int) -> int:
    """Compute the shard that keeps `key`."""
    return crc32(key) % shards


def owner_of(shard: int, shards: int) -> Callable[[bytes], bool]:
    """Tell of keys whether this shard keeps them."""
    return lambda key: shard_of(key, shards) == shard


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of an input, from offset `start` on, and the times of its messages.

    `base` is the time of all messages.  With `each`, it is the time of the message at offset
    `start`, and each further offset is one later.  If messages have times of their own, `base`
    and `upper` are the batch's interval, and `latest` is the latest time that is accepted
    (a later one is too far ahead of the clock).  `order` is the rank of the topic among those of
    its input, and `partitions` the number of partitions of the input.  Updates of a
    topic of updates are taken from the time `since` on, so that those before an edit that has
    added the topic count at `base`; None: from `base` on.

    If another input reads the messages or has read them, they are read `again`, and nothing of
    them is counted; with `told`, it has made the errors of messages without a key.  Of messages
    that it has read before, `judged` are those that did not get their own times then; None: they
    are read now.
    """

    topic: str
    partition: int
    order: int
    start: int
    base: int
    each: bool
    partitions: int = 1
    upper: int = 0
    latest: int | None = None
    since: int | None = None
    again: bool = False
    told: bool = False
    judged: tuple[Judged, ...] | None = None

    def times(self, offsets: Sequence[int]) -> list[int]:
        """Compute the times of the messages at these offsets."""
        if not self.each:
            return [self.base] * len(offsets)
        shift = self.base - self.start
        return [shift + offset for offset in offsets]
