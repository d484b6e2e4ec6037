"""Problems of a join's inputs: names, relations, connections, orders of lookup."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from ikebana.processor.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError

Problem = tuple[str, str]
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def input_problems(join: Join, relations: Mapping[str, Relation]) -> Iterator[Problem]:
    """What is wrong with the names of inputs, and what they name."""
    if len(join.inputs) < 2:
        yield "inputs", "at least two are needed"
    counted = Counter(each.alias for each in join.inputs)
    for alias, count in counted.items():
        if not _ALIAS.fullmatch(alias):
            yield f"inputs.{alias}", f'"{alias}" is no name for columns (letters, digits, "_")'
        if count > 1:
            yield f"inputs.{alias}", f"the name is used {count} times"
    for each in join.inputs:
        if each.relation not in relations:
            listed = ", ".join(sorted(relations))
            yield (
                f"inputs.{each.alias}",
                f'there is no operator "{each.relation}"; there are {listed}',
            )


def connection_problems(join: Join, joined: Sequence[frozenset[int]]) -> Iterator[Problem]:
    """What no equality connects; `joined` are the inputs that each variable has terms over."""
    if isinstance(join, DeltaJoin) and join.cartesian:
        return
    reached = _reached({0}, joined)
    aliases = [each.alias for each in join.inputs]
    apart = [f'"{alias}"' for at, alias in enumerate(aliases) if at not in reached]
    if apart:
        near = ", ".join(f'"{aliases[at]}"' for at in sorted(reached))
        what = f"no equality connects {', '.join(apart)} with {near}; write one"
        if isinstance(join, AsOfJoin):
            yield "on", what
        else:
            yield "where", f"{what}, or say cartesian: true"


def order_problems(join: Join, joined: Sequence[frozenset[int]] | None) -> Iterator[Problem]:
    """What is wrong with the orders that are told; `joined` is None where it is not known."""
    if isinstance(join, AsOfJoin):
        return
    aliases = [each.alias for each in join.inputs]
    told = Counter(alias for alias, _ in join.orders)
    for alias, order in join.orders:
        part = f"orders.{alias}"
        others = [other for other in aliases if other != alias]
        if alias not in aliases:
            yield part, f'there is no input "{alias}"; there are {", ".join(aliases)}'
        elif sorted(order) != sorted(others):
            yield part, f"must name each of {', '.join(others)} once"
        elif told[alias] > 1:
            yield part, f"is given {told[alias]} times"
        elif not join.cartesian and joined is not None:
            known = {aliases.index(alias)}
            for other in order:
                at = aliases.index(other)
                if not any(at in each and each & known for each in joined):
                    before = ", ".join(f'"{aliases[i]}"' for i in sorted(known))
                    yield part, f'no equality connects "{other}" with {before} before it'
                    break
                known.add(at)


def lock_problems(
    join: Join, relations: Mapping[str, Relation], meeting: Collection[str]
) -> Iterator[Problem]:
    """What is wrong with the columns that an as-of join is locked by.

    `meeting` are the columns of its left by which conditions tell what it meets.
    """
    if not isinstance(join, AsOfJoin) or not join.locked_by:
        return
    part = "locked_by"
    if not join.locks:
        yield part, "needs retract: locked, by which what a row has met is remembered"
    scope = relations[join.left.relation].scope
    for column, count in Counter(join.locked_by).items():
        try:
            scope.type_of(column)
        except ExpressionError as error:
            yield part, f'input "{join.left.alias}": {error}'
        if scope.column(column) == VALUE:
            yield part, 'names columns; "value" is all of them, as without locked_by'
        elif count > 1:
            yield part, f'names "{column}" {count} times'
    missing = sorted({*meeting} - {*map(scope.column, join.locked_by), KEY})
    if VALUE in missing:
        alias = join.left.alias
        yield part, f"cannot be where on reads {alias}.value; let it read columns of {alias}"
    elif missing:
        listed = " and ".join(f'"{column}"' for column in missing)
        yield part, f"must name {listed} too, by which on tells what a row meets"


def _reached(known: set[int], joined: Sequence[frozenset[int]]) -> set[int]:
    """The inputs that variables connect with those known."""
    while True:
        more = known.union(*(each for each in joined if each & known))
        if more == known:
            return known
        known = more
