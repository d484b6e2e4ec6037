"""A chain over many updates in portions, so that not all results are in memory at once.

A step such as `flat_map` may make a million updates of one.  Updates that cancel within a portion
vanish; those that cancel across portions stay, which is the same collection.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.linear.chain import Chain, ChainResult, consolidated

Item = TypeVar("Item")
AT_ONCE = 50_000
"""About this many results come from a portion, unless a single update has more."""
# The size of the first portion, when the number of results per update is unknown.
_FIRST = 1
_GROWTH = 8


class Growing:
    """Chooses how many updates to take at a time, by the number of results so far."""

    def __init__(self) -> None:
        self.most = _FIRST

    def portions(self, of: Sequence[Item], *, all_at_once: bool) -> Iterator[Sequence[Item]]:
        """Yield portions of items; call `came` before the next one is asked for."""
        begin = 0
        while begin < len(of):
            end = len(of) if all_at_once else begin + self.most
            yield of[begin:end]
            begin = end

    def came(self, count: int, to: int) -> None:
        """Report that `count` updates had `to` results."""
        each = max(1.0, to / count)
        self.most = max(1, min(self.most * _GROWTH, int(AT_ONCE / each)))


def in_portions(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str] = frozenset()
) -> Iterator[ChainResult]:
    """Yield the results of a chain, in order; see `Chain.apply`."""
    if not steps.expands:
        rest = iter(updates)
        while some := list(islice(rest, AT_ONCE)):
            yield steps.apply(some, silent)
        return
    updated, failed, count = list[KeyedUpdate](), list[KeyedUpdate](), 0
    for passed in _growing(steps, updates, silent):
        updated += passed.updates
        failed += passed.errors
        count += 1
        # Release it before the next one is made.
        del passed
        if len(updated) + len(failed) >= AT_ONCE:
            yield _whole(updated, failed, count)
            updated, failed, count = [], [], 0
    if updated or failed:
        yield _whole(updated, failed, count)


def _growing(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str]
) -> Iterator[ChainResult]:
    """Take as many updates at a time as should yield about one portion."""
    rest, growing = iter(updates), Growing()
    while some := list(islice(rest, growing.most)):
        passed = steps.apply(some, silent)
        growing.came(len(some), len(passed.updates) + len(passed.errors))
        yield passed
        del passed


def _whole(updates: Sequence[KeyedUpdate], errors: list[KeyedUpdate], passes: int) -> ChainResult:
    """Unite the results of several passes."""
    return ChainResult(consolidated(updates) if passes > 1 else list(updates), errors)
