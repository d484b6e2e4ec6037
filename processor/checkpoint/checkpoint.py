"""A checkpoint: its metadata, and Spark's offset and commit logs.

The metadata file, `ikebana.json` (the *birth record*), is written before the first batch, and
again when the plan changes.  It has the checkpoint's id, its plan, its location, its number
of shards, and the offsets at which reading starts.  Transactional ids, markers and state
files have the id in them, so that those of two checkpoints cannot be confused.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from pyarrow import fs

from ikebana.arrangements.files import file_system
from ikebana.arrangements.manifest import Manifest
from ikebana.errors import CheckpointError
from ikebana.processor.planning.plan import Plan
from ikebana.processor.planning.state_forms import state_forms
from ikebana.processor.timing.reclock import SourceOffset

FORMAT = 1
FORMS = "state"
"""The field of a recorded plan with the forms of its parts' state."""
_BIRTH = "ikebana.json"


class Birth(msgspec.Struct, frozen=True):
    """The metadata of a checkpoint.

    * `epoch`: the number of rescalings.
    * `first_batch`: ikebana's number of Spark's batch 0.
    * `seeds`: the manifests with which the shards began, if the checkpoint was rescaled.
    * `plan`, `before`: the plan of the last run, and the plan before the last edit.
    * `edits`: the number of edits of the plan.
    * `generations`, `generations_before`: the names that have been used (`edits_resolved`), now
      and before the last edit.
    * `released`: the parts of the state that removed operators have left.
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


class Logged(msgspec.Struct, frozen=True):
    """The last batches in Spark's two logs, by ikebana's numbers; `first_batch` - 1 for none."""

    offset: SourceOffset | None
    batch: int
    committed: int


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
        with self._reached("read"):
            raw = self._read(_BIRTH)
            foreign = raw is None and (self._names("offsets") or self._names("shards"))
        if raw is None:
            if foreign:
                raise CheckpointError(
                    f'"{self.location}" holds a checkpoint without {_BIRTH}: it is not '
                    "one of ikebana's, or only a part of one",
                    hint="Name another folder, or restore the whole checkpoint.",
                )
            return None
        try:
            birth = msgspec.json.decode(raw, type=Birth)
        except msgspec.MsgspecError as error:
            raise CheckpointError(
                f'cannot read {_BIRTH} of checkpoint "{self.location}": {error}',
                hint="The file is damaged: restore it from a backup, or start with a new "
                "checkpoint and new output topics.",
            ) from None
        if birth.format != FORMAT:
            raise CheckpointError(
                f'checkpoint "{self.location}" has format {birth.format}, this version '
                f"of ikebana reads {FORMAT}",
                hint="Use the version of ikebana that made the checkpoint, or start with a new "
                "checkpoint and new output topics.",
            )
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
        """Record the current location, after the checkpoint was moved."""
        raw = self._read(_BIRTH)
        if raw is None:
            raise CheckpointError(
                f'"{self.location}" holds no checkpoint of ikebana',
                hint="Name the folder of a checkpoint, which has a file ikebana.json.",
            )
        birth = msgspec.json.decode(raw, type=Birth)
        moved = msgspec.structs.replace(birth, location=self.identity)
        self.write(moved)
        return moved

    def write(self, birth: Birth) -> None:
        """Write the birth record.

        Raises: CheckpointError, if it cannot be written.
        """
        path, content = f"{self._path}/{_BIRTH}", msgspec.json.encode(birth)
        aside = f"{self._path}/.{_BIRTH}.{uuid.uuid4().hex}"
        local = isinstance(self._system, fs.LocalFileSystem)
        with self._reached("write"):
            self._system.create_dir(self._path, recursive=True)
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
        with self._reached("write"):
            with self._system.open_output_stream(path) as out:
                out.write(b"probe")
            try:
                with self._system.open_input_stream(path) as stream:
                    if stream.read() != b"probe":
                        raise OSError(f"{path} does not hold what was written")
            finally:
                self._system.delete_file(path)

    def logged(self, first_batch: int) -> Logged:
        """Read the last entries of Spark's offset and commit logs.

        Raises: CheckpointError, if they cannot be read.
        """
        with self._reached("read"):
            offsets, commits = self._numbers("offsets"), self._numbers("commits")
        committed = first_batch + max(commits, default=-1)
        if offsets:
            last = max(offsets)
            offset = self.offset(last)
            if offset.batch >= first_batch:
                return Logged(offset, first_batch + last, committed)
        return Logged(None, first_batch - 1, committed)

    def forget_nothing(self, first_batch: int) -> None:
        """Remove an empty first batch from Spark's offset log.

        A start before there was anything to read has logged the start itself as a batch.  No
        shard has run it, so the next start logs a first batch anew.

        Raises: CheckpointError, if the log cannot be read or written.
        """
        with self._reached("read"):
            offsets = self._numbers("offsets")
        if offsets != [0] or self.offset(0).batch >= first_batch:
            return
        with self._reached("write"):
            for name in ("0", ".0.crc"):
                with suppress(FileNotFoundError):
                    self._system.delete_file(f"{self._path}/offsets/{name}")

    def offset(self, spark_batch: int) -> SourceOffset:
        """Read the source's offset from one entry of Spark's offset log."""
        with self._reached("read"):
            raw = self._read(f"offsets/{spark_batch}")
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

    def shards(self) -> list[int]:
        """The numbers of shards that have state files."""
        return sorted(int(name) for name in self._names("shards") if name.isdigit())

    @contextmanager
    def _reached(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f'could not {verb} "{self.location}": {error}',
                hint="Check run.checkpoint, its rights, and the credentials of its file system.",
            ) from error

    def _numbers(self, folder: str) -> list[int]:
        return [int(name) for name in self._names(folder) if name.isdigit()]

    def _names(self, folder: str) -> Iterator[str] | list[str]:
        selector = fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True)
        return [info.base_name for info in self._system.get_file_info(selector)]

    def _read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None


def newborn(location: str, plan: Plan, shards: int, start: SourceOffset) -> Birth:
    """The metadata of a new checkpoint."""
    return Birth(
        id=uuid.uuid4().hex[:12],
        location=Checkpoint(location).identity,
        shards=shards,
        plan=described(plan),
        start=start,
    )


def described(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, without the settings that may change between restarts."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan))
    for output in plain["outputs"]:
        # It is only used when the topic is created.
        del output["partitions"]
        # No state depends on it.
        del output["tombstones"]
        # The next plan says it of itself.
        del output["on_change"]
    for source in plain["inputs"]:
        del source["start"]
        # Left out if unset, as older checkpoints do not have these fields.
        for name in ("unique", "size"):
            if not source[name]:
                del source[name]
    del plain["on_error"]
    if not plain["readings"]:
        del plain["readings"]
    # Left out if there are none, so that older checkpoints do not differ.
    if forms := state_forms(plan):
        plain[FORMS] = forms
    return plain


def check_shards(birth: Birth, shards: int) -> None:
    """Refuse another number of shards than the checkpoint has.

    Raises: CheckpointError.
    """
    if birth.shards != shards:
        raise CheckpointError(
            f"the checkpoint has {birth.shards} shards, run.shards is {shards}",
            hint=f"Set run.shards to {birth.shards}, or rewrite the checkpoint with "
            f"`ikebana rescale CHECKPOINT --shards {shards} --to NEW`.",
        )


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
