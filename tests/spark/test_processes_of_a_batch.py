"""How many processes a micro-batch starts on a local checkpoint: each costs some milliseconds."""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from support.pipeline_processes import PipelineOver, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

# Hadoop runs these by name.
PROGRAMS = ("chmod", "readlink", "ls", "bash")
# All shards run in one.
TASKS = 1


def test_a_batch_starts_one_process_a_file_and_no_more(
    pipeline_over: PipelineOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset, the commit, and the state of the only task."""
    called, bin_ = tmp_path / "called", tmp_path / "bin"
    called.touch()
    bin_.mkdir()
    for program in PROGRAMS:
        ours = bin_ / program
        ours.write_text(
            f'#!/bin/sh\necho {program} >> {called}\nexec {shutil.which(program)} "$@"\n'
        )
        ours.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    pipeline = pipeline_over(1, upserts(2_000, 50, Random(1)), limit=100)

    def so_far() -> tuple[int, int]:
        return len(called.read_text().splitlines()), pipeline.log("commits")[-1]

    with pipeline.start() as run:
        pipeline.wait_for_batch(3)
        calls, batch = so_far()
        pipeline.wait_for_batch(17)
        more_calls, later = so_far()
        assert run.stop() == 0, run.text

    # A batch under way has some of its calls behind it.
    assert more_calls - calls <= (TASKS + 2) * (later - batch + 1)
