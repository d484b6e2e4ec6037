"""An ordered database of bytes on local RocksDB: one process writes, any number read.

A write is atomic, and goes through RocksDB's log.  So a killed writer loses nothing, and a reader
in another process, which follows the log as a *secondary instance*, sees whole writes only.  The
log is not synced: after a failure of the machine the database may have an earlier state, but
always one that a write has left.

This module and `rocks` import rocksdict, no other does.
"""

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rocksdict import AccessType, DbClosedError, Options, Rdict, ReadOptions, Snapshot, WriteBatch

from ikebana.arrangements.rocks import LocalDamageError, damage, tuned
from ikebana.errors import ConfigError

_MISSING = "key not found"
_LOCKED = "LOCK"


class View(Protocol):
    """The entries of a database at one moment."""

    def get(self, key: bytes) -> bytes | None:
        """Read the value of a key."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of several keys."""
        ...

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `lower <= key < upper`, in order of the bytes of keys."""
        ...


class SharedDatabase:
    """The only writer of a database; a folder that another process writes cannot be opened.

    Raises:
        ConfigError: another process has the folder open.
        LocalDamageError: RocksDB cannot read the files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._views: weakref.WeakSet[_Fixed] = weakref.WeakSet()
        path.mkdir(parents=True, exist_ok=True)
        options = tuned()
        try:
            # The column family is named, or an existing database would keep its old options.
            self._database = Rdict(
                str(path), options, {"default": options}, access_type=AccessType.read_write()
            )
        except Exception as error:
            if _LOCKED in str(error):
                raise ConfigError(
                    f"cannot open {path}: another process writes it",
                    hint="One `ikebana serve` writes a folder; name another one with --data. "
                    "Readers use `ikebana.open`.",
                ) from error
            raise LocalDamageError(str(error)) from error

    def view(self) -> View:
        """Fix the present state; writes and views do not wait for each other."""
        with damage():
            made = _Fixed(self._database.snapshot())
        self._views.add(made)
        return made

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the present values of several keys."""
        with damage():
            found: list[bytes | None] = self._database.get(list(keys))
        return found

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write all changes at once; a value of None deletes the key."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        with damage():
            self._database.write(batch)

    def size(self) -> int:
        """Estimate the bytes of the entries on disk."""
        with damage():
            return int(self._database.property_int_value("rocksdb.total-sst-files-size") or 0)

    def close(self) -> None:
        """Close the database; no view may be used afterwards, and a second call does nothing."""
        # While one of its snapshots lives, RocksDB locks the folder.
        for view in self._views:
            view.release()
        with damage(), contextlib.suppress(DbClosedError):
            self._database.close()

    def discard(self) -> None:
        """Close and remove the folder."""
        # The folder is removed even if a damaged database cannot be closed.
        with contextlib.suppress(Exception):
            self._database.close()
        shutil.rmtree(self.path, ignore_errors=True)


class DatabaseReader:
    """Reads a database that another process may be writing.

    The state changes only in `catch_up`; between two calls all reads see the same one.

    Raises:
        LocalDamageError: there is no database, or RocksDB cannot read its files.
    """

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(False)  # noqa: FBT003 - rocksdict's own signature
        # The writer deletes files that it has merged; open ones can still be read.
        options.set_max_open_files(-1)
        options.set_keep_log_file_num(1)
        # RocksDB writes its log of messages there.
        self._own = tempfile.TemporaryDirectory(prefix="ikebana-reader-")
        try:
            with damage():
                self._database = Rdict(
                    str(path), options, access_type=AccessType.secondary(self._own.name)
                )
        except LocalDamageError:
            self._own.cleanup()
            raise

    def catch_up(self) -> None:
        """Go on to the newest state that the writer has written."""
        with damage():
            self._database.try_catch_up_with_primary()

    def get(self, key: bytes) -> bytes | None:
        with damage():
            found: bytes | None = self._database.get(key)
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with damage():
            found: list[bytes | None] = self._database.get(list(keys))
        return found

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return _scan(self._database, lower, upper)

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        with damage(), contextlib.suppress(DbClosedError):
            self._database.close()
        self._own.cleanup()


class _Fixed:
    """A snapshot as a `View`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Snapshot | None = snapshot

    def release(self) -> None:
        """Give the snapshot up."""
        self._snapshot = None

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes = self._snapshot[key]  # type: ignore[index]
        except Exception as error:
            # rocksdict raises errors of RocksDB, and this one, as bare Exceptions.
            if str(error) == _MISSING:
                return None
            self._open()
            raise LocalDamageError(str(error)) from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return _scan(self._open(), lower, upper)

    def _open(self) -> Snapshot:
        if self._snapshot is None:
            raise DbClosedError("the database of this view is closed")
        return self._snapshot


def _scan(
    database: Rdict | Snapshot, lower: bytes, upper: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    options = ReadOptions()
    if upper is not None:
        options.set_iterate_upper_bound(upper)
    with damage():
        # items() would end at a damaged block as if there were no more entries.
        entry = database.iter(read_opt=options)
        entry.seek(lower)
        try:
            while entry.valid():
                yield entry.key(), entry.value()
                entry.next()
            entry.status()
        finally:
            # While the iterator lives, such as in a traceback, RocksDB locks the folder.
            del entry
