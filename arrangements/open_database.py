"""A local database that stays open between batches, with recent entries in memory."""

# Decision (small bases are not flushed): Below 8 MiB of files a killed process builds its
# database anew, instead of each base paying for a flush.

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ikebana.arrangements.recent import RecentEntries, size_of
from ikebana.arrangements.rocks import STATES_TO_FLUSH, LocalDatabase
from ikebana.arrangements.transposed import Change


class _Following(NamedTuple):
    """The changes, sorted by key, from one state to the next, with the ids of both states."""

    before: str | None
    after: str
    changes: list[Change]


class OpenDatabase(LocalDatabase):
    """A local database that may be some states ahead of RocksDB.

    The changes that this process commits become part of it without being read again from their
    file.  They wait in memory, and RocksDB gets the changes of many batches, with the last state's
    id, in one write: before a scan that meets any of them, before a flush, at the end, and when
    they are many.  A process that is killed before leaves a database that is some states behind.
    """

    def __init__(self, shard: int, path: Path, database: Any) -> None:
        super().__init__(shard, path, database)
        self._recent = RecentEntries(0)
        self._following: _Following | None = None
        # The state including changes in memory, and how many states it is ahead of RocksDB's.
        self._ahead: str | None = None
        self._ahead_by = 0

    @property
    def state(self) -> str | None:
        return super().state if self._ahead is None else self._ahead

    def keep_recent(self, most: int) -> None:
        """Keep the last read or written entries in memory, about `most` bytes."""
        self._recent.most = most

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._recent.most:
            return super().get_many(keys)
        values = self._recent.get_many([*keys], super().get_many)
        self._make_room()
        return values

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        if not self._recent.leaves_alone(prefix):
            self._settle()
        yield from super().scan(prefix, start)

    def apply(self, blocks: Iterable[list[Change]], state: str) -> None:
        self._settle()
        self._recent.clear()
        super().apply(blocks, state)

    def follow(self, before: str | None, after: str, changes: list[Change]) -> None:
        fits = size_of(changes) <= self._recent.most
        self._following = _Following(before, after, changes) if fits else None

    def go_on(self, state: str) -> bool:
        following, self._following = self._following, None
        if following is None or (following.before, following.after) != (self.state, state):
            return False
        self._recent.write(following.changes)
        self._ahead = state
        self._ahead_by += 1
        self._make_room()
        return True

    def flush(self) -> None:
        self._settle()
        super().flush()

    def flush_now_and_then(self) -> None:
        if self._unflushed + self._ahead_by >= STATES_TO_FLUSH:
            self._settle()
        super().flush_now_and_then()

    def discard(self) -> None:
        self._ahead, self._ahead_by, self._following = None, 0, None
        self._recent.clear()
        super().discard()

    def _make_room(self) -> None:
        if self._recent.is_full:
            self._settle()
            self._recent.age()

    def _settle(self) -> None:
        if self._ahead is not None:
            self._write(self._recent.unwritten.items(), self._ahead)
            self._recent.unwritten = {}
            # The number of states that were written at once.
            self._unflushed += self._ahead_by - 1
            self._ahead, self._ahead_by = None, 0
