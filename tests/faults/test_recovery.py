"""A checkpoint that is lost: `ikebana recover`, and the run that makes its state anew."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest

from ikebana.processor.base.texts import moment
from support.output_judge import committed, progress_of
from support.pipeline_processes import Pipeline, PipelineOver, delete_before, upserts
from support.recoveries import recover
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0001",
    "max.compaction.lag.ms": "100",
}


def lose(pipeline: Pipeline) -> None:
    rmtree(pipeline.place)
    rmtree(pipeline.folder / "local", ignore_errors=True)


def recovered(pipeline_over: PipelineOver, seed: int) -> Pipeline:
    """A pipeline that has lost its checkpoint after some records and has a new one."""
    pipeline = pipeline_over(2, upserts(200, 60, Random(seed)))
    pipeline.drained()
    lose(pipeline)
    recover(pipeline)
    return pipeline


def checked(pipeline: Pipeline) -> str:
    """The topic is what its input comes to at each closed time, and `check`, whose words, agrees.

    Outputs stand for some batches, and what was not closed is taken back at its own time.
    """
    wrong = pipeline.judged()
    assert wrong.keys() <= {"empty interval", "not consolidated"}, wrong
    command = [sys.executable, "-m", "ikebana", "check", pipeline.target]
    command += ["--bootstrap-servers", pipeline.servers]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("domain", ["offset", "ingest"])
def test_a_pipeline_goes_on_without_its_checkpoint(
    pipeline_over: PipelineOver, tmp_path: Path, domain: str
) -> None:
    """Killed in a batch of which one shard was committed; it dies again during the rebuild."""
    pipeline = pipeline_over(2, upserts(1500, 300, Random(1)), domain=domain)
    with pipeline.start("--once", fault="before_commit>after_commit:2:1:all") as run:
        run.wait_for_fault()
        run.wait(30)
    before = pipeline.progress()
    old = tmp_path / "old"
    copytree(pipeline.place, old)
    lose(pipeline)
    pipeline.send(upserts(300, 300, Random(2)))

    planned = recover(pipeline, "--plan")
    assert "of a batch that was not closed" in planned
    assert f"gives up times {before[-1].upper} to " in planned
    assert not pipeline.place.exists()
    assert recover(pipeline).startswith(planned.rstrip())
    assert "it has a checkpoint" in recover(pipeline, status=1)
    with pipeline.start("--once", fault=f"before_progress:{before[-1].batch + 3}:*:all") as run:
        run.wait_for_fault()
        run.wait(30)
    assert pipeline.progress()[len(before) - 1].upper == before[-1].upper
    pipeline.drained()
    assert f"given up: times {moment(before[-1].upper)} to " in checked(pipeline)
    records = pipeline.progress()
    assert {each.checkpoint for each in records} == {before[0].checkpoint}

    pipeline.send(upserts(400, 300, Random(3)))
    pipeline.drained()
    checked(pipeline)

    # What was restored too late is refused by name.
    lose(pipeline)
    copytree(old, pipeline.place)
    with pipeline.start("--once") as run:
        assert run.wait(120) == 1
    assert "ikebana recover" in run.text


def test_an_output_that_had_everything_gets_nothing(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """The input is compacted; after commit records are written, a death comes before metadata."""
    choice = Random(5)
    pipeline = pipeline_over(1, upserts(900, 100, choice), topic=COMPACTED)
    pipeline.drained()

    def compacted() -> bool:
        # The cleaner leaves the last segment alone: each record begins a new one.
        pipeline.send([(b"filler", b"%d" % choice.randrange(1000))])
        return len(committed(pipeline.servers, pipeline.source)) < 300

    wait_until(compacted, 60, f"compaction of {pipeline.source}")
    pipeline.drained()
    count, last = len(committed(pipeline.servers, pipeline.target)), pipeline.progress()[-1]
    lose(pipeline)
    recover(pipeline, status=-9, fault=f"before_recovered:1:*:{tmp_path / 'died'}")
    assert not pipeline.place.exists()
    recover(pipeline)
    pipeline.drained()

    assert len(committed(pipeline.servers, pipeline.target)) == count
    assert pipeline.progress()[-1].upper > last.upper
    checked(pipeline)


def test_what_is_gone_is_named(pipeline_over: PipelineOver) -> None:
    """The beginning of an input, or a format that cannot be taken back; nothing is written."""
    pipeline = pipeline_over(1)
    assert "nothing to recover" in recover(pipeline, status=1)
    pipeline.send(upserts(100, 30, Random(6)))
    pipeline.drained()
    lose(pipeline)
    delete_before(pipeline.servers, pipeline.source, {0: 50})
    commits = len(committed(pipeline.servers, pipeline.name + ".commits"))

    told = recover(pipeline, status=1)
    assert f"{pipeline.source}[0] begins at offset 50" in told
    assert not pipeline.place.exists()
    assert len(committed(pipeline.servers, pipeline.name + ".commits")) == commits


def test_an_older_backup_is_refused_until_it_is_recovered(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """The newest backup of a stopped pipeline goes on; one of before is moved away."""
    pipeline = pipeline_over(2, upserts(300, 60, Random(7)))
    pipeline.drained()
    copytree(pipeline.place, tmp_path / "first")
    pipeline.send(upserts(300, 60, Random(8)))
    pipeline.drained()
    copytree(pipeline.place, tmp_path / "second")

    lose(pipeline)
    copytree(tmp_path / "second", pipeline.place)
    pipeline.send(upserts(50, 60, Random(9)))
    pipeline.drained()
    checked(pipeline)

    lose(pipeline)
    copytree(tmp_path / "first", pipeline.place)
    with pipeline.start("--once") as run:
        assert run.wait(120) == 1
    assert "was rolled back" in run.text
    lose(pipeline)
    recover(pipeline)
    pipeline.drained()
    checked(pipeline)
    records = progress_of(pipeline.servers, pipeline.target)
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def test_another_plan_waits_until_the_state_is_made_anew(pipeline_over: PipelineOver) -> None:
    """And so does another number of shards."""
    pipeline = recovered(pipeline_over, seed=9)
    with replace(pipeline.but(shards=3)).start("--once") as run:
        assert run.wait(120) == 1
    assert "being built again" in run.text
    pipeline.drained()
    pipeline.but(shards=3).drained()
    checked(pipeline)


def test_an_edit_right_after_a_recovery_takes_nothing_back(pipeline_over: PipelineOver) -> None:
    """What the recovery has read of the topics of outputs is none of the edit's."""
    pipeline = recovered(pipeline_over, seed=11)
    pipeline.drained()
    outputs = pipeline.document()["outputs"]
    more = {"from": "current", "topic": pipeline.target + ".more"}
    edited = replace(pipeline, plan={"outputs": {**outputs, "more": more}})
    edited.drained()

    checked(edited)
    checked(replace(edited, output=more["topic"]))
