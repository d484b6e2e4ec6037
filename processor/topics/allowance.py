"""How many records a batch reads: fewer than the settings allow, if more would take too long.

`source.max_records_per_batch` is a bound for usual records.  The cost of a record is known only
after a batch: one that joins with 100,000 rows takes seconds, and 250,000 records of 10 kB are
2.5 GB.  So the first batch of a run reads a little, and each further one so much that it takes
about a tenth of `run.max_batch`, and not too many bytes.  The time of a nearly empty batch, which
may be long on a busy machine, is not due to records: it is subtracted before the next size is
chosen.

This only changes when records are read, not their results: a batch is what was logged.
"""

# Decision (the size of batches): What a record costs is not known before it runs, so a run begins
# small and grows by four, by what batches took. A limit in bytes is not possible: Kafka tells
# offsets, not sizes, before records are read.

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import SourceOffset, is_settled

FIRST = 25_000
"""The number of records that the first batch of a run may read."""
FIRST_JOINED = 5_000
"""The same for plans with joins, where a record may have many results."""
MOST_BYTES = 256 << 20
"""About the most bytes of records in a batch, packed for the shards."""
_OF_MAX_BATCH = 0.1
_GROWTH = 4.0
# A batch of at most this many messages shows how long a batch takes without records.
_NEXT_TO_NOTHING = 16
# That time may grow by at most this factor from one such batch to the next.
_SLOWER = 1.25
# If it exceeds the target, batches grow by this factor, as long as they would take less than this
# part of `run.max_batch` if all of the time were due to records.
_CAREFUL_GROWTH = 2.0
_MOST_OF_MAX_BATCH = 0.5
_LAST = 4
# Batches of fewer records do not measure the size of a record.
_FEW = 5_000


@dataclass(frozen=True, slots=True)
class _Minted:
    """A batch, the time when it was minted, and which shares of the most it reads.

    With `is_start`, it is the first of a run and reads less than it may: its time is the time of
    a start, and does not count.
    """

    batch: int
    begun: float
    records: int
    hops: int
    of_records: float
    of_hops: float
    is_start: bool


class Allowance:
    """The shares of the most records, and of the most messages of the exchange, for a batch."""

    def __init__(
        self,
        plan: Plan,
        max_batch_s: float,
        most: int,
        most_hops: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a little; `most` and `most_hops` are what a batch may read."""
        first = FIRST_JOINED if plan.joins else FIRST
        self._target_s = max_batch_s * _OF_MAX_BATCH
        self._most_s = max_batch_s * _MOST_OF_MAX_BATCH
        # How long a batch takes without records, once it is known.
        self._least_s = 0.0
        # The shares that would have met the target in each of the last batches.
        self._fair: tuple[deque[float], deque[float]] = deque(maxlen=_LAST), deque(maxlen=_LAST)
        self._most, self._most_hops = most, most_hops
        self._clock = clock
        self._records, self._hops = min(1.0, first / most), 1.0
        # The bytes of a record, as measured in this run.
        self._each: float | None = None
        self._running: _Minted | None = None
        self._starts = True

    @property
    def records(self) -> int:
        """The number of records that the next batch may read."""
        by_size = self._most if self._each is None else int(MOST_BYTES / self._each)
        return max(1, min(by_size, round(self._most * self._records)))

    @property
    def hops(self) -> int:
        """The number of messages of the exchange topic that the next batch may read."""
        return max(1, round(self._most_hops * self._hops))

    def minted(self, before: SourceOffset, batch: SourceOffset) -> None:
        """A batch has been minted, and is run now."""
        records = batch.records_since(before)
        hops = sum(batch.hops.values()) - sum(before.hops.values())
        shares = min(1.0, records / self._most), min(1.0, hops / self._most_hops)
        is_start = self._starts and records < self.records
        self._running = _Minted(batch.batch, self._clock(), records, hops, *shares, is_start)
        self._starts = False

    def done(self, last: SourceOffset, size: int) -> None:
        """The batch `last` is done, in which the shards got so many bytes."""
        run, self._running = self._running, None
        if run is None or run.batch != last.batch or run.is_start:
            return
        took_s = self._clock() - run.begun
        if max(run.records, run.hops) <= _NEXT_TO_NOTHING:
            self._least_s = min(took_s, self._least_s * _SLOWER or took_s)
        records, hops = self._fair
        self._records = self._next(self._records, run.of_records, took_s, self._most, records)
        self._hops = self._next(self._hops, run.of_hops, took_s, self._most_hops, hops)
        if run.records >= _FEW:
            self._each = max(1.0, size / run.records)

    def _next(
        self, share: float, used: float, took_s: float, most: int, fair: deque[float]
    ) -> float:
        """The share after a batch that has used so much of the most."""
        if used <= 0:
            # It says nothing about the time of the next records: earlier ones may have been slow.
            return share
        grown = min(1.0, max(share, 1.0 / most) * _GROWTH)
        of_it_s = max(took_s - self._least_s, self._target_s / _CAREFUL_GROWTH)
        fair.append(used * self._target_s / of_it_s)
        if took_s <= self._target_s / _GROWTH:
            return grown
        if took_s <= self._target_s:
            return min(grown, used * self._target_s / min(took_s, of_it_s))
        # A single record would stay one, if it grew by less than half of another one.
        safe = used * self._most_s / took_s + 0.5 / most
        # Other work on the machine makes a batch longer, and never shorter.
        return min(grown, safe, max(fair))


# Decision (the source keeps the interval): Ticks of Spark's trigger would hold up the first
# record after a pause, and each hop between operators. Without an interval few records would keep
# a core busy.


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
