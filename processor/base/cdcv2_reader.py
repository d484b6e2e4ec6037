"""Read CDCv2: turn facts, repeated and in any order, into complete times in order.


A time is published when progress reaches beyond it without a gap and all counted updates of it
and of all earlier times have come.  The published updates depend on the facts alone, never on
their order.

Memory is bounded by the unpublished facts: the reader forgets the facts of published times, and
recognises their repetitions by the frontier.  So it ignores contradictions that come too late;
two facts that contradict each other are an error only while one of them is still known.

The algorithm is the one of `iterator::Iter` in differential dataflow's `src/capture.rs`, which
does not look for contradictions.
"""

from bisect import bisect_left
from heapq import heappop, heappush
from typing import NamedTuple

from ikebana.codecs.cdcv2 import Cdcv2Message, Fact, Progress, UpdateFacts
from ikebana.errors import IkebanaError
from ikebana.processor.base.rows import KeyedUpdate


class ContradictionError(IkebanaError):
    """Facts of a CDCv2 topic contradict each other."""

    def __init__(self, time: int, problem: str) -> None:
        super().__init__(
            f"cannot read CDCv2 updates of time {time}: {problem}",
            hint="More than one pipeline, or something else, has written to the topic.",
        )
        self.time = time


class Published(NamedTuple):
    """All updates of the times from the previous `upper` (included) to `upper` (excluded)."""

    upper: int
    updates: list[KeyedUpdate]


class Cdcv2Reader:
    """Publishes complete times from `lower` on, and ignores all facts about earlier times.

    It cannot be used after a `ContradictionError`.
    """

    def __init__(self, lower: int = 0) -> None:
        # _published <= _covered.  All times before _published have been published, and the
        # counts of all times before _covered are known.
        self._published = lower
        self._covered = lower
        self._held: dict[int, dict[tuple[bytes | None, bytes], int]] = {}
        # Times of held updates whose counts are not known yet.
        self._uncounted: list[int] = []
        # Counts of covered times that are not published yet; _times has its keys in order.
        self._counts: dict[int, int] = {}
        self._times: list[int] = []
        # Statements that begin beyond a gap, and a heap of their intervals.
        self._early: dict[tuple[int, int], Progress] = {}
        self._intervals: list[tuple[int, int]] = []

    @property
    def upper(self) -> int:
        """The frontier of the published times; a new reader may continue from it."""
        return self._published

    @property
    def is_level(self) -> bool:
        """Whether nothing is held back: all facts that it was fed are published."""
        return not (self._held or self._early or self._times) and self._published == self._covered

    def feed(self, message: Cdcv2Message) -> None:
        """Add the facts of a message.

        Raises:
            ContradictionError: they contradict other facts.
        """
        match message:
            case UpdateFacts(updates):
                for update in updates:
                    self._hold(update)
            case Progress():
                self._queue(message)
                while self._intervals and self._intervals[0][0] <= self._covered:
                    self._accept(self._early.pop(heappop(self._intervals)))

    def take(self) -> list[Published]:
        """Publish the complete times, in order, each time with updates separately.

        Updates of a time are in order of key and value.  The last `upper` is the frontier;
        the result is empty if the frontier has not moved.
        """
        done = 0
        for time in self._times:
            if len(self._held.get(time, ())) < self._counts[time]:
                break
            done += 1
        frontier = self._times[done] if done < len(self._times) else self._covered
        if frontier == self._published:
            return []
        published = [self._forget(time) for time in self._times[:done]]
        del self._times[:done]
        self._published = frontier
        if not published:
            return [Published(frontier, [])]
        # No more updates can come between the last time and the frontier.
        return [*published[:-1], published[-1]._replace(upper=frontier)]

    def _hold(self, update: Fact) -> None:
        key, value, time, diff = update
        if time < self._published:
            return
        held = self._held.get(time)
        if held is None:
            held = self._held[time] = {}
            if time >= self._covered:
                heappush(self._uncounted, time)
        if held.setdefault((key, value), diff) != diff:
            raise ContradictionError(time, "one of them comes with two diffs")
        if time < self._covered:
            self._check(time, held)

    def _queue(self, progress: Progress) -> None:
        lower, upper = interval = progress.lower, progress.upper
        if (earlier := self._early.get(interval)) is not None:
            self._compare(progress, earlier, lower, upper)
            return
        self._early[interval] = progress
        heappush(self._intervals, interval)

    def _accept(self, progress: Progress) -> None:
        """Add the counts of a statement that begins within the covered times."""
        covered, upper, counts = self._covered, progress.upper, progress.counts
        self._compare_to_covered(progress)
        if upper <= covered:
            return
        times = sorted(time for time in counts if time >= covered)
        self._times += times
        self._counts.update((time, counts[time]) for time in times)
        self._covered = upper
        while self._uncounted and self._uncounted[0] < upper:
            time = heappop(self._uncounted)
            self._check(time, self._held[time])

    def _compare_to_covered(self, progress: Progress) -> None:
        lower = max(progress.lower, self._published)
        upper = min(progress.upper, self._covered)
        begin, end = bisect_left(self._times, lower), bisect_left(self._times, upper)
        counts = {time: self._counts[time] for time in self._times[begin:end]}
        self._compare(progress, Progress(lower, upper, counts), lower, upper)

    def _compare(self, one: Progress, other: Progress, lower: int, upper: int) -> None:
        for time in one.counts.keys() | other.counts.keys():
            if lower <= time < upper and one.counts.get(time, 0) != other.counts.get(time, 0):
                raise ContradictionError(time, "progress gives two counts of them")

    def _check(self, time: int, held: dict[tuple[bytes | None, bytes], int]) -> None:
        counted = self._counts.get(time, 0)
        if len(held) > counted:
            raise ContradictionError(time, f"there are {len(held)}, and progress counts {counted}")

    def _forget(self, time: int) -> Published:
        held = self._held.pop(time)
        del self._counts[time]
        updates = [KeyedUpdate(key, value, time, diff) for (key, value), diff in held.items()]
        return Published(time + 1, sorted(updates, key=_by_data))


def _by_data(update: KeyedUpdate) -> tuple[bool, bytes, bytes]:
    return update.key is not None, update.key or b"", update.value
