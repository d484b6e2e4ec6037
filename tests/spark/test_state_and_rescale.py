"""The commands that work on a checkpoint offline, and life after them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.checkpoint.checkpoint import Checkpoint
from support.pipeline_processes import PipelineOver, upserts
from support.waiting import patient

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def ikebana(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    command = [str(Path(sys.executable).with_name("ikebana")), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patient(120), check=False
    )


def test_a_checkpoint_is_read_verified_moved_and_rescaled_offline(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """`state` reads the collection that was published, names what is damaged, and
    `rescale` writes a checkpoint that goes on exactly, after which the old one is refused.
    """
    pipeline = pipeline_over(2, upserts(1500, 300, Random(1)), limit=400)
    pipeline.drained()
    truth = pipeline.truth()
    place = pipeline.place

    read = ikebana("state", place, "--read", "current")
    entries = [json.loads(line) for line in read.stdout.splitlines()]
    held = {entry["key"].encode(): entry["value"] for entry in entries}
    assert held == {key: json.loads(value) for key, value in truth.items()}, read.stderr

    verified = ikebana("state", place, "--verify")
    assert f"operator current: {len(truth)} entries" in verified.stdout
    assert "files are sound" in verified.stdout

    damaged = sorted((place / "shards" / "0001").glob("*.run"))[0]
    sound = damaged.read_bytes()
    damaged.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    refused = ikebana("state", place, "--verify")
    assert refused.returncode == 1
    assert damaged.name in refused.stderr
    damaged.write_bytes(sound)

    moved = tmp_path / "moved"
    place.rename(moved)
    assert "was copied or moved" in ikebana("state", moved).stderr
    assert ikebana("state", moved, "--relocate").returncode == 0

    wider = tmp_path / "wider"
    done = ikebana("rescale", moved, "--shards", 3, "--to", wider)
    assert done.returncode == 0, done.stderr
    assert f"{len(truth)} entries in 3 shards" in done.stdout

    pipeline.send(upserts(700, 300, Random(2)))
    rescaled = replace(pipeline.but(shards=3), checkpoint=wider)
    rescaled.drained()
    assert pipeline.judged() == {}

    with replace(pipeline, checkpoint=moved).start("--once") as old:
        assert old.wait(60) == 1
        assert "The checkpoint was rescaled: set run.checkpoint to the folder" in old.text


def test_without_owners_of_shards_each_shard_gets_a_task_of_its_own(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """The state is written anew for that, once, and goes on.

    Another Python than ours has owners by Spark's daemon, unless that is not ours either.
    """
    pipeline = pipeline_over(2, limit=400).but(shards=3)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    elsewhere = {"PYSPARK_PYTHON": str(other)}
    without = {"spark.python.daemon.module": "pyspark.daemon"}

    def tasks(environment: dict[str, str], spark: dict[str, str] | None = None) -> tuple[int, int]:
        pipeline.send(upserts(700, 100, Random(1)))
        with replace(pipeline, spark=spark or {}).start("--once", environment=environment) as run:
            assert run.wait(120) == 0, run.text
        assert f"owners {'no (spark.python.daemon.module is ' if spark else 'yes'}" in run.text
        assert "warning" not in run.text
        assert pipeline.judged() == {}
        metadata = Checkpoint(str(pipeline.place)).metadata()
        assert metadata is not None
        return metadata.state_partitions, metadata.epoch

    assert tasks({}) == (1, 0)
    assert tasks(elsewhere) == (1, 0)
    assert tasks(elsewhere, without) == (3, 1)
    assert tasks({}) == (3, 1)
