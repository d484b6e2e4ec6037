"""Whoever runs a command now, who ran it before, and how they have ended."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import psutil

from chaos.starved import Standstill
from support.pipeline_processes import Run
from support.waiting import patient

# What a killed driver leaves notices its end by and by.
_LEAVES_S = 60.0
_STOPS_S = 120.0
# How often a run may end by itself before it has to go on.
_ENDS = 3


class Wrong(Exception):
    """What must not be."""


class Unavailable(Exception):
    """What a life takes cannot be had here."""


class Runs:
    """The runs of one command, one after the other, or beside each other for a while.

    `stands_still` writes down where a run stands that does not do what it should.
    """

    def __init__(self, begin: Callable[[], Run], stands_still: Callable[[str], Wrong]) -> None:
        self._begin = begin
        self._stands_still = stands_still
        self._run: Run | None = None
        self._killed = False
        self._older: list[Run] = []

    @property
    def now(self) -> Run:
        """Who runs it now."""
        assert self._run is not None, "nobody has run it yet"
        return self._run

    def start(self) -> Run:
        """Start it anew."""
        if self._run is not None:
            self._older.append(self._run)
        self._run = self._begin()
        self._killed = False
        return self._run

    def killed(self) -> None:
        """Remember that the run did not end by itself."""
        self._killed = True

    def kill(self) -> None:
        """Kill all processes of the run."""
        self.now.kill()
        self.killed()

    def stop(self) -> None:
        """Ask the run to end."""
        if self.now.poll() is None:
            os.kill(self.now.pid, signal.SIGTERM)
            still = Standstill(self.now.family.alive)
            while (status := self.now.poll()) is None:
                if still.seconds() > patient(_STOPS_S):
                    raise self._stands_still(f"not ended {patient(_STOPS_S):.0f} s after SIGTERM")
                wait(0.1)
            if status != 0:
                words = last_words(self.now.text)
                raise Wrong(f"asked to stop, it ended with status {status}: {words}")
        self.kill()

    def close(self) -> None:
        """Leave nothing running."""
        for run in [*self._older, *([] if self._run is None else [self._run])]:
            for process in run.family.alive():
                with suppress(psutil.Error):
                    process.resume()
            run.kill()
        self._killed = True

    def ended(self, within_s: float) -> bool:
        """Wait for the end of the run; whether it has ended by then."""
        deadline = time.monotonic() + patient(within_s)
        while self.now.poll() is None and time.monotonic() < deadline:
            wait(0.1)
        return self.now.poll() is not None

    def until(self, goes_on: Callable[[], bool]) -> tuple[float, list[str]]:
        """Start it again until it goes on; the seconds that took, and how runs have ended."""
        said: list[str] = []
        begun = time.monotonic()
        while self._run is None or not goes_on():
            if self._run is not None and not self._killed:
                said.append(self.mourned())
            if len(said) >= _ENDS:
                raise Wrong("it ended again and again: " + " / ".join(said))
            self.start()
            begun = time.monotonic()
        return time.monotonic() - begun, said

    def mourned(self) -> str:
        """Tell how a run has ended by itself.

        Raises:
            Wrong: it had no name for the reason.
        """
        text, status = self.now.text, self.now.poll()
        if "Traceback" in text or not (said := last_words(text)):
            raise Wrong(f"it ended with status {status} and no named error: {text}")
        return said

    def nothing_left(self) -> None:
        """What runs did not survive is gone, by itself."""
        for run in self._older:
            if run.poll() is None:
                continue
            # What makes an archive of classes for the next run has work for a while.
            still = Standstill(run.family.alive)
            while alive := run.family.alive():
                if still.seconds() > patient(_LEAVES_S):
                    left = [" ".join(p.cmdline())[:100] for p in alive]
                    raise Wrong(f"processes are left over: {left}")
                wait(0.1)
        self._older = [run for run in self._older if run.poll() is None]


def last_words(text: str) -> str:
    """The error with which a command has ended, by what it has printed."""
    said = [line for line in text.splitlines() if line.startswith("ikebana: ")]
    return said[-1].removeprefix("ikebana: ") if said else ""


def restarts(folder: Path) -> Counter[str]:
    """After what runs have started their queries again, and after which pauses."""
    logs = folder.glob("run-*.log")
    lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
    return Counter(line for line in lines if "; starting again in " in line)


def wait(seconds: float) -> None:
    """Let a fault last."""
    Event().wait(seconds)


@contextmanager
def paused(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """Stop processes for the length of a `with` block."""
    stopped = list(processes)
    if not stopped:
        raise Wrong("there was nothing to stop")
    for process in stopped:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
