"""An ordered database of bytes on local RocksDB: one process writes, any number read.

A write is atomic, and goes through RocksDB's log.  So a killed writer loses nothing, and a reader
in another process, which follows the log as a *secondary instance*, sees whole writes only.  The
log is not synced: after a failure of the machine the database may have an earlier state, but
always one that a write has left.

This module and `rocks` import rocksdict, no other does.
"""

import contextlib
import errno
import functools
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rocksdict import (
    AccessType,
    Cache,
    DbClosedError,
    Rdict,
    RdictIter,
    ReadOptions,
    Snapshot,
    WriteBatch,
)

from ikebana.arrangements.rocks import LocalDamageError, damage, tuned_options
from ikebana.arrangements.storage import private_folder
from ikebana.errors import ConfigError, SpaceError

_MISSING = "key not found"
_LOCKED = "/LOCK:"
_FULL = ("No space left on device", "Disk quota exceeded")
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)
_DENIED = ("Permission denied", "Read-only file system")
# These errors are about this process, not about the files.
_LACKING = ("Too many open files", "Cannot allocate memory")


# A reader may keep more than a writer.
_READERS_CACHE = 128 << 20

EntryIterator = Iterator[tuple[bytes, bytes]]
KeyRange = tuple[bytes, bytes | None]


class ClosedError(Exception):
    """The database of a view was closed, for instance to be rebuilt."""


class HeldError(ConfigError):
    """The folder of a database is locked: by another process, or by a read of this one."""


@functools.cache
def _readers_cache() -> Cache:
    """The blocks that all readers of this process keep."""
    return Cache(_READERS_CACHE)


@contextlib.contextmanager
def _as_damage(database: "SharedDatabase | None" = None) -> Iterator[None]:
    """Raise an error of RocksDB as a `LocalDamageError`, or a `SpaceError` if the disk is full.

    Damage is noted in the database; if the database is closed, it is a `ClosedError`.
    """
    try:
        with damage():
            yield
    except LocalDamageError as error:
        if any(full in str(error) for full in _FULL):
            raise _named(error) from error
        if database is not None:
            database.note(str(error))
        # Not from a variable: a reference cycle would keep iterators alive, and the folder locked.
        raise
    except DbClosedError as error:
        raise ClosedError("the database is closed") from error
    except RuntimeError as error:
        # While rocksdict closes a database, no other thread may ask it anything.
        if "mutably borrowed" not in str(error):
            raise
        raise ClosedError("the database is being closed") from error


def _named(error: LocalDamageError) -> Exception:
    if not any(full in str(error) for full in _FULL):
        return error
    return SpaceError(f"a disk is full: {error}", hint="Make space on it; nothing is lost.")


def _folder_error(path: Path, error: OSError) -> Exception:
    """Name why the folder of a database cannot be made."""
    if error.errno in _FULL_CODES:
        return SpaceError(
            f"cannot make the folder {path}: a disk is full: {error.strerror}",
            hint="Make space on it, or name a folder on another one with --data.",
        )
    return ConfigError(
        f"cannot make the folder {path}: {error.strerror}",
        hint="Name a folder with --data that can be made and written, and is no file.",
    )


def _unopened(path: Path, error: Exception) -> Exception:
    """Name why a database cannot be opened."""
    text = str(error)
    if any(denied in text for denied in _DENIED):
        return ConfigError(
            f"cannot open {path}: {text}",
            hint="Name a folder with --data that this user may read and write.",
        )
    if _LOCKED in text:
        return HeldError(
            f"cannot open {path}: another process writes it",
            hint="One `ikebana serve` writes a folder; name another one with --data. "
            "Readers use `ikebana.open`.",
        )
    return _named(LocalDamageError(text))


class Scans(NamedTuple):
    """Scans of one state; `moved` says that it is later than the state of their view."""

    moved: bool
    entries: list[EntryIterator]


class DatabaseView(Protocol):
    """A database at one moment: keys are read as of then, and scanned as they are now.

    rocksdict's iterators do not support its snapshots.  So readers that scan entries which may
    have changed since must reconstruct their old values from the entries.
    """

    def get(self, key: bytes) -> bytes | None:
        """Read the value that a key had at the moment of the view."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values that several keys had at the moment of the view."""
        ...

    def scan(self, lower: bytes, upper: bytes | None) -> EntryIterator:
        """Scan the present entries with `lower <= key < upper`, in order of the bytes of keys.

        Later writes do not change a scan that has been made.
        """
        ...

    def scans(self, *ranges: KeyRange) -> Scans:
        """Make several scans of one state, the present one."""
        ...


class SharedDatabase:
    """The only writer of a database; a folder that another process writes cannot be opened.

    Raises:
        HeldError: another process has the folder open, or a read of this one.
        ConfigError: the folder cannot be made, or may not be written.
        LocalDamageError: RocksDB cannot read the files.
        SpaceError: the disk is full; nothing is wrong with the files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._views: weakref.WeakSet[_Fixed] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._writes = 0
        self.damage: str | None = None
        """The damage that a read has met; None if there was none."""
        try:
            private_folder(path)
        except OSError as error:
            raise _folder_error(path, error) from error
        options = tuned_options()
        try:
            # The column family is named, or an existing database would keep its old options.
            self._database = Rdict(
                str(path), options, {"default": options}, access_type=AccessType.read_write()
            )
        except Exception as error:
            raise _unopened(path, error) from error

    def note(self, problem: str) -> None:
        """Keep the problem of a read in `damage`, so that the database can be rebuilt."""
        if not any(lacking in problem for lacking in _LACKING):
            self.damage = problem

    def view(self) -> DatabaseView:
        """Fix the present state; it stays readable while later ones are written."""
        with _as_damage(self), self._lock:
            view = _Fixed(self, self._database.snapshot(), self._writes)
        self._views.add(view)
        return view

    def scan(self, lower: bytes, upper: bytes | None) -> EntryIterator:
        """Make a scan of the present state; it waits for no write."""
        with _as_damage(self):
            return _scan(self._database, lower, upper, self)

    def scans(self, ranges: Sequence[KeyRange], since: int) -> Scans:
        """Make scans of the present state; `since` is the number of writes before it, or fewer."""
        with _as_damage(self), self._lock:
            entries = [_scan(self._database, *each, self) for each in ranges]
            return Scans(self._writes != since, entries)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the present values of several keys."""
        with _as_damage(self):
            values: list[bytes | None] = self._database.get(list(keys))
        return values

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write all changes at once; a value of None deletes the key."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        # Scans that are made together see one state.
        with _as_damage(self), self._lock:
            self._database.write(batch)
            self._writes += 1

    def size(self) -> int:
        """Estimate the bytes of the entries on disk."""
        with _as_damage(self):
            return int(self._database.property_int_value("rocksdb.total-sst-files-size") or 0)

    def close(self) -> None:
        """Close the database; no view may be used afterwards, and a second call does nothing."""
        # While one of its snapshots lives, RocksDB locks the folder.
        for view in self._views:
            view.release()
        with _as_damage(), contextlib.suppress(DbClosedError):
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
        # The options of the writer, or filters and the block cache are not used.
        options = tuned_options(_readers_cache())
        options.create_if_missing(False)  # noqa: FBT003 - rocksdict's own signature
        # The writer deletes files that it has merged; open ones can still be read.
        options.set_max_open_files(-1)
        options.set_keep_log_file_num(1)
        # RocksDB writes its log of messages there.
        self._folder = tempfile.TemporaryDirectory(prefix="ikebana-reader-")
        try:
            with _as_damage():
                self._database = Rdict(
                    str(path),
                    options,
                    {"default": options},
                    access_type=AccessType.secondary(self._folder.name),
                )
        except LocalDamageError:
            self._folder.cleanup()
            raise

    def catch_up(self) -> None:
        """Advance to the newest state that the writer has written."""
        with _as_damage():
            self._database.try_catch_up_with_primary()

    def get(self, key: bytes) -> bytes | None:
        with _as_damage():
            value: bytes | None = self._database.get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _as_damage():
            values: list[bytes | None] = self._database.get(list(keys))
        return values

    def scan(self, lower: bytes, upper: bytes | None) -> EntryIterator:
        with _as_damage():
            return _scan(self._database, lower, upper)

    def scans(self, *ranges: KeyRange) -> Scans:
        # Between two calls of `catch_up` there is one state.
        return Scans(moved=False, entries=[self.scan(*each) for each in ranges])

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        with _as_damage(), contextlib.suppress(DbClosedError):
            self._database.close()
        self._folder.cleanup()


class _Fixed:
    """A snapshot as a `DatabaseView`: rocksdict reads keys from it, but does not scan it."""

    def __init__(self, database: SharedDatabase, snapshot: Snapshot, writes: int) -> None:
        self._database = database
        self._snapshot: Snapshot | None = snapshot
        self._writes = writes

    def release(self) -> None:
        """Release the snapshot."""
        self._snapshot = None

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes = self._snapshot[key]  # type: ignore[index]
        except Exception as error:
            # rocksdict raises errors of RocksDB, and this one, as bare Exceptions.
            if str(error) == _MISSING:
                return None
            self._open()
            self._database.note(str(error))
            raise LocalDamageError(str(error)) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes | None) -> EntryIterator:
        self._open()
        return self._database.scan(lower, upper)

    def scans(self, *ranges: KeyRange) -> Scans:
        self._open()
        return self._database.scans(ranges, self._writes)

    def _open(self) -> Snapshot:
        if self._snapshot is None:
            raise ClosedError("the database of this view is closed")
        return self._snapshot


def _scan(
    database: Rdict, lower: bytes, upper: bytes | None, noting: SharedDatabase | None = None
) -> EntryIterator:
    """Make a scan of the present state, whenever it is read."""
    options = ReadOptions()
    if upper is not None:
        options.set_iterate_upper_bound(upper)
    # items() would end silently at a damaged block.
    return _entries(database.iter(read_opt=options), lower, options, noting)


def _entries(
    entry: RdictIter, lower: bytes, options: ReadOptions, noting: SharedDatabase | None
) -> EntryIterator:
    """Read a scan; the options live as long, since the iterator's bound is in their memory."""
    with _as_damage(noting):
        try:
            # Only now, because a scan that was made together with another one may never be read.
            entry.seek(lower)
            while entry.valid():
                yield entry.key(), entry.value()
                entry.next()
            entry.status()
        finally:
            # While the iterator lives, such as in a traceback, RocksDB locks the folder.
            del entry, options
