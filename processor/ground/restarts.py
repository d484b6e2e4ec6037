"""Restart a query after failures that may pass by themselves, with pauses and a limit.

The pauses double from a second to a minute with each restart within an hour.  The number of
restarts is limited, so that a failure that always comes again ends the run.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")

WINDOW_S = 3600.0
_LONGEST_PAUSE_S = 60.0


class Restarts:
    """The restarts of one run, with a limit for each hour."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: deque[float] = deque()

    def pause_s(self, now_s: float) -> float | None:
        """Count a restart and return the pause before it; None if the limit is reached."""
        while self._times and self._times[0] <= now_s - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._most:
            return None
        self._times.append(now_s)
        return min(_LONGEST_PAUSE_S, 2.0 ** (len(self._times) - 1))


class Failed(Exception):
    """An attempt failed, with its cause, but another attempt may succeed."""


class Clock(Protocol):
    """A clock with the functions of the module `time`."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def persistently(
    attempt: Callable[[], Found],
    restarts: Restarts,
    clock: Clock,
    tell: Callable[[Exception, float], None],
) -> Found:
    """Call `attempt` until it returns a result, with a pause after each `Failed`.

    `tell` gets the cause and the pause.  The cause is raised when no restart is left; any other
    exception than `Failed` is raised at once.
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
