"""Random joins over random relations, and the nested loops that say what they mean."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from ikebana.arrangements.update import Update, accumulate
from ikebana.processor.linear.scope import Scope
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput, Strategy
from ikebana.processor.planning.relations import Relation
from support.delta_path_oracle import Datum
from support.sums import summed

COLUMNS = ("x", "y", "z")
SCOPE = Scope(dict.fromkeys(COLUMNS, "BIGINT"))
RELATIONS = {
    "r": Relation(SCOPE),
    # Keys that are said to be unique, and are not: joins are exact all the same.
    "s": Relation(SCOPE, unique=(("y", "z"),), size=3),
    "t": Relation(SCOPE, unique=(("x",),), size=9),
}
Whole = int | None
Rows = Mapping[str, Datum]


class Condition(NamedTuple):
    """SQL, and what it means: true, false, or None where null makes it neither."""

    text: str
    holds: Callable[[Rows], bool | None]


class Value(NamedTuple):
    """SQL over one input, and what it means."""

    text: str
    of: Callable[[Rows], Whole]


def column(alias: str, at: int) -> Value:
    return Value(f"{alias}.{COLUMNS[at]}", lambda rows: rows[alias][at])


def more(value: Value) -> Value:
    """What is one more."""

    def of(rows: Rows) -> Whole:
        found = value.of(rows)
        return None if found is None else found + 1

    return Value(f"{value.text} + 1", of)


def values(alias: str) -> st.SearchStrategy[Value]:
    """A column of an input, or the one after it."""
    plain = st.builds(column, st.just(alias), st.sampled_from(range(len(COLUMNS))))
    return st.one_of(plain, plain, plain, plain.map(more))


def equal(one: Value, other: Value) -> Condition:
    def holds(rows: Rows) -> bool | None:
        a, b = one.of(rows), other.of(rows)
        return None if a is None or b is None else a == b

    return Condition(f"{one.text} = {other.text}", holds)


def less(one: Value, other: Value) -> Condition:
    def holds(rows: Rows) -> bool | None:
        a, b = one.of(rows), other.of(rows)
        return None if a is None or b is None else a < b

    return Condition(f"{one.text} < {other.text}", holds)


def absent(one: Value, _other: Value) -> Condition:
    return Condition(f"({one.text}) IS NULL", lambda rows: one.of(rows) is None)


def either(one: Condition, other: Condition) -> Condition:
    def holds(rows: Rows) -> bool | None:
        found = (one.holds(rows), other.holds(rows))
        return True if True in found else None if None in found else False

    return Condition(f"({one.text} OR {other.text})", holds)


class Drawn(NamedTuple):
    """A query, as a join and as what it means."""

    join: DeltaJoin
    conditions: tuple[Condition, ...]
    shown: tuple[Value, ...]


@st.composite
def connections(draw: st.DrawFn, aliases: Sequence[str]) -> list[Condition]:
    """Equalities of each input with one before it; now and then one is missing."""
    found = []
    for at, alias in enumerate(aliases[1:]):
        if draw(st.integers(0, 9)):
            other = draw(st.sampled_from(aliases[: at + 1]))
            found.append(equal(draw(values(alias)), draw(values(other))))
    return found


@st.composite
def circles_of(draw: st.DrawFn, aliases: Sequence[str]) -> list[Condition]:
    """Columns of all inputs are dealt to a few variables, and those of one are equal."""
    variables = draw(st.sampled_from([3, 4, 6]))
    first: dict[int, Value] = {}
    found = []
    for alias in aliases:
        dealt = draw(st.permutations(range(variables)))[: len(COLUMNS)]
        for at, variable in enumerate(dealt):
            value = column(alias, at)
            if variable in first:
                found.append(equal(value, first[variable]))
            first.setdefault(variable, value)
    return found


@st.composite
def queries(draw: st.DrawFn) -> Drawn:
    """Two to four inputs, connected or not, with more equalities, predicates and filters."""
    aliases = [f"a{at}" for at in range(draw(st.sampled_from([2, 3, 3, 4])))]
    named = st.sampled_from(sorted(RELATIONS))
    inputs = tuple(JoinInput(alias, draw(named)) for alias in aliases)
    any_value = st.sampled_from(aliases).flatmap(values)
    conditions = draw(st.one_of(connections(aliases), circles_of(aliases)))
    some = st.builds(
        lambda make, one, other: make(one, other),
        st.sampled_from([equal, equal, less, absent]),
        any_value,
        any_value,
    )
    conditions += draw(st.lists(st.one_of(some, some, st.builds(either, some, some)), max_size=2))
    orders = tuple(
        (alias, tuple(draw(st.permutations([other for other in aliases if other != alias]))))
        for alias in aliases
        if draw(st.integers(0, 3)) == 0
    )
    strategy: Strategy = draw(st.sampled_from(["auto", "lookup", "intersect", "intersect"]))
    key, *shown = draw(st.lists(any_value, min_size=2, max_size=5))
    join = DeltaJoin(
        "q",
        inputs,
        tuple(condition.text for condition in conditions),
        tuple((f"f{at}", value.text) for at, value in enumerate(shown)),
        key.text,
        orders,
        cartesian=True,
        strategy=strategy,
    )
    return Drawn(join, tuple(conditions), (key, *shown))


whole = st.sampled_from([0, 1, 0, 1, 0, 1, 0, 1, 2, None])


def changes(data: st.SearchStrategy[Datum]) -> st.SearchStrategy[list[Update[Datum]]]:
    """Updates of data, whose counts may be negative."""
    diffs = st.sampled_from([1, 1, 1, 2, -1, -2])
    made = st.builds(Update, data, st.integers(0, 3), diffs)
    return st.lists(made, min_size=2, max_size=6)


# Of one or two data, so that counts pass through 0.
updates = st.one_of(
    changes(st.tuples(whole, whole, whole)),
    changes(st.sampled_from([(0, 0, 0), (0, 0, 0), (0, 0, 1)])),
)


def nested_loops(
    drawn: Drawn, histories: Mapping[str, Sequence[Update[Datum]]], as_of: int
) -> dict[Datum, int]:
    """Every combination of data for which all conditions are true, by the product of counts."""
    inputs = drawn.join.inputs
    collections = [accumulate(histories[each.relation], as_of) for each in inputs]
    found: Counter[Datum] = Counter()
    for combination in product(*(collection.items() for collection in collections)):
        rows = {each.alias: datum for each, (datum, _) in zip(inputs, combination, strict=True)}
        if all(condition.holds(rows) is True for condition in drawn.conditions):
            shown = tuple(value.of(rows) for value in drawn.shown)
            found[shown] += math.prod(count for _, count in combination)
    return summed(found.items())


def histories() -> st.SearchStrategy[dict[str, list[Update[Datum]]]]:
    """Updates of every relation, many of them at the same times."""
    return st.fixed_dictionaries(dict.fromkeys(RELATIONS, updates))
