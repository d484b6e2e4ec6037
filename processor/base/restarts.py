"""Restart a query after failures that may pass by themselves, with pauses and a limit.

The pauses double from a second to a minute with each restart, until an attempt has lasted longer
than the longest pause.  The number of restarts within an hour is limited, so that a recurring
failure ends the run.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

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


class Clock(Protocol):
    """A clock with the functions of the module `time`."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def persistently(
    attempt: Callable[[], Result],
    restarts: Restarts,
    clock: Clock,
    tell: Callable[[Exception, float], None],
) -> Result:
    """Call `attempt` until it returns a result, with a pause after each `AttemptFailed`.

    `tell` gets the cause and the pause.  The cause is raised when the limit of restarts is
    reached; any exception other than `AttemptFailed` is raised at once.
    """
    while True:
        begun_s = clock.monotonic()
        try:
            return attempt()
        except AttemptFailed as failed:
            cause = failed.__cause__
            assert isinstance(cause, Exception)
        now_s = clock.monotonic()
        pause_s = restarts.pause_s(now_s, now_s - begun_s)
        if pause_s is None:
            raise cause
        tell(cause, pause_s)
        clock.sleep(pause_s)
