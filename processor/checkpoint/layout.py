"""The layout of a checkpoint in shards: the folder with Spark's logs and the shards' files.


Spark fixes the number of partitions of its state, so another number of shards needs another
folder: the next layout.  The metadata (`Birth.layout`) names the present folder.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from pyarrow import fs

from ikebana.arrangements.files import Folder, file_system, small_file
from ikebana.arrangements.outages import passing
from ikebana.errors import CheckpointError
from ikebana.processor.topics.source_offset import SourceOffset

# The names that Spark and the shards create in the folder of a layout.
_CONTENTS = ("offsets", "commits", "sources", "state", "metadata", ".metadata.crc", "shards")


class Logged(msgspec.Struct, frozen=True):
    """The last batches in Spark's two logs, by ikebana's numbers; `first_batch` - 1 for none.

    `took_s` is how long the last committed batch took, in seconds; 0 if that is not known.
    """

    offset: SourceOffset | None
    batch: int
    committed: int
    took_s: float = 0.0


class CheckpointFiles:
    """The files of a checkpoint with one number of shards; making this reads and writes nothing.

    `location` is a path or a URI.  `first_batch` is ikebana's number of Spark's batch 0.
    """

    def __init__(self, location: str, first_batch: int) -> None:
        self.location = location
        self.first_batch = first_batch
        self._system, self._path = file_system(location)

    def shard(self, number: int) -> Folder:
        """The folder with the files of a shard."""
        return Folder.at(self.location, "shards", f"{number:04d}")

    def logged(self) -> Logged:
        """Read the last entries of Spark's offset and commit logs.

        Raises: CheckpointError, if they cannot be read.
        """
        with reached(self.location, "read"):
            offsets, commits = self._entries("offsets"), self._entries("commits")
        newest = max(commits, default=-1)
        committed = self.first_batch + newest
        if offsets:
            last = max(offsets)
            offset = self.offset(last)
            if offset.batch >= self.first_batch:
                took_s = commits.get(newest, 0.0) - offsets.get(newest, math.inf)
                return Logged(offset, self.first_batch + last, committed, max(0.0, took_s))
        return Logged(None, self.first_batch - 1, committed)

    def offset(self, spark_batch: int) -> SourceOffset:
        """Read the source's offset from one entry of Spark's offset log.

        Raises: CheckpointError, if it cannot be read.
        """
        with reached(self.location, "read"):
            raw = small_file(self._system, f"{self._path}/offsets/{spark_batch}")
        # The lines are a version, the query's metadata, and one for each source.
        lines = (raw or b"").splitlines()
        try:
            return SourceOffset.from_json(msgspec.json.decode(lines[2]))
        except (IndexError, msgspec.MsgspecError) as error:
            raise CheckpointError(
                f'cannot read entry {spark_batch} of the offset log of "{self.location}": {error}',
                hint="The file is damaged, or another program wrote it: restore it from a "
                "backup, or start with a new checkpoint and new output topics.",
            ) from None

    def forget_nothing(self) -> None:
        """Remove an empty first batch from Spark's offset log.

        A start before there was anything to read has logged the start itself as a batch.  No
        shard has run it, so the next start logs a first batch again.

        Raises: CheckpointError, if the log cannot be read or written.
        """
        with reached(self.location, "read"):
            offsets = self._entries("offsets")
        if [*offsets] != [0] or self.offset(0).batch >= self.first_batch:
            return
        self._unlog(0)

    def drop(self, batch: int) -> None:
        """Remove the last batch from Spark's offset log; nobody may have committed any of it.

        Raises: CheckpointError, if the log cannot be read or written, or ends otherwise.
        """
        logged = self.logged()
        if logged.batch != batch or logged.committed >= batch:
            raise CheckpointError(
                f'the log of checkpoint "{self.location}" was changed by another instance of the '
                f"pipeline while this one started: it ends at batch {logged.batch}",
                hint="Start again if this is the instance that should run.",
            )
        spark_batch = batch - self.first_batch
        if spark_batch == 0:
            # Spark refuses to begin beside a state.  The state is deleted before the entry in the
            # log: a start that ends in between leaves a logged first batch without state.
            with reached(self.location, "write"), suppress(FileNotFoundError):
                self._system.delete_dir(f"{self._path}/state")
        self._unlog(spark_batch)

    def is_empty(self) -> bool:
        """Whether there are neither logs nor files of shards.

        Raises: CheckpointError, if the folder cannot be read.
        """
        with reached(self.location, "read"):
            return not self._names("offsets") and not self._names("shards")

    def remove(self) -> None:
        """Remove all files of the layout, and its folder if nothing else is in it.

        Raises: CheckpointError, if they cannot be removed.
        """
        with reached(self.location, "write"):
            infos = self._infos("")
            for info in infos:
                if info.base_name not in _CONTENTS:
                    continue
                if info.type is fs.FileType.Directory:
                    self._system.delete_dir(info.path)
                else:
                    self._system.delete_file(info.path)
            if infos and all(info.base_name in _CONTENTS for info in infos):
                self._system.delete_dir(self._path)

    def _unlog(self, spark_batch: int) -> None:
        with reached(self.location, "write"):
            for name in (f"{spark_batch}", f".{spark_batch}.crc"):
                with suppress(FileNotFoundError):
                    self._system.delete_file(f"{self._path}/offsets/{name}")

    def _entries(self, folder: str) -> dict[int, float]:
        """The entries of one of Spark's logs by number, with the times of their files."""
        infos = self._infos(folder)
        return {
            int(info.base_name): (info.mtime_ns or 0) / 1e9
            for info in infos
            if info.base_name.isdigit()
        }

    def _names(self, folder: str) -> list[str]:
        return [info.base_name for info in self._infos(folder)]

    def _infos(self, folder: str) -> list[fs.FileInfo]:
        path = f"{self._path}/{folder}".rstrip("/")
        infos: list[fs.FileInfo] = self._system.get_file_info(
            fs.FileSelector(path, allow_not_found=True)
        )
        return infos


@contextmanager
def reached(location: str, verb: str) -> Iterator[None]:
    """Turn an error of the file system into one that names the location.

    Raises:
        StorageError: an object store did not answer.
        SpaceError: a disk is full.
        CheckpointError: anything else.
    """
    try:
        yield
    except OSError as error:
        what = f'could not {verb} "{location}"'
        if may_pass := passing(error, what):
            raise may_pass from error
        raise CheckpointError(
            f"{what}: {error}",
            hint="Check run.checkpoint, its rights, and the credentials of its file system.",
        ) from error
