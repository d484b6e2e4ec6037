"""Plan the delta paths of a join: the lookups for a change of each input, in order.

A join of n inputs is the sum of n paths, one an input: a change of that input meets the
others as they stand at its own time.  So that each combination comes out of exactly one
path, inputs count in index order at equal times: the path of input i sees what input j
has at its very time if j < i, and not if j > i.  The result has the time of the change,
and the product of all diffs.  No result of a step is kept.

A *lookup* meets one input by a key of what is bound so far.  Its order: first what is
connected, then what a unique key makes one datum at most, then what leaves the fewest lookups
of many data, then the smaller declared size, then the order of the inputs; unless the join
tells its own.  Where constraints go round in a circle, a path *extends* instead, one variable
at a time, by all inputs that have it (`planning.joins.extension`).  A circle in which each datum
of one input has, by unique keys, one match in the others is none: its rows are as few as that
input's.

A predicate is tested at the first step at which all that it reads is bound, and columns
that nothing later reads are let go.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.joins import qualified
from ikebana.processor.planning.joins.binding import Bound
from ikebana.processor.planning.joins.extension import is_cyclic, next_variable
from ikebana.processor.planning.joins.qualified import Flat, alias_of
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.planning.joins.reach import Reach
from ikebana.processor.planning.joins.relation import Relation
from ikebana.processor.planning.joins.steps import (
    ArrangedBy,
    Candidate,
    Extend,
    Lookup,
    Path,
    PathStep,
)

# Whether nothing connects an input, whether it may have many data of a key, its declared size,
# and its place.
_Preference = tuple[bool, bool, float, int]
# The terms of an input by which it is asked, what they are equal to, and what is tested.
_Asked = tuple[tuple[str, ...], tuple[Flat, ...], tuple[Flat, ...]]


@dataclass(frozen=True, slots=True)
class Planned:
    """A join as it runs: its paths, and the SQL of its results.

    An as-of join has one path, that of its left.
    """

    join: Join
    paths: tuple[Path, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat

    def types(self) -> dict[str, str]:
        """The types of all flat columns that it reads."""
        flats = [self.key, *(made for _, made in self.select)]
        for path in self.paths:
            for step in path.steps:
                flats += step.predicates
                if isinstance(step, Lookup):
                    flats += step.key
                else:
                    for each in step.candidates:
                        flats += (*each.key, each.value, *each.data_key)
        return {name: kind for flat in flats for name, kind in flat.reads.items()}


def planned(bound: Bound, relations: Mapping[str, Relation]) -> Planned:
    """Plan a join that has been taken apart."""
    join = bound.join
    of = [relations[each.relation] for each in bound.inputs]
    reach = Reach(bound, of)
    intersects = _intersects(bound, reach)
    if isinstance(join, AsOfJoin):
        paths = [_path(bound, of, reach, 0, (1,), intersects=intersects)]
    else:
        paths = [
            _path(bound, of, reach, at, _told(join, at), intersects=intersects)
            for at in range(len(of))
        ]
    return Planned(join, tuple(paths), bound.select, bound.key)


def _told(join: DeltaJoin, at: int) -> tuple[int, ...] | None:
    """The order of lookups that the user has set for the path of an input."""
    aliases = [each.alias for each in join.inputs]
    for alias, order in join.orders:
        if alias == aliases[at]:
            return tuple(map(aliases.index, order))
    return None


def _path(
    bound: Bound,
    relations: Sequence[Relation],
    reach: Reach,
    source: int,
    told: Sequence[int] | None,
    *,
    intersects: bool,
) -> Path:
    building = _Building(bound, relations, reach, source)
    while building.left:
        if told is not None:
            building.look_up(told[len(building.steps)])
        elif not (intersects and building.extend()):
            building.look_up(building.preferred())
    own = bound.inputs[source]
    texts = {term.flat.sql: term.own for _, term in bound.terms(source)}
    first = building.steps[0]
    asked = first.key if isinstance(first, Lookup) else first.candidates[0].key
    keys = tuple(texts[value.sql] for value in asked)
    path = Path(own.alias, own.relation, own.filters, keys, (), tuple(building.steps))
    return _carrying(path, bound)


def _carrying(path: Path, bound: Bound) -> Path:
    """The path with the columns that each step passes on: those there that a later step reads."""
    wanted = {name for _, made in bound.select for name in made.columns} | bound.key.columns
    steps: list[PathStep] = []
    after = [path.alias, *(name for step in path.steps for name in binds(step))]
    for step in reversed(path.steps):
        carries = tuple(sorted(name for name in wanted if _is_of(name, after)))
        steps.insert(0, replace(step, carries=carries))
        read = [*step.predicates]
        if isinstance(step, Lookup):
            read += step.key
        else:
            read += (of for each in step.candidates for of in (*each.key, *each.data_key))
        wanted = wanted.union(*(of.columns for of in read))
        after = after[: len(after) - len(binds(step))]
    carries = tuple(sorted(name for name in wanted if _is_of(name, after)))
    return replace(path, carries=carries, steps=tuple(steps))


def binds(step: PathStep) -> list[str]:
    """The inputs that a step binds, and the variable."""
    if isinstance(step, Lookup):
        return [step.alias]
    return [step.variable, *(each.alias for each in step.candidates if each.completes)]


def _is_of(column: str, bound: Collection[str]) -> bool:
    return alias_of(column) in bound


class _Building:
    """A path under construction: the bound inputs and variables, and the remaining ones."""

    def __init__(
        self, bound: Bound, relations: Sequence[Relation], reach: Reach, source: int
    ) -> None:
        self.left = [at for at in range(len(bound.inputs)) if at != source]
        self.steps: list[PathStep] = []
        self._bound = bound
        self._relations = relations
        self._reach = reach
        self._source = source
        self._predicates = list(bound.predicates)
        # What a variable that is bound is equal to, in flat columns.
        self._values: dict[int, Flat] = {}
        # Those that are known, as long as no variable of the input is bound.
        self._preferences: dict[int, _Preference] = {}
        self._bind(source)

    def preferred(self) -> int:
        """The input to look up: the least by preference."""
        preferences = {at: self._preference(at) for at in self.left}
        at = min(self.left, key=preferences.__getitem__)
        best = preferences[at][:2]
        among = [each for each in self.left if preferences[each][:2] == best]
        found = min(among, key=lambda at: self._after(at, preferences[at]))
        return found

    def _preference(self, at: int) -> _Preference:
        if at not in self._preferences:
            keys, _ = self._key(at)
            relation = self._relations[at]
            size = float("inf") if relation.size is None else relation.size
            self._preferences[at] = not keys, not relation.one_at_most(keys), size, at
        return self._preferences[at]

    def _after(self, at: int, preference: _Preference) -> tuple[int, float, int]:
        """The lookups of many data that remain after an input, then its preference."""
        return self._reach.remaining(self._values, self.left, at), *preference[2:]

    def look_up(self, at: int) -> None:
        """Append a lookup of one input by its terms whose variables are bound.

        If some of these are a unique key, it is by them alone, and the others are tested: more
        lookups share an arrangement then.
        """
        keys, values, tested = self._by_unique_key(at)
        own = self._bound.inputs[at]
        arrangement = ArrangedBy(own.relation, own.filters, keys)
        hop = not self.steps or values != getattr(self.steps[-1], "key", None)
        self._bind(at)
        predicates = (*tested, *self._now_bound())
        equal = self._sees_equal(at)
        self.steps.append(Lookup(own.alias, arrangement, values, equal, hop, predicates))

    def _by_unique_key(self, at: int) -> _Asked:
        """The terms over an input by which it is asked, their values, and the other equalities."""
        keys, values = self._key(at)
        unique = self._relations[at].unique_key(keys)
        if not unique or len(unique) == len(keys) or isinstance(self._bound.join, AsOfJoin):
            return keys, values, ()
        flats = {term.own: term.flat for _, term in self._bound.terms(at)}
        asked = [pair for pair in zip(keys, values, strict=True) if pair[0] in unique]
        try:
            tested = [
                qualified.equality(flats[key], value)
                for key, value in zip(keys, values, strict=True)
                if key not in unique
            ]
        except ExpressionError:
            # JSON is looked up as it is, but SQL does not compare it.
            return keys, values, ()
        return tuple(key for key, _ in asked), tuple(value for _, value in asked), tuple(tested)

    def extend(self) -> bool:
        """Bind a variable by several inputs that know of it; whether there are such.

        An input that makes no row into several is looked up before.
        """
        terms = {at: dict(self._bound.terms(at)) for at in self.left}
        bound = set(self._values)
        for at, of in terms.items():
            keys, _ = self._key(at)
            one_at_most = bool(keys) and self._relations[at].one_at_most(keys)
            is_bound = bool(of) and bound.issuperset(of)
            # One with a single variable may have many data of each value.
            if one_at_most or (is_bound and len(of) > 1):
                self.look_up(at)
                return True
        found = next_variable({at: set(of) for at, of in terms.items()}, bound, self._preference)
        if found is None or len(found.inputs) == 1:
            return False
        candidates = []
        name = f"={found.variable}"
        kind = terms[found.inputs[0]][found.variable].flat.type
        variable = Flat(quoted(name), {name: kind}, kind, quoted(name))
        for at in found.inputs:
            keys, values = self._key(at)
            own, term = self._bound.inputs[at], terms[at][found.variable]
            by_value = dict(zip((*keys, term.own), (*values, variable), strict=True))
            data_keys = tuple(sorted(by_value))
            candidates.append(
                Candidate(
                    own.alias,
                    ArrangedBy(own.relation, own.filters, keys),
                    values,
                    term.flat,
                    ArrangedBy(own.relation, own.filters, data_keys),
                    tuple(by_value[key] for key in data_keys),
                    self._sees_equal(at),
                    at in found.completed,
                )
            )
        for at in found.inputs:
            if at in found.completed:
                self._bind(at)
        self._bind_variable(found.variable, variable)
        self.steps.append(Extend(name, kind, tuple(candidates), self._now_bound()))
        return True

    def _key(self, at: int) -> tuple[tuple[str, ...], tuple[Flat, ...]]:
        """The terms over an input whose variables are bound, and what they are equal to."""
        known = [
            (term.own, self._values[number])
            for number, term in self._bound.terms(at)
            if number in self._values
        ]
        known.sort(key=lambda pair: pair[0])
        return tuple(own for own, _ in known), tuple(value for _, value in known)

    def _sees_equal(self, at: int) -> bool:
        join = self._bound.join
        return join.at == "alt" if isinstance(join, AsOfJoin) else at < self._source

    def _bind(self, at: int) -> None:
        if at != self._source:
            self.left.remove(at)
        for number, term in self._bound.terms(at):
            self._bind_variable(number, term.flat)

    def _bind_variable(self, number: int, value: Flat) -> None:
        if number not in self._values:
            self._values[number] = value
            for at in self._reach.readers[number]:
                self._preferences.pop(at, None)

    def _now_bound(self) -> tuple[Flat, ...]:
        """The predicates that can be tested now, and have not been."""
        bound = {each.alias for at, each in enumerate(self._bound.inputs) if at not in self.left}
        found = tuple(each for each in self._predicates if each.aliases <= bound)
        self._predicates = [each for each in self._predicates if each not in found]
        return found


def _intersects(bound: Bound, reach: Reach) -> bool:
    join = bound.join
    if isinstance(join, AsOfJoin) or join.strategy == "lookup":
        return False
    if join.strategy == "intersect":
        return True
    edges = [{number for number, _ in bound.terms(at)} for at in range(len(bound.inputs))]
    if not is_cyclic(edges):
        return False
    return is_cyclic([reach.closed(each) for each in edges])
