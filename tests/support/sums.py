"""What diffs come to."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def summed(diffs: Iterable[tuple[T, int]]) -> Counter[T]:
    """The sum of each thing's diffs, where it is not 0."""
    found = Counter[T]()
    for thing, diff in diffs:
        found[thing] += diff
    return Counter({thing: count for thing, count in found.items() if count})
