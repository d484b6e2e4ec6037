"""A checkpoint that is lost: `ikebana recover`, and the run that makes its state anew."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest

from ikebana.processor.base.texts import moment
from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed, judge, progress_of, truth_of
from support.pipeline_processes import Pipeline, create, delete_before, produce, upserts
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


def recovered(pipeline: Pipeline, seed: int) -> Pipeline:
    """The pipeline, which has lost its checkpoint after some records and has a new one."""
    create(pipeline.servers, pipeline.source, 2)
    produce(pipeline.servers, pipeline.source, upserts(200, 60, Random(seed)))
    pipeline.drained()
    lose(pipeline)
    recover(pipeline)
    return pipeline


def checked(pipeline: Pipeline) -> str:
    """The topic is what its input comes to at each closed time, and `check`, whose words, agrees.

    Outputs stand for some batches, and what was not closed is taken back at its own time.
    """
    truth = truth_of(pipeline.servers, pipeline.source)
    wrong = judge(pipeline.servers, pipeline.target, truth)
    assert wrong.keys() <= {"empty interval", "not consolidated"}, wrong
    command = [sys.executable, "-m", "ikebana", "check", pipeline.target]
    command += ["--bootstrap-servers", pipeline.servers]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("domain", ["offset", "ingest"])
def test_a_pipeline_goes_on_without_its_checkpoint(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, domain: str
) -> None:
    """Killed in a batch of which one shard was committed; it dies again during the rebuild."""
    servers, source = broker.bootstrap_servers, topic_name("lost")
    create(servers, source, 2)
    produce(servers, source, upserts(1500, 300, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("recovered"), source, domain=domain)
    with pipeline.start("--once", fault="before_commit>after_commit:2:1:all") as run:
        run.wait_for_fault()
        run.wait(30)
    before = pipeline.progress()
    old = tmp_path / "old"
    copytree(pipeline.place, old)
    lose(pipeline)
    produce(servers, source, upserts(300, 300, Random(2)))

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

    produce(servers, source, upserts(400, 300, Random(3)))
    pipeline.drained()
    checked(pipeline)

    # What was restored too late is refused by name.
    lose(pipeline)
    copytree(old, pipeline.place)
    with pipeline.start("--once") as run:
        assert run.wait(120) == 1
    assert "ikebana recover" in run.text


def test_an_output_that_had_everything_gets_nothing(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The input is compacted; a death between the markers and the metadata is followed by more."""
    servers, source = broker.bootstrap_servers, topic_name("compacted")
    create(servers, source, 1, COMPACTED)
    choice = Random(5)
    produce(servers, source, upserts(900, 100, choice))
    pipeline = Pipeline(tmp_path, servers, topic_name("whole"), source)
    pipeline.drained()

    def compacted() -> bool:
        # The cleaner leaves the last segment alone: each record begins a new one.
        produce(servers, source, [(b"filler", b"%d" % choice.randrange(1000))])
        return len(committed(servers, source)) < 300

    wait_until(compacted, 60, f"compaction of {source}")
    pipeline.drained()
    count, last = len(committed(servers, pipeline.target)), pipeline.progress()[-1]
    lose(pipeline)
    recover(pipeline, status=-9, fault=f"before_recovered:1:*:{tmp_path / 'died'}")
    assert not pipeline.place.exists()
    recover(pipeline)
    pipeline.drained()

    assert len(committed(servers, pipeline.target)) == count
    assert pipeline.progress()[-1].upper > last.upper
    checked(pipeline)


def test_what_is_gone_is_named(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The beginning of an input, or a format that cannot be taken back; nothing is written."""
    servers, source = broker.bootstrap_servers, topic_name("gone")
    create(servers, source, 1)
    pipeline = Pipeline(tmp_path, servers, topic_name("refused"), source)
    assert "nothing to recover" in recover(pipeline, status=1)
    produce(servers, source, upserts(100, 30, Random(6)))
    pipeline.drained()
    lose(pipeline)
    delete_before(servers, source, {0: 50})
    markers = len(committed(servers, pipeline.name + ".markers"))

    told = recover(pipeline, status=1)
    assert f"{source}[0] begins at offset 50" in told
    assert not pipeline.place.exists()
    assert len(committed(servers, pipeline.name + ".markers")) == markers


def test_an_older_backup_is_refused_until_it_is_recovered(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The newest backup of a stopped pipeline goes on; one of before is moved away."""
    servers, source = broker.bootstrap_servers, topic_name("backed")
    create(servers, source, 2)
    produce(servers, source, upserts(300, 60, Random(7)))
    pipeline = Pipeline(tmp_path, servers, topic_name("up"), source)
    pipeline.drained()
    copytree(pipeline.place, tmp_path / "first")
    produce(servers, source, upserts(300, 60, Random(8)))
    pipeline.drained()
    copytree(pipeline.place, tmp_path / "second")

    lose(pipeline)
    copytree(tmp_path / "second", pipeline.place)
    produce(servers, source, upserts(50, 60, Random(9)))
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
    records = progress_of(servers, pipeline.target)
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def test_another_plan_waits_until_the_state_is_made_anew(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """And so does another number of shards."""
    source, name = topic_name("other"), topic_name("waits")
    pipeline = recovered(Pipeline(tmp_path, broker.bootstrap_servers, name, source), seed=9)
    with replace(pipeline.but(shards=3)).start("--once") as run:
        assert run.wait(120) == 1
    assert "being built again" in run.text
    pipeline.drained()
    pipeline.but(shards=3).drained()
    checked(pipeline)


def test_an_edit_right_after_a_recovery_takes_nothing_back(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """What the recovery has read of the topics of outputs is none of the edit's."""
    source, name = topic_name("edited"), topic_name("then")
    pipeline = recovered(Pipeline(tmp_path, broker.bootstrap_servers, name, source), seed=11)
    pipeline.drained()
    outputs = pipeline.document()["outputs"]
    more = {"from": "current", "topic": pipeline.target + ".more"}
    edited = replace(pipeline, plan={"outputs": {**outputs, "more": more}})
    edited.drained()

    checked(edited)
    checked(replace(edited, output=more["topic"]))
