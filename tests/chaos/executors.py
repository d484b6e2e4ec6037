"""Faults of Spark's executors, on a cluster of Spark's own on this machine."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException

from chaos.brokers import proxied
from chaos.kills import LONGEST_START_S, MANY
from chaos.life import Life
from chaos.networks import Network
from chaos.plans import Plan
from chaos.runs import Wrong, paused, wait
from chaos.scenario import Scenario, scenario
from chaos.standalone import NODES, Node, Standalone, standalone, wiped
from support.output_judge import offsets
from support.process_trees import kill

SPARK = {
    "spark.executor.memory": "512m",
    # A stopped executor is lost after this; by default after two minutes.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "4s",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # As in the image.
    "spark.decommission.enabled": "true",
}
SHARDS = 4
_LOST_S = 30.0
_THERE_S = 90.0
_MEETS = 60


class OnCluster(Life):
    """A life whose pipeline runs on a cluster of Spark's."""

    def __init__(self, spark: Standalone, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spark = spark
        there = self.pipeline.but(master=spark.master, shards=SHARDS)
        self.pipeline = replace(there, spark={**SPARK, "spark.driver.host": spark.host})
        self.environment["PYSPARK_PYTHON"] = sys.executable

    @property
    def network(self) -> Network:
        """The network that the nodes are in.

        Raises:
            Wrong: they are in that of the machine.
        """
        if self.spark.network is None:
            raise Wrong("nodes cannot be cut off: a network of one's own takes root")
        return self.spark.network

    def some(self, kind: str) -> list[psutil.Process]:
        """The processes of a kind on executors, as soon as there are any.

        Raises:
            Wrong: there are none.
        """
        for _ in range(int(_THERE_S / 0.5)):
            if found := self.spark.processes(kind):
                return found
            wait(0.5)
        raise Wrong(f"executors have no {kind}")

    def one_of(self, kind: str) -> psutil.Process:
        """One of the processes of a kind on executors."""
        return self.choice.choice(self.some(kind))

    def siblings(self, kind: str) -> list[psutil.Process]:
        """All processes of a kind that are on one executor."""
        node = self.spark.node_of(self.one_of(kind))
        here = {*node.everything()}
        return [process for process in self.spark.processes(kind) if process in here]

    def owned_everywhere(self) -> bool:
        """Whether each node has owners of shards."""
        owners = self.spark.processes("owner")
        return all({*node.everything()} & {*owners} for node in self.spark.nodes)

    def complete(self) -> None:
        """Wait until each node has an executor.

        Raises:
            Wrong: one has none for too long.
        """
        for _ in range(int(_THERE_S / 0.5)):
            if all(node.executors() for node in self.spark.nodes):
                return
            wait(0.5)
        raise Wrong("a node has no executor any more")

    def has_open_transaction(self) -> bool:
        """Whether something is written to the output that is not committed yet."""
        with suppress(KafkaException):
            topics = [self.pipeline.target]
            stable = offsets(self.servers, topics, committed_only=True)
            return stable != offsets(self.servers, topics, committed_only=False)
        return False


@contextmanager
def on_cluster(
    folder: Path, seed: int, max_batch_s: int, longer_s: float, plan: Plan
) -> Iterator[OnCluster]:
    """A life over one broker, whose pipeline runs on two executors."""
    with ExitStack() as stack:
        spark = stack.enter_context(standalone(folder))
        # Nodes reach broker and driver at addresses of their own, so that each can be cut off.
        host = "127.0.0.1" if spark.network is None else spark.network.here_too
        broker, proxy = stack.enter_context(proxied(host=host))
        yield OnCluster(spark, folder, broker, proxy, seed, max_batch_s, longer_s, plan)


def _fault(name: str, does: str, ends: str, act: Callable[[OnCluster], None]) -> Scenario:
    def acted(life: OnCluster) -> None:
        life.complete()
        life.at_some_moment()
        act(life)

    acted.__name__ = f"executor_{name}"
    return scenario("executor", does=does, ends=ends)(acted)


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


# What is killed.


def _killed(name: str, does: str, which: Callable[[OnCluster], list[psutil.Process]]) -> Scenario:
    def act(life: OnCluster) -> None:
        kill(which(life))

    return _fault(name, does, "by itself", act)


one = _killed("kill", "SIGKILL of one of two executors", lambda life: [life.one_of("executor")])
both = _killed("kill_both", "SIGKILL of both executors", lambda life: life.some("executor"))
pythons = _killed(
    "kill_pythons",
    "SIGKILL of the Python processes of executors",
    lambda life: life.some("python"),
)
worker = _killed(
    "kill_worker",
    "SIGKILL of a Python worker of an executor",
    lambda life: [life.one_of("worker")],
)
daemon = _killed(
    "kill_daemon",
    "SIGKILL of the process that forks an executor's Python workers",
    lambda life: [life.one_of("daemon")],
)
owner = _killed(
    "kill_owner",
    "SIGKILL of a process that owns shards on an executor",
    lambda life: [life.one_of("owner")],
)
host = _killed(
    "kill_host",
    "SIGKILL of the process that forks an executor's owners of shards",
    lambda life: [life.one_of("host")],
)


def _again_and_again(life: OnCluster) -> None:
    for _ in range(MANY):
        if life.run.poll() is not None:
            life.start()
        life.wait(life.choice.uniform(0, LONGEST_START_S))
        kind = life.choice.choice(["executor", "executor", "owner", "worker", "daemon", "host"])
        life.did.append(kind)
        kill(life.spark.processes(kind)[:1])


again = _fault(
    "kill_again_and_again",
    f"SIGKILL of {MANY} processes of executors at random, one after the other, also in starts",
    "by itself; nothing is judged before the last",
    _again_and_again,
)


def _kill_driver(life: OnCluster) -> None:
    life.run.kill_driver()
    life.runs.killed()
    life.start()


driver = _fault("kill_driver", "SIGKILL of the driver of a cluster", "another start", _kill_driver)


# What is stopped, and comes back.


def _stopped(
    name: str,
    does: str,
    which: Callable[[OnCluster], list[psutil.Process]],
    ends: str = "SIGCONT",
    seconds: float = 0.0,
) -> Scenario:
    def act(life: OnCluster) -> None:
        with paused(which(life)):
            life.wait(seconds or life.stopped_s)

    return _fault(name, does, ends, act)


stop = _stopped(
    "stop",
    "SIGSTOP of one of two executors, for longer than a transaction lasts",
    lambda life: [life.one_of("executor")],
)
stop_pythons = _stopped(
    "stop_pythons",
    "SIGSTOP of an executor's Python processes, for longer than a transaction lasts",
    lambda life: _family(life.one_of("executor"))[1:] or life.some("python"),
)
stop_worker = _stopped(
    "stop_worker",
    "SIGSTOP of a Python worker of an executor, for longer than a transaction lasts",
    lambda life: [life.one_of("worker")],
)
stop_owners = _stopped(
    "stop_owners",
    "SIGSTOP of an executor's processes that own shards, for longer than a transaction lasts",
    lambda life: life.siblings("owner"),
)
stop_daemon = _stopped(
    "stop_daemon",
    "SIGSTOP of the process that forks an executor's Python workers",
    lambda life: [life.one_of("daemon")],
)
stop_long = _stopped(
    "stop_long",
    "SIGSTOP of one of two executors and its Python processes, until Spark has lost it",
    lambda life: _family(life.one_of("executor")),
    "SIGCONT; it has to write nothing",
    _LOST_S,
)
stop_both = _stopped(
    "stop_both",
    "SIGSTOP of both executors and their Python processes, until Spark has lost them",
    lambda life: [each for found in life.some("executor") for each in _family(found)],
    "SIGCONT; they have to write nothing",
    _LOST_S,
)


@scenario(
    "executor",
    does="SIGSTOP of an executor's Python processes within a transaction, and SIGKILL of its JVM",
    ends="SIGCONT when its shards have moved; it has to write nothing",
)
def executor_move_in_transaction(life: OnCluster) -> None:
    life.complete()
    for attempt in range(_MEETS):
        process = life.one_of("executor")
        others = _family(process)[1:]
        while not life.has_open_transaction():
            if not others or life.run.poll() is not None:
                break
        with paused(others or [process]):
            # The other executor's ends meanwhile.
            life.wait(1.0)
            if others and life.has_open_transaction():
                life.did.append(f"at attempt {attempt + 1}")
                process.kill()
                if not life.goes_on():
                    raise Wrong(f"it ended: {life.run.text}")
                return
    raise Wrong(f"an executor was not met within a transaction, {_MEETS} times")


# Nodes that are lost, drained, or restarted.


def _lose(life: OnCluster, node: Node) -> None:
    """Kill a node and empty its disk."""
    disk = life.spark.disk(node)
    kill(node.everything())
    if node.worker is not None:
        node.worker.wait()
    wiped(disk)


def _node_lost(life: OnCluster) -> None:
    node = life.choice.choice(life.spark.nodes)
    _lose(life, node)
    life.wait(life.choice.uniform(0, life.held_s))
    life.spark.begin(node)


def _nodes_lost(life: OnCluster) -> None:
    for node in life.spark.nodes:
        _lose(life, node)
    for node in life.spark.nodes:
        life.spark.begin(node)


lost = _fault(
    "lose_node",
    "the loss of a node, with the local databases on it",
    "another, empty node",
    _node_lost,
)
all_lost = _fault(
    "lose_nodes",
    "the loss of both nodes, with the local databases on them",
    "other, empty nodes",
    _nodes_lost,
)


def _decommission(life: OnCluster, executor: psutil.Process) -> None:
    """Tell an executor to take no more tasks; return when it has ended by itself."""
    executor.send_signal(signal.SIGPWR)
    for _ in range(int(_THERE_S / 0.1)):
        if not executor.is_running() or executor.status() == psutil.STATUS_ZOMBIE:
            return
        wait(0.1)
    raise Wrong("an executor that is decommissioned does not end")


decommission = _fault(
    "decommission",
    "an executor is decommissioned",
    "by itself",
    lambda life: _decommission(life, life.one_of("executor")),
)


def _restart_nodes(life: OnCluster) -> None:
    for node in life.spark.nodes:
        for executor in node.executors():
            with suppress(psutil.NoSuchProcess):
                _decommission(life, executor)
        assert node.worker is not None
        node.worker.terminate()
        node.worker.wait(60)
        life.spark.begin(node)
        life.complete()


rolling = _fault(
    "rolling_restart",
    "one node after the other is drained, ended and started again",
    "by itself",
    _restart_nodes,
)


# What is cut.


def _cut(
    name: str,
    does: str,
    cut: Callable[[OnCluster, int], AbstractContextManager[None]],
    seconds: float = 0.0,
) -> Scenario:
    def act(life: OnCluster) -> None:
        with cut(life, life.choice.choice(NODES)):
            life.wait(seconds or life.stopped_s)

    return _fault(name, does, "an open link", act)


cut_driver = _cut(
    "cut_from_driver",
    "nothing passes between an executor and the driver, shortly",
    lambda life, number: life.network.cut(number, life.network.here),
)
cut_driver_long = _cut(
    "cut_from_driver_long",
    "nothing passes between an executor and the driver, until Spark has lost it",
    lambda life, number: life.network.cut(number, life.network.here),
    _LOST_S,
)
cut_broker = _cut(
    "cut_from_broker",
    "nothing passes between an executor and the broker, for longer than a transaction lasts",
    lambda life, number: life.network.cut(number, life.network.here_too),
)
cut_executors = _cut(
    "cut_from_another",
    "nothing passes between the two executors",
    lambda life, number: life.network.apart(number),
)


# Changes of the pipeline, while executors are killed.


def _rescaled(life: OnCluster) -> None:
    life.stop()
    shards = 2 if life.pipeline.settings["shards"] == SHARDS else SHARDS
    life.pipeline = life.pipeline.but(shards=shards)
    life.did.append(f"to {shards} shards")
    life.start()
    life.wait(life.choice.uniform(1, 2 * life.stopped_s))
    kill(life.some("executor"))


rescale = _fault(
    "rescale",
    "another number of shards, and SIGKILL of executors while the run starts with it",
    "by itself",
    _rescaled,
)


def _edited(life: OnCluster) -> None:
    life.stop()
    life.edit()
    life.start()
    life.wait(life.choice.uniform(1, 2 * life.stopped_s))
    kill([life.one_of("executor")])


edit = _fault(
    "edit",
    "an edit of the plan, and SIGKILL of an executor while it is done",
    "by itself",
    _edited,
)
