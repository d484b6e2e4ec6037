"""How many executors a pipeline should have, by how long its batches take."""

import math
import time
from collections.abc import Callable

# A batch that takes longer, or leaves records for later ones, shows that executors are too few.
BUSY_S = 5.0
# They are too many if a batch would take less than this with one of them fewer.
QUIET_S = 1.0
MORE_AFTER_S = 30.0
FEWER_AFTER_S = 600.0


class Scaling:
    """Chooses a number of executors between `least` and `most`, batch by batch.

    If all batches of half a minute were too long, the number doubles; if all batches of ten
    minutes were short, it is reduced by one.  So a short backlog changes nothing, and a load that
    varies within minutes moves no shard.
    """

    def __init__(
        self,
        least: int,
        most: int,
        executors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executors = executors
        """How many there should be."""
        self._least, self._most, self._clock = least, most, clock
        # Since when all batches have been busy, or quiet.
        self._busy_since = self._quiet_since = math.inf

    def after(self, seconds: float, behind: int) -> bool:
        """Take note of a batch that has ended; return whether the number of executors changes.

        The batch took `seconds`, and left `behind` records for later batches.
        """
        now, count = self._clock(), self.executors
        is_busy = behind > 0 or seconds > BUSY_S
        is_quiet = not is_busy and seconds * count < QUIET_S * (count - 1)
        self._busy_since = min(self._busy_since, now - seconds) if is_busy else math.inf
        self._quiet_since = min(self._quiet_since, now) if is_quiet else math.inf
        if now - self._busy_since >= MORE_AFTER_S:
            self.executors = min(2 * count, self._most)
        elif now - self._quiet_since >= FEWER_AFTER_S:
            self.executors = max(count - 1, self._least)
        if self.executors == count:
            return False
        self._busy_since = self._quiet_since = math.inf
        return True
