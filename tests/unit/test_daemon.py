"""The daemon that Spark runs on each machine: it sees to it that there is a host."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import create_connection

import psutil
import pytest

from ikebana.processor.kafka.broker import free_port
from ikebana.processor.spark.workers import daemon, network
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE, HostAddress, run
from ikebana.processor.spark.workers.serving import OWNER_NAME
from ikebana.processor.spark.workers.starting import PROGRAM, PYTHON_VARIABLE, Workers
from support.process_trees import name_of
from support.waiting import wait_until

HOST = "ikebana-host"
# It knows of forks, and begins its thread anew in them.
OF_JEMALLOC = {"jemalloc_bg_thd"}


class Daemon:
    """Spark's daemon, started as Spark does it on an executor."""

    def __init__(self, folder: Path, further: dict[str, str]) -> None:
        self.local = folder / "local"
        self.local.mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "SPARK_LOCAL_DIRS": f"{self.local},/elsewhere",
            "SPARK_REUSE_WORKER": "1",
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
            PYTHON_VARIABLE: sys.executable,
            daemon.OWNERS_VARIABLE: "2",
        }
        self.process = subprocess.Popen(
            [PROGRAM, "-m", daemon.MODULE, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **further},
        )
        assert self.process.stdout is not None
        self._port = int.from_bytes(self.process.stdout.read(4), "big")

    @property
    def owners(self) -> HostAddress:
        """The owners of its host."""
        (folder,) = self.local.iterdir()
        return HostAddress(str(folder), 2)

    def child(self, name: str) -> psutil.Process:
        """The child with a name, which it takes when it has been forked."""

        def found() -> list[psutil.Process]:
            return [each for each in self.children() if name_of(each) == name]

        wait_until(lambda: len(found()) == 1, 30, name)
        return found()[0]

    def children(self) -> list[psutil.Process]:
        return [*psutil.Process(self.process.pid).children()]

    def worker(self, keep: ExitStack) -> psutil.Process:
        """Have it fork a worker, whose connection ends with `keep`."""
        connection = keep.enter_context(create_connection(("127.0.0.1", self._port), 30))
        return psutil.Process(int.from_bytes(connection.recv(4), "big"))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a daemon with further variables, and ends it."""
    with ExitStack() as ending:

        def started(further: dict[str, str] | None = None) -> Daemon:
            found = Daemon(tmp_path, further or {})
            ending.callback(found.end)
            return found

        yield started


def asked(owners: HostAddress) -> str:
    """What an owner answers to a job that it cannot open."""
    with pytest.raises(Exception, match="invalid literal") as found:
        run({0: owners}, network.Pickled.of(Called()), {0: None}, {0: []})
    return type(found.value).__name__


class Called:
    """What fails when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return int, ("no number",)


def test_an_executor_gets_a_host_with_owners(start: Start) -> None:
    """In its first local folder.  It and the daemon have one thread: what is forked has no other.

    The host is gone with the daemon, however that ends, and so are owners, workers and files.
    """
    executor = start()
    host = executor.child(HOST)
    assert threads(executor.process.pid) - OF_JEMALLOC == {"pyspark.daemon"}
    assert threads(host.pid) == {HOST}
    assert asked(executor.owners) == "ValueError"
    (owner,) = host.children()
    assert name_of(owner) == OWNER_NAME
    with ExitStack() as keep:
        worker = executor.worker(keep)
        executor.process.kill()

        for process in (worker, host, owner):
            wait_until(lambda p=process: is_gone(p), 30, f"the end of {process}")  # type: ignore[misc]
    wait_until(lambda: not [*executor.local.iterdir()], 30, "an empty folder")


def threads(process: int) -> set[str]:
    """The names of the threads of a process."""
    return {each.read_text().strip() for each in Path(f"/proc/{process}/task").glob("*/comm")}


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def test_an_executor_of_a_run_with_a_secret_is_reached_by_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At ports of its machine: its owners, and readers, which leave rows there."""
    monkeypatch.setenv(network.VARIABLE, "of this run")
    executor = start({network.VARIABLE: "of this run"})
    host = executor.child(HOST)
    # In the order in which they were opened: two of owners, and one of a reader.
    sockets = sorted(host.net_connections(), key=lambda each: int(each.fd))
    ports = tuple(each.laddr.port for each in sockets if each.status == "LISTEN")
    owners = HostAddress("127.0.0.1", 2, 1, ports)
    assert asked(owners) == "ValueError"
    assert owners.reader(0) == ("127.0.0.1", ports[2])
    monkeypatch.setenv(network.VARIABLE, "of another run")
    assert run({0: owners}, network.Pickled(b"", ""), {0: None}, {0: []}) == {0: None}


def _first_of_three_ports() -> int:
    """Return a port on which nobody listens, as on the two after it."""
    while True:
        port = free_port()
        with ExitStack() as opened, suppress(OSError):
            for at in range(3):
                opened.enter_context(network.listening(("", port + at)))
            return port


@pytest.mark.parametrize("is_free", [True, False])
def test_the_ports_of_a_host_follow_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_free: bool
) -> None:
    """A network policy can name them.  What others have is waited for, and then done without."""
    monkeypatch.setattr(daemon, "_FREED_WITHIN_S", 0.0)
    monkeypatch.setenv(network.VARIABLE, "of this run")
    # The test's own environment is left as it was.
    monkeypatch.setenv(EXECUTOR_VARIABLE, "")
    port = _first_of_three_ports()
    with ExitStack() as closing:
        if not is_free:
            closing.enter_context(network.listening(("", port)))
        monkeypatch.setenv(daemon.PORT_VARIABLE, str(port))
        owners, listeners = daemon._listening(tmp_path, 2)
        for each in listeners:
            closing.enter_context(each)

    assert [*listeners.values()] == ["owner", "owner", "reader"]
    assert (owners.ports == (port, port + 1, port + 2)) == is_free
    assert len({*owners.ports}) == 3


def test_the_host_of_a_driver_is_the_only_one_of_its_machine(start: Start, tmp_path: Path) -> None:
    """The daemon is then a fork of it, as all that Spark runs there."""
    folder = tmp_path / "driver"
    folder.mkdir()
    workers = Workers(folder, None, ["pyspark.daemon"], owners=1)
    try:
        local = start(workers.environment)
        (forked,) = psutil.Process(workers.server).children()
        assert (name_of(forked), [*local.local.iterdir()]) == ("pyspark.daemon", [])
    finally:
        workers.end()


@pytest.mark.parametrize("owners", [0, 1])
def test_beside_a_host_without_owners_or_one_that_is_gone_there_is_another(
    start: Start, tmp_path: Path, owners: int
) -> None:
    """A driver whose Spark runs another Python has no owners for that."""
    known = HostAddress(str(tmp_path), owners)

    assert asked(start(known.variable).owners) == "ValueError"


def test_a_worker_without_its_host_takes_its_daemon_with_it() -> None:
    """Spark then starts both anew; whoever else is its parent is left alone."""
    leave = (
        "import os, sys; from ikebana.processor.spark.workers import daemon\n"
        "os.environ[daemon._VARIABLE] = str(os.getpid() + int(sys.argv[1]))\n"
        "if not (worker := os.fork()): daemon.end_worker()\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))"
    )
    command = [sys.executable, "-c", leave]

    assert subprocess.run([*command, "0"], check=False, timeout=60).returncode == -signal.SIGKILL
    assert subprocess.run([*command, "1"], check=False, timeout=60).returncode == 1
