"""Run the sinks of a pipeline in processes beside its run, and ask each how it stands.

A sink cannot stop the run.  A process that ends is started again, with pauses that double up to a
minute, since its error may be repaired in the target.  A process that a newer instance has fenced
is not started again, because the two would fence each other in turns.  The processes end with the
run, even if it is killed.  Nothing is lost by that: a target has either a batch with its token, or
neither.

Each sink has a URL, where a thread asks it now and then; its last answer counts.  A sink that does
not answer, or has no process now, is not ready, and nothing else comes of that.
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ikebana.errors import EXIT_FENCED, FencedError, IkebanaError
from ikebana.processor.base.log_lines import VARIABLE
from ikebana.processor.base.processes import (
    AttemptFailed,
    Closes,
    Restarts,
    Stopping,
    with_restarts,
)
from ikebana.processor.kafka.broker import start_guarded
from ikebana.processor.watching.reports import RunStart, Watcher

if TYPE_CHECKING:
    from ikebana.processor.authoring.deliver_section import DeliverSection


_EVERY_S = 2.0
_WITHIN_S = 2.0
_MOST_BYTES = 64 * 1024


class SinkFigures(msgspec.Struct):
    """A sink: how it stands in words, and its own figures.

    `lag_s` is null if times are not milliseconds; `updates` is their number since its start, and
    `restarts` how often a run that started it has started it again.
    """

    ready: bool
    state: str
    frontier: int | None = None
    lag_s: float | None = None
    updates: int = 0
    behind: int = 0
    restarts: int = 0


FiguresOfSinks = Callable[[], Mapping[str, SinkFigures]]


def no_sinks() -> Mapping[str, SinkFigures]:
    """A pipeline without sinks has none."""
    return {}


class SinkBoard(Closes):
    """Keeps how each sink stands; all methods are thread-safe."""

    def __init__(self, names: Iterable[str], *, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._figures = {name: SinkFigures(ready=False, state="starting") for name in names}
        self._urls: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="ikebana-sinks", daemon=True)
        if self._figures:
            self._thread.start()

    def at(self, name: str, url: str) -> None:
        """A sink answers at this URL from now on."""
        with self._lock:
            self._urls[name] = url

    def without(self, name: str, why: str, *, restarts: int = 0) -> None:
        """A sink has no process now; `restarts` is the number of those that there were."""
        with self._lock:
            self._urls.pop(name, None)
            last = self._figures[name]
            self._figures[name] = msgspec.structs.replace(
                last, ready=False, state=why, restarts=restarts
            )

    def figures(self) -> Mapping[str, SinkFigures]:
        """How each sink stands."""
        with self._lock:
            return dict(self._figures)

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()
        if self._figures:
            self._thread.join()

    def _ask(self) -> None:
        while not self._closing.is_set():
            with self._lock:
                urls = dict(self._urls)
            for name, url in urls.items():
                answer = _answer(url)
                with self._lock:
                    # Its process may have ended meanwhile.
                    if self._urls.get(name) == url:
                        last = self._figures[name]
                        self._figures[name] = msgspec.structs.replace(last, **answer)
            self._closing.wait(self._every_s)


def _answer(url: str) -> dict[str, object]:
    """What a sink says of itself at its URL."""
    try:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=_WITHIN_S) as answer:
                body = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as unready:
            body = unready.read(_MOST_BYTES)
        fields = json.loads(body)
        return {
            "ready": bool(fields["ready"]),
            "state": str(fields["reason"]),
            "frontier": fields["upper"],
            "lag_s": fields["lag_seconds"],
            "updates": int(fields["updates"]),
            "behind": int(fields["behind_offsets"]),
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return {"ready": False, "state": f"does not answer at {url}: {reason}"}


# A sink is started again however often it ends.
_RESTARTS = 10**9
_NONE: Mapping[str, str] = {}
# The time for a sink to finish the batch that it is applying.
_GRACE_S = 30.0

Say = Callable[[str], None]


class SinkError(IkebanaError):
    """The process of a sink has ended by itself."""


class SinkProcess:
    """Runs the process of one sink, watched by a thread.

    One line of the process's log, which is JSON, has the URL of its probes; all other lines are
    passed on.  With `once` the process ends by itself, and is not started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        board: SinkBoard,
        say: Say,
        *,
        once: bool = False,
        environ: Mapping[str, str] = _NONE,
    ) -> None:
        """Start it; `environ` are variables beside those of this process."""
        self.error: IkebanaError | None = None
        self._name, self._command, self._board, self._once = name, command, board, once
        self._say, self._environ = say, environ
        self._restarts = 0
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._guard: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the process to end after the batch that it is applying."""
        self._stopping.set()
        self._tell_guard(b"t")

    def join(self, within_s: float | None = None) -> None:
        """Wait until it has ended; kill it if that takes longer than `within_s`."""
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._tell_guard(b"k")
            self._thread.join()

    def _tell_guard(self, what: bytes) -> None:
        with self._lock:
            if self._guard is not None and self._guard.stdin is not None:
                with suppress(BrokenPipeError):
                    self._guard.stdin.write(what)

    def _keep(self) -> None:
        try:
            restarts = Restarts(0 if self._once else _RESTARTS)
            with_restarts(self._attempt, restarts, self._tell, self._stopping.wait)
            self._board.without(self._name, "ended", restarts=self._restarts)
        except IkebanaError as error:
            self.error = error
            self._board.without(self._name, error.message, restarts=self._restarts)

    def _attempt(self) -> None:
        if self._stopping.is_set():
            return
        try:
            status, cause = self._ran()
        except OSError as error:
            raise AttemptFailed from SinkError(f"cannot start a process for the sink: {error}")
        if self._stopping.is_set() or (self._once and status == 0):
            return
        if not cause:
            cause = f"its process ended with status {status}"
            self._say(f"sink {self._name}: {cause}")
        if status == EXIT_FENCED:
            raise FencedError(cause)
        raise AttemptFailed from SinkError(cause)

    def _ran(self) -> tuple[int, str]:
        """Run the process to its end; return its status, and its last error."""
        reading, writing = os.pipe()
        environ = {**os.environ, **self._environ, VARIABLE: "json"}
        with open(reading, encoding="utf-8", errors="replace") as lines:
            with open(writing, "wb") as log:
                guard, _ = start_guarded(self._command, Path.cwd(), log, environ)
            with self._lock:
                self._guard = guard
            if self._stopping.is_set():
                self._tell_guard(b"t")
            cause = ""
            for line in lines:
                cause = self._heard(line.strip()) or cause
        status = guard.wait()
        with self._lock:
            self._guard = None
        assert guard.stdin is not None, "a guard without standard input"
        guard.stdin.close()
        return status, cause

    def _heard(self, line: str) -> str:
        """Pass on a line of the log; return its first line if it is an error."""
        try:
            entry = json.loads(line)
            message, level, url = str(entry["message"]), entry["level"], entry.get("url")
        except (ValueError, LookupError, TypeError, AttributeError):
            message, level, url = line, "", None
        if url is not None:
            self._board.at(self._name, url)
            return ""
        self._say(f"sink {self._name}: {message}")
        return message.partition("\n")[0] if level == "ERROR" else ""

    def _tell(self, cause: Exception, pause_s: float) -> None:
        self._restarts += 1
        again = f"starting again in {pause_s:g} s"
        self._board.without(self._name, f"{cause}; {again}", restarts=self._restarts)
        self._say(f"sink {self._name}: {again}")


class Sinks:
    """The sinks of a pipeline beside its run: their processes, and their progress.

    `file` has them; `options` are further words of `ikebana deliver`, and `environ` variables for
    it.  Those in `places` run elsewhere, and answer at these URLs.
    """

    def __init__(
        self,
        parts: "Mapping[str, DeliverSection]",
        file: Path,
        options: Sequence[str] = (),
        places: Mapping[str, str] = _NONE,
        environ: Mapping[str, str] = _NONE,
    ) -> None:
        self.parts = parts
        self._places, self._environ = places, environ
        self._file, self._options = file, options

    def commands(self, *options: str) -> dict[str, list[str]]:
        """The commands of the sinks that are run here, by name."""
        words = [sys.executable, "-m", "ikebana", "deliver", str(self._file)]
        return {
            name: [*words, name, *self._options, *options]
            for name in self.parts
            if name not in self._places
        }

    @contextmanager
    def board(self) -> Iterator[SinkBoard]:
        """Within a `with` block, keep a board with the progress of the sinks."""
        with SinkBoard(self.parts) as board:
            for name, url in self._places.items():
                board.at(name, url)
            yield board

    @contextmanager
    def beside(self, board: SinkBoard, say: Say, *, once: bool) -> Iterator[Watcher]:
        """Run the sinks within a `with` block, which gets a watcher of the run that starts them.

        If the block ends by an error, the processes get no time to end.  With `once` they are not
        run here; see `deliver_once`.
        """
        commands = {} if once else self.commands("--http", "127.0.0.1:0")
        grace_s, environ = 0.0, self._environ
        processes: list[SinkProcess] = []

        class Starting(Watcher):
            def started(self, start: RunStart) -> None:
                # They start after the query, which creates the topics of a new pipeline.
                if not (start.precedes or processes):
                    processes.extend(
                        SinkProcess(name, command, board, say, environ=environ)
                        for name, command in commands.items()
                    )

        try:
            yield Starting()
            grace_s = _GRACE_S
        finally:
            for each in processes:
                each.stop()
            end_s = time.monotonic() + grace_s
            for each in processes:
                each.join(max(0.0, end_s - time.monotonic()))

    def deliver_once(self, board: SinkBoard, say: Say, stopping: Stopping) -> None:
        """Deliver all closed batches, or end when `stopping` is asked.

        Raises: SinkError, FencedError, if a sink has failed.
        """
        commands = self.commands("--once")
        if not commands or stopping.asked:
            return
        processes = [
            SinkProcess(name, command, board, say, once=True, environ=self._environ)
            for name, command in commands.items()
        ]

        def stop() -> None:
            for each in processes:
                each.stop()

        stopping.finish_first(stop)
        for each in processes:
            each.join()
        for each in processes:
            if each.error is not None:
                raise each.error
