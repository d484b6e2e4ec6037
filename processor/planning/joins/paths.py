"""Plan the delta paths of a join: the lookups for a change of each input, in order.

A join of n inputs is the sum of n paths, one for each input: a change of that input is joined with
the others as of its time.  So that exactly one path produces each combination, inputs count in
index order at equal times: the path of input i sees the changes of input j at the same time if
j < i, and not if j > i.  The result has the time of the change, and the product of all diffs.  No
result of a step is kept.

A *lookup* finds data of one input by a key of bound columns.  The order of lookups: first inputs
that an equality connects, then inputs with at most one match by a unique key, then those that
leave the fewest lookups of many data, then the smaller declared size, then the order of the
inputs; unless the join sets its own order.  In joins with cyclic constraints, a path *extends*
instead, one variable at a time, by all inputs that have it (`planning.joins.extension`).  A cycle
does not count if each datum of one input has, by unique keys, one match in the others: it has no
more rows than that input.

A predicate is tested at the first step at which all that it reads is bound, and columns
that no later step reads are dropped.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.joins import qualified
from ikebana.processor.planning.joins.binding import BoundJoin
from ikebana.processor.planning.joins.extension import is_cyclic, next_variable
from ikebana.processor.planning.joins.qualified import Flat, alias_of
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.planning.joins.reach import KeyReach
from ikebana.processor.planning.joins.relation import Relation
from ikebana.processor.planning.joins.steps import (
    ArrangedBy,
    Candidate,
    Extend,
    Lookup,
    Path,
    PathStep,
)

# Whether no equality connects an input, whether it may have many data of a key, its declared
# size, and its position.
_Preference = tuple[bool, bool, float, int]
# The terms by which an input is looked up, the values for them, and the predicates to test.
_Asked = tuple[tuple[str, ...], tuple[Flat, ...], tuple[Flat, ...]]


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned join: its paths, and the SQL of its results.

    An as-of join has one path, for its left.
    """

    join: Join
    paths: tuple[Path, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat

    def types(self) -> dict[str, str]:
        """The types of all flat columns that it reads."""
        flats = [self.key, *(flat for _, flat in self.select)]
        for path in self.paths:
            for step in path.steps:
                flats += step.predicates
                if isinstance(step, Lookup):
                    flats += step.key
                else:
                    for each in step.candidates:
                        flats += (*each.key, each.value, *each.data_key)
        return {name: kind for flat in flats for name, kind in flat.reads.items()}


def planned(bound: BoundJoin, relations: Mapping[str, Relation]) -> Planned:
    """Plan an analysed join."""
    join = bound.join
    of = [relations[each.relation] for each in bound.inputs]
    reach = KeyReach(bound, of)
    intersects = _intersects(bound, reach)
    if isinstance(join, AsOfJoin):
        paths = [_path(bound, of, reach, 0, (1,), intersects=intersects)]
    else:
        paths = [
            _path(bound, of, reach, at, _set_order(join, at), intersects=intersects)
            for at in range(len(of))
        ]
    return Planned(join, tuple(paths), bound.select, bound.key)


def _set_order(join: DeltaJoin, at: int) -> tuple[int, ...] | None:
    """The order of lookups that the user has set for the path of an input."""
    aliases = [each.alias for each in join.inputs]
    for alias, order in join.orders:
        if alias == aliases[at]:
            return tuple(map(aliases.index, order))
    return None


def _path(
    bound: BoundJoin,
    relations: Sequence[Relation],
    reach: KeyReach,
    source: int,
    order: Sequence[int] | None,
    *,
    intersects: bool,
) -> Path:
    building = _Building(bound, relations, reach, source)
    while building.left:
        if order is not None:
            building.look_up(order[len(building.steps)])
        elif not (intersects and building.extend()):
            building.look_up(building.preferred())
    origin = bound.inputs[source]
    texts = {term.flat.sql: term.local for _, term in bound.terms(source)}
    first = building.steps[0]
    asked = first.key if isinstance(first, Lookup) else first.candidates[0].key
    keys = tuple(texts[value.sql] for value in asked)
    path = Path(origin.alias, origin.relation, origin.filters, keys, (), tuple(building.steps))
    return _carrying(path, bound)


def _carrying(path: Path, bound: BoundJoin) -> Path:
    """The path with the columns that each step passes on: those that a later step reads."""
    needed = {name for _, flat in bound.select for name in flat.columns} | bound.key.columns
    steps: list[PathStep] = []
    after = [path.alias, *(name for step in path.steps for name in binds(step))]
    for step in reversed(path.steps):
        carries = tuple(sorted(name for name in needed if _is_of(name, after)))
        steps.insert(0, replace(step, carries=carries))
        read = [*step.predicates]
        if isinstance(step, Lookup):
            read += step.key
        else:
            read += (of for each in step.candidates for of in (*each.key, *each.data_key))
        needed = needed.union(*(of.columns for of in read))
        after = after[: len(after) - len(binds(step))]
    carries = tuple(sorted(name for name in needed if _is_of(name, after)))
    return replace(path, carries=carries, steps=tuple(steps))


def binds(step: PathStep) -> list[str]:
    """The inputs that a step binds, and its variable if it extends."""
    if isinstance(step, Lookup):
        return [step.alias]
    return [step.variable, *(each.alias for each in step.candidates if each.completes)]


def _is_of(column: str, bound: Collection[str]) -> bool:
    return alias_of(column) in bound


class _Building:
    """A path under construction: the bound inputs and variables, and the remaining ones."""

    def __init__(
        self, bound: BoundJoin, relations: Sequence[Relation], reach: KeyReach, source: int
    ) -> None:
        self.left = [at for at in range(len(bound.inputs)) if at != source]
        self.steps: list[PathStep] = []
        self._bound = bound
        self._relations = relations
        self._reach = reach
        self._source = source
        self._predicates = list(bound.predicates)
        # The expression over flat columns for each bound variable.
        self._values: dict[int, Flat] = {}
        # The preferences of inputs without a bound variable.
        self._preferences: dict[int, _Preference] = {}
        self._bind(source)

    def preferred(self) -> int:
        """The input to look up: the least by preference."""
        preferences = {at: self._preference(at) for at in self.left}
        at = min(self.left, key=preferences.__getitem__)
        best = preferences[at][:2]
        among = [each for each in self.left if preferences[each][:2] == best]
        return min(among, key=lambda at: self._after(at, preferences[at]))

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
        """Append a lookup of one input by its terms with bound variables.

        If some of these are a unique key, the lookup uses only them, and tests the others: then
        more lookups share an arrangement.
        """
        keys, values, tested = self._by_unique_key(at)
        side = self._bound.inputs[at]
        arrangement = ArrangedBy(side.relation, side.filters, keys)
        hop = not self.steps or values != getattr(self.steps[-1], "key", None)
        self._bind(at)
        predicates = (*tested, *self._now_bound())
        equal = self._sees_equal(at)
        self.steps.append(Lookup(side.alias, arrangement, values, equal, hop, predicates))

    def _by_unique_key(self, at: int) -> _Asked:
        """The terms by which an input is looked up, their values, and the other equalities."""
        keys, values = self._key(at)
        unique = self._relations[at].unique_key(keys)
        if not unique or len(unique) == len(keys) or isinstance(self._bound.join, AsOfJoin):
            return keys, values, ()
        flats = {term.local: term.flat for _, term in self._bound.terms(at)}
        asked = [pair for pair in zip(keys, values, strict=True) if pair[0] in unique]
        try:
            tested = [
                qualified.equality(flats[key], value)
                for key, value in zip(keys, values, strict=True)
                if key not in unique
            ]
        except ExpressionError:
            # JSON can be looked up, but SQL does not compare it.
            return keys, values, ()
        return tuple(key for key, _ in asked), tuple(value for _, value in asked), tuple(tested)

    def extend(self) -> bool:
        """Bind a variable by several inputs that can restrict it; return whether there are any.

        An input with at most one match is looked up before.
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
        extension = next_variable(
            {at: set(of) for at, of in terms.items()}, bound, self._preference
        )
        if extension is None or len(extension.inputs) == 1:
            return False
        candidates = []
        name = f"={extension.variable}"
        kind = terms[extension.inputs[0]][extension.variable].flat.type
        variable = Flat(quoted(name), {name: kind}, kind, quoted(name))
        for at in extension.inputs:
            keys, values = self._key(at)
            side, term = self._bound.inputs[at], terms[at][extension.variable]
            by_value = dict(zip((*keys, term.local), (*values, variable), strict=True))
            data_keys = tuple(sorted(by_value))
            candidates.append(
                Candidate(
                    side.alias,
                    ArrangedBy(side.relation, side.filters, keys),
                    values,
                    term.flat,
                    ArrangedBy(side.relation, side.filters, data_keys),
                    tuple(by_value[key] for key in data_keys),
                    self._sees_equal(at),
                    at in extension.completed,
                )
            )
        for at in extension.inputs:
            if at in extension.completed:
                self._bind(at)
        self._bind_variable(extension.variable, variable)
        self.steps.append(Extend(name, kind, tuple(candidates), self._now_bound()))
        return True

    def _key(self, at: int) -> tuple[tuple[str, ...], tuple[Flat, ...]]:
        """The terms over an input with bound variables, and their values."""
        pairs = [
            (term.local, self._values[number])
            for number, term in self._bound.terms(at)
            if number in self._values
        ]
        pairs.sort(key=lambda pair: pair[0])
        return tuple(key for key, _ in pairs), tuple(value for _, value in pairs)

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
        """The predicates that can be tested from now on; they are removed from the rest."""
        bound = {each.alias for at, each in enumerate(self._bound.inputs) if at not in self.left}
        testable = tuple(each for each in self._predicates if each.aliases <= bound)
        self._predicates = [each for each in self._predicates if each not in testable]
        return testable


def _intersects(bound: BoundJoin, reach: KeyReach) -> bool:
    join = bound.join
    if isinstance(join, AsOfJoin) or join.strategy == "lookup":
        return False
    if join.strategy == "intersect":
        return True
    edges = [{number for number, _ in bound.terms(at)} for at in range(len(bound.inputs))]
    if not is_cyclic(edges):
        return False
    return is_cyclic([reach.closed(each) for each in edges])
