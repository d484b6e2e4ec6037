"""The arrangements of all joins of a plan: each there once, whoever reads it.

An arrangement is known by its relation behind the filters that are pushed to it, and by
its key; the number of distinct ones is what joins cost.  One without filters by the key of a
relation whose state is kept anyway is that state, and costs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from ikebana.processor.joins.paths import Planned
from ikebana.processor.joins.relation import Relation
from ikebana.processor.joins.steps import Arrangement
from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY


class Reader(NamedTuple):
    """Who asks an arrangement: the path of input `path` of a join, for input `alias`."""

    join: str
    path: str
    alias: str


@dataclass(frozen=True, slots=True)
class Shared:
    """An arrangement and its readers; `is_own` if the relation keeps it as its own state."""

    arrangement: Arrangement
    readers: tuple[Reader, ...]
    is_own: bool

    @property
    def joins(self) -> tuple[str, ...]:
        """The joins that read it."""
        return tuple(dict.fromkeys(reader.join for reader in self.readers))


class NearMiss(NamedTuple):
    """Two arrangements of a relation by one key that differ by their filters alone."""

    one: Arrangement
    other: Arrangement

    def __str__(self) -> str:
        return (
            f"{self.one} and {self.other} differ by their filters alone; "
            "a relation behind the conditions that they share would be kept once"
        )


def shared(joins: Iterable[Planned], relations: Mapping[str, Relation]) -> tuple[Shared, ...]:
    """The distinct arrangements of joins, in the order in which they are first read."""
    readers: dict[Arrangement, list[Reader]] = {}
    for join in joins:
        for path in join.paths:
            for alias, arrangement in path.reads():
                reader = Reader(join.join.name, path.alias, alias)
                readers.setdefault(arrangement, []).append(reader)
    return tuple(
        Shared(each, tuple(of), _is_own(each, relations[each.relation]))
        for each, of in readers.items()
    )


def near_misses(arrangements: Sequence[Shared]) -> Iterator[NearMiss]:
    """The pairs that would be one, were it not for a filter."""
    for one, other in combinations((each.arrangement for each in arrangements), 2):
        if (one.relation, one.keys) == (other.relation, other.keys):
            yield NearMiss(one, other)


def cost(arrangements: Iterable[Shared]) -> int:
    """How many arrangements joins make beside what is kept anyway."""
    return sum(not each.is_own for each in arrangements)


def _is_own(arrangement: Arrangement, relation: Relation) -> bool:
    if arrangement.filters or arrangement.keys not in ((KEY,), (quoted(KEY),)):
        return False
    # Lookups ask for JSON, and a state by keys in bytes has none of it.
    return relation.keeps_state and relation.scope.types[KEY] == JSON
