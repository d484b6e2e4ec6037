"""A checkpoint: a location, with its metadata and the files of its layout.

The metadata file, `ikebana.json` (the *metadata*), is written before the first batch, and
again when the plan changes.  It has the checkpoint's id, its plan, its location, its number
of shards, and the offsets at which reading starts.  Transactional ids, commit records and state
files have the id in them, so that those of two checkpoints cannot be confused.

The *layout* is the folder with Spark's logs and the shards' files.  Spark fixes the number of
partitions of its state, so another number of shards needs another folder: the next layout.  The
metadata (`CheckpointMetadata.layout`) names the present folder.

The state is counted in these files, without Spark or Kafka.  The manifest that lists the files of
a shard is in Spark's state store.  But the names of files have their versions, and every attempt
at a version writes the same content.  So a chain of files with consecutive versions from 0 on is
the shard after the last batch that was computed.  If there is a gap, nothing is counted.
"""

import hashlib
import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyarrow import fs

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import FileStore, Folder, file_system, make_folder, small_file
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.storage import temporary_error
from ikebana.errors import CheckpointError, StateFileError
from ikebana.processor.base.offsets import Positions
from ikebana.processor.checkpoint.parts import operator_of
from ikebana.processor.planning.plan import Plan
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
        with naming_location(self.location, "read"):
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
        with naming_location(self.location, "read"):
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
        with naming_location(self.location, "read"):
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
            with naming_location(self.location, "write"), suppress(FileNotFoundError):
                self._system.delete_dir(f"{self._path}/state")
        self._unlog(spark_batch)

    def is_empty(self) -> bool:
        """Whether there are neither logs nor files of shards.

        Raises: CheckpointError, if the folder cannot be read.
        """
        with naming_location(self.location, "read"):
            return not self._names("offsets") and not self._names("shards")

    def remove(self) -> None:
        """Remove all files of the layout, and its folder if nothing else is in it.

        Raises: CheckpointError, if they cannot be removed.
        """
        with naming_location(self.location, "write"):
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
        with naming_location(self.location, "write"):
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
def naming_location(location: str, verb: str) -> Iterator[None]:
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
        if isinstance(error, NotADirectoryError):
            raise CheckpointError(
                f"{what}: a checkpoint is a folder, and a file is there",
                hint="Name the folder that run.checkpoint names.",
            ) from error
        if may_pass := temporary_error(error, what):
            raise may_pass from error
        raise CheckpointError(
            f"{what}: {error}",
            hint="Check run.checkpoint, its rights, and the credentials of its file system.",
        ) from error


FORMAT = 1
"""The format of the metadata, and of everything in a checkpoint without a format of its own."""
_METADATA = "ikebana.json"
_SEAL = re.compile(rb',"hash":"([0-9a-f]{16})"}$')


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """The metadata of a checkpoint.

    * `tasks`: the number of tasks of Spark in which a batch of all shards runs; 0 for one each.
    * `epoch`: the number of rescalings.
    * `begins`: the offsets at which reading began, by topic and partition.
    * `layout`: the folder at the location with Spark's logs and the shards' files; empty if they
      are at the location itself.
    * `first_batch`: ikebana's number of Spark's batch 0.
    * `seeds`: the manifests with which the shards began, if the checkpoint was rescaled.
    * `plan`, `before`: the plan of the last run, and the plan before the last edit.
    * `edits`: the number of edits of the plan.
    * `generations`, `generations_before`: the names that have been used (`edits_resolved`), now
      and before the last edit.
    * `released`: the parts of the state that removed operators leave to be deleted.
    * `last_edit`: the description of the last edit (`edit_description.last_edit`), empty without
      one.
    """

    id: str
    location: str
    shards: int
    plan: dict[str, Any]
    start: SourceOffset
    epoch: int = 0
    first_batch: int = 0
    seeds: dict[int, Manifest] = {}
    format: int = FORMAT
    released: tuple[str, ...] = ()
    edits: int = 0
    before: dict[str, Any] = {}
    generations: dict[str, int] = {}
    generations_before: dict[str, int] = {}
    layout: str = ""
    begins: Positions = {}
    last_edit: dict[str, Any] = {}
    tasks: int = 0

    @property
    def state_partitions(self) -> int:
        """The number of partitions of Spark's state, one for each task."""
        return min(self.tasks, self.shards) or self.shards

    @property
    def begin(self) -> int:
        """The time at which the plan began: the time of its inputs' snapshots, else 0.

        A rebuilt state also has 0: it begins later, but its outputs have earlier times.
        """
        if self.start.batch >= 0 or self.start.transition.rebuilds:
            return 0
        return self.start.upper


class _Formatted(msgspec.Struct):
    """The field that all formats of the metadata have."""

    format: int


class Checkpoint:
    """A checkpoint at a location; making this object reads and writes nothing."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._system, self._path = file_system(location)

    @property
    def identity(self) -> str:
        """The location in a normal spelling, by which copies are recognized."""
        return f"{self._system.type_name}:{self._path}"

    def metadata(self) -> CheckpointMetadata | None:
        """Read the metadata; None if the location is empty.

        Raises:
            CheckpointError: the location has something else, cannot be read, or has metadata
                that cannot be used here.
        """
        with naming_location(self.location, "read"):
            raw = small_file(self._system, f"{self._path}/{_METADATA}")
        if raw is None:
            if not CheckpointFiles(self.location, 0).is_empty():
                raise CheckpointError(
                    f'"{self.location}" holds a checkpoint without {_METADATA}: it is not '
                    "one of ikebana's, or only a part of one",
                    hint="Name another folder, or restore the whole checkpoint.",
                )
            return None
        metadata = self._decoded(raw)
        if metadata.location != self.identity:
            raise CheckpointError(
                f'checkpoint "{self.location}" was made at {metadata.location}: it was copied '
                "or moved",
                hint="If it was moved and nothing runs on the old place, say so with "
                f"`ikebana state {self.location} --relocate`. A copy cannot be run: use "
                "a new checkpoint and new output topics.",
            )
        return metadata

    def relocate(self) -> CheckpointMetadata:
        """Record the current location, after the checkpoint was moved.

        Raises: CheckpointError, if there is no metadata, or it cannot be read.
        """
        with naming_location(self.location, "read"):
            raw = small_file(self._system, f"{self._path}/{_METADATA}")
        if raw is None:
            raise CheckpointError(
                f'"{self.location}" holds no checkpoint of ikebana',
                hint="Name the folder of a checkpoint, which has a file ikebana.json.",
            )
        metadata = self._decoded(raw)
        moved = msgspec.structs.replace(metadata, location=self.identity)
        self.write(moved)
        return moved

    def _decoded(self, raw: bytes) -> CheckpointMetadata:
        try:
            content = _unsealed(raw)
            # The format comes first, because another one may have any other fields.
            number = msgspec.json.decode(content, type=_Formatted).format
            if number == FORMAT:
                if content is raw:
                    raise ValueError("the hash at its end is missing")
                return msgspec.json.decode(content, type=CheckpointMetadata)
        except (msgspec.MsgspecError, ValueError) as error:
            raise CheckpointError(
                f'cannot read {_METADATA} of checkpoint "{self.location}": {error}',
                hint="The file is damaged: restore it from a backup, or start with a new "
                "checkpoint and new output topics.",
            ) from None
        raise CheckpointError(
            f'checkpoint "{self.location}" has format {number}, this version '
            f"of ikebana reads {FORMAT}",
            hint="Use the version of ikebana that made the checkpoint, or start with a new "
            "checkpoint and new output topics.",
        )

    def write(self, metadata: CheckpointMetadata) -> None:
        """Write the metadata.

        Raises: CheckpointError, if it cannot be written.
        """
        # A signal that ends a start is raised in the main thread, wherever that is.  A stream that
        # it left there would be closed, and an object store would have what was written so far.
        with ThreadPoolExecutor(1) as writer:
            # Leaving this block waits only for a thread that has begun, so it begins first.
            writer.submit(int).result()
            writer.submit(self._write, _sealed(msgspec.json.encode(metadata))).result()

    def _write(self, content: bytes) -> None:
        path = f"{self._path}/{_METADATA}"
        aside = f"{self._path}/.{_METADATA}.{uuid.uuid4().hex}"
        local = isinstance(self._system, fs.LocalFileSystem)
        with naming_location(self.location, "write"):
            make_folder(self._system, self._path)
            with self._system.open_output_stream(aside if local else path) as out:
                out.write(content)
            if local:
                self._system.move(aside, path)

    def probe(self) -> None:
        """Write a small file, read it and remove it, to check the rights of this process.

        On a local file system where the location does not exist yet, this is done in the
        nearest folder that does.

        Raises: CheckpointError, for what cannot be done.
        """
        folder = self._path
        if isinstance(self._system, fs.LocalFileSystem):
            while not os.path.exists(folder):
                folder = os.path.dirname(folder)
        path = f"{folder}/.ikebana-probe-{uuid.uuid4().hex}"
        with naming_location(self.location, "write"):
            with self._system.open_output_stream(path) as out:
                out.write(b"probe")
            try:
                with self._system.open_input_stream(path) as stream:
                    if stream.read() != b"probe":
                        raise OSError(f"{path} does not hold what was written")
            finally:
                self._system.delete_file(path)

    def layout(self, metadata: CheckpointMetadata) -> CheckpointFiles:
        """The logs and files of the checkpoint, at the place that the metadata names."""
        return CheckpointFiles(self.data(metadata), metadata.first_batch)

    def data(self, metadata: CheckpointMetadata) -> str:
        """The location of Spark's logs and the shards' files."""
        return (
            f"{self.location.rstrip('/')}/{metadata.layout}" if metadata.layout else self.location
        )


def _sealed(content: bytes) -> bytes:
    """Add the hash of a JSON object as its last field, which other readers ignore."""
    return content[:-1] + b',"hash":"%s"}' % _hash(content)


def _unsealed(raw: bytes) -> bytes:
    """Remove the hash; content without one is returned as it is.

    Raises: ValueError, if the content has another hash.
    """
    if (seal := _SEAL.search(raw)) is None:
        return raw
    content = raw[: seal.start()] + b"}"
    if seal[1] != _hash(content):
        raise ValueError("its content does not have the hash at its end")
    return content


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:16].encode()


def metadata_of(
    location: str, plan: Plan, shards: int, start: SourceOffset, *, tasks: int = 0
) -> CheckpointMetadata:
    """The metadata of a new checkpoint; `tasks` is 0 for one task a shard."""
    return CheckpointMetadata(
        id=uuid.uuid4().hex[:12],
        location=Checkpoint(location).identity,
        shards=shards,
        plan=described(plan),
        start=start,
        begins=start.positions,
        tasks=tasks,
    )


def described(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, without the settings that may change between restarts."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan))
    for output in plain["outputs"]:
        # `partitions` are only used when the topic is created.
        del output["partitions"]
        # No state depends on tombstones.
        del output["tombstones"]
        # The next plan has an `on_change` of its own.
        del output["on_change"]
        # `subjects` and `record` are only names in schemas.
        del output["subjects"], output["record"]
    for source in plain["inputs"]:
        del source["start"]
        # `on_new_column` adds columns, which are compared themselves.
        del source["on_new_column"]
    # Whether an error ends the run may change at any time, but not whether it is written.
    plain["on_error"] = "drop" if plan.on_error == "drop" else "record"
    return plain


def differences(path: str, old: Any, new: Any) -> Iterator[str]:
    """The paths at which two plans, as plain data, differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from differences(f"{path}.{name}".lstrip("."), old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{path}[{at}]", before, after)
    elif old != new:
        was, now = (msgspec.json.encode(side).decode() for side in (old, new))
        yield f"{path} was {was}, is {now}"


def existing(location: str) -> tuple[Checkpoint, CheckpointMetadata]:
    """Open the checkpoint at a location, with its metadata.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    checkpoint = Checkpoint(location)
    metadata = checkpoint.metadata()
    if metadata is None:
        raise CheckpointError(
            f'"{location}" holds no checkpoint of ikebana',
            hint="Name the folder that run.checkpoint names.",
        )
    return checkpoint, metadata


# Kernels store the entries of keys under this prefix; queues and counts have others.
_OF_A_KEY = b"k"


@dataclass(slots=True)
class Figures:
    """The counts of one part of the state: entries, bytes and keys."""

    entries: int = 0
    keys: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The size of all state files, and the counts of each part, None if they were not counted."""

    files_bytes: int
    parts: Mapping[str, Figures] | None = field(default=None)


def measure_state(layout: CheckpointFiles, shards: int) -> StateFigures:
    """Measure only the files, which include older ones that are not part of the state."""
    sizes = [layout.shard(shard).sizes() for shard in range(shards)]
    return StateFigures(sum(sum(each.values()) for each in sizes))


def count_state(
    layout: CheckpointFiles, shards: int, tell: Callable[[int], None] = lambda _: None
) -> StateFigures:
    """Read the state and count each of its parts; `tell` gets the numbers of entries read.

    The pipeline may be running.  If it removes a file meanwhile, or a file is damaged, the parts
    are not counted.
    """
    alone = measure_state(layout, shards)
    figures: dict[str, Figures] = {}
    try:
        for shard in range(shards):
            files = layout.shard(shard)
            line = newest_line(files.names())
            if line is None:
                return alone
            _count(files, line, figures, tell)
    except StateFileError:
        return alone
    return StateFigures(alone.files_bytes, figures)


def newest_line(names: Iterable[str]) -> list[str] | None:
    """Find the chain of files from version 0 to the newest; None if there is a gap.

    >>> base, old, delta = (
    ...     "000000000002-000000000000-base-aa.run",
    ...     "000000000001-000000000000-delta-bb.run",
    ...     "000000000003-000000000002-delta-cc.run",
    ... )
    >>> newest_line([old, base, delta]) == [base, delta], newest_line([old, delta])
    (True, None)
    """
    by_lower: dict[int, tuple[int, str]] = {}
    newest = 0
    for name in names:
        bounds = None if name.startswith(".") else runs.bounds(name)
        if bounds is not None:
            lower, upper = bounds
            newest = max(newest, upper)
            by_lower[lower] = max(by_lower.get(lower, (0, "")), (upper, name))
    line, version = [], 0
    while version in by_lower:
        version, name = by_lower[version]
        line.append(name)
    return line if version == newest else None


def _count(
    files: FileStore, line: list[str], by_part: dict[str, Figures], tell: Callable[[int], None]
) -> None:
    read = 0
    for place, entry in runs.merge(files, line):
        if entry is None:
            continue
        operator = operator_of(place)
        figures = by_part.get(operator)
        if figures is None:
            figures = by_part[operator] = Figures()
        figures.entries += 1
        figures.bytes += len(place) + len(entry)
        at = len(operator.encode()) + 1
        figures.keys += place[at : at + 1] == _OF_A_KEY
        read += 1
        if read % 10_000 == 0:
            tell(10_000)
