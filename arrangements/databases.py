"""The local databases of a host, by shard: opened and released, or kept open between batches."""

import shutil
import uuid

# Decision (small bases are not flushed): Below 8 MiB of files a killed process builds its
# database anew, instead of each base paying for a flush.
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ikebana.arrangements.folders import private_folder
from ikebana.arrangements.rocks import (
    STATES_TO_FLUSH,
    LocalDamageError,
    LocalDatabase,
    opened,
    sweep,
)
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


# Another process may lock or unlock a folder between two attempts.
_TRIES = 3
RECENT_BYTES = 32 << 20
"""The memory for recent entries of all open databases of a process."""


class LocalDatabases:
    """The folders of this host's local databases for one checkpoint.

    If another process has locked a folder, such as a worker that its driver has abandoned, a new
    folder beside it is used, and removed afterwards.  If a killed process left such a folder, it
    is removed when the shard's usual folder is next opened.
    """

    keeps_open = False
    """Whether a released database stays open for the next batch."""
    _kind: type[LocalDatabase] = LocalDatabase

    def __init__(self, root: Path, checkpoint: str) -> None:
        self._folder = root / checkpoint

    def open(self, shard: int) -> LocalDatabase:
        """Open the database of a shard, in whatever state it is."""
        path = self._folder / f"{shard:04d}"
        private_folder(path.parent)
        try:
            database = opened(path)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare exceptions
            if "/LOCK:" in str(error):
                path = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")
            else:
                shutil.rmtree(path, ignore_errors=True)
            return self._kind(shard, path, opened(path))
        for stand_in in path.parent.glob(f"{path.name}-*"):
            sweep(stand_in)
        return self._kind(shard, path, database)

    def empty(self, shard: int) -> LocalDatabase:
        """Open an empty database of a shard.

        After a database beside the usual folder was discarded, that folder may be unlocked again,
        with a state to which files cannot be applied.

        Raises:
            LocalDamageError: the content of the folder cannot be removed.
        """
        for _ in range(_TRIES):
            database = self.open(shard)
            if database.is_empty:
                return database
            database.discard()
        raise LocalDamageError(f"the folder of shard {shard} in {self._folder} cannot be emptied")

    def release(self, database: LocalDatabase) -> None:
        """Close; keep the folder for the next micro-batch unless it was a temporary one."""
        if "-" in database.path.name:
            database.discard()
            return
        try:
            database.close()
        except LocalDamageError:
            database.discard()


class OpenDatabases(LocalDatabases):
    """Local databases that stay open between batches, up to `most`.

    The state of an open one is compared with a manifest like that of a closed one.  While it is
    open, its folder is locked for all other processes.
    """

    keeps_open = True
    _kind = OpenDatabase

    def __init__(
        self, root: Path, checkpoint: str, most: int, recent_bytes: int = RECENT_BYTES
    ) -> None:
        super().__init__(root, checkpoint)
        self._recent_bytes = recent_bytes
        self._most = most
        # In the order of their last use.
        self._open: dict[int, LocalDatabase] = {}

    def open(self, shard: int) -> LocalDatabase:
        """Return the open database of a shard, or open it."""
        database = self._open.pop(shard, None) or super().open(shard)
        assert isinstance(database, OpenDatabase)
        database.keep_recent(self._recent_bytes // (len(self._open) + 1))
        return database

    def release(self, database: LocalDatabase) -> None:
        """Keep the database open; close the one that was used longest ago if there are many."""
        if database.is_gone:
            # The database that replaced it could not be filled, and is released.
            return
        try:
            database.flush_now_and_then()
        except LocalDamageError:
            database.discard()
            return
        self.close(database.shard)
        self._open[database.shard] = database
        while len(self._open) > self._most:
            super().release(self._open.pop(next(iter(self._open))))

    def close(self, shard: int) -> None:
        """Close the database of a shard, if it is open."""
        if (database := self._open.pop(shard, None)) is not None:
            super().release(database)

    def close_all(self) -> None:
        """Close all databases."""
        for shard in list(self._open):
            self.close(shard)


# If the same keys change in batch after batch, neither their values nor their changes need to
# go through RocksDB each time.  Written entries wait here too, and one write of many batches
# replaces one write for each.
#
# Entries are in two generations: when the young one has half of the allowed bytes, it becomes the
# old one, and the entries of the former old one are forgotten.

# Decision (recent entries in memory): The process that wrote a delta applies it from memory, and
# RocksDB gets the changes of many batches in one write. A scan looks at each waiting change, so
# beyond eight prefixes all is written first.

try:
    import ikebana.compiled._recent as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

Entries = dict[bytes, bytes | None]
Read = Callable[[list[bytes]], list[bytes | None]]

# The memory of Python's objects of an entry beside their bytes.
_OF_AN_ENTRY = 170
# An operator scans for one prefix or two in each batch, such as for due entries.
_MOST_PREFIXES = 8


class RecentEntries:
    """Entries by key, None for absent ones, that take about `most` bytes at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._young: Entries = {}
        self._old: Entries = {}
        self._size = 0
        self.unwritten: Entries = {}
        """Changes that the database does not have; they are among the young entries."""
        # By prefix, whether no unwritten key begins with it.
        self._alone: dict[bytes, bool] = {}

    @property
    def is_full(self) -> bool:
        """Whether the young entries have reached their limit."""
        return self._size * 2 > self.most

    def get_many(self, keys: list[bytes], read: Read) -> list[bytes | None]:
        """Return the values of keys; missing ones are read, and kept."""
        values, missing, moved = recalled(self._young, self._old, keys)
        self._size += moved
        if missing:
            asked = keys if len(missing) == len(keys) else [keys[at] for at in missing]
            self._size += filled(self._young, keys, values, missing, read(asked))
        return values

    def leaves_alone(self, prefix: bytes) -> bool:
        """Return whether certainly no unwritten change has a key with this prefix.

        The answer costs a look at each change.  So only the first prefixes after a change are
        examined; for others it is False.
        """
        if not self.unwritten:
            return True
        if (answer := self._alone.get(prefix)) is not None:
            return answer
        if len(self._alone) >= _MOST_PREFIXES:
            return False
        self._alone[prefix] = alone = not any_begins(self.unwritten, prefix)
        return alone

    def write(self, changes: list[Change]) -> None:
        """Keep changes that are written to the database later."""
        self._alone.clear()
        self.unwritten.update(changes)
        self._size += put(self._young, changes)

    def age(self) -> None:
        """Make the young entries old; all of them have been written."""
        assert not self.unwritten
        self._old, self._young, self._size = self._young, {}, 0

    def clear(self) -> None:
        """Forget everything, since the database has changed otherwise."""
        self._young, self._old, self._size, self.unwritten = {}, {}, 0, {}


def _recalled(
    young: Entries, old: Entries, keys: list[bytes]
) -> tuple[list[bytes | None], list[int], int]:
    """Look up keys: their values, the positions of missing keys, and how many bytes moved.

    Entries that only the old generation has become young.
    """
    values, missing, moved = [], [], 0
    for at, key in enumerate(keys):
        if key in young:
            values.append(young[key])
        elif key in old:
            young[key] = old[key]
            moved += _size_of([(key, old[key])])
            values.append(old[key])
        else:
            missing.append(at)
            values.append(None)
    return values, missing, moved


def _filled(
    young: Entries,
    keys: list[bytes],
    results: list[bytes | None],
    missing: list[int],
    values: list[bytes | None],
) -> int:
    """Fill in values that were read for missing keys; return how many bytes became young.

    An absent key is seldom asked twice, and RocksDB knows that it is absent without reading files.
    """
    size = 0
    for at, value in zip(missing, values, strict=True):
        if value is not None:
            results[at] = young[keys[at]] = value
            size += _size_of([(keys[at], value)])
    return size


def _put(young: Entries, entries: list[Change]) -> int:
    """Put entries among the young; return how many bytes these have grown."""
    size = 0
    for key, value in entries:
        size += _size_of([(key, value)])
        if key in young:
            size -= _size_of([(key, young[key])])
        young[key] = value
    return size


def _any_begins(entries: Entries, prefix: bytes) -> bool:
    """Return whether the key of an entry begins with `prefix`."""
    return any(key.startswith(prefix) for key in entries)


def _size_of(entries: list[Change]) -> int:
    """The approximate memory of entries, in bytes."""
    size = sum(len(key) + len(value) if value else len(key) for key, value in entries)
    return size + len(entries) * _OF_AN_ENTRY


recalled = _recalled if compiled is None else compiled.recalled
filled = _filled if compiled is None else compiled.filled
any_begins = _any_begins if compiled is None else compiled.any_begins
put = _put if compiled is None else compiled.put
size_of = _size_of if compiled is None else compiled.size_of
