"""What a command costs: CPU seconds, memory and time of every process that it starts."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

_SAMPLE_S = 0.1


class Cost(NamedTuple):
    """The cost of a run.  CPU is user and system time of the whole process tree."""

    wall_s: float
    cpu_s: float
    cpu_by_kind: dict[str, float]
    peak_rss_mib: float
    returncode: int


def nothing_else() -> Iterable[psutil.Process]:
    """No processes."""
    return ()


Role = Literal["command", "own", "other"]
"""What a process is to a command: it itself, one that it started, or one of the `others`."""


def usual_kind(process: psutil.Process, role: Role) -> str:
    """The kind of a process: the command itself, its JVM, another of its own, or an executor."""
    if role == "other":
        return "executors"
    if process.name() == "java":
        return "jvm"
    return "driver" if role == "command" else "workers"


class Watched:
    """A command and all that it starts, sampled until it ends.

    So are `others`, which work for it alone and are none of its own, as executors do.  `kind`
    names the kind of a process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
        every_s: float = _SAMPLE_S,
        others: Callable[[], Iterable[psutil.Process]] = nothing_else,
        kind: Callable[[psutil.Process, Role], str] = usual_kind,
    ) -> None:
        self._every_s = every_s
        self._others = others
        self._kind = kind
        self._log = log.open("wb")
        environment = {**os.environ, **(environ or {})}
        # What is installed has its modules compiled, and so have those of a second run.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        self._begun = time.monotonic()
        # By process and not by number, of which a later process may have the same.
        self._cpu: dict[psutil.Process, tuple[str, float]] = {}
        self._sessions = {self.process.pid}
        self._peak = 0.0
        self._looking = threading.Lock()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def cpu_s(self) -> float:
        """CPU seconds up to now."""
        return sum(self.cpu_by_kind().values())

    def cpu_by_kind(self) -> dict[str, float]:
        """CPU seconds up to now of the command itself, its JVM and its other processes."""
        kinds: dict[str, float] = {}
        for kind, seconds in list(self._cpu.values()):
            kinds[kind] = kinds.get(kind, 0.0) + seconds
        return kinds

    def wait(self, timeout_s: float) -> Cost:
        """Wait for the end; a command that takes longer is killed."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            for process in self.processes():
                process.kill()
            self.process.wait()
        wall = time.monotonic() - self._begun
        self._ended.set()
        self._sampler.join()
        self._log.close()
        return Cost(wall, self.cpu_s(), self.cpu_by_kind(), self._peak, self.process.returncode)

    def look(self) -> None:
        """Take a sample now."""
        with self._looking:
            rss = 0
            others = {*self._others()}
            for process in (*self.processes(), *others):
                try:
                    with process.oneshot():
                        times = process.cpu_times()
                        rss += process.memory_info().rss
                        role: Role = "other" if process in others else "own"
                        if process.pid == self.process.pid:
                            role = "command"
                        kind = self._kind(process, role)
                except psutil.Error:
                    continue
                self._cpu[process] = kind, times.user + times.system
            self._peak = max(self._peak, rss / 2**20)

    def _sample(self) -> None:
        while True:
            last = self._ended.is_set()
            self.look()
            if last:
                return
            self._ended.wait(self._every_s)

    def processes(self) -> list[psutil.Process]:
        """Every process of the command that runs now."""
        every: list[tuple[psutil.Process, int, int]] = []
        for process in psutil.process_iter():
            try:
                every.append((process, process.ppid(), os.getsid(process.pid)))
            except (ProcessLookupError, psutil.Error):
                continue
        # Spark's JVM, and a broker, lead sessions of their own.  A child may have a smaller number
        # than its parent, once numbers have begun anew.
        while True:
            own = {process.pid for process, _, session in every if session in self._sessions}
            new = {
                session for each, parent, session in every if session == each.pid and parent in own
            }
            if new <= self._sessions:
                return [each for each, _, session in every if session in self._sessions]
            self._sessions |= new
