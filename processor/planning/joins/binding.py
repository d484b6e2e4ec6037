"""Analyse the SQL of a join: constraints, filters, predicates and results.

Conditions joined by AND are independent: a join tests each as early as it can, so none guards
another (write CASE for that).  What a condition reads decides what it is:

* An equality of expressions over one input each is a *constraint*.  Constraints that
  share a side make one *variable* of equal terms; so the consequences of
  constraints are known as well.  Equality is that of canonical bytes, which is why both
  sides must be of one kind, and null is equal to nothing.
* A condition over one input is a filter of that input's relation.
* Any other is a predicate.

A variable has one term for each input: if two expressions over one input are equal, that is a
filter.

SQL over several inputs is qualified: `o.custkey` is the column `custkey` of the input with the
alias `o`.  Rows that are being joined have flat columns named "o.custkey", so that the rules of
all other expressions hold for these as well (`linear.expressions.parse`).  Over the data of one
input, the same text has no alias.  Names are taken literally: an input is never guessed from the
name of a column.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, ParamSpec, TypeVar

from ikebana.codecs.sql_type import Decimal, List, SqlType, Struct, Tuple, type_of
from ikebana.processor.linear import expressions
from ikebana.processor.linear.json_text import JSON, WHOLE, compares_as_data, quoted
from ikebana.processor.linear.query import compiled
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    ExpressionError,
    FrozenScope,
    Hidden,
    Scope,
    StepError,
    UnknownError,
)
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    TOO_DEEP,
    Node,
    changed,
    column,
    conditions,
    equality_sides,
    nodes,
    text_of,
    tree,
)
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.planning.plan import PlanProblem
from ikebana.processor.planning.relations import Relation

_RESULT = "made"
_Names = Sequence[str]


@dataclass(frozen=True, slots=True)
class Flat:
    """A checked expression over flat columns: its SQL, the columns with their types, its type.

    `shown` is the expression as it was written, for people: the SQL may have more, such as how a
    cast reads JSON.
    """

    sql: str
    reads: Mapping[str, str]
    type: str
    shown: str = field(compare=False)

    @property
    def columns(self) -> frozenset[str]:
        """The flat columns that it reads."""
        return frozenset(self.reads)

    @property
    def aliases(self) -> frozenset[str]:
        """The inputs that it reads."""
        return frozenset(alias_of(column) for column in self.columns)


def flat_name(alias: str, column: str) -> str:
    """The name that a column of an input has in rows that are being joined."""
    return f"{alias}.{column}"


def alias_of(column: str) -> str:
    """The alias of a flat column's input."""
    return column.partition(".")[0]


def flat(node: Node, scopes: Mapping[str, Scope], *, condition: bool = False) -> Flat:
    """Check an expression over inputs, by alias.

    Raises:
        ExpressionError: it is not allowed, or names a column that does not exist.
        UnknownError: it reads what is unknown, and nothing else is wrong.
    """
    types: dict[str, str] = {}
    hidden: dict[str, Hidden] = {}
    problems: dict[str, None] = {}

    def renamed(names: _Names) -> _Names:
        try:
            alias, name = _column_of(names, scopes)
            column = scopes[alias].column(name)
        except ExpressionError as error:
            problems[str(error)] = None
            alias, column = names[0], names[-1]
            types[flat_name(alias, column)] = UNKNOWN
            return [flat_name(alias, column), *names[2:]]
        try:
            full_name = flat_name(alias, column)
            for other in (
                each for each in types if each != full_name and each.lower() == full_name.lower()
            ):
                problem = scopes[alias].alike(column, other.partition(".")[2], f"{alias}.")
                raise ExpressionError(problem)
            types[full_name] = scopes[alias].type_of(column)
            if column in scopes[alias].hidden:
                hidden[full_name] = scopes[alias].hidden[column]
        except ExpressionError as error:
            problems[f'input "{alias}": {error}'] = None
            types[flat_name(alias, column)] = UNKNOWN
        return [flat_name(alias, column), *names[2:]]

    expression: Flat | None = None
    try:
        flat_node = _with_names(node, renamed)
        expression = checked(flat_node, types, condition=condition, hidden=hidden)
    except UnknownError:
        if not problems:
            raise
    except ExpressionError as error:
        problems[str(error)] = None
    if expression is None or problems:
        raise ExpressionError("; and ".join(problems))
    return expression


def checked(
    node: Node,
    types: Mapping[str, str],
    *,
    condition: bool,
    shown: str | None = None,
    hidden: Mapping[str, Hidden] = {},
) -> Flat:
    """Check an expression over flat columns of these types; people see `shown`, if it is set.

    `hidden` is as in a scope.

    Raises: ExpressionError.
    """
    text = text_of(node) if shown is None else shown
    expression = expressions.checked(node, text, Scope(types, hidden=hidden), condition=condition)
    kind = _type_of(expression.sql, tuple(types.items()), condition=condition)
    return Flat(expression.sql, dict(types), kind, text)


def equality(one: Flat, other: Flat) -> Flat:
    """The condition that two expressions are equal."""
    shown = f"{one.shown} = {other.shown}"
    reads = {**one.reads, **other.reads}
    return checked(tree(f"{one.sql} = {other.sql}"), reads, condition=True, shown=shown)


def over_one_input(node: Node, alias: str, scope: Scope) -> str:
    """An expression over one input as an expression over the data of its relation."""

    def renamed(names: _Names) -> _Names:
        return [scope.column(names[1]), *names[2:]] if names[0] == alias else names

    return text_of(_with_names(node, renamed))


def _column_of(names: _Names, scopes: Mapping[str, Scope]) -> tuple[str, str]:
    if names[0] not in scopes:
        listed = ", ".join(scopes)
        if len(names) == 1:
            raise ExpressionError(
                f'"{names[0]}" is of no input; write it with one of {listed}, '
                f"as in {next(iter(scopes))}.{names[0]}"
            )
        raise ExpressionError(f'there is no input "{names[0]}"; there are {listed}')
    if len(names) == 1:
        raise ExpressionError(
            f'"{names[0]}" is an input; {names[0]}.value is the whole value of its data'
        )
    return names[0], names[1]


def _with_names(node: Node, renamed: Callable[[_Names], _Names]) -> Node:
    """An expression with its columns renamed; the parameters of lambdas keep their names."""

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        return {**node, "column_names": [*renamed(node["column_names"])]}

    try:
        result: Node = changed(node, change)
    except RecursionError:
        raise ExpressionError(TOO_DEEP) from None
    return result


@functools.lru_cache(maxsize=4096)
def _type_of(sql: str, types: tuple[tuple[str, str], ...], *, condition: bool) -> str:
    """The type of an expression over columns of these types."""
    if not condition and sql in (columns := {quoted(name): kind for name, kind in types}):
        return columns[sql]
    step = Sql(where=(sql,)) if condition else Sql(select=((_RESULT, sql),))
    scope = FrozenScope((*types, (KEY, JSON), (VALUE, JSON)), open=False, declare="")
    try:
        query = compiled((step,), scope)
    except StepError as error:
        raise ExpressionError(error.problem) from None
    return "BOOLEAN" if condition else query.result.types[_RESULT]


P = ParamSpec("P")
H = TypeVar("H", bound=Hashable)
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_Sides = tuple[Node, Node]
"""The sides of an equality."""


class JoinError(Exception):
    """A join is refused; `problems` are pairs (part of the join, problem)."""

    def __init__(self, problems: Sequence[PlanProblem]) -> None:
        super().__init__("; ".join(f"{part}: {problem}" for part, problem in problems))
        self.problems = tuple(problems)


class Term(NamedTuple):
    """An expression over one input: `local` over its relation's data, `flat` over flat columns."""

    input: int
    local: str
    flat: Flat


# Terms that are equal in every result, one for each input, in the order of inputs.
Variable = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class BoundInput:
    """An input with the conditions over it alone, as SQL over its relation's data."""

    alias: str
    relation: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoundJoin:
    """An analysed join without problems."""

    join: Join
    inputs: tuple[BoundInput, ...]
    variables: tuple[Variable, ...]
    predicates: tuple[Flat, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat
    _terms: tuple[tuple[tuple[int, Term], ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        terms: list[list[tuple[int, Term]]] = [[] for _ in self.inputs]
        for number, variable in enumerate(self.variables):
            for term in variable:
                terms[term.input].append((number, term))
        object.__setattr__(self, "_terms", tuple(map(tuple, terms)))

    def terms(self, at: int) -> tuple[tuple[int, Term], ...]:
        """The terms over an input, each with the number of its variable."""
        return self._terms[at]


class Examined(NamedTuple):
    """The problems of a join, and what is known about its results nevertheless.

    `select` and `key` lack expressions that have a problem or read an unknown column.
    """

    problems: tuple[PlanProblem, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat | None
    bound: BoundJoin | None
    """The analysed join, if it has no problems."""

    def whole(self) -> BoundJoin:
        """The analysed join.  Raises: JoinError, with all of its problems."""
        if self.bound is None:
            raise JoinError(self.problems)
        return self.bound


def examined(join: Join, relations: Mapping[str, Relation]) -> Examined:
    """Find all problems of a join over relations, some of which may be unknown."""
    if problems := list(_input_problems(join, relations)):
        # With wrong names of inputs, their expressions cannot be checked.
        return Examined(tuple(problems), (), None, None)
    binding = _Binding(join, relations)
    bound = binding.bound()
    problems = [*binding.problems]
    joined = None
    if not binding.is_unsure:
        joined = [frozenset(term.input for term in variable) for variable in binding.variables]
        problems += _connection_problems(join, joined)
    problems += _order_problems(join, joined)
    problems += _lock_problems(join, relations, binding.meeting_columns())
    can_be = bound is not None and not problems
    select = tuple(binding.select)
    return Examined(tuple(problems), select, binding.key, bound if can_be else None)


class _Binding:
    """Collects the constraints, filters and predicates of conditions, and their problems."""

    def __init__(self, join: Join, relations: Mapping[str, Relation]) -> None:
        self.problems: list[PlanProblem] = []
        self.select: list[tuple[str, Flat]] = []
        self.key: Flat | None = None
        self.variables: list[Variable] = []
        self.is_unsure = False
        """Whether a condition is not known, by which inputs may be connected."""
        self._join = join
        self._aliases = [each.alias for each in join.inputs]
        self._scopes = {each.alias: relations[each.relation].scope for each in join.inputs}
        self._filters: list[set[str]] = [set() for _ in join.inputs]
        self._predicates: list[Flat] = []
        # By term, all terms that are known to be equal, including itself.
        self._equal: dict[tuple[int, str], dict[tuple[int, str], Term]] = {}

    def bound(self) -> BoundJoin | None:
        join = self._join
        part, texts = ("on", join.on) if isinstance(join, AsOfJoin) else ("where", join.where)
        for at, text in enumerate(texts):
            place = part if len(texts) == 1 else f"{part}.{at}"
            if not self._succeeds(place, self._add_all, place, text):
                self.is_unsure = True
        for name, text in join.select:
            self._succeeds(f"select.{name}", self._choose, name, text)
        self._succeeds("key", self._rekey, join.key)
        self.is_unsure |= not self._succeeds(part, self._settle)
        if self.is_unsure or self.key is None or len(self.select) < len(join.select):
            return None
        inputs = tuple(
            BoundInput(each.alias, each.relation, tuple(sorted(filters)))
            for each, filters in zip(join.inputs, self._filters, strict=True)
        )
        parts = tuple(self.variables), tuple(self._predicates), tuple(self.select)
        return BoundJoin(join, inputs, *parts, self.key)

    def meeting_columns(self) -> set[str]:
        """The columns of the first input that conditions with others read."""
        terms = (term.flat for each in self.variables for term in each if term.input == 0)
        read = {column for each in (*terms, *self._predicates) for column in each.columns}
        return {
            column.partition(".")[2] for column in read if alias_of(column) == self._aliases[0]
        }

    def _succeeds(
        self, part: str, take: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """Call `take`; note its problem if it raises one; return whether it succeeded."""
        try:
            take(*args, **kwargs)
        except UnknownError:
            return False
        except ExpressionError as error:
            self.problems.append((part, str(error)))
            return False
        return True

    def _choose(self, name: str, text: str) -> None:
        self.select.append((name, flat(tree(text), self._scopes)))

    def _rekey(self, text: str | None) -> None:
        key = column(self._aliases[0], KEY) if text is None else tree(text)
        self.key = flat(key, self._scopes)

    def _settle(self) -> None:
        self.variables = self._variables()

    def _add_all(self, place: str, text: str) -> None:
        """Add the conditions that AND joins in a text."""
        for written, condition in conditions(text):
            if not self._succeeds(place, self._add, condition, written):
                self.is_unsure = True

    def _add(self, condition: Node, text: str) -> None:
        sides = equality_sides(condition)
        is_collated = any(node["class"] == "COLLATE" for node in nodes(sides))
        if sides is not None and not is_collated:
            left, right = self._both(sides)
            if len(left.aliases) == len(right.aliases) == 1 and left.aliases != right.aliases:
                _refuse_other_kind(sides, left, right)
                self._unite(self._term(sides[0], left), self._term(sides[1], right))
                return
        predicate = flat(condition, self._scopes, condition=True)
        match sorted(predicate.aliases):
            case []:
                raise ExpressionError(f'"{text}" reads no input; leave it out')
            case [alias]:
                self._filters[self._aliases.index(alias)].add(self._local(condition, alias))
            case _ if is_collated:
                raise ExpressionError(
                    f"{text}: a collation does not reach what a join compares; compare texts that "
                    "are equal as they stand, as in lower(…)"
                )
            case _:
                self._predicates.append(predicate)

    def _both(self, sides: _Sides) -> list[Flat]:
        """The sides of an equality.  Raises: ExpressionError, with the problems of both."""
        flats: list[Flat] = []
        problems: dict[str, None] = {}
        for side in sides:
            try:
                flats.append(flat(side, self._scopes))
            except UnknownError:
                continue
            except ExpressionError as error:
                problems[str(error)] = None
        if problems:
            raise ExpressionError("; and ".join(problems))
        if len(flats) < len(sides):
            raise UnknownError
        return flats

    def _local(self, node: Node, alias: str) -> str:
        return over_one_input(node, alias, self._scopes[alias])

    def _term(self, node: Node, side: Flat) -> Term:
        (alias,) = side.aliases
        return Term(self._aliases.index(alias), self._local(node, alias), side)

    def _unite(self, one: Term, other: Term) -> None:
        groups = [self._equal.get(_name(term), {_name(term): term}) for term in (one, other)]
        united = {**groups[0], **groups[1]}
        self._equal.update(dict.fromkeys(united, united))

    def _variables(self) -> list[Variable]:
        """The sets of equal terms, with one term for each input."""
        variables = []
        groups = {id(group): group for group in self._equal.values()}
        for group in groups.values():
            first: dict[int, Term] = {}
            for _, term in sorted(group.items()):
                original = first.setdefault(term.input, term)
                if original is not term:
                    self._add_equal(original, term)
            variables.append(tuple(first.values()))
        return sorted(variables, key=lambda variable: [_name(term) for term in variable])

    def _add_equal(self, one: Term, other: Term) -> None:
        condition = equality(one.flat, other.flat)
        if isinstance(self._join, AsOfJoin) and one.input == 0:
            # It decides what matches; a left update without a match is still a result if it is
            # outer.
            self._predicates.append(condition)
        else:
            self._filters[one.input].add(f"({one.local} = {other.local})")


def _name(term: Term) -> tuple[int, str]:
    return term.input, term.local


def _refuse_other_kind(sides: _Sides, left: Flat, right: Flat) -> None:
    """Raises: ExpressionError, if equal values of the sides may differ as data."""
    if kind_as_data(left.type) == kind_as_data(right.type) and compares_as_data(left.type):
        return
    one, other = map(text_of, sides)
    if kind_as_data(left.type) != kind_as_data(right.type):
        raise ExpressionError(
            f"{one} = {other} compares {left.type} with {right.type}, which are not equal as "
            f"data; {_remedy(one, other, left.type, right.type)}"
        )
    raise ExpressionError(
        f"{one} = {other} compares {left.type}, whose equal values may differ as data, as 1 "
        f"month and 30 days do; compare its length, as in epoch_us({one}) = epoch_us({other})"
    )


def _remedy(one: str, other: str, left: str, right: str) -> str:
    """How two expressions of these types can be made of one kind."""
    match {left: one, right: other}:
        case {"BLOB": raw, "VARCHAR": _}:
            return f"make text of one side, as in decode({raw})"
        case {"BLOB": raw, "JSON": text}:
            return f"make text of both, as in decode({raw}) = CAST({text} AS VARCHAR)"
        case {"JSON": text, **others}:
            (kind,) = others
            return f"cast one side, as in CAST({text} AS {kind})"
        case _:
            return f"cast one side, as in CAST({one} AS {right})"


def kind_as_data(type_: str) -> SqlType:
    """The kind of a type: values of one kind that are equal in SQL are equal as data."""
    return _kind_of(type_of(type_))


def _kind_of(kind: SqlType) -> SqlType:
    match kind:
        case List(of):
            return List(_kind_of(of))
        case Struct(fields):
            return Struct(tuple((name, _kind_of(of)) for name, of in fields))
        case Tuple(parts):
            return Tuple(tuple(map(_kind_of, parts)))
    exact = (*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT")
    return _EXACT if isinstance(kind, Decimal) or str(kind) in exact else kind


# The kind of numbers without a fraction, or with a fixed one.
_EXACT = type_of("HUGEINT")


def _input_problems(join: Join, relations: Mapping[str, Relation]) -> Iterator[PlanProblem]:
    """Problems of the aliases of inputs, and of their relations."""
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


def _connection_problems(join: Join, joined: Sequence[frozenset[int]]) -> Iterator[PlanProblem]:
    """Inputs that no equality connects; `joined` has the inputs of each variable's terms."""
    if isinstance(join, DeltaJoin) and join.cartesian:
        return
    connected = overlapping({0}, joined)
    aliases = [each.alias for each in join.inputs]
    apart = [f'"{alias}"' for at, alias in enumerate(aliases) if at not in connected]
    if apart:
        near = ", ".join(f'"{aliases[at]}"' for at in sorted(connected))
        what = f"no equality connects {', '.join(apart)} with {near}; write one"
        if isinstance(join, AsOfJoin):
            yield "on", what
        else:
            yield "where", f"{what}, or say cartesian: true"


def _order_problems(join: Join, joined: Sequence[frozenset[int]] | None) -> Iterator[PlanProblem]:
    """Problems of the orders of lookups; `joined` is None if it is unknown."""
    if isinstance(join, AsOfJoin):
        return
    aliases = [each.alias for each in join.inputs]
    counts = Counter(alias for alias, _ in join.orders)
    for alias, order in join.orders:
        part = f"orders.{alias}"
        others = [other for other in aliases if other != alias]
        if alias not in aliases:
            yield part, f'there is no input "{alias}"; there are {", ".join(aliases)}'
        elif sorted(order) != sorted(others):
            yield part, f"must name each of {', '.join(others)} once"
        elif counts[alias] > 1:
            yield part, f"is given {counts[alias]} times"
        elif not join.cartesian and joined is not None:
            bound = {aliases.index(alias)}
            for other in order:
                at = aliases.index(other)
                if not any(at in each and each & bound for each in joined):
                    before = ", ".join(f'"{aliases[i]}"' for i in sorted(bound))
                    yield part, f'no equality connects "{other}" with {before} before it'
                    break
                bound.add(at)


def _lock_problems(
    join: Join, relations: Mapping[str, Relation], meeting: Collection[str]
) -> Iterator[PlanProblem]:
    """Problems of the columns that an as-of join is locked by.

    `meeting` has the columns of its left that conditions with the right read.
    """
    if not isinstance(join, AsOfJoin) or not join.locked_by:
        return
    part = "locked_by"
    if not join.locks:
        yield part, "needs retract: locked, by which what a row has met is remembered"
    scope = relations[join.left.relation].scope
    for name, count in Counter(join.locked_by).items():
        try:
            scope.type_of(name)
        except ExpressionError as error:
            yield part, f'input "{join.left.alias}": {error}'
        if scope.column(name) == VALUE:
            yield part, 'names columns; "value" is all of them, as without locked_by'
        elif count > 1:
            yield part, f'names "{name}" {count} times'
    missing = sorted({*meeting} - {*map(scope.column, join.locked_by), KEY})
    if VALUE in missing:
        alias = join.left.alias
        yield part, f"cannot be where on reads {alias}.value; let it read columns of {alias}"
    elif missing:
        listed = " and ".join(f'"{column}"' for column in missing)
        yield part, f"must name {listed} too, by which on tells what a row meets"


def overlapping(members: set[H], joined: Collection[Set[H]]) -> set[H]:
    """Extend a set by all sets that overlap it, directly or through others."""
    while True:
        more = members.union(*(each for each in joined if each & members))
        if more == members:
            return members
        members = more
