"""The distinct arrangements of all joins of a plan, shared by their readers.

An arrangement is identified by its relation, the filters that are pushed to it, and its
key.  The number of distinct arrangements is the cost of joins.  If the relation's operator
keeps its state by that key anyway, and there are no filters, that state is used at no cost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.planning.joins.paths import Planned
from ikebana.processor.planning.joins.relation import Relation
from ikebana.processor.planning.joins.steps import ArrangedBy


class ArrangementReader(NamedTuple):
    """A reader of an arrangement: the path of input `path` of a join, which looks up `alias`."""

    join: str
    path: str
    alias: str


@dataclass(frozen=True, slots=True)
class Shared:
    """An arrangement and its readers; `is_own` if it is the state of the relation's operator."""

    arrangement: ArrangedBy
    readers: tuple[ArrangementReader, ...]
    is_own: bool

    @property
    def joins(self) -> tuple[str, ...]:
        """The joins that read it."""
        return tuple(dict.fromkeys(reader.join for reader in self.readers))


class NearMiss(NamedTuple):
    """Two arrangements of a relation by one key that differ in their filters only."""

    one: ArrangedBy
    other: ArrangedBy

    def __str__(self) -> str:
        return (
            f"{self.one} and {self.other} differ by their filters alone; "
            "a relation behind the conditions that they share would be kept once"
        )


def shared(joins: Iterable[Planned], relations: Mapping[str, Relation]) -> tuple[Shared, ...]:
    """The distinct arrangements of joins, in the order in which they are first read."""
    readers: dict[ArrangedBy, list[ArrangementReader]] = {}
    for join in joins:
        for path in join.paths:
            for alias, arrangement in path.reads():
                reader = ArrangementReader(join.join.name, path.alias, alias)
                readers.setdefault(arrangement, []).append(reader)
    return tuple(
        Shared(each, tuple(of), _is_own(each, relations[each.relation]))
        for each, of in readers.items()
    )


def near_misses(arrangements: Sequence[Shared]) -> Iterator[NearMiss]:
    """The pairs of arrangements that differ in their filters only."""
    for one, other in combinations((each.arrangement for each in arrangements), 2):
        if (one.relation, one.keys) == (other.relation, other.keys):
            yield NearMiss(one, other)


def cost(arrangements: Iterable[Shared]) -> int:
    """The number of arrangements that joins need in addition to existing state."""
    return sum(not each.is_own for each in arrangements)


def _is_own(arrangement: ArrangedBy, relation: Relation) -> bool:
    if arrangement.filters or arrangement.keys not in ((KEY,), (quoted(KEY),)):
        return False
    # Lookups ask for keys in JSON, and a state may have keys in bytes.
    return relation.keeps_state and relation.scope.types[KEY] == JSON
