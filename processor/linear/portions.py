"""A chain over many updates in portions, so that what they come to need not be there at once.

A step such as `flat_map` may make a million updates of one.  What cancels within a portion
vanishes; what cancels across portions does not, which is the same collection.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.linear.chain import Chain, Passed, consolidated

Item = TypeVar("Item")
AT_ONCE = 50_000
"""About so many updates come out of a portion, unless one update comes to more."""
# How many the first portion has, when nothing is known of what they come to.
_FIRST = 1
_GROWTH = 8


class Growing:
    """Chooses how many updates to take at a time, by what those before have come to."""

    def __init__(self) -> None:
        self.most = _FIRST

    def portions(self, of: Sequence[Item], *, all_at_once: bool) -> Iterator[Sequence[Item]]:
        """Yield items; what they have come to is to be told before the next ones are asked for."""
        begin = 0
        while begin < len(of):
            end = len(of) if all_at_once else begin + self.most
            yield of[begin:end]
            begin = end

    def came(self, taken: int, to: int) -> None:
        """So many have come to so many."""
        each = max(1.0, to / taken)
        self.most = max(1, min(self.most * _GROWTH, int(AT_ONCE / each)))


def in_portions(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str] = frozenset()
) -> Iterator[Passed]:
    """Yield the results of a chain, in order; see `Chain.apply`."""
    if not steps.expands:
        rest = iter(updates)
        while some := list(islice(rest, AT_ONCE)):
            yield steps.apply(some, silent)
        return
    found, failed, count = list[KeyedUpdate](), list[KeyedUpdate](), 0
    for passed in _growing(steps, updates, silent):
        found += passed.updates
        failed += passed.errors
        count += 1
        # It is not to be there while the next one is made.
        del passed
        if len(found) + len(failed) >= AT_ONCE:
            yield _whole(found, failed, count)
            found, failed, count = [], [], 0
    if found or failed:
        yield _whole(found, failed, count)


def _growing(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str]
) -> Iterator[Passed]:
    """Take as many updates at a time as come to about a portion, by those before."""
    rest, growing = iter(updates), Growing()
    while some := list(islice(rest, growing.most)):
        passed = steps.apply(some, silent)
        growing.came(len(some), len(passed.updates) + len(passed.errors))
        yield passed
        del passed


def _whole(updates: Sequence[KeyedUpdate], errors: list[KeyedUpdate], passes: int) -> Passed:
    """The results of some passes, as if they were of one."""
    return Passed(consolidated(updates) if passes > 1 else list(updates), errors)
