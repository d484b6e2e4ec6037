"""Reading CDCv2: from facts in any order and any number of times to whole times in order.

A time is published when progress reaches beyond it without a gap and, of it and of
every earlier time, all counted updates are there.  What is published depends on the
facts alone, never on their order.

Memory is bounded by what is open: facts of published times are forgotten, and their
repetitions are told by the frontier.  So is a contradiction that comes too late: facts
that cannot all be true are an error as long as one of them is still remembered.

The algorithm is that of `iterator::Iter` in differential dataflow's `src/capture.rs`,
which does not look for contradictions.
"""

from bisect import bisect_left
from heapq import heappop, heappush
from typing import NamedTuple

from ikebana.codecs.cdcv2 import Cdcv2Message, Fact, Progress, Updates
from ikebana.errors import IkebanaError
from ikebana.processor.rows.rows import KeyedUpdate


class ContradictionError(IkebanaError):
    """Facts of a CDCv2 topic cannot all be true."""

    def __init__(self, time: int, problem: str) -> None:
        super().__init__(
            f"cannot read CDCv2 updates of time {time}: {problem}",
            hint="More than one pipeline, or something else, has written to the topic.",
        )
        self.time = time


class Published(NamedTuple):
    """All updates of the times from the `upper` before up to, and without, `upper`."""

    upper: int
    updates: list[KeyedUpdate]


class Cdcv2Reader:
    """Publishes whole times from `lower` on; every fact of earlier times is ignored.

    After a `ContradictionError` it is of no further use.
    """

    def __init__(self, lower: int = 0) -> None:
        # _published <= _covered.  Everything before _published was given away;
        # of everything before _covered the counts are known.
        self._published = lower
        self._covered = lower
        self._held: dict[int, dict[tuple[bytes | None, bytes], int]] = {}
        # Held times that no count is known of yet.
        self._uncounted: list[int] = []
        # Counts of covered times that are not published; _times are its keys in order.
        self._counts: dict[int, int] = {}
        self._times: list[int] = []
        # Statements that begin beyond a gap, and a heap of their intervals.
        self._early: dict[tuple[int, int], Progress] = {}
        self._intervals: list[tuple[int, int]] = []

    @property
    def upper(self) -> int:
        """The frontier of what was taken: to go on later, begin a new reader with it."""
        return self._published

    def feed(self, message: Cdcv2Message) -> None:
        """Learn the facts of a message.

        Raises:
            ContradictionError: they contradict others.
        """
        match message:
            case Updates(updates):
                for update in updates:
                    self._hold(update)
            case Progress():
                self._queue(message)
                while self._intervals and self._intervals[0][0] <= self._covered:
                    self._accept(self._early.pop(heappop(self._intervals)))

    def take(self) -> list[Published]:
        """Give away what is complete: each time with updates by itself, in order.

        Updates of a time are in order of key and value.  The last `upper` is the
        frontier; nothing is given if it has not moved.
        """
        done = 0
        for time in self._times:
            if len(self._held.get(time, ())) < self._counts[time]:
                break
            done += 1
        frontier = self._times[done] if done < len(self._times) else self._covered
        if frontier == self._published:
            return []
        found = [self._forget(time) for time in self._times[:done]]
        del self._times[:done]
        self._published = frontier
        if not found:
            return [Published(frontier, [])]
        # Behind the last of them nothing else is to come before the frontier.
        return [*found[:-1], found[-1]._replace(upper=frontier)]

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
        if (known := self._early.get(interval)) is not None:
            self._compare(progress, known, lower, upper)
            return
        self._early[interval] = progress
        heappush(self._intervals, interval)

    def _accept(self, progress: Progress) -> None:
        """Learn the counts of a statement that begins in what is covered."""
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
        known = {time: self._counts[time] for time in self._times[begin:end]}
        self._compare(progress, Progress(lower, upper, known), lower, upper)

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
