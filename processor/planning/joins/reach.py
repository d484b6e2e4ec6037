"""Reach of unique keys: the inputs in which a row has at most one match, one after the other.

A row with the columns of an input's unique key matches at most one datum of it, and then has all
of its columns, by which it may match one datum of another input.  So unique keys are functional
dependencies, and this is their closure (Abiteboul, Hull and Vianu, "Foundations of Databases",
1995, chapter 8).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence, Set

from ikebana.processor.planning.joins.binding import BoundJoin
from ikebana.processor.planning.joins.relation import Relation


class KeyReach:
    """The inputs of a join with the variables of each, and the reach of their unique keys.

    `readers` has the inputs with each variable.
    """

    def __init__(self, bound: BoundJoin, relations: Sequence[Relation]) -> None:
        self._terms = [dict(bound.terms(at)) for at in range(len(bound.inputs))]
        self._relations = relations
        self.readers: defaultdict[int, list[int]] = defaultdict(list)
        for at, terms in enumerate(self._terms):
            for number in terms:
                self.readers[number].append(at)
        self._known_to_have: dict[tuple[int, frozenset[int]], bool] = {}
        self._counts: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        # The inputs in which a row with all of their variables matches at most one datum.
        self._reachable = frozenset(
            at for at, terms in enumerate(self._terms) if self._has_one(at, terms.keys())
        )

    def closed(self, variables: Set[int]) -> frozenset[int]:
        """The variables that these determine: for their values, each has at most one value."""
        return self._reached(variables, variables, range(len(self._terms)))[0]

    def remaining(self, bound: Collection[int], left: Collection[int], first: int) -> int:
        """Count the lookups of `left` inputs that may match many data, after the one of `first`.

        Each step looks up the connected input that leaves the fewest inputs out of reach.
        """
        variables = {*bound, *self._terms[first]}
        return self._count(*self._reached(variables, variables, set(left) - {first}))

    def _count(self, bound: frozenset[int], out: frozenset[int]) -> int:
        count, passed = 0, []
        while (bound, out) not in self._counts:
            if out.isdisjoint(self._reachable):
                self._counts[bound, out] = len(out)
                break
            passed.append((bound, out))
            connected = {at for at in out if not bound.isdisjoint(self._terms[at])} or out
            reached = [
                self._reached(bound.union(self._terms[at]), self._terms[at], out - {at})
                for at in connected
            ]
            bound, out = min(reached, key=lambda each: (len(each[1]), sorted(each[1])))
        count = self._counts[bound, out]
        for before in reversed(passed):
            count += 1
            self._counts[before] = count
        return count

    def _reached(
        self, bound: Collection[int], new: Collection[int], among: Collection[int]
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Look up all inputs with at most one match; return bound variables, other inputs.

        Of `bound`, only the `new` variables may lead to further inputs.
        """
        variables, left = set(bound), set(among)
        waiting = list(new)
        while waiting:
            for at in self.readers[waiting.pop()]:
                if at in left and at in self._reachable and self._has_one(at, variables):
                    left.discard(at)
                    waiting += self._terms[at].keys() - variables
                    variables.update(self._terms[at])
        return frozenset(variables), frozenset(left)

    def _has_one(self, at: int, bound: Set[int]) -> bool:
        numbers = frozenset(number for number in self._terms[at] if number in bound)
        if (at, numbers) not in self._known_to_have:
            keys = [term.local for number, term in self._terms[at].items() if number in numbers]
            has_one = bool(keys) and self._relations[at].one_at_most(keys)
            self._known_to_have[at, numbers] = has_one
        return self._known_to_have[at, numbers]
