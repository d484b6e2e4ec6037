"""Rescaling: rewrite a checkpoint for another number of shards.

Spark fixes the number of state partitions, so the new state is written beside the old one, which
stays unchanged: in another folder at the same location (`rescaled_in_place`, by a start with
another number), or as a checkpoint at another location (`rescale`, by the command).  The new
checkpoint has the same id, because the outputs stay the same, and the next epoch: once it has
started, the old one is refused.  It begins with the batch after the old one's last, at the same
offsets, and each of its shards starts from a base file.
"""

# Decision (rescaling writes a new checkpoint): Spark freezes the number of state partitions in
# its logs, so the state is rewritten under the same id and the next epoch. Markers carry the
# epoch, so old and new cannot both run. Manifests come from commit records: no Spark.

import functools
import heapq
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec
from msgspec.structs import replace

from ikebana.arrangements import run as runs
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import Head
from ikebana.arrangements.shard import entries, verify
from ikebana.arrangements.transposed import Change
from ikebana.errors import CheckpointError
from ikebana.processor.base.placing import shard_of
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint
from ikebana.processor.checkpoint.layout import CheckpointFiles, Logged
from ikebana.processor.checkpoint.parts import moved
from ikebana.processor.topics.source_offset import is_settled

_HELD = 5_000
_LENGTH = 4


def rescale(
    old: Checkpoint,
    birth: Birth,
    manifests: Sequence[Manifest],
    new: Checkpoint,
    shards: int,
    on_entries: Callable[[int], None],
) -> Birth:
    """Write `new` with `shards` shards from the last committed batch of `old`.

    `on_entries` is called with the number of entries that were just written.

    Raises:
        CheckpointError: the last batch is unfinished, or `new` is not an empty place.
        StateFileError: a file of the old checkpoint is missing or damaged.
    """
    layout = old.layout(birth)
    logged = layout.logged()
    if logged.batch != logged.committed:
        raise CheckpointError(
            f'cannot rescale "{old.location}": batch {logged.batch} of the checkpoint is '
            "unfinished",
            hint="Run the pipeline with --once first: it ends with a finished batch.",
        )
    if logged.offset is not None and not is_settled(logged.offset):
        raise CheckpointError(
            f'cannot rescale "{old.location}": after batch {logged.batch} updates are still on '
            "their way between shards",
            hint="Run the pipeline with --once first: it ends when no updates are on their way.",
        )
    if new.birth() is not None:
        raise CheckpointError(
            f'"{new.location}" holds a checkpoint already', hint="Name an empty folder."
        )
    to = CheckpointFiles(new.location, logged.committed + 1)
    seeds = _rewritten(birth, layout, manifests, to, shards, on_entries)
    reborn = replace(
        _reborn(birth, logged, shards, birth.tasks, seeds), location=new.identity, layout=""
    )
    new.write(reborn)
    return reborn


def rescaled_in_place(
    checkpoint: Checkpoint,
    birth: Birth,
    manifests: Sequence[Manifest],
    shards: int,
    on_entries: Callable[[int], None],
    *,
    tasks: int = 0,
) -> Birth:
    """Write a layout with `shards` shards beside the present one; return metadata that names it.

    The shards run in `tasks` tasks, 0 for one each.  The metadata is not written: until the caller
    does, the present layout counts.  Files of an earlier attempt are replaced.  The last batch has
    to be finished, and no updates may be between operators.

    Raises:
        CheckpointError: the files cannot be written.
        StateFileError: a file of the present layout is missing or damaged.
    """
    layout = checkpoint.layout(birth)
    logged = layout.logged()
    assert logged.batch == logged.committed, "rescaling needs a finished batch"
    reborn = replace(_reborn(birth, logged, shards, tasks, {}), layout=f"epoch-{birth.epoch + 1}")
    to = checkpoint.layout(reborn)
    to.remove()
    return replace(reborn, seeds=_rewritten(birth, layout, manifests, to, shards, on_entries))


def former_layouts(checkpoint: Checkpoint, birth: Birth) -> list[CheckpointFiles]:
    """The layouts that may have existed before the present one."""
    if not birth.layout:
        return []
    names = ["", *(f"epoch-{epoch}" for epoch in range(1, birth.epoch))]
    return [checkpoint.layout(replace(birth, layout=name)) for name in names]


def _reborn(
    birth: Birth, logged: Logged, shards: int, tasks: int, seeds: dict[int, Manifest]
) -> Birth:
    """The metadata of the next epoch, which continues after the last committed batch."""
    return replace(
        birth,
        shards=shards,
        tasks=tasks,
        epoch=birth.epoch + 1,
        first_batch=logged.committed + 1,
        start=replace(logged.offset or birth.start, begins={}),
        seeds=seeds,
    )


def _rewritten(
    birth: Birth,
    layout: CheckpointFiles,
    manifests: Sequence[Manifest],
    to: CheckpointFiles,
    shards: int,
    on_entries: Callable[[int], None],
) -> dict[int, Manifest]:
    """Write the entries of all shards to the new shards; return the manifests of these."""
    sources = [(layout.shard(manifest.shard), manifest) for manifest in manifests]
    for files, manifest in sources:
        verify(files, manifest)
    version = max((m.version for m in manifests), default=0)
    seeds = {}
    at = functools.partial(shard_of, shards=shards)
    merged = heapq.merge(*(entries(files, manifest) for files, manifest in sources))
    with _Spools(shards) as spools:
        for shard, entry in moved(merged, at):
            spools.add(shard, entry)
            on_entries(1)
        for shard in range(shards):
            head = Head(birth.id, shard, 0, version, [f"epoch-{birth.epoch + 1}-{shard}"])
            base = runs.write(to.shard(shard), head, spools.entries(shard), "base")
            seeds[shard] = Manifest(birth.id, shard, version, [base])
    return seeds


class _Spools:
    """A temporary file for each shard, written in one pass over all entries."""

    def __init__(self, shards: int) -> None:
        self._held: list[list[Change]] = [[] for _ in range(shards)]
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> "_Spools":
        self._files = [tempfile.TemporaryFile() for _ in self._held]  # noqa: SIM115 - closed below
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, shard: int, change: Change) -> None:
        self._held[shard].append(change)
        if len(self._held[shard]) >= _HELD:
            self._flush(shard)

    def entries(self, shard: int) -> Iterator[Change]:
        self._flush(shard)
        file = self._files[shard]
        file.seek(0)
        while length := file.read(_LENGTH):
            block = file.read(int.from_bytes(length, "big"))
            yield from msgspec.msgpack.decode(block, type=list[Change])

    def _flush(self, shard: int) -> None:
        block = msgspec.msgpack.encode(self._held[shard])
        self._files[shard].write(len(block).to_bytes(_LENGTH, "big") + block)
        self._held[shard] = []
