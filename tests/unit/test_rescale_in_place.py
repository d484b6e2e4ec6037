"""Rescaling at a checkpoint's own location: a layout beside the present one, then no other."""

from collections import Counter
from pathlib import Path

import pytest

from ikebana.arrangements.shard import entries
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata
from ikebana.processor.checkpoint.rescale import former_layouts, rescaled
from support.rescaled_states import LAST, Entry, Written, log, written


@pytest.fixture
def old(tmp_path: Path) -> Written:
    """Four shards after two batches."""
    return written(tmp_path / "c", keys=100)


def placed(old: Written, metadata: CheckpointMetadata) -> list[Entry]:
    """All entries of a layout."""
    layout = old.checkpoint.layout(metadata)
    return [
        entry
        for shard, manifest in metadata.seeds.items()
        for entry in entries(layout.shard(shard), manifest)
    ]


def in_place(old: Written, metadata: CheckpointMetadata, shards: int) -> CheckpointMetadata:
    manifests = list(metadata.seeds.values()) or old.manifests
    return rescaled(old.checkpoint, metadata, manifests, shards, lambda _: None)


def test_the_present_layout_counts_until_the_metadata_is_written(old: Written) -> None:
    location = Path(old.checkpoint.location)
    before = {path: path.read_bytes() for path in location.rglob("*") if path.is_file()}
    reborn = in_place(old, old.metadata, 3)

    assert {path: path.read_bytes() for path in before} == before
    assert old.checkpoint.metadata() == old.metadata
    assert (reborn.layout, reborn.epoch) == ("epoch-1", 1)
    assert (reborn.shards, reborn.first_batch) == (3, 2)
    assert Counter(placed(old, reborn)) == Counter(old.entries)


def test_what_a_killed_attempt_has_left_is_replaced(old: Written) -> None:
    """It may have had another number of shards, and files that are whole."""
    in_place(old, old.metadata, 7)
    reborn = in_place(old, old.metadata, 2)

    folders = sorted(Path(old.checkpoint.data(reborn), "shards").iterdir())
    assert [folder.name for folder in folders] == ["0000", "0001"]
    assert Counter(placed(old, reborn)) == Counter(old.entries)


def test_former_layouts_go_and_the_present_one_stays(old: Written) -> None:
    location = Path(old.checkpoint.location)
    (location / "metadata").write_text("of Spark")
    (location / ".metadata.crc").write_text("of Spark")
    second = in_place(old, old.metadata, 3)
    old.checkpoint.write(second)
    log(Path(old.checkpoint.data(second)), "offsets", 0, LAST_OF_SECOND)
    log(Path(old.checkpoint.data(second)), "commits", 0)
    third = in_place(old, second, 5)
    old.checkpoint.write(third)

    for layout in former_layouts(old.checkpoint, third):
        layout.remove()

    assert sorted(path.name for path in location.iterdir()) == ["epoch-2", "ikebana.json"]
    assert old.checkpoint.metadata() == third
    assert third.first_batch == 3
    assert Counter(placed(old, third)) == Counter(old.entries)
    assert former_layouts(old.checkpoint, old.metadata) == []


LAST_OF_SECOND = type(LAST)(2, 20, 30, {"a": {0: 300}}, LAST.plan, {"of_a": 30, "of_b": 30})


@pytest.mark.parametrize(("tasks", "partitions"), [(0, 4), (1, 1), (9, 4)])
def test_a_layout_has_a_task_for_each_shard_or_fewer(
    old: Written, tasks: int, partitions: int
) -> None:
    """Spark's state has a partition for each task."""
    reborn = rescaled(old.checkpoint, old.metadata, old.manifests, 4, lambda _: None, tasks=tasks)

    assert reborn.state_partitions == partitions
    assert Counter(placed(old, reborn)) == Counter(old.entries)
