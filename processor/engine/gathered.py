"""The updates of a batch in bounded memory: when they are many, most of them are in a file.

One change may become millions of updates: in a join, if its key has many rows, or in a
`flat_map`.  They can be read several times, in the order in which they were added.
"""

# Decision (many updates go to a file): The Kafka transaction begins when all is computed, so
# nothing is sent of a batch that fails on the way.

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Self

import msgspec

from ikebana.processor.base.rows import Columned, Columns, InColumns, KeyedUpdate, in_columns_of

MOST = 500_000
"""About so many updates are kept in memory, or fewer large ones."""
_MOST_BYTES = 128 << 20
_AT_ONCE = 10_000
_MEASURED = 64

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(InColumns).decode


class GatheredUpdates(Columned):
    """Updates, which can be added at the end and read from the beginning.

    The file has no name, and is gone with the process.
    """

    def __init__(self, updates: Iterable[KeyedUpdate] = (), most: int = MOST) -> None:
        self._most = most
        self._last = _nothing()
        self._looked_at = 0
        self._file: IO[bytes] | None = None
        # The places of portions in the file: from where, and how long.
        self._portions: list[tuple[int, int]] = []
        self._filed = 0
        self.extend(updates)

    def extend(self, updates: Iterable[KeyedUpdate]) -> None:
        """Add updates."""
        looks = not isinstance(updates, Sequence) or len(self._last) + len(updates) > _AT_ONCE
        for some in in_columns_of(updates, _AT_ONCE):
            last = self._last
            last.extend(some)
            if looks and len(last) - self._looked_at >= _AT_ONCE:
                self._looked_at = len(last)
                if len(last) >= self._most or len(last) * _mean_size(some) >= _MOST_BYTES:
                    self._write()

    def __iadd__(self, updates: Iterable[KeyedUpdate]) -> Self:
        self.extend(updates)
        return self

    def clear(self) -> None:
        """Forget all updates."""
        self._last, self._looked_at, self._file = _nothing(), 0, None
        self._portions, self._filed = [], 0

    @property
    def is_filed(self) -> bool:
        """Whether a part of them lies in a file."""
        return self._file is not None

    def __iter__(self) -> Iterator[KeyedUpdate]:
        for some in self.in_columns(_AT_ONCE):
            yield from some

    def in_columns(self, most: int) -> Iterator[Columns]:
        if self._file is not None:
            descriptor = self._file.fileno()
            for place, size in self._portions:
                filed = Columns(*_decode(os.pread(descriptor, size, place)))
                yield from filed.in_columns(most)
        yield from self._last.in_columns(most)

    def __len__(self) -> int:
        return self._filed + len(self._last)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- it lives as long as we
        for some in self._last.in_columns(_AT_ONCE):
            portion = _encode((some.keys, some.values, some.times, some.diffs))
            place = self._file.seek(0, os.SEEK_END)
            self._portions.append((place, len(portion)))
            _write_all(self._file, portion)
        self._filed += len(self._last)
        self._last, self._looked_at = _nothing(), 0


def _write_all(file: IO[bytes], portion: bytes) -> None:
    """Write all of a portion: a system call may take a part of it."""
    view = memoryview(portion)
    while view:
        view = view[file.write(view) :]


def _nothing() -> Columns:
    return Columns([], [], [], [])


def _mean_size(updates: Columns) -> float:
    each = max(1, len(updates) // _MEASURED)
    keys, values = updates.keys[::each], updates.values[::each]
    return (sum(len(key or b"") for key in keys) + sum(map(len, values))) / len(values)
