"""SIGINT and SIGTERM at a few moments; `bench/signals.py` goes through all of them."""

import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest

from support.pipeline_processes import Pipeline, PipelineOver, Run, upserts
from support.signalled_runs import OF_DEMO, OF_RUN, Target, problems, signalled
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("name", "number", "target"),
    [
        pytest.param("the JVM is there", signal.SIGINT, "group", marks=pytest.mark.full),
        pytest.param("first batch", signal.SIGTERM, "all", marks=pytest.mark.full),
        pytest.param("idle", signal.SIGINT, "group", marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_a_run_with_status_0_and_leaves_nothing(
    pipeline_over: PipelineOver, tmp_path: Path, name: str, number: signal.Signals, target: Target
) -> None:
    """To the process or to all that it has started: no stack, no JVM, no worker, no file.

    What is logged is committed then, unless a worker got the signal too.
    """
    pipeline = pipeline_over(1, upserts(500, 100, Random(1)), limit=100)
    moment = next(moment for moment in OF_RUN if moment.name == name)

    outcome = signalled(pipeline.start(), pipeline, moment, number, target)

    assert problems(outcome, moment) == [], outcome.text
    assert pipeline.log("offsets") == pipeline.log("commits")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ikebana-")] == []


@pytest.mark.full
def test_a_signal_ends_the_demo_with_its_broker_and_spark(tmp_path: Path) -> None:
    """Its status says that nothing was checked."""
    pipeline = Pipeline(tmp_path, "", "demo", "flights")
    arguments = [sys.executable, "-m", "ikebana", "demo", "--flights", "3000"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = Run(arguments, environment, tmp_path / "demo.log", tmp_path / "once")
    moment = next(moment for moment in OF_DEMO if moment.name == "query started")

    outcome = signalled(run, pipeline, moment, signal.SIGINT, "group")

    assert problems(outcome, moment) == [], outcome.text
    assert outcome.status == 128 + signal.SIGINT
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ikebana-")] == []


@pytest.mark.full
def test_a_driver_that_is_killed_takes_spark_with_it(pipeline_over: PipelineOver) -> None:
    """The JVM is in a session of its own, and still ends with who has started it."""
    pipeline = pipeline_over(1, upserts(100, 50, Random(1)))
    with pipeline.start() as run:
        pipeline.wait_for_batch(0)
        assert run.workers()
        run.kill_driver()
        wait_until(lambda: not run.family.alive(), 60, "the end of the JVM and its workers")
