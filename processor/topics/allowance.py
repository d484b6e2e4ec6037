"""How much of what its settings allow a batch reads: less, where more would take too long.

`source.max_records_per_batch` is a bound for records of the usual kind.  What a record costs is
known when a batch has been run: one that meets 100,000 rows of a join takes seconds, and 250,000
records of 10 kB are 2.5 GB.  So the first batch of a run reads a little, and each further one so
much that it takes about a tenth of `run.max_batch`, and not too many bytes.  What a batch takes
that reads next to nothing, as it does on a busy machine, is not the records' fault: where that
alone is more, it is no reason to read less.

This changes when records are read, and nothing of what they come to: a batch is what was logged.
"""

# Decision (the size of batches): What a record costs is not known before it runs, so a run begins
# small and grows by four, by what batches took. A limit in bytes is not possible: Kafka tells
# offsets, not sizes, before records are read.

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import SourceOffset

FIRST = 25_000
"""The number of records that the first batch of a run may read."""
FIRST_JOINED = 5_000
"""The same where records meet others: the results of a join may be many for each."""
MOST_BYTES = 256 << 20
"""About the size of the records that a batch reads, as they are packed for the shards."""
_OF_MAX_BATCH = 0.1
_GROWTH = 4.0
# A batch of no more than so many messages tells what one takes whatever it reads.
_NEXT_TO_NOTHING = 16
# That time follows a machine which has become slower by so much from one such batch to the next.
_SLOWER = 1.25
# Where it is more than the target, batches grow by this, as long as they would take less than so
# much of the longest if all of it were the records' fault.
_CAREFUL_GROWTH = 2.0
_MOST_OF_MAX_BATCH = 0.5
_LAST = 4
# Fewer records are no measure of the size of others; it is measured in one of so many batches.
_FEW = 5_000
_MEASURE_EVERY = 16


@dataclass(frozen=True, slots=True)
class _Run:
    """A batch that was minted at a time, and the shares that it reads of the most.

    One that `is_start` is the first of a run, and has less than it may read: what it takes is
    that of a start.
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
        # What a batch takes whatever it reads, once it is known.
        self._least_s = 0.0
        # What the last batches would have let the next one read, had they all taken too long.
        self._fair: tuple[deque[float], deque[float]] = deque(maxlen=_LAST), deque(maxlen=_LAST)
        self._most, self._most_hops = most, most_hops
        self._clock = clock
        self._records, self._hops = min(1.0, first / most), 1.0
        # The bytes of a record.  What a start goes on with was not measured by it.
        self._each: float | None = None
        self._measured_in = 0
        self._running: _Run | None = None
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
        self._running = _Run(batch.batch, self._clock(), records, hops, *shares, is_start)
        self._starts = False

    def done(self, last: SourceOffset, size_of: Callable[[], int]) -> None:
        """The batch `last` is done; `size_of` tells how many bytes the shards got in it."""
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
            if self._each is None or self._measured_in == 0:
                self._each = max(1.0, size_of() / run.records)
            self._measured_in = (self._measured_in + 1) % _MEASURE_EVERY

    def _next(
        self, share: float, used: float, took_s: float, most: int, fair: deque[float]
    ) -> float:
        """The share after a batch that has used so much of the most."""
        if used <= 0:
            # It says nothing of what the next records take: those before may have been slow.
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
