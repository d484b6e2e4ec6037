"""Executors other than the driver, as processes of a standalone cluster on this machine."""

import os
from pathlib import Path
from random import Random

import psutil
import pytest

from ikebana.processor.spark.workers import network, serving
from support.pipeline_processes import PipelineOver, upserts
from support.process_trees import name_of
from support.standalone_spark import cluster, executors_in
from support.waiting import wait_until

# `make test` has another life on executors: tests/chaos/test_on_executors.py.
pytestmark = [
    pytest.mark.full,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
]


def executors(folder: Path) -> list[psutil.Process]:
    """The executors that run, by what they were started with."""
    places = {str(place) for place in executors_in(folder)}
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "java" and process.cwd() in places:
                found.append(process)
        except psutil.Error:
            continue
    return found


def named(name: str, executor: psutil.Process) -> list[psutil.Process]:
    """The processes with a name that an executor has started."""
    try:
        return [each for each in executor.children(recursive=True) if name_of(each) == name]
    except psutil.Error:
        return []


def encrypts(executor: psutil.Process) -> bool:
    """Whether the processes of an executor encrypt what they send."""
    return network.encrypts(executor.environ()[network.VARIABLE])


def test_executors_write_what_a_driver_alone_would_and_what_they_are_may_be_lost(
    pipeline_over: PipelineOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5, R19. Shards have owners there, as on a driver's machine, and go on after each loss.

    A daemon that is killed is followed by another one with its own host.  The shards of an
    executor that is killed go on in the other one, and come to the next when there is one.  Every
    batch counts once.  Spark encrypts what it sends, and so do the owners.
    """
    choice = Random(1)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    places = tmp_path / "cluster"
    secret = {"spark.authenticate": "true", "spark.authenticate.secret": "of this cluster"}
    with cluster(places, 2, memory="600m", settings=secret) as address:
        pipeline = pipeline_over(
            2,
            upserts(3_000, 200, choice),
            domain="ingest",
            settings={"master": address, "shards": 4},
            spark={
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.task.maxFailures": "8",
                **secret,
                "spark.network.crypto.enabled": "true",
            },
            # Tasks read a large batch, the driver a small one.
            limit=5_000,
        )
        with pipeline.start() as run:
            pipeline.wait_until_read()
            wait_until(lambda: len(executors(places)) == 2, 60, "two executors")
            assert "fast paths: owners yes" in run.text
            assert {encrypts(each) for each in executors(places)} == {True}

            def both_own() -> bool:
                # Owners are made when they are asked for.
                pipeline.send(upserts(20, 200, choice))
                pipeline.wait_until_read()
                found = executors(places)
                return len(found) == 2 and all(named(serving.OWNER_NAME, each) for each in found)

            wait_until(both_own, 60, "owners on both executors")
            lost, _ = executors(places)
            (daemon,) = {each.parent().parent() for each in named(serving.OWNER_NAME, lost)}
            theirs = daemon.children(recursive=True)
            daemon.kill()
            wait_until(both_own, 60, "owners on both executors after the loss of a daemon")
            assert not any(each.is_running() for each in theirs if name_of(each))

            lost.kill()
            pipeline.send(upserts(3_000, 200, choice))
            pipeline.wait_until_read()
            wait_until(both_own, 120, "owners on both executors after the loss of one")
            assert run.stop() == 0, run.text
            assert "owners no" not in run.text

    assert pipeline.judged() == {}
    assert os.listdir(tmp_path / "local"), "no executor has kept a shard"
