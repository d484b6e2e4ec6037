"""Packed rows that a reader leaves in a file, so that Spark passes on only their places.

Spark would copy a row a dozen times: to the JVM, into the files of a shuffle, to another Python
worker, and from there to the process that owns the shard.  In a local run all of these processes
are on one machine: the reader of a batch writes rows to a file of its own, and passes on *places*,
which say where in the file a row is.  The owner reads them there.  That saves 1.2 of 9.8 CPU
seconds a million records.

A repeated task writes another file, or reads the same one again, so the files of a batch stay
until the batch is done.  Like the files of a shuffle they need not survive a failure: if they are
lost, the batch is repeated from the logged offsets.
"""

# Decision (rows go to owners by files): Through Spark a row crossed the JVM twice and the files
# of a shuffle. Now Spark passes on path, start and length. A repeated task finds the file, a
# repeated batch writes another. Not compressed: they live a second, in the page cache.

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from ikebana.errors import LostError, SparkStartError
from ikebana.processor.spark.workers import owners

# No message of msgpack begins with this byte, so no packed row does.
_MARK = b"\xc1"
# Fewer bytes cost less to pass through Spark than to leave in a file.
_SMALL = 8 << 10
_PREFIX = "ikebana-rows-"
_NEW_S = 60.0
REMEDY = (
    "Nothing may remove files from the folder of a run while it runs: it lies in "
    "SPARK_LOCAL_DIRS, spark.local.dir or TMPDIR."
)


class RowPlace(msgspec.Struct, array_like=True, frozen=True):
    """The place of a row: the path of a file, and the range of bytes in it."""

    path: str
    start: int
    size: int
    of: str = ""
    """Host and port of the reader that has left it; empty if there is only one machine."""


VARIABLE = "IKEBANA_ROWS"
"""The environment variable with the folder of an executor's host for rows."""


def leave_large_rows(
    packed: Iterable[Sequence[tuple[int, bytes]]], folder: str, batch: int = 0, of: str = ""
) -> list[tuple[int, bytes]]:
    """Leave packed rows by shard in a file of a folder; return the rows or places to pass on.

    Rows that come together and are small are passed on as they are; without a folder, all are.
    """
    passed_on: list[tuple[int, bytes]] = []
    file = None
    with ExitStack() as files:
        for rows in packed:
            if not folder or sum(len(row) for _, row in rows) < _SMALL:
                passed_on += rows
                continue
            if file is None:
                # It stays after this task, because the owner reads it later.
                file = files.enter_context(
                    NamedTemporaryFile(dir=folder, prefix=f"tmp{batch}-", delete=False)
                )
            for shard, row in rows:
                place = RowPlace(file.name, file.tell(), len(row), of)
                file.write(row)
                passed_on.append((shard, _MARK + msgspec.msgpack.encode(place)))
    return passed_on


def resolve(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield rows one by one, and read the rows behind places from their files.

    Raises:
        LostError: a file is missing, or not whole.
    """
    for row in rows:
        if row[:1] != _MARK:
            yield row
        else:
            yield _resolve(msgspec.msgpack.decode(row[1:], type=RowPlace))


class RowsFolder:
    """A folder of one run for such files.

    The run holds a lock on it, which ends with the process, however that ends.  So the next run
    on the same disk removes the folder of a killed one.
    """

    def __init__(self, local_dirs: str) -> None:
        """Make it in the first of Spark's folders for shuffles.

        Raises:
            SparkStartError: the folder cannot be made.
        """
        scratch = Path(local_dirs.split(",")[0].strip())
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            _sweep(scratch)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=scratch))
            self._lock = os.open(self.path, os.O_RDONLY)
            # Without such locks, as on some network drives, nobody else removes it.
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise SparkStartError(
                f"could not make a folder for rows in {scratch}: {error.strerror}",
                hint="Name a folder that may be written to: SPARK_LOCAL_DIRS, or spark.local.dir "
                "under spark.",
            ) from error

    def remove(self) -> None:
        """Remove it, with its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(scratch: Path) -> None:
    """Remove the folders of runs that were killed."""
    for each in scratch.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # A new folder may not be locked yet.
            if time.time() - each.stat().st_mtime < _NEW_S:
                continue
            lock = os.open(each, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(each, ignore_errors=True)
            finally:
                os.close(lock)


def forget(place: str) -> None:
    """Remove all files of a folder after the batch of their rows is done."""
    if not place:
        return
    with suppress(FileNotFoundError):
        for each in Path(place).iterdir():
            each.unlink(missing_ok=True)


def forget_before(folder: str, batch: int) -> None:
    """Remove the files of earlier batches, which are done when `batch` begins."""
    for each in Path(folder).iterdir() if folder else ():
        number = each.name.removeprefix("tmp").partition("-")[0]
        if number.isdigit() and int(number) < batch:
            each.unlink(missing_ok=True)


def _resolve(place: RowPlace) -> bytes:
    """Read a row of this host, or fetch it from another one."""
    folder = os.environ.get(VARIABLE)
    if not place.of or (folder and place.path.startswith(f"{folder}/")):
        return read(place.path, place.start, place.size)
    host, _, port = place.of.rpartition(":")
    row = owners.fetch((host, int(port)), place.path, place.start, place.size)
    if row is None:
        raise LostError(f"the rows of a batch are gone: {place.of} is not reached")
    return row


def read(path: str, start: int, size: int) -> bytes:
    """Read a row from a file.

    Raises:
        LostError: the file is missing, or not whole.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            row = os.pread(file.fileno(), size, start)
    except OSError as error:
        raise LostError(
            f"the rows of a batch are gone: {path}: {error.strerror}", hint=REMEDY
        ) from error
    if len(row) < size:
        raise LostError(f"the rows of a batch are cut off: {path}", hint=REMEDY)
    return row
