"""A checkpoint: a location, with its metadata.

The metadata file, `ikebana.json` (the *birth record*), is written before the first batch, and
again when the plan changes.  It has the checkpoint's id, its plan, its location, its number
of shards, and the offsets at which reading starts.  Transactional ids, markers and state
files have the id in them, so that those of two checkpoints cannot be confused.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from pyarrow import fs

from ikebana.arrangements.files import file_system, make_folder, small_file
from ikebana.arrangements.manifest import Manifest
from ikebana.errors import CheckpointError
from ikebana.processor.base.offsets import Positions
from ikebana.processor.checkpoint.layout import CheckpointFiles, reached
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import SourceOffset

FORMAT = 1
"""The format of the metadata, and of everything in a checkpoint without a format of its own."""
_BIRTH = "ikebana.json"
_SEAL = re.compile(rb',"hash":"([0-9a-f]{16})"}$')


class Birth(msgspec.Struct, frozen=True):
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
    * `last_edit`: the last edit as described (`edit_plan.last_edit`), empty if there was none.
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

    def birth(self) -> Birth | None:
        """Read the metadata; None if the location is empty.

        Raises:
            CheckpointError: the location has something else, cannot be read, or has metadata
                that cannot be used here.
        """
        with reached(self.location, "read"):
            raw = small_file(self._system, f"{self._path}/{_BIRTH}")
        if raw is None:
            if not CheckpointFiles(self.location, 0).is_empty():
                raise CheckpointError(
                    f'"{self.location}" holds a checkpoint without {_BIRTH}: it is not '
                    "one of ikebana's, or only a part of one",
                    hint="Name another folder, or restore the whole checkpoint.",
                )
            return None
        birth = self._decoded(raw)
        if birth.location != self.identity:
            raise CheckpointError(
                f'checkpoint "{self.location}" was made at {birth.location}: it was copied '
                "or moved",
                hint="If it was moved and nothing runs on the old place, say so with "
                f"`ikebana state {self.location} --relocate`. A copy cannot be run: use "
                "a new checkpoint and new output topics.",
            )
        return birth

    def relocate(self) -> Birth:
        """Record the current location, after the checkpoint was moved.

        Raises: CheckpointError, if there is no metadata, or it cannot be read.
        """
        with reached(self.location, "read"):
            raw = small_file(self._system, f"{self._path}/{_BIRTH}")
        if raw is None:
            raise CheckpointError(
                f'"{self.location}" holds no checkpoint of ikebana',
                hint="Name the folder of a checkpoint, which has a file ikebana.json.",
            )
        birth = self._decoded(raw)
        moved = msgspec.structs.replace(birth, location=self.identity)
        self.write(moved)
        return moved

    def _decoded(self, raw: bytes) -> Birth:
        try:
            content = _unsealed(raw)
            # The format comes first, because another one may have any other fields.
            number = msgspec.json.decode(content, type=_Formatted).format
            if number == FORMAT:
                if content is raw:
                    raise ValueError("the hash at its end is missing")
                return msgspec.json.decode(content, type=Birth)
        except (msgspec.MsgspecError, ValueError) as error:
            raise CheckpointError(
                f'cannot read {_BIRTH} of checkpoint "{self.location}": {error}',
                hint="The file is damaged: restore it from a backup, or start with a new "
                "checkpoint and new output topics.",
            ) from None
        raise CheckpointError(
            f'checkpoint "{self.location}" has format {number}, this version '
            f"of ikebana reads {FORMAT}",
            hint="Use the version of ikebana that made the checkpoint, or start with a new "
            "checkpoint and new output topics.",
        )

    def write(self, birth: Birth) -> None:
        """Write the birth record.

        Raises: CheckpointError, if it cannot be written.
        """
        # A signal that ends a start is raised in the main thread, wherever that is.  A stream that
        # it left there would be closed, and an object store would have what was written so far.
        with ThreadPoolExecutor(1) as writer:
            # Leaving this block waits only for a thread that has begun, so it begins first.
            writer.submit(int).result()
            writer.submit(self._write, _sealed(msgspec.json.encode(birth))).result()

    def _write(self, content: bytes) -> None:
        path = f"{self._path}/{_BIRTH}"
        aside = f"{self._path}/.{_BIRTH}.{uuid.uuid4().hex}"
        local = isinstance(self._system, fs.LocalFileSystem)
        with reached(self.location, "write"):
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
        with reached(self.location, "write"):
            with self._system.open_output_stream(path) as out:
                out.write(b"probe")
            try:
                with self._system.open_input_stream(path) as stream:
                    if stream.read() != b"probe":
                        raise OSError(f"{path} does not hold what was written")
            finally:
                self._system.delete_file(path)

    def layout(self, birth: Birth) -> CheckpointFiles:
        """The logs and files of the checkpoint, at the place that the metadata names."""
        return CheckpointFiles(self.data(birth), birth.first_batch)

    def data(self, birth: Birth) -> str:
        """The location of Spark's logs and the shards' files."""
        return f"{self.location.rstrip('/')}/{birth.layout}" if birth.layout else self.location


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


def newborn(
    location: str, plan: Plan, shards: int, start: SourceOffset, *, tasks: int = 0
) -> Birth:
    """The metadata of a new checkpoint; `tasks` is 0 for one task a shard."""
    return Birth(
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


def existing(location: str) -> tuple[Checkpoint, Birth]:
    """Open the checkpoint at a location, with its metadata.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    checkpoint = Checkpoint(location)
    birth = checkpoint.birth()
    if birth is None:
        raise CheckpointError(
            f'"{location}" holds no checkpoint of ikebana',
            hint="Name the folder that run.checkpoint names.",
        )
    return checkpoint, birth
