"""A restart under other circumstances, and an end between two batches."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from support.pipeline_processes import Pipeline, PipelineOver, add_partitions, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def largest_batch(pipeline: Pipeline, first: int) -> int:
    """The most offsets that a batch from `first` on has taken."""
    totals = [sum(pipeline.logged_positions(b).values()) for b in pipeline.log("offsets")]
    steps = [after - before for before, after in pairwise([0, *totals])]
    return max(steps[first:])


def test_state_survives_another_size_of_batches_another_master_and_a_lost_local_folder(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """Stopped by SIGTERM with records left to read, then gone on with in other ways.

    SIGTERM ends between two batches: every logged batch is committed, and the status
    is 0.  The read limit holds for each run, but for one offset a partition.  The new
    partition is read from its beginning.
    """
    pipeline = pipeline_over(2, upserts(1200, 400, Random(1)), limit=150)
    with pipeline.start() as run:
        pipeline.wait_for_batch(3)
        assert run.stop() == 0, run.text
    assert pipeline.log("offsets") == pipeline.log("commits")
    assert sum(pipeline.logged_positions(-1).values()) < 1200
    assert largest_batch(pipeline, 0) <= 150 + 2
    first = len(pipeline.log("offsets"))
    rmtree(tmp_path / "local")

    changed = replace(pipeline.but(master="local[1]", trigger_interval="200ms"), limit=90)
    pipeline.send(upserts(200, 400, Random(2)))
    with changed.start() as run:
        changed.wait_for_batch(first)
        add_partitions(pipeline.servers, pipeline.source, 3)
        # Keys of their own: a key that moved between partitions would have no order.
        pipeline.send(((b"new%d" % n, b"1") for n in range(100)), partition=2)
        changed.wait_until_read()
        assert run.stop() == 0, run.text
    assert changed.log("offsets") == changed.log("commits")
    assert largest_batch(changed, first) <= 90 + 3
    truth = pipeline.truth()
    assert pipeline.judged() == {}
    assert truth[b"new99"] == b"1"
