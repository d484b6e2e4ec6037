"""Faults of Spark's executors, on a cluster of Spark's own on this machine."""

import psutil

from chaos.life import Life
from chaos.runs import paused
from chaos.scenario import scenario
from support.process_trees import kill

# A master and two workers in the driver's JVM, whose executors are processes of their own.
MASTER = "local-cluster[2,1,512]"
SPARK = {
    "spark.executor.memory": "512m",
    # A stopped executor is lost after this; by default after two minutes.
    "spark.network.timeout": "20s",
    "spark.executor.heartbeatInterval": "4s",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_LOST_S = 30.0


@scenario("executor", does="SIGKILL of one of two executors", ends="by itself")
def executor_kill(life: Life) -> None:
    life.at_some_moment()
    kill([life.one("executor")])


@scenario("executor", does="SIGKILL of both executors", ends="by itself")
def executor_kill_both(life: Life) -> None:
    life.at_some_moment()
    kill(life.processes("executor"))


@scenario("executor", does="SIGKILL of Python workers of executors", ends="by itself")
def executor_kill_workers(life: Life) -> None:
    life.at_some_moment()
    kill(life.processes("worker"))


@scenario("executor", does="SIGSTOP of one of two executors, shortly", ends="SIGCONT")
def executor_stop(life: Life) -> None:
    life.at_some_moment()
    with paused([life.one("executor")]):
        life.wait(life.stopped_s)


@scenario(
    "executor",
    does="SIGSTOP of one of two executors and its Python workers, until Spark has lost it",
    ends="SIGCONT; it has to write nothing",
)
def executor_stop_long(life: Life) -> None:
    life.at_some_moment()
    one = life.one("executor")
    with paused(_with_children(one)):
        life.wait(_LOST_S)


@scenario("executor", does="SIGKILL of the driver", ends="another start")
def executor_kill_driver(life: Life) -> None:
    life.at_some_moment()
    life.run.kill_driver()
    life.runs.killed()
    life.start()


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]
