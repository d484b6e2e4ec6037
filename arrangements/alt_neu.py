"""Alt/Neu times: just before a time, and just after it.

Alt t < Neu t, and both are equal to t when they are compared with any other time.  So an
as-of join can be written with joins alone: `differentiate` makes an update live for the
one instant between Alt t and Neu t, whatever joins with it then meets the other side as
it stands at t, and `integrate` makes of what lived for an instant an update at t again.

Join and meet are those of a lattice; here times are totally ordered, so they are the
greater and the lesser one.

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
        # Equal to a plain time, so of one hash with it.
        return hash(self.time)

    def __repr__(self) -> str:
        return f"{'Neu' if self.neu else 'Alt'}({self.time})"

    def join(self, other: "AltNeu") -> "AltNeu":
        """The least time that is not before either."""
        return max(self, other)

    def meet(self, other: "AltNeu") -> "AltNeu":
        """The greatest time that is not beyond either."""
        return min(self, other)


def alt(time: int) -> AltNeu:
    """The time itself, before what happens at it."""
    return AltNeu(time, neu=False)


def neu(time: int) -> AltNeu:
    """The same time, after what happens at it."""
    return AltNeu(time, neu=True)


class Instant(NamedTuple):
    """An update at an Alt/Neu time."""

    data: Any
    time: AltNeu
    diff: int


def differentiate(updates: Iterable[Update[Any]]) -> list[Instant]:
    """Let every update live for an instant: +diff at Alt of its time, -diff at Neu.

    >>> differentiate([Update("a", 3, 2)])
    [Instant(data='a', time=Alt(3), diff=2), Instant(data='a', time=Neu(3), diff=-2)]
    """
    return [
        instant
        for data, time, diff in updates
        for instant in (Instant(data, alt(time), diff), Instant(data, neu(time), -diff))
    ]


def integrate(instants: Iterable[Instant]) -> list[Update[Any]]:
    """Make updates of what lives for an instant: drop Neu, and take Alt for the time.

    integrate(differentiate(x)) is x.

    >>> integrate(differentiate([Update("a", 3, 2)]))
    [Update(data='a', time=3, diff=2)]
    """
    return [Update(data, time.time, diff) for data, time, diff in instants if not time.neu]
