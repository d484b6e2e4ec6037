"""A shard's local database: RocksDB, as a cache of the file store.

It always has exactly one committed state.  The id of the state is in the database and changes in
the same atomic write as the data.  A database without an id is empty or unfinished, and is
rebuilt.
Only this module and `shared_rocks` import rocksdict.
"""

# Decision (no write-ahead log): RocksDB's log, cut short by a crash, can be replayed onto older
# files: a state id with data missing. A killed process catches up from checksummed runs. A close
# waits for a merge of files, which RocksDB would discard.

import contextlib
import functools
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

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

from ikebana.arrangements.merging import Merge
from ikebana.arrangements.transposed import Change

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
    """One open database in a folder that no other process has open."""

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

    @property
    def state(self) -> str | None:
        """The id of the database's state; None if it is empty or unfinished."""
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
        if not keys:
            return []
        places = [_ENTRY + key for key in keys] if prefixed is None else prefixed(_ENTRY, [*keys])
        with damage():
            values: list[bytes | None] = self._database.get(places)
        return values

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        lower = _ENTRY + prefix
        if (end := after(lower)) is not None:
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

    def apply(self, blocks: Iterable[list[Change]], state: str) -> None:
        """Write the changes and set the id to `state`.

        While several blocks are being written, the database has no id.  So it is discarded after a
        crash in between.
        """
        held: list[Change] | None = None
        for block in blocks:
            if held is not None:
                self._write(held, None)
            held = block
        # The last block is written with the id only now, when the whole file has been verified.
        self._write(held or [], state)

    def follow(self, before: str | None, after: str, changes: list[Change]) -> None:
        """Take note of the changes from one state to another, before they are committed."""

    def go_on(self, state: str) -> bool:
        """Apply the noted changes if they lead to `state`; return whether they do."""
        return False

    def _write(self, changes: Iterable[Change], state: str | None) -> None:
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
        with damage():
            self._database.flush()
        self._unflushed = 0

    def flush_now_and_then(self) -> None:
        """Flush if many states, or large ones, are in memory alone."""
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

    def _settle(self) -> None:
        """Write entries that are only in memory to RocksDB; here there are none."""

    def discard(self) -> None:
        """Close and remove the folder."""
        self.is_gone = True
        self._stop_merge()
        # The folder is removed even if a damaged database cannot be closed.
        with contextlib.suppress(Exception):
            self._database.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _stop_merge(self) -> None:
        if self.merge is not None:
            self.merge.stop()
            self.merge = None


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
    options = tuned()
    # The column family is named, or an existing database would keep its old options.
    return Rdict(str(path), options, {"default": options}, access_type=AccessType.read_write())


def tuned(cache: Cache | None = None) -> Options:
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


def sweep(path: Path) -> None:
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


def after(prefix: bytes) -> bytes | None:
    """Compute the least key that is greater than all keys with this prefix; None if none is."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
