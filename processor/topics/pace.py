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
