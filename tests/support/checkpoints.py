"""Checkpoints as a run leaves them that has ended, made of one in memory."""

from pathlib import Path

import msgspec

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.run import Head
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata, metadata_of
from ikebana.testing import Run


def left(run: Run, place: Path, *, committed: bool = True) -> CheckpointMetadata:
    """Write what a run has come to as a checkpoint; unless `committed`, its last batch is not."""
    checkpoint = Checkpoint(str(place))
    shards = len(run.stores)
    metadata = metadata_of(str(place), run.plan, shards, run.last)
    metadata = msgspec.structs.replace(metadata, first_batch=run.last.batch)
    checkpoint.write(metadata)
    entry = msgspec.json.encode(run.last.to_json()).decode()
    for log, there in (("offsets", True), ("commits", committed)):
        (place / log).mkdir()
        if there:
            (place / log / "0").write_text(f"v1\n{{}}\n{entry}")
    for shard, store in enumerate(run.stores):
        head = Head(metadata.id, shard, 0, 1, [f"{metadata.id}-{shard}"])
        runs.write(Folder.at(str(place), "shards", f"{shard:04d}"), head, store.scan(b""), "base")
    return metadata
