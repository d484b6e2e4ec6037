"""The frontier of a CDCv2 input, computed batch by batch from the reports of its tasks.

The frontier is the least time that is not complete: progress has no statement about it, or
counts more updates than were found.  It equals that of `Cdcv2Reader`, which has the facts
themselves; this module needs only statements and numbers of distinct updates, which fit into
markers and the logged offset.  The order of the reports does not matter.

Times before the frontier are dropped.  Two statements that contradict each other are an error
as long as both are there, even beyond a gap; so are more updates than progress counts.  Each
update may be counted only once: `kernels.facts` removes repeats.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.progress import add_times, pack_times
from ikebana.processor.base.diff_reader import ContradictionError


class Coverage(msgspec.Struct, frozen=True):
    """The statements and the updates found, for times at or beyond the frontier.

    `stated` has the united statements as `packed` packs them.  `counts` has the numbers of
    distinct updates by time, as `progress.pack_times` packs them.  The form is unique: two
    coverages with the same content are equal.
    """

    frontier: int = 0
    stated: list[list[int]] = []
    counts: list[int] = msgspec.field(default_factory=list, name="found")


def advanced(
    coverage: Coverage, statements: Iterable[Progress], new: Mapping[int, int]
) -> Coverage:
    """Add the statements of a batch, and its numbers of `new` updates by time.

    Raises:
        ContradictionError: statements contradict each other or the updates.
    """
    frontier = coverage.frontier
    merged = united(_beyond(frontier, [*unpacked(coverage.stated), *statements]))
    there: dict[int, int] = {}
    add_times(there, coverage.counts)
    for time, count in new.items():
        if time < frontier:
            raise ContradictionError(time, "there are more of them than progress counts")
        there[time] = there.get(time, 0) + count
    _check(merged, there)
    if merged and merged[0].lower == frontier:
        _, covered, counts = merged[0]
        missing = (time for time, count in counts.items() if there.get(time, 0) < count)
        frontier = min(missing, default=covered)
    return Coverage(
        frontier,
        packed(_beyond(frontier, merged)),
        pack_times({time: count for time, count in there.items() if time >= frontier}),
    )


def united(statements: Iterable[Progress]) -> list[Progress]:
    """Merge statements whose intervals touch or overlap; return them in order.

    >>> united([Progress(4, 9, {5: 1}), Progress(0, 6, {5: 1}), Progress(11, 12, {})])
    [Progress(lower=0, upper=9, counts={5: 1}), Progress(lower=11, upper=12, counts={})]

    Raises:
        ContradictionError: two of them give different counts of one time.
    """
    pieces: list[Progress] = []
    counts: dict[int, int] = {}
    # The keys of the last piece's `counts`, in order.
    times: list[int] = []
    for statement in sorted(statements, key=lambda one: (one.lower, one.upper)):
        lower, upper, stated = statement
        if lower == upper:
            continue
        if not pieces or pieces[-1].upper < lower:
            counts, times = {}, []
            pieces.append(Progress(lower, lower, counts))
        covered = pieces[-1].upper
        before = times[bisect_left(times, lower) : bisect_left(times, upper)]
        for time in (*before, *stated):
            if time < covered and counts.get(time, 0) != stated.get(time, 0):
                raise ContradictionError(time, "progress gives two counts of them")
        fresh = sorted(time for time in stated if time >= covered)
        times += fresh
        counts.update((time, stated[time]) for time in fresh)
        pieces[-1] = pieces[-1]._replace(upper=max(covered, upper))
    return pieces


def packed(statements: Iterable[Progress]) -> list[list[int]]:
    """Pack statements as lists of lower, upper, and the counts as `progress.pack_times` has them.

    >>> packed([Progress(1_000, 9_000, {1_005: 1, 1_006: 2})])
    [[1000, 9000, 1005, 1, 1, 2]]
    """
    return [[lower, upper, *pack_times(dict(counts))] for lower, upper, counts in statements]


def unpacked(statements: Iterable[Sequence[int]]) -> Iterator[Progress]:
    """Unpack what `packed` has packed."""
    for lower, upper, *times in statements:
        counts: dict[int, int] = {}
        add_times(counts, times)
        yield Progress(lower, upper, counts)


def _beyond(frontier: int, statements: Iterable[Progress]) -> Iterator[Progress]:
    """Cut statements to the times at or beyond the frontier."""
    for lower, upper, counts in statements:
        if lower >= frontier:
            yield Progress(lower, upper, counts)
        elif upper > frontier:
            left = {time: count for time, count in counts.items() if time >= frontier}
            yield Progress(frontier, upper, left)


def _check(statements: Sequence[Progress], there: Mapping[int, int]) -> None:
    lowers = [statement.lower for statement in statements]
    for time, count in there.items():
        at = bisect_right(lowers, time) - 1
        if at >= 0 and time < statements[at].upper:
            counted = statements[at].counts.get(time, 0)
            if count > counted:
                raise ContradictionError(time, f"there are {count}, and progress counts {counted}")
