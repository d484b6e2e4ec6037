"""A standalone cluster of Spark on loopback: a master and workers, each of them a process."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from ikebana.processor.base.machine import find_java
from support.waiting import wait_until

_START_S = 120.0
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
# As the scripts set them that start workers.
_ENVIRONMENT = {"SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def cluster(
    folder: Path, workers: int, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a cluster of workers with one core each; gives the address for `run.master`.

    `settings` are those of Spark for the master and the workers.  What the executors print is
    below `folder`.
    """
    java = [f"-D{name}={value}" for name, value in (settings or {}).items()]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        log = folder / "master.log"
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        running.enter_context(_process([*java, _MASTER, *options], log))
        address = _told(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            place = folder / f"worker-{number}"
            place.mkdir(exist_ok=True)
            options = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", memory]
            options += ["-d", str(place), address]
            log = folder / f"worker-{number}.log"
            running.enter_context(_process([*java, WORKER, *options], log))
        for number in range(workers):
            _told(folder / f"worker-{number}.log", r"(Successfully registered with master)")
        yield address


def executors_in(folder: Path) -> list[Path]:
    """The folders of the executors that workers have started."""
    return sorted(folder.glob("worker-*/app-*/*"))


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    java = [str(find_java(os.environ)), *_JVM, "-cp", f"{home}/jars/*"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*java, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **_ENVIRONMENT, "SPARK_HOME": str(home)},
            cwd=log.parent,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _told(log: Path, pattern: str) -> str:
    """Wait until a log has a line, and return what it says."""

    def found() -> bool:
        return re.search(pattern, log.read_text(errors="replace")) is not None

    wait_until(found, _START_S, f"{pattern} in {log}")
    match = re.search(pattern, log.read_text(errors="replace"))
    assert match is not None
    return match[1]
