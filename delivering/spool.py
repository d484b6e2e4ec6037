"""Updates of one topic, kept until their times are delivered: in memory, or in a file if many.

A spool has keys and values as bytes in Arrow's format.  Beyond `most_bytes` it continues in an
unnamed temporary file, so a batch may be larger than memory.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.codecs.encodings import INTEGERS
from ikebana.errors import SourceError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka.following import ClosedTimes, Piece

CHUNK_ROWS = 16_384
MOST_BYTES = 64 << 20
RAW = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("diff", pa.int64(), nullable=False),
    ]
)


class Spool:
    """Chunks of updates: first all are added, then they are read any number of times."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._chunks: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self.count = 0
        self.first, self.last = INTEGERS[-1], INTEGERS[0]
        """The least and the greatest time."""

    def add(self, updates: Sequence[KeyedUpdate]) -> None:
        """Add updates.  Raises: SourceError, if a diff is beyond 64 bits."""
        for start in range(0, len(updates), CHUNK_ROWS):
            self._add(_chunk(updates[start : start + CHUNK_ROWS]))

    def _add(self, chunk: pa.RecordBatch) -> None:
        self.count += chunk.num_rows
        times = pc.min_max(chunk.column("time")).as_py()
        self.first, self.last = min(self.first, times["min"]), max(self.last, times["max"])
        self._bytes += chunk.nbytes
        if self._bytes > self._most_bytes and self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ikebana-spool-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, RAW)
        if self._writer is None:
            self._chunks.append(chunk)
        else:
            self._writer.write_batch(chunk)

    def chunks(self) -> Iterator[pa.RecordBatch]:
        """Yield all chunks, in the order in which they were added."""
        yield from self._chunks
        if self._file is None:
            return
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._file.seek(0)
        reader = pa.ipc.open_stream(self._file)
        for chunk in reader:
            # Others may read the file between two chunks.
            at = self._file.tell()
            yield chunk
            self._file.seek(at)

    def close(self) -> None:
        """Release memory and file."""
        self._chunks.clear()
        self._writer = None
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True)
class Spooled:
    """The updates of spools with times before `before`, and at or after `since`."""

    spools: Sequence[Spool]
    since: int | None
    before: int

    def count(self) -> int:
        """Count the updates."""
        return sum(
            spool.count if self._is_all(spool) else sum(c.num_rows for c in self._some(spool))
            for spool in self.spools
        )

    def chunks(self) -> Iterator[pa.RecordBatch]:
        """Yield chunks of the updates, none of them empty."""
        for spool in self.spools:
            yield from spool.chunks() if self._is_all(spool) else self._some(spool)

    def _is_all(self, spool: Spool) -> bool:
        return spool.last < self.before and (self.since is None or spool.first >= self.since)

    def _some(self, spool: Spool) -> Iterator[pa.RecordBatch]:
        for chunk in spool.chunks():
            time = chunk.column("time")
            mask = pc.less(time, self.before)
            if self.since is not None:
                mask = pc.and_(mask, pc.greater_equal(time, self.since))
            if (rows := chunk.filter(mask)).num_rows:
                yield rows


class SpoolKeeper:
    """Buffers updates of a topic in spools, one for each closed batch; a `Keeper`.

    The result of `take` is valid until the next `take`.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._open = Spool(most_bytes)
        self._closed: list[tuple[int, Spool]] = []
        self._since: int | None = None
        self._in_use: list[Spool] = []

    def add(self, piece: Piece | ClosedTimes) -> None:
        if isinstance(piece, Piece) and piece.restarts:
            self._open.close()
            self._open = Spool(self._most_bytes)
        self._open.add(piece.updates)
        if isinstance(piece, ClosedTimes):
            self._closed.append((piece.upper, self._open))
            self._open = Spool(self._most_bytes)

    def take(self, upper: int) -> Spooled:
        self._release()
        result = Spooled([spool for _, spool in self._closed], self._since, upper)
        self._in_use = [spool for closed, spool in self._closed if closed <= upper]
        self._closed = [each for each in self._closed if each[0] > upper]
        self._since = upper
        return result

    def close(self) -> None:
        self._release()
        for _, spool in self._closed:
            spool.close()
        self._closed.clear()
        self._open.close()

    def _release(self) -> None:
        for spool in self._in_use:
            spool.close()
        self._in_use = []


def _chunk(updates: Sequence[KeyedUpdate]) -> pa.RecordBatch:
    keys, values, times, diffs = zip(*updates, strict=True)
    if not all(diff in INTEGERS for diff in diffs):
        raise SourceError("cannot deliver an update: its diff is beyond 64 bits")
    columns = [
        pa.array(each, of)
        for each, of in zip((keys, values, times, diffs), RAW.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW)
