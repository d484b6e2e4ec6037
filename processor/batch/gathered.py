"""Updates that gather in a batch, in bounded memory: what is much of them lies in a file.

One change may come to millions of updates: by a join, where its key has many rows, or by a
`flat_map`.  They are read in the order in which they came, as often as wanted.
"""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Self

import msgspec

from ikebana.processor.rows.rows import KeyedUpdate

MOST = 500_000
"""About so many updates are kept in memory, or fewer large ones."""
_MOST_BYTES = 128 << 20
_AT_ONCE = 10_000
_MEASURED = 64

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[KeyedUpdate]).decode


class Gathered(Collection[KeyedUpdate]):
    """Updates, which can be added at the end and read from the beginning.

    The file has no name, and is gone with the process.
    """

    def __init__(self, updates: Iterable[KeyedUpdate] = (), most: int = MOST) -> None:
        self._most = most
        self._last: list[KeyedUpdate] = []
        self._looked_at = 0
        self._file: IO[bytes] | None = None
        # The places of portions in the file: from where, and how long.
        self._portions: list[tuple[int, int]] = []
        self._filed = 0
        self.extend(updates)

    def extend(self, updates: Iterable[KeyedUpdate]) -> None:
        """Add updates."""
        last = self._last
        if isinstance(updates, Sequence) and len(last) + len(updates) <= _AT_ONCE:
            last.extend(updates)
            return
        rest = iter(updates)
        while some := list(islice(rest, _AT_ONCE)):
            last.extend(some)
            if len(last) - self._looked_at >= _AT_ONCE:
                self._looked_at = len(last)
                if len(last) >= self._most or len(last) * _mean_size(some) >= _MOST_BYTES:
                    self._write()
                    last = self._last

    def __iadd__(self, updates: Iterable[KeyedUpdate]) -> Self:
        self.extend(updates)
        return self

    def clear(self) -> None:
        """Forget all updates."""
        self._last, self._looked_at, self._file = [], 0, None
        self._portions, self._filed = [], 0

    @property
    def is_filed(self) -> bool:
        """Whether a part of them lies in a file."""
        return self._file is not None

    def __iter__(self) -> Iterator[KeyedUpdate]:
        return iter(self._last) if self._file is None else self._all(self._file)

    def _all(self, file: IO[bytes]) -> Iterator[KeyedUpdate]:
        descriptor = file.fileno()
        for place, size in self._portions:
            yield from _decode(os.pread(descriptor, size, place))
        yield from self._last

    def __len__(self) -> int:
        return self._filed + len(self._last)

    def __contains__(self, update: object) -> bool:
        return any(update == each for each in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gathered | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Gathered({list(islice(self, 10))}{', ...' if len(self) > 10 else ''})"

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- it lives as long as we
        rest = iter(self._last)
        while some := list(islice(rest, _AT_ONCE)):
            portion = _encode(some)
            place = self._file.seek(0, os.SEEK_END)
            self._portions.append((place, len(portion)))
            _write_all(self._file, portion)
        self._filed += len(self._last)
        self._last, self._looked_at = [], 0


def _write_all(file: IO[bytes], portion: bytes) -> None:
    """Write all of a portion: a system call may take a part of it."""
    view = memoryview(portion)
    while view:
        view = view[file.write(view) :]


def _mean_size(updates: Sequence[KeyedUpdate]) -> float:
    some = updates[:: max(1, len(updates) // _MEASURED)]
    return sum(len(each.key or b"") + len(each.value) for each in some) / len(some)
