"""The durable files of a shard's runs: immutable, under names that are never reused.

A file's name ends in the hash of its content, so every read finds out whether the file is
damaged.  A file exists whole or not at all.  On a local file system it is written under
another name, synced, and renamed, and its folder is synced, before its name is returned.  An
object store shows an object only when it is complete.
"""

import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from ikebana.arrangements.storage import private_folder
from ikebana.errors import CheckpointError, StateFileError

_HASH_DIGITS = 16
_PIECE = 1 << 20


class FileStore(Protocol):
    """A folder of immutable files."""

    def write(self, stem: str, suffix: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Write `<stem>-<hash><suffix>` durably; return the name and the size in bytes."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content piece by piece.

        Raises:
            StateFileError: the file is missing, or, after the last piece, its content
                does not have the hash in its name.
        """
        ...

    def names(self) -> list[str]:
        """List all files, including those that killed writers have left.

        Such a file is incomplete.  Its name begins with a dot and lacks the hash.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a file; it is no error if there is none."""
        ...


def is_local(location: str) -> bool:
    """Whether a checkpoint location is on a file system of this machine."""
    return _is_path(location) or location.startswith("file:")


def _is_path(location: str) -> bool:
    return "://" not in location and not location.startswith("file:")


def file_system(location: str) -> tuple[fs.FileSystem, str]:
    """Find the file system and the path of a checkpoint location, which is a path or a URI.

    Object stores may have Spark's names (`s3a://`) or the plain ones.

    Raises:
        CheckpointError: pyarrow has no file system for the location.
    """
    for spark, plain in (("s3a://", "s3://"), ("s3n://", "s3://"), ("gcs://", "gs://")):
        if location.startswith(spark):
            location = plain + location.removeprefix(spark)
    if _is_path(location):
        return fs.LocalFileSystem(), os.path.abspath(location)
    try:
        system, path = fs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError) as error:
        raise CheckpointError(f'cannot use checkpoint location "{location}": {error}') from error
    return system, path


def make_folder(system: fs.FileSystem, path: str) -> None:
    """Make a folder, if it does not exist; on this machine only its owner may read it."""
    if isinstance(system, fs.LocalFileSystem):
        private_folder(Path(path))
    else:
        system.create_dir(path, recursive=True)


def small_file(system: fs.FileSystem, path: str) -> bytes | None:
    """Read a file as a whole; None if there is none."""
    try:
        with system.open_input_stream(path) as stream:
            content: bytes = stream.read()
            return content
    except FileNotFoundError:
        return None


class Folder:
    """A folder on any file system that pyarrow supports."""

    def __init__(self, system: fs.FileSystem, path: str) -> None:
        self._system = system
        self.path = path
        self._local = isinstance(system, fs.LocalFileSystem)
        self._exists = False

    @classmethod
    def at(cls, location: str, *below: str) -> "Folder":
        """Make the folder `below` a checkpoint location; nothing is read or written."""
        system, path = file_system(location)
        return cls(system, "/".join([path.rstrip("/"), *below]))

    def write(self, stem: str, suffix: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        if not self._exists:
            self._make()
            self._exists = True
        return (self._write_local if self._local else self._write_remote)(stem, suffix, pieces)

    def _make(self) -> None:
        unsynced = [os.path.dirname(self.path)]
        while self._local and not os.path.isdir(unsynced[-1]):
            unsynced.append(os.path.dirname(unsynced[-1]))
        make_folder(self._system, self.path)
        if self._local:
            # A crash may undo an unsynced folder, and a synced file in it is lost too.
            for folder in unsynced:
                _sync(folder)

    def _write_local(self, stem: str, suffix: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        aside = f"{self.path}/.{stem}-{uuid.uuid4().hex}{suffix}"
        try:
            with open(aside, "xb") as file:
                digest, size = _copy(pieces, file.write)
                file.flush()
                os.fsync(file.fileno())
            name = f"{stem}-{digest}{suffix}"
            os.rename(aside, f"{self.path}/{name}")
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)
            raise
        _sync(self.path)
        return name, size

    def _write_remote(self, stem: str, suffix: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        # The name has the hash of all pieces, so they are spooled first.
        with tempfile.TemporaryFile() as spool:
            digest, size = _copy(pieces, spool.write)
            spool.seek(0)
            name = f"{stem}-{digest}{suffix}"
            path = f"{self.path}/{name}"
            with self._system.open_output_stream(path, compression=None) as out:
                while piece := spool.read(_PIECE):
                    out.write(piece)
        return name, size

    def read(self, name: str) -> Iterator[bytes]:
        path = f"{self.path}/{name}"
        digest = hashlib.sha256()
        try:
            with self._system.open_input_stream(path, compression=None) as stream:
                while piece := stream.read(_PIECE):
                    digest.update(piece)
                    yield piece
        except FileNotFoundError:
            raise StateFileError(
                f'state file "{path}" is missing',
                hint="Restore it from a backup of the checkpoint, or start with a new "
                "checkpoint and new output topics.",
            ) from None
        if digest.hexdigest()[:_HASH_DIGITS] != name.rpartition("-")[2].partition(".")[0]:
            raise damaged(path, "its content does not have the hash in its name")

    def names(self) -> list[str]:
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """List the size of every file, in bytes, by its name."""
        infos = self._system.get_file_info(
            fs.FileSelector(self.path, allow_not_found=True, recursive=False)
        )
        return {info.base_name: info.size for info in infos if info.is_file}

    def delete(self, name: str) -> None:
        try:
            self._system.delete_file(f"{self.path}/{name}")
        except FileNotFoundError:
            return


def damaged(path: str, reason: str) -> StateFileError:
    """Make the error for a file with other content than was written."""
    return StateFileError(
        f'state file "{path}" is damaged: {reason}',
        hint="Restore it from a backup of the checkpoint, or start with a new checkpoint "
        "and new output topics.",
    )


def _sync(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _copy(pieces: Iterable[bytes], write: Callable[[bytes], object]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        write(piece)
    return digest.hexdigest()[:_HASH_DIGITS], size
