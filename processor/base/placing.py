"""The places that messages come from, and the shards that their rows go to.

The shard of a key is the CRC-32 of its canonical bytes modulo the number of shards;
`ikebana rescale` relies on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from ikebana.processor.base.rows import Judged


def shard_of(key: bytes, shards: int) -> int:
    """Compute the shard that keeps `key`."""
    return crc32(key) % shards


def owner_of(shard: int, shards: int) -> Callable[[bytes], bool]:
    """Return a function that says whether this shard keeps a key."""
    return lambda key: shard_of(key, shards) == shard


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A partition of an input, from offset `start` on, and the times of its messages.

    * `base`: the time of all messages.  With `each`, it is the time of the message at offset
      `start`, and each further offset is one later.
    * If messages have times of their own, `base` and `upper` are the batch's interval, and
      `latest` is the latest accepted time (a later one is too far ahead of the clock).
    * `order`: the rank of the topic among the topics of its input.
    * `partitions`: the number of partitions of the input.
    * `since`: updates of a topic of updates are read from this time on, and earlier ones than
      `base` count at `base`: an edit may add the topic later.  None: from `base` on.
    * `again`: another input reads the messages or has read them, so nothing of them is counted.
    * `reported`: that input has also recorded the errors of messages without a key.
    * `judged`: the messages that did not get their own times when they were first read; None if
      they are read for the first time.
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
    reported: bool = False
    judged: tuple[Judged, ...] | None = None

    def times(self, offsets: Sequence[int]) -> list[int]:
        """Compute the times of the messages at these offsets."""
        if not self.each:
            return [self.base] * len(offsets)
        shift = self.base - self.start
        return [shift + offset for offset in offsets]
