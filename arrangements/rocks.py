"""The local databases of shards: RocksDB, as a cache of the file store.

Each always has exactly one committed state.  The id of the state is in the database and changes in
the same atomic write as the data.  A database without an id is empty or unfinished, and is
rebuilt.  Only this module and `shared_rocks` import rocksdict.
"""

# Decision (no write-ahead log): RocksDB's log, cut short by a crash, can be replayed onto older
# files: a state id with data missing. A killed process catches up from checksummed runs. A close
# waits for a merge of files, which RocksDB would discard.

# Decision (small bases are not flushed): Below 8 MiB of files a killed process builds its
# database anew, instead of each base paying for a flush.

import contextlib
import functools
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ikebana.arrangements.run import EntryChange, Merge
from ikebana.arrangements.storage import private_folder
from ikebana.arrangements.store import EntryDict

try:
    import ikebana.compiled._recent as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]
try:
    from ikebana.compiled._arranged import prefixed
except ImportError:
    prefixed = None  # type: ignore[assignment]

_STATE = b"\x00state"
# The keys of entries begin with this byte, the keys of internal values with another one.
_ENTRY = b"e"
_WRITE_BUFFER = 16 << 20
_BLOCK_CACHE = 32 << 20
# Every batch adds a file, and a merge may rewrite much of the data, so it should be rare.
_FILES_TO_MERGE = 16
_POLL_S = 0.002
# The time within which a due merge begins, even on a busy machine.
_BEGIN_S = 5.0
# An open database writes its memory to disk after this many states or bytes, whichever is first:
# a killed process then has little to catch up with, and many open databases take little memory.
STATES_TO_FLUSH = 64
_BYTES_TO_FLUSH = 4 << 20


class LocalDamageError(Exception):
    """The local database cannot be read, and must be rebuilt from the file store."""


class LocalDatabase:
    """One open database in a folder that no other process has open.

    It may be some states ahead of RocksDB.  The changes that this process commits become part of
    it without being read again from their file.  They wait in memory, and RocksDB gets the changes
    of many batches, with the last state's id, in one write: before a scan that meets any of them,
    before a flush, at the end, and when they are many.  A process that is killed before leaves a
    database that is some states behind.
    """

    def __init__(self, shard: int, path: Path, database: Rdict) -> None:
        self.shard = shard
        self.path = path
        self._database = database
        self.merge: Merge | None = None
        """The current merge of the shard's runs beside its batches."""
        self.is_gone = False
        """Whether it was discarded."""
        self._unflushed = 0
        # Without a log, the data on disk are always some earlier state, even if files have
        # lost their ends; a log could be replayed onto a state that it does not follow.
        # Writes that a killed process has not flushed are read again from the file store.
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True
        self.recent = RecentEntries(0)
        """The last read or written entries."""
        # The state including changes in memory, and how many states it is ahead of RocksDB's.
        self._ahead: str | None = None
        self._ahead_by = 0

    @property
    def state(self) -> str | None:
        """The id of the database's state; None if it is empty or unfinished."""
        if self._ahead is not None:
            return self._ahead
        with damage():
            state = self._database.get(_STATE)
        return state.decode() if state else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to it."""
        try:
            with damage():
                return bool(self._database.latest_sequence_number() == 0)
        except LocalDamageError:
            return False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = self.recent.get_many([*keys], functools.partial(_read, self._database))
        self._make_room()
        return values

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        if not self.recent.leaves_alone(prefix):
            self._settle()
        options = ReadOptions()
        lower = _ENTRY + prefix
        if (end := prefix_end(lower)) is not None:
            options.set_iterate_upper_bound(end)
        with damage():
            # items() would end silently at a damaged block.
            entry = self._database.iter(read_opt=options)
            entry.seek(lower + start)
            try:
                while entry.valid():
                    yield entry.key()[1:], entry.value()
                    entry.next()
                entry.status()
            finally:
                # While the iterator lives, such as in a traceback, RocksDB locks the folder.
                del entry

    def apply(self, blocks: Iterable[list[EntryChange]], state: str) -> None:
        """Write the changes and set the id to `state`.

        While several blocks are being written, the database has no id.  So it is discarded after a
        crash in between.
        """
        self._settle()
        self.recent.clear()
        held: list[EntryChange] | None = None
        for block in blocks:
            if held is not None:
                self._write(held, None)
            held = block
        # The last block is written with the id only now, when the whole file has been verified.
        self._write(held or [], state)

    def go_on(self, state: str) -> bool:
        """Apply the changes noted by `follow` if they lead to `state`; return whether they do."""
        following, self.recent.following = self.recent.following, None
        if following is None or (following.before, following.after) != (self.state, state):
            return False
        self.recent.write(following.changes)
        self._ahead = state
        self._ahead_by += 1
        self._make_room()
        return True

    def _write(self, changes: Iterable[EntryChange], state: str | None) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(_ENTRY + key)
            else:
                put(_ENTRY + key, value)
        if state is None:
            delete(_STATE)
        else:
            put(_STATE, state.encode())
        with damage():
            self._database.write(batch, self._unlogged)
        self._unflushed += 1

    def flush(self) -> None:
        """Write entries in memory to disk; a killed process would lose them."""
        self._settle()
        with damage():
            self._database.flush()
        self._unflushed = 0

    def flush_now_and_then(self) -> None:
        """Flush if many states, or large ones, are in memory alone."""
        if self._unflushed + self._ahead_by >= STATES_TO_FLUSH:
            self._settle()
        if self._unflushed and (
            self._unflushed >= STATES_TO_FLUSH
            or self._database.property_int_value("rocksdb.cur-size-all-mem-tables")
            > _BYTES_TO_FLUSH
        ):
            self.flush()

    def close(self) -> None:
        """Close the database and unlock the folder; a second call does nothing."""
        self._stop_merge()
        with damage(), contextlib.suppress(DbClosedError):
            self._settle()
            # RocksDB merges files in the background, and a close would discard an unfinished
            # merge: one that takes longer than a batch would never end.
            until = time.monotonic() + _BEGIN_S
            while _is_merging(self._database, until):
                time.sleep(_POLL_S)
            self._database.close()

    def _make_room(self) -> None:
        if self.recent.is_full:
            self._settle()
            self.recent.age()

    def _settle(self) -> None:
        """Write entries that are only in memory to RocksDB."""
        if self._ahead is not None:
            self._write(self.recent.unwritten.items(), self._ahead)
            self.recent.unwritten = {}
            # The number of states that were written at once.
            self._unflushed += self._ahead_by - 1
            self._ahead, self._ahead_by = None, 0

    def discard(self) -> None:
        """Close and remove the folder."""
        self.is_gone = True
        self._ahead, self._ahead_by = None, 0
        self.recent.clear()
        self._stop_merge()
        # The folder is removed even if a damaged database cannot be closed.
        with contextlib.suppress(Exception):
            self._database.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _stop_merge(self) -> None:
        if self.merge is not None:
            self.merge.stop()
            self.merge = None


def _read(database: Rdict, keys: list[bytes]) -> list[bytes | None]:
    places = [_ENTRY + key for key in keys] if prefixed is None else prefixed(_ENTRY, keys)
    with damage():
        values: list[bytes | None] = database.get(places)
    return values


def _is_merging(database: Rdict, until: float) -> bool:
    """Whether RocksDB merges files, or may do so before a time, on the monotonic clock."""
    ask = database.property_int_value
    if ask("rocksdb.num-running-compactions"):
        return True
    # Its thread may not have run yet; after an error it begins no merge.
    is_due = ask("rocksdb.compaction-pending") and not ask("rocksdb.background-errors")
    return bool(is_due) and time.monotonic() < until


@functools.cache
def _block_cache() -> Cache:
    # All databases of this process share one.
    return Cache(_BLOCK_CACHE)


def opened(path: Path) -> Rdict:
    """Open the database in a folder, or make one; rocksdict raises bare exceptions."""
    options = tuned_options()
    # The column family is named, or an existing database would keep its old options.
    return Rdict(str(path), options, {"default": options}, access_type=AccessType.read_write())


def tuned_options(cache: Cache | None = None) -> Options:
    """Make the options of a database that gets a batch of changes at once.

    `cache` keeps blocks that were read; by default the one that all databases of this process
    share.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - rocksdict's own signature
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_write_buffer_number(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(1)
    options.set_level_zero_file_num_compaction_trigger(_FILES_TO_MERGE)
    options.set_level_zero_slowdown_writes_trigger(2 * _FILES_TO_MERGE)
    options.set_level_zero_stop_writes_trigger(4 * _FILES_TO_MERGE)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)  # noqa: FBT003 - rocksdict's own signature
    table.set_block_cache(cache or _block_cache())
    options.set_block_based_table_factory(table)
    return options


def remove_unused(path: Path) -> None:
    """Remove a folder, unless a process has its database open."""
    try:
        # RocksDB refuses this while the process that made the folder has it open.
        Rdict.destroy(str(path))
    except Exception:  # noqa: BLE001 - rocksdict raises bare exceptions
        return
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def damage() -> Iterator[None]:
    """Raise an error of RocksDB within a `with` block as a `LocalDamageError`."""
    try:
        yield
    except Exception as error:
        # rocksdict raises errors of RocksDB as bare Exceptions.
        if type(error) is Exception:
            raise LocalDamageError(str(error)) from error
        raise


def prefix_end(prefix: bytes) -> bytes | None:
    """Compute the least key that is greater than all keys with this prefix; None if none is."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


# Another process may lock or unlock a folder between two attempts.
_TRIES = 3
RECENT_BYTES = 32 << 20
"""The memory for recent entries of all open databases of a process."""


class LocalDatabases:
    """The local databases of this host for one checkpoint; up to `most` stay open between batches.

    The state of an open one is compared with a manifest like that of a closed one.  While it is
    open, its folder is locked for all other processes.

    If another process has locked a folder, such as a worker that its driver has abandoned, a new
    folder beside it is used, and removed afterwards.  If a killed process left such a folder, it
    is removed when the shard's usual folder is next opened.
    """

    def __init__(
        self, root: Path, checkpoint: str, most: int = 0, recent_bytes: int = RECENT_BYTES
    ) -> None:
        self._folder = root / checkpoint
        self._recent_bytes = recent_bytes
        self._most = most
        # In the order of their last use.
        self._open: dict[int, LocalDatabase] = {}

    @property
    def keeps_open(self) -> bool:
        """Whether a released database stays open for the next batch."""
        return self._most > 0

    def open(self, shard: int) -> LocalDatabase:
        """Return the open database of a shard, or open it, in whatever state it is."""
        database = self._open.pop(shard, None) or self._opened(shard)
        database.recent.most = self._recent_bytes // (len(self._open) + 1)
        return database

    def _opened(self, shard: int) -> LocalDatabase:
        path = self._folder / f"{shard:04d}"
        private_folder(path.parent)
        try:
            database = opened(path)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare exceptions
            if "/LOCK:" in str(error):
                path = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")
            else:
                shutil.rmtree(path, ignore_errors=True)
            return LocalDatabase(shard, path, opened(path))
        for stand_in in path.parent.glob(f"{path.name}-*"):
            remove_unused(stand_in)
        return LocalDatabase(shard, path, database)

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
            self.close(next(iter(self._open)))

    def close(self, shard: int) -> None:
        """Close the database of a shard, if it is open; keep its folder unless a temporary one."""
        if (database := self._open.pop(shard, None)) is None:
            return
        if "-" in database.path.name:
            database.discard()
            return
        try:
            database.close()
        except LocalDamageError:
            database.discard()

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

ReadValues = Callable[[list[bytes]], list[bytes | None]]

# The memory of Python's objects of an entry beside their bytes.
_OF_AN_ENTRY = 170
# An operator scans for one prefix or two in each batch, such as for due entries.
_MOST_PREFIXES = 8


class _Following(NamedTuple):
    """The changes, sorted by key, from one state to the next, with the ids of both states."""

    before: str | None
    after: str
    changes: list[EntryChange]


class RecentEntries:
    """Entries by key, None for absent ones, that take about `most` bytes at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._young: EntryDict = {}
        self._old: EntryDict = {}
        self._size = 0
        self.unwritten: EntryDict = {}
        """Changes that the database does not have; they are among the young entries."""
        self.following: _Following | None = None
        # By prefix, whether no unwritten key begins with it.
        self._alone: dict[bytes, bool] = {}

    @property
    def is_full(self) -> bool:
        """Whether the young entries have reached their limit."""
        return self._size * 2 > self.most

    def get_many(self, keys: list[bytes], read: ReadValues) -> list[bytes | None]:
        """Return the values of keys; missing ones are read, and kept."""
        values, missing, moved = recalled(self._young, self._old, keys)
        self._size += moved
        if missing:
            asked = keys if len(missing) == len(keys) else [keys[at] for at in missing]
            self._size += filled(self._young, keys, values, missing, read(asked))
        return values

    def follow(self, before: str | None, after: str, changes: list[EntryChange]) -> None:
        """Take note of the changes from one state to another, before they are committed."""
        fits = size_of(changes) <= self.most
        self.following = _Following(before, after, changes) if fits else None

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

    def write(self, changes: list[EntryChange]) -> None:
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
        self.following = None


def _recalled(
    young: EntryDict, old: EntryDict, keys: list[bytes]
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
    young: EntryDict,
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


def _put(young: EntryDict, entries: list[EntryChange]) -> int:
    """Put entries among the young; return how many bytes these have grown."""
    size = 0
    for key, value in entries:
        size += _size_of([(key, value)])
        if key in young:
            size -= _size_of([(key, young[key])])
        young[key] = value
    return size


def _any_begins(entries: EntryDict, prefix: bytes) -> bool:
    """Return whether the key of an entry begins with `prefix`."""
    return any(key.startswith(prefix) for key in entries)


def _size_of(entries: list[EntryChange]) -> int:
    """The approximate memory of entries, in bytes."""
    size = sum(len(key) + len(value) if value else len(key) for key, value in entries)
    return size + len(entries) * _OF_AN_ENTRY


recalled = _recalled if compiled is None else compiled.recalled
filled = _filled if compiled is None else compiled.filled
any_begins = _any_begins if compiled is None else compiled.any_begins
put = _put if compiled is None else compiled.put
size_of = _size_of if compiled is None else compiled.size_of
