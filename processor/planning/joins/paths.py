"""The delta paths of a join: the lookups for a change of each input, in order, and their planning.

A join of n inputs is the sum of n paths, one for each input: a change of that input is joined with
the others as of its time.  So that exactly one path produces each combination, inputs count in
index order at equal times: the path of input i sees the changes of input j at the same time if
j < i, and not if j > i.  The result has the time of the change, and the product of all diffs.  No
result of a step is kept.

A *lookup* finds data of one input by a key of bound columns.  The order of lookups: first inputs
that an equality connects, then inputs with at most one match by a unique key, then those that
leave the fewest lookups of many data, then the smaller declared size, then the order of the
inputs; unless the join sets its own order.  In joins with cyclic constraints, a path *extends*
instead, one variable at a time, by all inputs that have it.  A cycle
does not count if each datum of one input has, by unique keys, one match in the others: it has no
more rows than that input.

A predicate is tested at the first step at which all that it reads is bound, and columns
that no later step reads are dropped.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.joins import binding
from ikebana.processor.planning.joins.binding import BoundJoin, Flat, alias_of
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.planning.relations import Relation


@dataclass(frozen=True, slots=True)
class ArrangedBy:
    """An arrangement: a relation after filters, indexed by key; equal ones are shared.

    `filters` and `keys` are SQL over the relation's data.  It lacks data with a null key.
    Without keys, all data have one key.
    """

    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        where = f" where {' and '.join(self.filters)}" if self.filters else ""
        return f"{self.relation}({', '.join(self.keys)}){where}"

    @property
    def of(self) -> tuple[str, tuple[str, ...]]:
        """The relation that it arranges, and the filters before it."""
        return self.relation, self.filters

    @property
    def id(self) -> str:
        """Its name among operators, and in the state: without spaces, whatever the SQL."""
        digest = hashlib.blake2b(str(self).encode(), digest_size=5).hexdigest()
        return f"{self.relation}:{digest}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look up one input: all data of a key, as of the row's time.

    `key` has the expressions over the row that are looked up in the arrangement.  `sees_equal`
    says whether updates of the row's time are seen.  `predicates` are tested on the results, and
    `carries` has the columns that later steps need.  Without an `exchange`, the step runs in the
    shard of the step before, since its key is the same.
    """

    alias: str
    arrangement: ArrangedBy
    key: tuple[Flat, ...]
    sees_equal: bool
    exchange: bool
    predicates: tuple[Flat, ...] = ()
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An input that restricts the values of a variable.

    `values` is the arrangement keyed by the variables already bound, looked up by `key`: used to
    count and to propose `value`, an expression over the input's columns.  `data` is keyed by the
    variable too, and looked up by `data_key`, to validate.  With `completes`, all variables of the
    input are bound then: its data join the row.  Otherwise it only tests whether there are any.
    """

    alias: str
    values: ArrangedBy
    key: tuple[Flat, ...]
    value: Flat
    data: ArrangedBy
    data_key: tuple[Flat, ...]
    sees_equal: bool
    completes: bool


@dataclass(frozen=True, slots=True)
class Extend:
    """Bind a variable: the candidate with the fewest values proposes, the others validate.

    The value becomes the column `variable` with the type `type`.
    """

    variable: str
    type: str
    candidates: tuple[Candidate, ...]
    predicates: tuple[Flat, ...] = ()
    carries: tuple[str, ...] = ()


PathStep = Lookup | Extend


@dataclass(frozen=True, slots=True)
class Path:
    """A delta path: the steps for changes of one input, after its filters.

    `keys` has the expressions that the first step looks up, as SQL over the relation's data.
    """

    alias: str
    relation: str
    filters: tuple[str, ...]
    keys: tuple[str, ...]
    carries: tuple[str, ...]
    steps: tuple[PathStep, ...]

    @property
    def exchanges(self) -> int:
        """The greatest number of exchanges for a change.

        A row goes to every candidate to be counted, and again to be proposed and validated.
        """
        return sum(
            2 * len(step.candidates) if isinstance(step, Extend) else step.exchange
            for step in self.steps
        )

    @property
    def arrangement(self) -> ArrangedBy:
        """The arrangement of its input by the first step's key."""
        return ArrangedBy(self.relation, self.filters, self.keys)

    def reads(self) -> Iterator[tuple[str, ArrangedBy]]:
        """The arrangements that it looks up, with the alias of each one's input."""
        for step in self.steps:
            if isinstance(step, Lookup):
                yield step.alias, step.arrangement
                continue
            for each in step.candidates:
                yield each.alias, each.values
                yield each.alias, each.data


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


class Extension(NamedTuple):
    """A variable and the inputs that can restrict its values, in index order.

    For the inputs `completed` it is the last variable that was not bound.
    """

    variable: int
    inputs: tuple[int, ...]
    completed: frozenset[int]


def is_cyclic(inputs: Sequence[Set[int]]) -> bool:
    """Whether the constraints over these variables form a cycle.

    They do not if repeatedly removing variables of a single input, and inputs with all
    variables in another, removes everything (Graham, Yu, Özsoyoğlu).

    >>> is_cyclic([{0, 1}, {1, 2}])
    False
    >>> is_cyclic([{0, 1}, {1, 2}, {0, 2}])
    True
    >>> is_cyclic([{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}])
    False
    """
    left = [set(variables) for variables in inputs]
    while True:
        before = [set(variables) for variables in left]
        for variables in left:
            variables -= {each for each in variables if sum(each in of for of in left) == 1}
        for at, variables in enumerate(left):
            if any(variables <= of for other, of in enumerate(left) if other != at):
                del left[at]
                break
        if left == before:
            return any(left)


def next_variable(
    left: Mapping[int, Set[int]], bound: Collection[int], preference: Callable[[int], Any]
) -> Extension | None:
    """The variable that the most inputs can restrict; None if no input can.

    `left` has the variables of each input that is not bound.  An input can restrict a variable
    as soon as another of its variables is bound.  Of several variables, it is the one with the
    most preferred input: less is better.
    """
    reachable = {at: of for at, of in left.items() if any(each in bound for each in of)}
    extensions = []
    for variable in sorted(set().union(*reachable.values()).difference(bound)):
        inputs = tuple(sorted(at for at, of in reachable.items() if variable in of))
        completed = frozenset(at for at in inputs if reachable[at] - {variable} <= set(bound))
        extensions.append(Extension(variable, inputs, completed))
    return min(
        extensions,
        key=lambda each: (-len(each.inputs), min(map(preference, each.inputs))),
        default=None,
    )


# Whether no equality connects an input, whether it may have many data of a key, its declared
# size, and its position.
_Preference = tuple[bool, bool, float, int]
# The terms by which an input is looked up, the values for them, and the predicates to test.
_Asked = tuple[tuple[str, ...], tuple[Flat, ...], tuple[Flat, ...]]


@dataclass(frozen=True)
class Planned:
    """A planned join: its paths, and the SQL of its results.

    An as-of join has one path, for its left.
    """

    join: Join
    paths: tuple[Path, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat

    @cached_property
    def types(self) -> Mapping[str, str]:
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
        exchange = not self.steps or values != getattr(self.steps[-1], "key", None)
        self._bind(at)
        predicates = (*tested, *self._now_bound())
        equal = self._sees_equal(at)
        self.steps.append(Lookup(side.alias, arrangement, values, equal, exchange, predicates))

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
                binding.equality(flats[key], value)
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
