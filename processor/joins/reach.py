"""What unique keys lead to: inputs of which a row meets one datum at most, one after the other.

A row that knows the columns of an input's unique key meets one datum of it, and then knows all of
its columns, by which it may meet one datum of another input.  So unique keys are functional
dependencies, and this is their closure (Abiteboul, Hull and Vianu, "Foundations of Databases",
1995, chapter 8).
"""

from collections.abc import Collection, Sequence, Set

from ikebana.processor.joins.binding import Bound
from ikebana.processor.joins.relation import Relation


class Reach:
    """The inputs of a join with the variables of each, and what their unique keys lead to.

    `has_decided` is set by whoever plans a path otherwise than without them.
    """

    def __init__(self, bound: Bound, relations: Sequence[Relation]) -> None:
        self.has_decided = False
        self._terms = [dict(bound.terms(at)) for at in range(len(bound.inputs))]
        self._relations = relations

    def closed(self, variables: Set[int]) -> set[int]:
        """Return the variables that have one value at most for a value of each of these."""
        return self._reached(variables, range(len(self._terms)))[0]

    def remaining(self, bound: Collection[int], left: Collection[int], first: int) -> int:
        """Count the lookups that may meet many data after that of `first`, of those `left`.

        Each time the input is looked up that leaves the fewest inputs out of reach, of those that
        something connects.
        """
        known, out = self._reached({*bound, *self._terms[first]}, set(left) - {first})
        count = 0
        while out:
            count += 1
            connected = {at for at in out if not known.isdisjoint(self._terms[at])} or out
            reached = [self._reached(known | set(self._terms[at]), out - {at}) for at in connected]
            known, out = min(reached, key=lambda each: (len(each[1]), sorted(each[1])))
        return count

    def _reached(self, known: Set[int], among: Collection[int]) -> tuple[set[int], set[int]]:
        """Look up whatever has one datum at most: the variables then known, the inputs left."""
        found, left = set(known), set(among)
        while reached := {at for at in left if self._has_one(at, found)}:
            left -= reached
            found = found.union(*(self._terms[at] for at in reached))
        return found, left

    def _has_one(self, at: int, known: Set[int]) -> bool:
        keys = [term.own for number, term in self._terms[at].items() if number in known]
        return bool(keys) and self._relations[at].one_at_most(keys)
