"""A checkpoint of upserts that is written by hand, to be rescaled."""

import json
from dataclasses import dataclass
from pathlib import Path

from ikebana import Input, Output, Plan, Upsert
from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import Head
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.errors import error_record
from ikebana.processor.base.rows import Upserts
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata, metadata_of
from ikebana.processor.checkpoint.rescale import rescaled
from ikebana.processor.engine.dataflow import advance
from ikebana.processor.topics.source_offset import SourceOffset

PLAN = Plan(
    "names",
    inputs=(Input("a", ("a",), "bytes", "bytes"), Input("b", ("b",), "bytes", "bytes")),
    operators=(Upsert("of_a", "a"), Upsert("of_b", "b")),
    outputs=(Output("out", "of_a", "out"),),
)
SHARDS = 4
START = SourceOffset(-1, 0, 0, {"a": {0: 0}}, PLAN.fingerprint())
LAST = SourceOffset(
    1, 10, 20, {"a": {0: 300}}, PLAN.fingerprint(), {"of_a": 20, "of_b": 20}, {"a": {0: 0}}
)
Entry = tuple[bytes, bytes]


@dataclass
class Written:
    """A checkpoint on disk and what is in it."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    manifests: list[Manifest]
    entries: list[Entry]

    def rescaled(self, new: Path, shards: int) -> tuple[CheckpointMetadata, list[Manifest]]:
        """Rescale it, and the manifests that the new one starts from."""
        told: list[int] = []
        to = Checkpoint(str(new))
        reborn = rescaled(
            self.checkpoint, self.metadata, self.manifests, shards, told.append, new=to
        )
        to.write(reborn)
        assert sum(told) == len(self.entries)
        return reborn, [reborn.seeds[shard] for shard in range(shards)]


def log(location: Path, kind: str, batch: int, offset: SourceOffset | None = None) -> None:
    """An entry of Spark's offset or commit log, and the checksum file beside it."""
    folder = location / kind
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"nextBatchWatermarkMs": 0})]
    if offset is not None:
        lines.append(json.dumps(offset.to_json()))
    (folder / str(batch)).write_text("\n".join(lines))
    (folder / f".{batch}.crc").write_bytes(b"crc")


def states(shard: int, keys: int) -> list[Entry]:
    """What a shard holds after upserts: values, error slots, and upserts that wait."""
    store = MemoryStore()
    numbers = [at for at in range(keys) if shard_of(b"key %d" % at, SHARDS) == shard]
    own = [b"key %d" % at for at in numbers]
    bad = dict.fromkeys(range(len(own)), error_record("bad", ("b", 0, 0), None, None))
    rows = [
        Upserts("a", 0, 0, 5, own, [b"v"] * len(own), numbers),
        Upserts("b", 1, 0, 5, own, [None] * len(own), numbers, bad),
        Upserts("a", 0, 0, 30, own, [b"later"] * len(own), [at + keys for at in numbers]),
    ]
    advance(PLAN, store, rows, {"of_a": Interval(0, 20), "of_b": Interval(0, 20)})
    return list(store.scan(b""))


def written(location: Path, keys: int) -> Written:
    """A checkpoint of four shards with so many keys, two batches old."""
    metadata = metadata_of(str(location), PLAN, SHARDS, START)
    checkpoint = Checkpoint(str(location))
    checkpoint.write(metadata)
    log(location, "offsets", 0, START)
    log(location, "offsets", 1, LAST)
    log(location, "commits", 0)
    log(location, "commits", 1)
    manifests, held = [], []
    for shard in range(SHARDS):
        files = Folder.at(str(location), "shards", f"{shard:04d}")
        own = states(shard, keys)
        held += own
        first = runs.write(
            files,
            Head(metadata.id, shard, 0, 1, ["first"]),
            sorted([*own, (b"of_a\0kgone", b"v")]),
            "delta",
        )
        removal = [(b"of_a\0kgone", None)]
        second = runs.write(files, Head(metadata.id, shard, 1, 2, ["second"]), removal, "delta")
        manifests.append(Manifest(metadata.id, shard, 2, [first, second]))
    return Written(checkpoint, metadata, manifests, held)
