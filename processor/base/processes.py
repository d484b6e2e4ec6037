"""What each process of ikebana needs: signals, restarts, its end, memory, name and threads.

A first signal asks a run to end, a second one ends it at once; so does the first one before the
query has begun, when there is nothing to finish.  A start may be interrupted anywhere, also while
it writes.

After failures that may pass by themselves a query is started again.  The pauses double from a
second to a minute with each restart, until an attempt has lasted longer than the longest pause.
The number of restarts within an hour is limited, so that a recurring failure ends the run.
"""

import atexit
import gc
import itertools
import os
import signal
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

Result = TypeVar("Result")

WINDOW_S = 3600.0
_LONGEST_PAUSE_S = 60.0


class Restarts:
    """The restarts of one run, with a limit for each hour."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: deque[float] = deque()
        self._in_a_row = 0

    def pause_s(self, now_s: float, lasted_s: float = 0.0) -> float | None:
        """Count a restart and return the pause before it; None if the limit is reached.

        `lasted_s` says how long the attempt before has lasted.
        """
        if lasted_s > _LONGEST_PAUSE_S:
            self._in_a_row = 0
        while self._times and self._times[0] <= now_s - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._most:
            return None
        self._times.append(now_s)
        self._in_a_row += 1
        return min(_LONGEST_PAUSE_S, 2.0 ** min(self._in_a_row - 1, 10))


class AttemptFailed(Exception):
    """An attempt failed, with its cause, but another attempt may succeed."""


def with_restarts(
    attempt: Callable[[], Result],
    restarts: Restarts,
    tell: Callable[[Exception, float], None],
    pause: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Result:
    """Call `attempt` until it returns a result, with a pause after each `AttemptFailed`.

    `tell` gets the cause and the seconds of the pause.  The cause is raised when the limit of
    restarts is reached; any exception other than `AttemptFailed` is raised at once.
    """
    while True:
        begun_s = now()
        try:
            return attempt()
        except AttemptFailed as failed:
            cause = failed.__cause__
            assert isinstance(cause, Exception)
        now_s = now()
        pause_s = restarts.pause_s(now_s, now_s - begun_s)
        if pause_s is None:
            raise cause
        tell(cause, pause_s)
        pause(pause_s)


_SELDOM = 100_000
_calls = itertools.count(1)
# After these calls a process has imported and cached what it keeps.
_FREEZES = (1, 4, 16)
# The longest name of a process that Linux shows.
_NAME = 15


def seldom_collect() -> None:
    """Look for cycles of objects a hundred times less often than Python does by itself.

    Records are tuples of bytes, which are freed by reference counts.  By default a search for
    cycles after every 700 of them visits all of them, finds none, and takes a third of the time in
    which a topic is read.
    """
    gc.set_threshold(_SELDOM, 20, 50)


# Decision (imports are frozen): Spark collects garbage after every task, so a worker takes its
# imports out of the collector.


def exempt_objects() -> None:
    """Exempt the objects of the first calls in a process, a task each, from garbage collection.

    Spark's worker collects garbage after every task.  With pandas and pyarrow loaded, each
    collection visits several hundred thousand objects that live as long as the process.
    """
    if next(_calls) in _FREEZES:
        exempt()
        seldom_collect()


def exempt() -> None:
    """Exempt what there is from garbage collection, until the process ends."""
    gc.collect()
    gc.freeze()
    # Else Python would not free all of it, and DuckDB would print at the end that its types leak.
    atexit.register(gc.unfreeze)


def named(name: str) -> None:
    """Give this process a name."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name[:_NAME])


def close_streams() -> None:
    """Close the input, and print to standard error."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)


def collect_now_and_then() -> None:
    """Collect the cycles since the first call; to be called from time to time.

    A proxy of an object in Spark's JVM refers to itself, and keeps the object alive until Python
    has collected the proxy.  So a process that collects seldom would keep the plan of each batch,
    some hundred kilobytes.  Other processes collect by themselves.
    """
    if gc.get_threshold()[0] == _SELDOM:
        # What is exempt costs nothing here.
        exempt_objects()
        gc.collect()


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for cycles in a `with` block that makes many records.

    This is for library calls: users of a library decide about collection in their process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Closes(ABC):
    """A context manager that does nothing but `close`."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Closable(Protocol):
    """A resource that must be closed."""

    def close(self) -> None:
        """Release it; may be called more than once, and in any thread."""
        ...


Opened = TypeVar("Opened", bound=Closable)


class OfThreads(Generic[Opened]):
    """Resources of each thread, by name; closed when the thread ends, or all at once."""

    def __init__(self) -> None:
        self._local = _Local()
        # Of all threads that have not ended.
        self._all: set[Opened] = set()

    def get(self, name: str, opened: Callable[[], Opened]) -> Opened:
        """Return this thread's resource of a name; opens it the first time."""
        present: Opened | None = self._local.named.get(name)
        if present is not None:
            return present
        fresh = self._local.named[name] = opened()
        self._all.add(fresh)
        # Only the thread has `named`, so it is gone when the thread ends.  No frame that may raise
        # keeps it in a variable: whoever keeps the error would keep it, too.
        ending = weakref.finalize(self._local.named, _let_go, fresh, self._all)
        # When Python ends, other threads may still read.
        ending.atexit = False
        return fresh

    def close(self) -> None:
        """Close the resources of all threads."""
        # A copy, because threads may end meanwhile.
        for each in tuple(self._all):
            each.close()
        self._all.clear()


class _Named(dict[str, Any]):
    """The resources of a thread; a plain dict has no weak references."""


class _Local(threading.local):
    """Holds the resources of a thread until it ends."""

    def __init__(self) -> None:
        self.named = _Named()


def _let_go(opened: Opened, among: set[Opened]) -> None:
    """Close a resource of a thread that has ended."""
    among.discard(opened)
    opened.close()


class Stopped(BaseException):
    """A run was asked to end while there was nothing to finish."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopping:
    """Keeps whether a run has been asked to end, and whether a signal ends it at once."""

    def __init__(self, *, patient: bool = True) -> None:
        """Without `patient`, the first signal always ends the run at once."""
        self.asked = False
        self.by_signal = False
        self._may_be_patient = patient
        self._patient = False
        self._tell: Callable[[], None] | None = None

    def finish_first(self, tell: Callable[[], None] | None = None) -> None:
        """From now on the first signal only sets `asked`, which the run has to check.

        `tell` is called in a thread of its own when the run is asked to end, since a handler of
        signals may interrupt what holds a lock.
        """
        self._patient = self._may_be_patient
        self._tell = tell or self._tell

    def at_once(self) -> None:
        """From now on the first signal raises `Stopped`."""
        self._patient = False

    def ask(self) -> None:
        """Ask the run to end when it has finished its batch; from any thread."""
        self.asked = True
        self._notify()

    def signalled(self, number: int) -> None:
        """Handle a signal."""
        if self.by_signal:
            raise SystemExit(128 + number)
        self.asked = self.by_signal = True
        self._notify()
        if not self._patient:
            raise Stopped(number)

    def _notify(self) -> None:
        if self._tell is not None:
            threading.Thread(target=self._tell, daemon=True).start()


@contextmanager
def on_signals(*, patient: bool = True) -> Iterator[Stopping]:
    """Handle SIGTERM and SIGINT during a `with` block in the main thread."""
    stopping = Stopping(patient=patient)
    before = {
        number: signal.signal(number, lambda number, _: stopping.signalled(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_FAULT_VARIABLE = "IKEBANA_FAULT"
_WAITS_S, _POLL_S = 60.0, 0.01
_BEGAN = time.time()


def fault_point(name: str, batch: int, shard: int | None = None) -> None:
    """Kill this process if the environment asks for it at this point; by default it does not.

    The environment variable `IKEBANA_FAULT` names a point, the least batch, a shard or `*`, and a
    file that is created first, so that the fault occurs only once: `after_commit:3:0:/tmp/once`.
    `before_commit*2` lets the point pass once before it is fatal, and `before_commit>after_commit`
    waits there until another shard has passed a second point in such a batch.  A further field
    names other processes to kill: a process id, or `all` for every process with the same variable.
    The driver is among these, so that it cannot see the task fail.  `worker` and a number kill
    only the worker, that many times in a row.
    """
    setting = os.environ.get(_FAULT_VARIABLE)
    if not setting:
        return
    named, least, of, once, *others = setting.split(":")
    named, _, behind = named.partition(">")
    at, _, times = named.partition("*")
    if behind and name == behind and batch >= int(least):
        _create(f"{once}.{behind}")
    if at != name or batch < int(least) or (of != "*" and str(shard) != of):
        return
    if behind:
        _wait_for(f"{once}.{behind}")
    for passed in range(1, int(times or 1)):
        if _create(f"{once}.{passed}"):
            return
    if not any(_create(path) for path in _times(once, others)):
        if others == ["all"] and os.stat(once).st_mtime > _BEGAN:
            # Another process is about to kill this one, and looks for all of them first.
            time.sleep(_WAITS_S)
        return
    for pid in _targets(others):
        with suppress(ProcessLookupError):  # It has ended with one of those before it.
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(path: str) -> None:
    ends = time.monotonic() + _WAITS_S
    while not os.path.exists(path) and time.monotonic() < ends:
        time.sleep(_POLL_S)


def _create(path: str) -> bool:
    """Create the file; return whether it did not exist before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _times(once: str, others: list[str]) -> list[str]:
    """Return the files that are created first, one for each occurrence of the fault."""
    if others[:1] != ["worker"]:
        return [once]
    return [once, *(f"{once}-{time}" for time in range(1, int(others[1])))]


def _targets(others: list[str]) -> list[int]:
    """Find the other processes to kill; `all` means all processes with the same variable."""
    if others[:1] == ["worker"]:
        return []
    if others != ["all"]:
        return [int(pid) for pid in others]
    variable = f"{_FAULT_VARIABLE}={os.environ[_FAULT_VARIABLE]}".encode()
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if variable in file.read().split(b"\0"):
                        pids.append(int(entry))
            except OSError:
                continue
    return pids
