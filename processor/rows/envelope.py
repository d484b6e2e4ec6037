"""What travels through Spark: packed rows, one for thousands of records.

A Spark row costs microseconds each time it crosses between the JVM and Python, a
record inside a packed row costs nothing there.  So a row is `(label, chunk)`: the
group that a shard is for Spark, and msgpack bytes with either the shard's tick or a
chunk of its records.
"""

from typing import Any

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.processor.rows.rows import Errors, Facts, Ignored, Seen, Symbols, Truncate, Updates

SCHEMA = "label int, chunk binary"


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """Sent once to every shard in every batch: what the batch is.

    All of it was in the offset that Spark logged before the batch ran, so a replay
    sees the same.  `adopted` says that all shards have committed this batch already,
    and that its records are therefore not read again.  `hops_from` is where the batch
    begins to read the loopback topic, by shard.  `hydrating` are the joins that are to get
    what was there before they begin, at these times, and with `hydrates` a portion of it in
    this batch; `released` are the parts of the state that are no operator's any more.
    `editing` is the frontier of an edit of the plan that is on its way, the last one of so many
    `edits`, and with `fills` this batch takes a portion of what was there.
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
    hydrating: dict[str, int] = {}
    hydrates: bool = False
    released: tuple[str, ...] = ()
    editing: int = 0
    fills: bool = False
    edits: int = 0

    def interval_of(self) -> dict[str, Interval]:
        """The interval of each operator."""
        return {name: Interval(*bounds) for name, bounds in self.intervals.items()}


Records = Symbols | Truncate | Updates | Errors | Ignored | Facts | Seen
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
