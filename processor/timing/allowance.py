"""How much of what its settings allow a batch reads: less, where more would take too long.

`source.max_records_per_batch` is a bound for records of the usual kind.  What a record costs is
known when a batch has been run: one that meets 100,000 rows of a join takes seconds, and 250,000
records of 10 kB are 2.5 GB.  So the first batch of a run reads a little, and each further one so
much that it takes about a tenth of `run.max_batch`, and not too many bytes.

This changes when records are read, and nothing of what they come to: a batch is what was logged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ikebana.processor.planning.plan import Plan
from ikebana.processor.timing.source_offset import SourceOffset

FIRST = 25_000
"""The number of records that the first batch of a run may read."""
FIRST_JOINED = 5_000
"""The same where records meet others: the results of a join may be many for each."""
MOST_BYTES = 256 << 20
"""About the size of the records that a batch reads, as they are packed for the shards."""
_OF_MAX_BATCH = 0.1
_GROWTH = 4.0
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
        self._most, self._most_hops = most, most_hops
        self._clock = clock
        self._records, self._hops = min(1.0, first / most), 1.0
        # The bytes of a record.  What a start goes on with was not measured by it.
        self._each: float | None = None
        self._measured_in = 0
        self._running: _Run | None = None
        self._starts = True
        # What the last batch took that read nothing.
        self._idle_s = 0.0

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
        records = _count(batch) - _count(before)
        hops = sum(batch.hops.values()) - sum(before.hops.values())
        shares = min(1.0, records / self._most), min(1.0, hops / self._most_hops)
        is_start = self._starts and records < self.records
        self._running = _Run(batch.batch, self._clock(), records, *shares, is_start)
        self._starts = False

    def done(self, last: SourceOffset, size_of: Callable[[], int]) -> None:
        """The batch `last` is done; `size_of` tells how many bytes the shards got in it."""
        run, self._running = self._running, None
        if run is None or run.batch != last.batch:
            return
        took_s = self._clock() - run.begun
        if run.of_records <= 0 and run.of_hops <= 0:
            # It says nothing of what the next records take: those before may have been slow.
            self._idle_s = took_s
        else:
            # What a batch takes whatever it reads, as far as it is known, is not of its records.
            took_s -= min(self._idle_s, took_s / 2)
            if not run.is_start:
                self._records = self._next(self._records, run.of_records, took_s)
            self._hops = self._next(self._hops, run.of_hops, took_s)
        if run.records >= _FEW:
            if self._each is None or self._measured_in == 0:
                self._each = max(1.0, size_of() / run.records)
            self._measured_in = (self._measured_in + 1) % _MEASURE_EVERY

    def _next(self, share: float, used: float, took_s: float) -> float:
        """The share after a batch that has used so much of the most."""
        if used <= 0:
            return share
        grown = min(1.0, max(share, 1.0 / self._most) * _GROWTH)
        if took_s <= self._target_s / _GROWTH:
            return grown
        # A share that comes out too small grows again.
        return min(grown, used * self._target_s / took_s)


def _count(offset: SourceOffset) -> int:
    return sum(end for by in offset.positions.values() for end in by.values())
