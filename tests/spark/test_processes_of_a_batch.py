"""How many processes a micro-batch starts on a local checkpoint: each costs some milliseconds."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import Pipeline, create, produce, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

# Hadoop runs these by name.
PROGRAMS = ("chmod", "readlink", "ls", "bash")
# All shards run in one.
TASKS = 1


def test_a_batch_starts_one_process_a_file_and_no_more(
    broker: Broker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
    servers, source = broker.bootstrap_servers, topic_name("files")
    create(servers, source, 1)
    produce(servers, source, upserts(2_000, 50, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("files"), source, limit=100)

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
