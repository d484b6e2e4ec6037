"""Times, intervals and frontiers.

A time is an integer.  Times are totally ordered, so a frontier is one time: all updates still to
come have times with `frontier <= time`.  A micro-batch closes an interval `[lower, upper)`, and
the `lower` of each is the `upper` of the one before.
"""

from dataclasses import dataclass

Time = int


@dataclass(frozen=True, slots=True)
class Interval:
    """The times `lower <= time < upper`; empty when the two are equal."""

    lower: Time
    upper: Time

    def __post_init__(self) -> None:
        assert self.lower <= self.upper, f"interval runs backwards: {self.lower}, {self.upper}"

    def __contains__(self, time: Time) -> bool:
        return self.lower <= time < self.upper

    def __bool__(self) -> bool:
        return self.lower < self.upper
