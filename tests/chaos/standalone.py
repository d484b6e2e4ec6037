"""A cluster of Spark's own on this machine: a master and workers, whose executors can be lost."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

from ikebana.processor.ground.java import find_java
from ikebana.processor.kafka.broker import free_port
from support.process_trees import kill, name_of
from support.waiting import wait_until

_HOME = Path(pyspark.__file__).parent
_WORKERS = 2
_STARTS_S = 120.0
_DEPLOY = "org.apache.spark.deploy"


class Standalone:
    """The processes of the cluster; `master` is its address for Spark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes: list[psutil.Popen] = []

    def start(self) -> None:
        """Return when all workers are at the master's disposal."""
        log = self._folder / "standalone.log"
        self._run("master.Master", log, "--port", str(self._port), "--webui-port", "0")
        wait_until(lambda: "Starting Spark master" in _text(log), _STARTS_S, "Spark's master")
        for number in range(_WORKERS):
            place = str(self._folder / f"worker-{number}")
            size = ("--cores", "1", "--memory", "600M", "--webui-port", "0")
            self._run("worker.Worker", log, *size, "--work-dir", place, self.master)
        wait_until(
            lambda: _text(log).count("Registering worker") == _WORKERS, _STARTS_S, "its workers"
        )

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        return [
            child
            for worker in self._processes[1:]
            for child in worker.children()
            if name_of(child) == "java"
        ]

    def pythons(self) -> list[psutil.Process]:
        """The Python processes of executors."""
        return [
            child
            for executor in self.executors()
            for child in executor.children(recursive=True)
            if name_of(child) != "java"
        ]

    def close(self) -> None:
        """Leave nothing running."""
        for process in self._processes:
            kill([*process.children(recursive=True), process])
            process.wait()

    def _run(self, main: str, log: Path, *arguments: str) -> None:
        command = [str(find_java(os.environ)), "-Xmx256m", "-XX:+UseSerialGC"]
        command += ["-XX:TieredStopAtLevel=1", "-cp", f"{_HOME}/jars/*", f"{_DEPLOY}.{main}"]
        # Executors find this Python and our modules as their workers do.
        python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment = {**os.environ, **python, "SPARK_HOME": str(_HOME)}
        # Workers look for it in folders that pyspark has not.
        environment["SPARK_SCALA_VERSION"] = "2.13"
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        with log.open("ab") as out:
            started = psutil.Popen(
                [*command, "--host", "127.0.0.1", *arguments],
                stdout=out,
                stderr=out,
                env=environment,
                cwd=self._folder,
            )
        self._processes.append(started)


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A cluster of Spark's for the length of a `with` block."""
    with ExitStack() as stack:
        made = Standalone(folder)
        stack.callback(made.close)
        made.start()
        yield made


def _text(log: Path) -> str:
    return log.read_text(errors="replace")
