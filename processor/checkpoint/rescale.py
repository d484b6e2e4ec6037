"""Rescaling: rewrite a checkpoint for another number of shards.

Spark fixes the number of state partitions, so the new state is written beside the old one, which
stays unchanged: in another folder at the same location, by a start with another number, or as a
checkpoint at another location, by `ikebana rescale`.  The new checkpoint has the same id, because
the outputs stay the same, and the next epoch: once it has started, the old one is refused.  It
begins with the batch after the old one's last, at the same offsets, and each of its shards starts
from a base file.
"""

# Decision (rescaling writes a new checkpoint): Spark freezes the number of state partitions in
# its logs, so the state is rewritten under the same id and the next epoch. Commit records carry
# the epoch, so old and new cannot both run. Manifests come from commit records: no Spark.

import functools
import heapq
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec
from msgspec.structs import replace

from ikebana.arrangements import run as runs
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import EntryChange, Head
from ikebana.arrangements.shard import entries, verify
from ikebana.errors import CheckpointError
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointFiles, CheckpointMetadata
from ikebana.processor.checkpoint.next_step import finishing
from ikebana.processor.checkpoint.parts import to_new_shards

_HELD = 5_000
_LENGTH = 4


def rescaled(
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    manifests: Sequence[Manifest],
    shards: int,
    on_entries: Callable[[int], None],
    *,
    tasks: int = 0,
    new: Checkpoint | None = None,
) -> CheckpointMetadata:
    """Write a layout with `shards` shards; return metadata that name it.

    The layout is beside the present one, or at the empty place of `new`.  The shards run in
    `tasks` tasks, 0 for one each.  `on_entries` is called with the number of entries that were
    just written.  The metadata are not written: until the caller does, the present layout counts.
    Files of an earlier attempt are replaced.

    Raises:
        CheckpointError: work is unfinished, the files cannot be written, or `new` is not empty.
        StateFileError: a file of the present layout is missing or damaged.
    """
    layout = checkpoint.layout(metadata)
    logged = layout.logged()
    if (pending := finishing(None, logged)) is not None:
        raise CheckpointError(
            f'cannot rescale "{checkpoint.location}": {pending.facts}',
            hint="Run the pipeline with --once first, which finishes all that was begun.",
        )
    reborn = replace(
        metadata,
        shards=shards,
        tasks=tasks,
        epoch=metadata.epoch + 1,
        first_batch=logged.committed + 1,
        start=replace(logged.offset or metadata.start, begins={}),
        seeds={},
        layout=f"epoch-{metadata.epoch + 1}",
    )
    if new is None:
        to = checkpoint.layout(reborn)
        to.remove()
    else:
        if new.metadata() is not None:
            raise CheckpointError(
                f'"{new.location}" holds a checkpoint already', hint="Name an empty folder."
            )
        reborn = replace(reborn, location=new.identity, layout="")
        to = new.layout(reborn)
    return replace(reborn, seeds=_rewritten(metadata, layout, manifests, to, shards, on_entries))


def former_layouts(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> list[CheckpointFiles]:
    """The layouts that may have existed before the present one."""
    if not metadata.layout:
        return []
    names = ["", *(f"epoch-{epoch}" for epoch in range(1, metadata.epoch))]
    return [checkpoint.layout(replace(metadata, layout=name)) for name in names]


def _rewritten(
    metadata: CheckpointMetadata,
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
        for shard, entry in to_new_shards(merged, at):
            spools.add(shard, entry)
            on_entries(1)
        for shard in range(shards):
            head = Head(metadata.id, shard, 0, version, [f"epoch-{metadata.epoch + 1}-{shard}"])
            base = runs.write(to.shard(shard), head, spools.entries(shard), "base")
            seeds[shard] = Manifest(metadata.id, shard, version, [base])
    return seeds


class _Spools:
    """A temporary file for each shard, written in one pass over all entries."""

    def __init__(self, shards: int) -> None:
        self._held: list[list[EntryChange]] = [[] for _ in range(shards)]
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> "_Spools":
        self._files = [tempfile.TemporaryFile() for _ in self._held]  # noqa: SIM115 - closed below
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, shard: int, change: EntryChange) -> None:
        self._held[shard].append(change)
        if len(self._held[shard]) >= _HELD:
            self._flush(shard)

    def entries(self, shard: int) -> Iterator[EntryChange]:
        self._flush(shard)
        file = self._files[shard]
        file.seek(0)
        while length := file.read(_LENGTH):
            block = file.read(int.from_bytes(length, "big"))
            yield from msgspec.msgpack.decode(block, type=list[EntryChange])

    def _flush(self, shard: int) -> None:
        block = msgspec.msgpack.encode(self._held[shard])
        self._files[shard].write(len(block).to_bytes(_LENGTH, "big") + block)
        self._held[shard] = []
