"""Decide whether a running pipeline is live, and whether it is ready.

The *lag* is the age of the last moment such that all records in the input topics at that moment
are published now.  A batch that looks up the ends of topics when it begins offers such a moment.
The moment counts as soon as that many offsets are read, and the frontier of every operator has
reached the batch that read the last of them.  So the lag of a pipeline that always has a backlog,
but keeps up, is the age of that backlog.  Offsets are summed over partitions, since a batch reads
the same share of each.

In event time, records that were read may wait because their times are not closed.  Then `upper`
is behind the greatest time seen, and a pipeline with nothing to do has not caught up.

A pipeline is *ready* if its lag is within a limit.  It is *live* if its last sign of life is
within a limit: a committed batch, or a trigger that found nothing to do.  This limit must be
longer than the longest batch, and longer than the time for which we wait for brokers that are
away: the pipeline ends by itself after that time, and an earlier restart would not help.  Until
the first sign of life after the start, which may have to fetch all state, another limit holds.

The only clock that is read here is a parameter, and must never go back.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

# The number of moments that wait; older ones are forgotten, which makes the lag longer.
_MOST_OFFERED = 10_000


class HealthLimits(NamedTuple):
    """Limits in seconds: the lag of a ready pipeline, and the silence of a live one."""

    ready_within: float
    stuck_after: float
    start_within: float


class BatchProgress(NamedTuple):
    """The progress that a batch has made.

    `done` is the number of offsets read, `offered` the number that existed when the batch began,
    or None if it did not check.  The times that it read are before `upper`; all operators have
    finished the times before `closed`.
    """

    done: int
    offered: int | None
    upper: int
    closed: int


class Verdict(NamedTuple):
    """The answer to a probe, and the reason in a line."""

    good: bool
    reason: str


class Health:
    """Computes the health of one run from reports; every method is thread-safe."""

    def __init__(self, limits: HealthLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._last_sign = clock()
        self._doing: str | None = "starting"
        self._ended = False
        self._caught_up: float | None = None
        # Moments that wait for a number of offsets, and then for a frontier.
        self._offered: deque[tuple[float, int]] = deque(maxlen=_MOST_OFFERED)
        self._read: deque[tuple[float, int]] = deque(maxlen=_MOST_OFFERED)

    def step(self, what: str) -> None:
        """Record the current step of the start."""
        with self._lock:
            self._last_sign = self._clock()
            self._doing = what

    def committed(self) -> None:
        """Record that a batch has been committed; its `batch` follows a moment later."""
        with self._lock:
            self._sign()

    def batch(self, took_s: float, batch: BatchProgress) -> None:
        """Record the end of a batch that began `took_s` seconds ago."""
        with self._lock:
            now = self._sign()
            if batch.offered is not None:
                self._offered.append((now - took_s, batch.offered))
            while self._offered and self._offered[0][1] <= batch.done:
                self._read.append((self._offered.popleft()[0], batch.upper))
            while self._read and self._read[0][1] <= batch.closed:
                self._caught_up, _ = self._read.popleft()

    def idle(self, *, waits: bool = False) -> None:
        """Record that there is nothing to do; `waits` if some read records are not published."""
        with self._lock:
            now = self._sign()
            if waits:
                return
            self._caught_up = now
            self._offered.clear()
            self._read.clear()

    def end(self) -> None:
        """Record that the query has ended, for whatever reason."""
        with self._lock:
            self._ended = True

    @property
    def quiet_s(self) -> float:
        """The seconds since the last sign of life."""
        with self._lock:
            return self._clock() - self._last_sign

    @property
    def lag_s(self) -> float | None:
        """The lag in seconds; None as long as it is unknown."""
        with self._lock:
            return None if self._caught_up is None else self._clock() - self._caught_up

    def live(self) -> Verdict:
        """Decide whether the run makes progress; if not, a restart may help."""
        quiet_s, doing = self.quiet_s, self._doing
        limit_s = self._limits.stuck_after if doing is None else self._limits.start_within
        if self._ended:
            return Verdict(good=False, reason="the query has ended")
        if quiet_s > limit_s:
            since = "the last batch" if doing is None else f"start-up came to: {doing}"
            return Verdict(
                good=False, reason=f"stuck: {quiet_s:.0f} s since {since}, limit {limit_s:.0f} s"
            )
        return Verdict(good=True, reason=f"live: {quiet_s:.0f} s since the last sign of life")

    def ready(self) -> Verdict:
        """Decide whether the lag of the published updates is within its limit."""
        lag_s, limit_s = self.lag_s, self._limits.ready_within
        if self._ended:
            return Verdict(good=False, reason="the query has ended")
        if self._doing is not None:
            return Verdict(good=False, reason=f"not ready: start-up has come to: {self._doing}")
        if lag_s is None:
            return Verdict(good=False, reason="not ready: the backlog of the start is not done")
        words = f"lag {lag_s:.0f} s, limit {limit_s:.0f} s"
        return (
            Verdict(good=True, reason=f"ready: {words}")
            if lag_s <= limit_s
            else Verdict(good=False, reason=words)
        )

    def _sign(self) -> float:
        self._last_sign = self._clock()
        self._doing = None
        return self._last_sign
