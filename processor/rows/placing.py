"""Where messages come from and where their rows go: places and shards.

The shard of a key is the CRC-32 of its canonical bytes modulo the number of shards;
`ikebana rescale` relies on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32


def shard_of(key: bytes, shards: int) -> int:
    """The shard that keeps `key`."""
    return crc32(key) % shards


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages come from, and how their times follow from it.

    `base` is the time of all messages, or with `each` the time of the one at offset
    `start`, each further offset being one later.  Where messages have times of their own,
    `base` and `upper` are the batch's interval, and `latest` is the latest time that is
    not too far ahead of the clock.  `partitions` is how many the input has.  Updates of a topic
    of updates are taken from the time `since` on: of one that an edit has added, all of before
    count at `base`; None: from `base` on.
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

    def times(self, offsets: Sequence[int]) -> list[int]:
        """The times of the messages at offsets."""
        if not self.each:
            return [self.base] * len(offsets)
        shift = self.base - self.start
        return [shift + offset for offset in offsets]
