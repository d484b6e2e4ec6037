"""A shard's local database: RocksDB, as a cache of what the file store holds.

It always stands at one committed state, whose id lies in the same database and moves
in the same atomic write as the data.  A database without an id is empty or unfinished
and of no use.  Only this module knows rocksdict.
"""

import contextlib
import shutil
import time
import uuid
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

from ikebana.arrangements.run import Change

_STATE = b"\x00state"
# Entries stand behind a byte that no name of ours begins with.
_ENTRY = b"e"
_WRITE_BUFFER = 16 << 20
_BLOCK_CACHE = 32 << 20
# Every batch adds a file, and a merge may rewrite much of what is there: it is to be rare.
_FILES_TO_MERGE = 16
_POLL_S = 0.002


class LocalDamageError(Exception):
    """The local database is unreadable; it has to be built again from the file store."""


class LocalDatabase:
    """One open database in a folder that no other process has open."""

    def __init__(self, path: Path, database: Rdict) -> None:
        self.path = path
        self._database = database
        # Without a log whatever is on disk is some earlier state, even when files have
        # lost their ends; a log could be replayed onto a state that it does not follow.
        # What a killed process had not flushed comes from the file store again.
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True

    @property
    def state(self) -> str | None:
        """The id of the state that it stands at."""
        with _damage():
            found = self._database.get(_STATE)
        return found.decode() if found else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _damage():
            found: list[bytes | None] = self._database.get([_ENTRY + key for key in keys])
        return found

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        lower = _ENTRY + prefix
        if (end := _after(lower)) is not None:
            options.set_iterate_upper_bound(end)
        with _damage():
            # Not items(): that ends at a damaged block as if there were no more entries.
            entry = self._database.iter(read_opt=options)
            entry.seek(lower + start)
            try:
                while entry.valid():
                    yield entry.key()[1:], entry.value()
                    entry.next()
                entry.status()
            finally:
                # As long as it lives, in a traceback say, RocksDB keeps the folder locked.
                del entry

    def apply(self, blocks: Iterable[list[Change]], state: str) -> None:
        """Write the changes and move to `state`.

        While several blocks are on their way the database has no state: a crash
        leaves something that is thrown away, never something in between.
        """
        held: list[Change] | None = None
        for block in blocks:
            if held is not None:
                self._write(held, None)
            held = block
        # Here the whole file has been read, and so is known to be sound.
        self._write(held or [], state)

    def _write(self, changes: list[Change], state: str | None) -> None:
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
        with _damage():
            self._database.write(batch, self._unlogged)

    def close(self) -> None:
        """Give the folder back; the data stay.  Once closed, this does nothing."""
        with _damage(), contextlib.suppress(DbClosedError):
            # RocksDB merges files beside the batch.  A close throws away what it has done by
            # then: a merge that takes longer than each batch would be begun anew in each.
            while self._database.property_int_value("rocksdb.num-running-compactions"):
                time.sleep(_POLL_S)
            self._database.close()

    def discard(self) -> None:
        """Close and remove the folder."""
        # A damaged database may not even close; its folder goes all the same.
        with contextlib.suppress(Exception):
            self._database.close()
        shutil.rmtree(self.path, ignore_errors=True)


class LocalDatabases:
    """The folders of this host's local databases of one checkpoint.

    A folder that another process holds, say a worker that its driver has given up,
    is left alone: a fresh one beside it is used and removed afterwards.  One that a
    killed process left is removed by whoever next opens the folder itself.
    """

    def __init__(self, root: Path, checkpoint: str) -> None:
        self._folder = root / checkpoint

    def open(self, shard: int) -> LocalDatabase:
        """Open the database of a shard, whatever state it stands at."""
        path = self._folder / f"{shard:04d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            opened = _open(path)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare exceptions
            if "/LOCK:" in str(error):
                path = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")
            else:
                shutil.rmtree(path, ignore_errors=True)
            return LocalDatabase(path, _open(path))
        for stand_in in path.parent.glob(f"{path.name}-*"):
            _sweep(stand_in)
        return LocalDatabase(path, opened)

    def release(self, database: LocalDatabase) -> None:
        """Close; keep the folder for the next micro-batch unless it was a stand-in."""
        if "-" in database.path.name:
            database.discard()
            return
        try:
            database.close()
        except LocalDamageError:
            database.discard()


def _open(path: Path) -> Rdict:
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
    table.set_block_cache(Cache(_BLOCK_CACHE))
    options.set_block_based_table_factory(table)
    # Named, or else a database that is there already keeps the options it was made with.
    return Rdict(str(path), options, {"default": options}, access_type=AccessType.read_write())


def _sweep(path: Path) -> None:
    try:
        # Refused while the process that made it still has it open.
        Rdict.destroy(str(path))
    except Exception:  # noqa: BLE001 - rocksdict raises bare exceptions
        return
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # rocksdict passes RocksDB's own words on in a bare Exception.
        if type(error) is Exception:
            raise LocalDamageError(str(error)) from error
        raise


def _after(prefix: bytes) -> bytes | None:
    """The least key that is greater than all keys with this prefix."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
