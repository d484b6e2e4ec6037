"""How often a query is started again after a failure that may go by itself, and when.

The pauses double from a second to a minute with each restart within an hour, and there
are only so many of them: a failure that comes every time must end the run.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")

WINDOW_S = 3600.0
_LONGEST_PAUSE_S = 60.0


class Restarts:
    """The restarts of one run, of which an hour has at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: deque[float] = deque()

    def pause_s(self, now_s: float) -> float | None:
        """How long to wait before a restart, which counts from here; None: no more of them."""
        while self._times and self._times[0] <= now_s - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._most:
            return None
        self._times.append(now_s)
        return min(_LONGEST_PAUSE_S, 2.0 ** (len(self._times) - 1))


class Failed(Exception):
    """An attempt failed with its cause in a way that another one may not meet again."""


class Clock(Protocol):
    """Time, as `time` has it."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def persistently(
    attempt: Callable[[], Found],
    restarts: Restarts,
    clock: Clock,
    tell: Callable[[Exception, float], None],
) -> Found:
    """Attempt until there is a result, pausing after each `Failed`.

    `tell` is given the cause and the pause.  The cause is raised when there are no more
    restarts, as is at once whatever an attempt raises beside `Failed`.
    """
    while True:
        try:
            return attempt()
        except Failed as failed:
            cause = failed.__cause__
            assert isinstance(cause, Exception)
        pause_s = restarts.pause_s(clock.monotonic())
        if pause_s is None:
            raise cause
        tell(cause, pause_s)
        clock.sleep(pause_s)
