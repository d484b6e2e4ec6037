"""What tests of arrangements and reductions share: batches, and relations by definition."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from ikebana.arrangements.update import Interval, Update
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.half_join import LookupRow, Match

# One begins another, and one is empty.
KEYS = [b"", b"k", b"kk", b"q"]
# Three of the long ones make a group large; they differ at the end, and so do their keys.
DATA = [b"", b"a", b"b", *(b"x" * 900 + b"%d" % at for at in range(4))]

keys = st.sampled_from(KEYS)
diffs = st.sampled_from([-2, -1, -1, 1, 1, 1, 2])


class Batch(NamedTuple):
    """What a micro-batch brings to an arrangement.

    Lookups may be at any time from `since` on; those of later batches are at or after
    `settled`.
    """

    interval: Interval
    since: int
    settled: int
    updates: list[KeyedUpdate]
    lookups: list[LookupRow]

    @property
    def upper(self) -> int:
        return self.interval.upper


@st.composite
def courses(draw: st.DrawFn, data: Sequence[bytes] = tuple(DATA)) -> list[Batch]:
    """Batches of any size, with readers that lag by any number of them."""
    lower = since = 0
    found = []
    for _ in range(draw(st.integers(1, 5))):
        upper = lower + draw(st.integers(0, 3))
        batch = Batch(
            Interval(lower, upper),
            since,
            draw(st.integers(since, upper)),
            draw(updates(lower, upper, data)),
            draw(lookups(since, upper)),
        )
        # A batch may begin with a greater since than the one before it has ended with.
        since = draw(st.integers(batch.settled, upper))
        lower = upper
        found.append(batch)
    return found


def updates(
    lower: int, upper: int, data: Sequence[bytes] = tuple(DATA)
) -> st.SearchStrategy[list[KeyedUpdate]]:
    """Updates of few data, so that they meet, in any order."""
    if lower == upper:
        return st.just([])
    update = st.builds(
        KeyedUpdate, keys, st.sampled_from(data), st.integers(lower, upper - 1), diffs
    )
    return st.lists(update, max_size=8)


@st.composite
def lookups(draw: st.DrawFn, since: int, upper: int) -> list[LookupRow]:
    """Lookups that may be asked, each with a payload of its own."""
    drawn = draw(
        st.lists(st.tuples(keys, st.integers(since, upper), diffs, st.booleans()), max_size=5)
    )
    return [
        # The times equal to the upper are not complete.
        LookupRow(key, at, time, diff, sees_equal and time < upper)
        for at, (key, time, diff, sees_equal) in enumerate(drawn)
    ]


def pairs(updates: Iterable[KeyedUpdate]) -> list[Update[tuple[bytes, bytes]]]:
    """Updates of (key, value)."""
    return [Update((key or b"", value), time, diff) for key, value, time, diff in updates]


def accumulated(
    history: Iterable[KeyedUpdate], before: int
) -> dict[bytes | None, dict[bytes, int]]:
    """What each key has of updates before a time."""
    sums: Counter[tuple[bytes | None, bytes]] = Counter()
    for key, datum, time, diff in history:
        sums[key, datum] += diff if time < before else 0
    found: dict[bytes | None, dict[bytes, int]] = {}
    for (key, datum), count in sums.items():
        if count:
            found.setdefault(key, {})[datum] = count
    return found


def matched(
    history: Sequence[KeyedUpdate], asked: Iterable[LookupRow], *, outer: bool = False
) -> list[Match]:
    """The matches of lookups by definition, in order."""
    found = []
    for key, payload, time, diff, sees_equal in asked:
        group = accumulated(history, time + sees_equal).get(key, {})
        found += [Match(payload, datum, time, diff * n) for datum, n in group.items()]
        if outer and not group:
            found.append(Match(payload, None, time, diff))
    return in_order(found)


def in_order(matches: Iterable[Match]) -> list[Match]:
    """Matches in an order of their own: that of a join is its own business."""
    return sorted(matches, key=repr)
