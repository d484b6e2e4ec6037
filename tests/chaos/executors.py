"""Faults of Spark's executors, on a cluster of Spark's own on this machine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from chaos.brokers import proxied
from chaos.life import Life
from chaos.plans import Plan
from chaos.runs import Wrong, paused, wait
from chaos.scenario import Scenario, scenario
from chaos.standalone import Standalone, standalone
from support.process_trees import kill

_SPARK = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    # A stopped executor is lost after this; by default after two minutes.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "4s",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_LOST_S = 30.0
_THERE_S = 60.0


class OnCluster(Life):
    """A life whose pipeline runs on a cluster of Spark's."""

    def __init__(self, spark: Standalone, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spark = spark
        there = self.pipeline.but(master=spark.master)
        self.pipeline = replace(there, spark=_SPARK)
        self.environment["PYSPARK_PYTHON"] = sys.executable

    def some(self, find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
        """The processes that a function finds, as soon as it finds one."""
        for _ in range(int(_THERE_S / 0.5)):
            if found := find():
                return found
            wait(0.5)
        raise Wrong("there was no such process")


@contextmanager
def on_cluster(
    folder: Path, seed: int, max_batch_s: int, longer_s: float, plan: Plan
) -> Iterator[Life]:
    """A life over one broker, whose pipeline runs on two executors."""
    with ExitStack() as stack:
        spark = stack.enter_context(standalone(folder))
        broker, proxy = stack.enter_context(proxied())
        yield OnCluster(spark, folder, broker, proxy, seed, max_batch_s, longer_s, plan)


def _killing(name: str, does: str, which: Callable[[OnCluster], list[psutil.Process]]) -> Scenario:
    def act(life: OnCluster) -> None:
        life.at_some_moment()
        kill(which(life))

    act.__name__ = name
    return scenario("executor", does=f"SIGKILL of {does}", ends="by itself")(act)


def _one(life: OnCluster) -> psutil.Process:
    return life.choice.choice(life.some(life.spark.executors))


one = _killing("executor_kill", "one of two executors", lambda life: [_one(life)])
both = _killing(
    "executor_kill_both", "both executors", lambda life: life.some(life.spark.executors)
)
pythons = _killing(
    "executor_kill_pythons",
    "the Python processes of executors",
    lambda life: life.some(life.spark.pythons),
)


@scenario("executor", does="SIGSTOP of one of two executors, shortly", ends="SIGCONT")
def executor_stop(life: OnCluster) -> None:
    life.at_some_moment()
    with paused([_one(life)]):
        life.wait(life.stopped_s)


@scenario(
    "executor",
    does="SIGSTOP of one of two executors and its Python processes, until Spark has lost it",
    ends="SIGCONT; it has to write nothing",
)
def executor_stop_long(life: OnCluster) -> None:
    life.at_some_moment()
    process = _one(life)
    with paused([process, *process.children(recursive=True)]):
        life.wait(_LOST_S)


@scenario("executor", does="SIGKILL of the driver of a cluster", ends="another start")
def executor_kill_driver(life: OnCluster) -> None:
    life.at_some_moment()
    life.run.kill_driver()
    life.runs.killed()
    life.start()
