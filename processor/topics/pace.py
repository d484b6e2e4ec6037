"""The least time between two batches."""

# Decision (the source keeps the interval): Ticks of Spark's trigger would hold up the first
# record after a pause, and each hop between operators. Without an interval few records would keep
# a core busy.

import math
import time
from collections.abc import Callable

from ikebana.processor.topics.source_offset import SourceOffset, is_settled


class Pace:
    """Says how long the next batch has to wait.

    Updates between operators never wait, nor does the first record after a pause.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._begun = -math.inf

    def begin(self) -> None:
        """A batch begins now."""
        self._begun = self._clock()

    def early_s(self, last: SourceOffset) -> float:
        """The seconds until the batch after `last` may begin; 0 or less if it may now."""
        if not is_settled(last):
            return 0.0
        return self._begun + self._interval_s - self._clock()


class Beats:
    """Whether a heartbeat is due, `every_s` seconds after the last batch; never if that is 0.

    The time since the last batch is measured by the wall clock, also over restarts, and by a
    monotonic clock in case the wall clock is set back; the longer one counts.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._seen: tuple[int, float] | None = None

    def is_due(self, batch: int, upper_ms: int, now_ms: int, passed_s: float) -> bool:
        """Whether one is due after the last batch, which ended at the time `upper_ms`.

        `now_ms` is the wall clock, and `passed_s` a clock that is never set.
        """
        if self._seen is None or self._seen[0] != batch:
            self._seen = batch, passed_s
        silent_s = max((now_ms - upper_ms) / 1000, passed_s - self._seen[1])
        return 0 < self._every_s <= silent_s
