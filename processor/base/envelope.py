"""Spark rows that each carry thousands of records.

A Spark row costs microseconds each time it crosses between the JVM and Python; a record
inside a packed row costs nothing there.  So a row is `(label, chunk)`.  The label is the
Spark group that stands for the shard.  The chunk is msgpack: either the shard's tick, or some
of its records.
"""

# Decision (packed rows): Spark pays for each row and column that crosses between the JVM and
# Python. With thousands of records in one row, the JVM only moves blobs.

from typing import Any

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.processor.base.rows import (
    Errors,
    Facts,
    IgnoredMessages,
    Seen,
    Truncate,
    Updates,
    Upserts,
)
from ikebana.processor.base.transition import NO_TRANSITION, Transition


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """The description of a batch, sent once to every shard.

    All of it follows from the offset that Spark logged before the batch ran, so a replay gets
    the same tick.

    * `adopted`: all shards have committed this batch already, so its records are not read again.
    * `hops_from`: the offset, by shard, at which the batch begins to read the exchange topic.
    * `released`: the parts of the state that no operator owns any more.
    * `transition`: the transition that the batch belongs to.
    """

    batch: int
    lower: int
    upper: int
    offset: str
    plan: str
    intervals: dict[str, tuple[int, int]]
    behind: int
    adopted: bool
    hops_from: dict[int, int] = {}
    released: tuple[str, ...] = ()
    transition: Transition = NO_TRANSITION

    def interval_of(self) -> dict[str, Interval]:
        """The interval of each operator."""
        return {name: Interval(*bounds) for name, bounds in self.intervals.items()}


Records = Upserts | Truncate | Updates | Errors | IgnoredMessages | Facts | Seen
Chunk = Tick | Records

_encoder = msgspec.msgpack.Encoder()
_decoder: "msgspec.msgpack.Decoder[Any]" = msgspec.msgpack.Decoder(Chunk)


def pack(chunk: Chunk) -> bytes:
    """Write a chunk as the bytes of one row."""
    return _encoder.encode(chunk)


def unpack(row: bytes) -> Chunk:
    """Read the bytes of one row."""
    chunk: Chunk = _decoder.decode(row)
    return chunk
