"""A cluster of Spark's own on this machine: a master and two nodes, which can be lost.

With root each node is in a network of its own, so that it can be cut off from the driver or from
the broker, and has a disk of its own for the local databases.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from chaos import networks
from chaos.networks import Network
from chaos.runs import Wrong
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import free_port
from support.process_trees import kill, name_of
from support.waiting import wait_until

NODES = (1, 2)
_HOME = Path(pyspark.__file__).parent
_STARTS_S = 120.0
_DEPLOY = "org.apache.spark.deploy"
# What processes of ours call themselves: `ikebana-owner`, `ikebana-host`.
_OURS = "ikebana-"


class Node:
    """A worker of Spark's, and what it has started; `number` is that of its network's member."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: psutil.Popen | None = None

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors that run now."""
        assert self.worker is not None
        with suppress(psutil.Error):
            return [child for child in self.worker.children() if _is_executor(child)]
        return []

    def everything(self) -> list[psutil.Process]:
        """The worker and all that it has started."""
        assert self.worker is not None
        with suppress(psutil.Error):
            return [self.worker, *self.worker.children(recursive=True)]
        return []


class Standalone:
    """The processes of the cluster; `master` is its address for Spark."""

    def __init__(self, folder: Path, network: Network | None) -> None:
        self._folder, self.network = folder, network
        self._port = free_port()
        self.host = "127.0.0.1" if network is None else network.here
        """Where nodes reach the driver."""
        self.master = f"spark://{self.host}:{self._port}"
        self._master: psutil.Popen | None = None
        self.nodes = [Node(number) for number in NODES]
        self._log = folder / "standalone.log"

    def start(self) -> None:
        """Return when all nodes are at the master's disposal."""
        java = find_java(os.environ)
        own = ("--host", self.host, "--port", str(self._port), "--webui-port", "0")
        self._master = self._run(java, self.host, "master.Master", *own)
        wait_until(self._says("Starting Spark master"), _STARTS_S, "Spark's master")
        for node in self.nodes:
            self._begin(node)
        wait_until(
            lambda: _text(self._log).count("Registering worker") >= len(self.nodes),
            _STARTS_S,
            "its workers",
        )

    def begin(self, node: Node) -> None:
        """Start the worker of a node again; return when the master knows it."""
        known = _text(self._log).count("Registering worker")
        self._begin(node)
        wait_until(
            lambda: _text(self._log).count("Registering worker") > known, _STARTS_S, "its worker"
        )

    def disk(self, node: Node) -> Path:
        """Where the local databases of a node are.

        Raises:
            Wrong: nodes have no disk of their own.
        """
        if self.network is None:
            raise Wrong("nodes have no disk of their own: mounting one takes root")
        return self._folder / f"node-{node.number}"

    def processes(self, kind: str) -> list[psutil.Process]:
        """Those of all executors that run now, of a kind.

        `executor`s are JVMs, which start `daemon`s, and these fork Spark's Python `worker`s.
        `owner`s hold shards, a `host` forks them, and `python`s are all of them but JVMs.
        """
        executors = [each for node in self.nodes for each in node.executors()]
        if kind == "executor":
            return executors
        daemons = [child for each in executors for child in _children(each)]
        if kind == "daemon":
            return daemons
        every = [child for each in daemons for child in (each, *_children(each, recursive=True))]
        match kind:
            case "worker":
                forked = [child for each in daemons for child in _children(each)]
                return [each for each in forked if not name_of(each).startswith(_OURS)]
            case "python":
                return every
            case _:
                return [each for each in every if name_of(each) == _OURS + kind]

    def node_of(self, process: psutil.Process) -> Node:
        """The node that a process is of."""
        return next(node for node in self.nodes if process in node.everything())

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes:
            if node.worker is not None:
                kill(node.everything())
                node.worker.wait()
        if self._master is not None:
            kill([self._master])
            self._master.wait()
        if self.network is not None:
            self.network.close()

    def _begin(self, node: Node) -> None:
        java, host = find_java(os.environ), self.host
        if self.network is not None:
            host = self.network.address(node.number)
            disk = self.disk(node)
            disk.mkdir(exist_ok=True)
            disks = {self._folder / "local": disk}
            java = self.network.java(node.number, java, self._folder / f"java-{disk.name}", disks)
        place = str(self._folder / f"worker-{node.number}")
        size = ("--cores", "1", "--memory", "600M", "--webui-port", "0", "--work-dir", place)
        node.worker = self._run(java, host, "worker.Worker", "--host", host, *size, self.master)

    def _run(self, java: Path, host: str, main: str, *arguments: str) -> psutil.Popen:
        command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", f"{_HOME}/jars/*", f"{_DEPLOY}.{main}", *arguments]
        # Executors find this Python and our modules as their workers do.
        python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment = {**os.environ, **python, "SPARK_HOME": str(_HOME)}
        # Workers look for it in folders that pyspark has not.
        environment["SPARK_SCALA_VERSION"] = "2.13"
        environment["SPARK_LOCAL_IP"] = host
        with self._log.open("ab") as out:
            return psutil.Popen(command, stdout=out, stderr=out, env=environment, cwd=self._folder)

    def _says(self, text: str) -> Callable[[], bool]:
        return lambda: text in _text(self._log)


def wiped(folder: Path) -> None:
    """Empty a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_executor(process: psutil.Process) -> bool:
    return name_of(process) == "java"


def _children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [*process.children(recursive=recursive)]
    return []


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A cluster of Spark's for the length of a `with` block."""
    with ExitStack() as stack:
        network = Network(NODES) if networks.available() else None
        made = Standalone(folder, network)
        stack.callback(made.close)
        made.start()
        yield made


def _text(log: Path) -> str:
    return log.read_text(errors="replace")
