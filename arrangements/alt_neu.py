"""Alt/Neu times: just before a time, and just after it.

Alt t < Neu t, and both compare like t with any other time.  With them an as-of join can be
written as a plain join: `differentiate` lets each update exist only from Alt t to Neu t, the join
matches it with the other side as of t, and `integrate` turns the results into updates at t.

Join and meet are those of the lattice of times; times are totally ordered here, so they are the
later and the earlier time.

Source of the method: the AltNeu times of differential dataflow's `dogsdogsdogs`.
"""

from collections.abc import Iterable
from functools import total_ordering
from typing import Any, NamedTuple

from ikebana.arrangements.update import Update


@total_ordering
class AltNeu:
    """A time `time`, or the moment just after it if it is `neu`."""

    __slots__ = ("neu", "time")

    def __init__(self, time: int, *, neu: bool) -> None:
        self.time = time
        self.neu = neu

    def __eq__(self, other: object) -> bool:
        match other:
            case AltNeu():
                return (self.time, self.neu) == (other.time, other.neu)
            case int():
                return self.time == other
            case _:
                return NotImplemented

    def __lt__(self, other: object) -> bool:
        match other:
            case AltNeu():
                return (self.time, self.neu) < (other.time, other.neu)
            case int():
                return self.time < other
            case _:
                return NotImplemented

    def __hash__(self) -> int:
        # It may equal a plain time, so it must have the same hash.
        return hash(self.time)

    def __repr__(self) -> str:
        return f"{'Neu' if self.neu else 'Alt'}({self.time})"

    def join(self, other: "AltNeu") -> "AltNeu":
        """Compute the least time that is not before either."""
        return max(self, other)

    def meet(self, other: "AltNeu") -> "AltNeu":
        """Compute the greatest time that is not after either."""
        return min(self, other)


def alt(time: int) -> AltNeu:
    """Make the moment just before the updates of a time."""
    return AltNeu(time, neu=False)


def neu(time: int) -> AltNeu:
    """Make the moment just after the updates of a time."""
    return AltNeu(time, neu=True)


class Instant(NamedTuple):
    """An update at an Alt/Neu time."""

    data: Any
    time: AltNeu
    diff: int


def differentiate(updates: Iterable[Update[Any]]) -> list[Instant]:
    """Let every update exist for an instant: +diff at Alt of its time, -diff at Neu.

    Takes updates `(data, time, diff)`, and returns two instants for each.

    >>> differentiate([Update("a", 3, 2)])
    [Instant(data='a', time=Alt(3), diff=2), Instant(data='a', time=Neu(3), diff=-2)]
    """
    return [
        instant
        for data, time, diff in updates
        for instant in (Instant(data, alt(time), diff), Instant(data, neu(time), -diff))
    ]


def integrate(instants: Iterable[Instant]) -> list[Update[Any]]:
    """Undo `differentiate`: keep the instants at Alt, as updates of their time; drop those at Neu.

    For any updates x, `integrate(differentiate(x)) == x`.

    >>> integrate(differentiate([Update("a", 3, 2)]))
    [Update(data='a', time=3, diff=2)]
    """
    return [Update(data, time.time, diff) for data, time, diff in instants if not time.neu]
