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
from ikebana.processor.base.rebuilding import Rebuilding
from ikebana.processor.base.rows import (
    Errors,
    Facts,
    IgnoredMessages,
    Seen,
    Truncate,
    Updates,
    Upserts,
)


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """The description of a batch, sent once to every shard.

    All of it follows from the offset that Spark logged before the batch ran, so a replay gets
    the same tick.

    * `adopted`: all shards have committed this batch already, so its records are not read again.
    * `hops_from`: the offset, by shard, at which the batch begins to read the exchange topic.
    * `hydrating`: the new joins that still lack rows from before they began, each with the time
      at which it begins; with `hydrates`, this batch gives them a portion of those rows, or of
      the state if it `fills`.
    * `released`: the parts of the state that no operator owns any more.
    * `editing`: the frontier of the edit of the plan that is in progress, 0 if none is; with
      `fills`, this batch takes a portion of the state through the old and the new plan, and if
      it is `filled`, the batch before has taken the last one.
    * `writes`, `wrote`: the outputs that are frozen at the edit's time and write a portion, and
      the outputs that did so in the batch before.
    * `rebuilding`: the rebuild of the state of a lost checkpoint.
    * `edits`: how often the plan has been edited.
    * `began`: the joins that an earlier edit began at the same frontier.
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
    began: tuple[str, ...] = ()
    filled: bool = False
    writes: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    rebuilding: Rebuilding | None = None

    @property
    def in_edit(self) -> bool:
        """Whether the batch belongs to an edit, which has the time 0 if none was closed before."""
        return bool(self.editing or self.fills or self.filled)

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
