"""How long processes stand still, which is not how long they wait for a processor.

On a busy machine a start can take many times what it usually does.  Whoever waits for it must
not take that for a standstill: seconds in which a thread was ready to run, and did not, hardly
count.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

# However busy a machine is, a wait ends.
_LEAST = 1 / 12
_LOOK_EVERY_S = 2.0


class Standstill:
    """The time since it was made, in seconds in which the processes could have run."""

    def __init__(
        self,
        processes: Callable[[], Iterable[psutil.Process]],
        clock: Callable[[], float] = time.monotonic,
        waited: Callable[[Iterable[psutil.Process]], dict[str, float]] | None = None,
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._waited = waited or waited_s
        self._looked = clock()
        self._before = self._waited(processes())
        self._seconds = 0.0

    def seconds(self) -> float:
        """The time so far; it looks at the processes now and then."""
        now = self._clock()
        if (passed := now - self._looked) >= _LOOK_EVERY_S:
            after = self._waited(self._processes())
            waited = sum(spent - self._before.get(each, 0.0) for each, spent in after.items())
            self._seconds += max(_LEAST * passed, passed - waited)
            self._looked, self._before = now, after
        return self._seconds


def waited_s(processes: Iterable[psutil.Process]) -> dict[str, float]:
    """How long each thread was ready to run, and did not; nothing where nobody counts that."""
    found = {}
    for process in processes:
        for thread in _threads(process):
            with suppress(OSError):
                _, waited, *_ = (thread / "schedstat").read_text().split()
                found[str(thread)] = int(waited) / 1e9
    return found


def _threads(process: psutil.Process) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{process.pid}/task").iterdir())
    return []
