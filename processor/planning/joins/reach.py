"""What unique keys lead to: inputs of which a row meets one datum at most, one after the other.

A row that knows the columns of an input's unique key meets one datum of it, and then knows all of
its columns, by which it may meet one datum of another input.  So unique keys are functional
dependencies, and this is their closure (Abiteboul, Hull and Vianu, "Foundations of Databases",
1995, chapter 8).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence, Set

from ikebana.processor.planning.joins.binding import Bound
from ikebana.processor.planning.joins.relation import Relation


class Reach:
    """The inputs of a join with the variables of each, and what their unique keys lead to.

    `readers` are the inputs with each variable.
    """

    def __init__(self, bound: Bound, relations: Sequence[Relation]) -> None:
        self._terms = [dict(bound.terms(at)) for at in range(len(bound.inputs))]
        self._relations = relations
        self.readers: defaultdict[int, list[int]] = defaultdict(list)
        for at, terms in enumerate(self._terms):
            for number in terms:
                self.readers[number].append(at)
        self._known_to_have: dict[tuple[int, frozenset[int]], bool] = {}
        self._counts: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        # The inputs of which a row that knows all variables meets one datum at most.
        self._reachable = frozenset(
            at for at, terms in enumerate(self._terms) if self._has_one(at, terms.keys())
        )

    def closed(self, variables: Set[int]) -> frozenset[int]:
        """Return the variables that have one value at most for a value of each of these."""
        return self._reached(variables, variables, range(len(self._terms)))[0]

    def remaining(self, bound: Collection[int], left: Collection[int], first: int) -> int:
        """Count the lookups that may meet many data after that of `first`, of those `left`.

        Each time the input is looked up that leaves the fewest inputs out of reach, of those that
        something connects.
        """
        known = {*bound, *self._terms[first]}
        return self._count(*self._reached(known, known, set(left) - {first}))

    def _count(self, known: frozenset[int], out: frozenset[int]) -> int:
        count, passed = 0, []
        while (known, out) not in self._counts:
            if out.isdisjoint(self._reachable):
                self._counts[known, out] = len(out)
                break
            passed.append((known, out))
            connected = {at for at in out if not known.isdisjoint(self._terms[at])} or out
            reached = [
                self._reached(known.union(self._terms[at]), self._terms[at], out - {at})
                for at in connected
            ]
            known, out = min(reached, key=lambda each: (len(each[1]), sorted(each[1])))
        count = self._counts[known, out]
        for before in reversed(passed):
            count += 1
            self._counts[before] = count
        return count

    def _reached(
        self, known: Collection[int], new: Collection[int], among: Collection[int]
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Look up whatever has one datum at most: the variables then known, the inputs left.

        Of `known` only the `new` variables may lead to something.
        """
        found, left = set(known), set(among)
        waiting = list(new)
        while waiting:
            for at in self.readers[waiting.pop()]:
                if at in left and at in self._reachable and self._has_one(at, found):
                    left.discard(at)
                    waiting += self._terms[at].keys() - found
                    found.update(self._terms[at])
        return frozenset(found), frozenset(left)

    def _has_one(self, at: int, known: Set[int]) -> bool:
        numbers = frozenset(number for number in self._terms[at] if number in known)
        if (at, numbers) not in self._known_to_have:
            keys = [term.own for number, term in self._terms[at].items() if number in numbers]
            has_one = bool(keys) and self._relations[at].one_at_most(keys)
            self._known_to_have[at, numbers] = has_one
        return self._known_to_have[at, numbers]
