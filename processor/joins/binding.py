"""Analyse the SQL of a join: constraints, filters, predicates and results.

Conditions joined by AND stand each by itself: a join tests each as early as it can, so
none guards another (write CASE for that).  They are told apart by what they read:

* An equality of expressions over one input each is a *constraint*.  Constraints that
  share a side make one *variable*, whose terms are all equal; so what follows from
  constraints is known as well.  Equality is that of canonical bytes, which is why both
  sides must be of one kind, and null is equal to nothing.
* A condition over one input is a filter of that input's relation.
* Any other is a predicate.

A variable has one term an input: that two expressions over one input are equal is a filter.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.processor.joins import qualified
from ikebana.processor.joins.problems import (
    Problem,
    connection_problems,
    input_problems,
    lock_problems,
    order_problems,
)
from ikebana.processor.joins.qualified import Flat, Sides
from ikebana.processor.joins.query import AsOfJoin, Join
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.json_text import WHOLE, compares_as_data
from ikebana.processor.linear.scope import KEY, ExpressionError, UnknownError
from ikebana.processor.linear.syntax import conjuncts, shown, tree_of


class JoinError(Exception):
    """A join is refused; `problems` are pairs (part of the join, problem)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{part}: {problem}" for part, problem in problems))
        self.problems = tuple(problems)


class Term(NamedTuple):
    """An expression over one input: over its own data, and over flat columns."""

    input: int
    own: str
    flat: Flat


# Terms that are equal in every result, one an input, by the inputs' order.
Variable = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class BoundInput:
    """An input with the conditions over it alone, as SQL over its relation's own data."""

    alias: str
    relation: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """An analysed join without problems."""

    join: Join
    inputs: tuple[BoundInput, ...]
    variables: tuple[Variable, ...]
    predicates: tuple[Flat, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat
    _terms: tuple[tuple[tuple[int, Term], ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: list[list[tuple[int, Term]]] = [[] for _ in self.inputs]
        for number, variable in enumerate(self.variables):
            for term in variable:
                found[term.input].append((number, term))
        object.__setattr__(self, "_terms", tuple(map(tuple, found)))

    def terms(self, at: int) -> tuple[tuple[int, Term], ...]:
        """The terms over an input, each with its variable's number."""
        return self._terms[at]


class Examined(NamedTuple):
    """The problems of a join, and the facts about its results that are known anyway.

    `select` and `key` lack what cannot be, or cannot be told because of another mistake.
    """

    problems: tuple[Problem, ...]
    select: tuple[tuple[str, Flat], ...]
    key: Flat | None
    bound: Bound | None
    """The join taken apart, if it can be."""


def bind(join: Join, relations: Mapping[str, Relation]) -> Bound:
    """Analyse a join.  Raises: JoinError, with all of its problems."""
    found = examined(join, relations)
    if found.bound is None:
        raise JoinError(found.problems)
    return found.bound


def examined(join: Join, relations: Mapping[str, Relation]) -> Examined:
    """Find all problems of a join over relations, some of which may be unknown."""
    if problems := list(input_problems(join, relations)):
        # Names that cannot be make nothing of the expressions that have them.
        return Examined(tuple(problems), (), None, None)
    binding = _Binding(join, relations)
    bound = binding.bound()
    problems = [*binding.problems]
    joined = None
    if not binding.is_unsure:
        joined = [frozenset(term.input for term in variable) for variable in binding.variables]
        problems += connection_problems(join, joined)
    problems += order_problems(join, joined)
    problems += lock_problems(join, relations, binding.meeting_columns())
    can_be = bound is not None and not problems
    select = tuple(binding.select)
    return Examined(tuple(problems), select, binding.key, bound if can_be else None)


class _Binding:
    """Collects the constraints, filters and predicates of conditions, and their problems."""

    def __init__(self, join: Join, relations: Mapping[str, Relation]) -> None:
        self.problems: list[Problem] = []
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
        # Of each term, all terms that are known to be equal, itself included.
        self._equal: dict[tuple[int, str], dict[tuple[int, str], Term]] = {}

    def bound(self) -> Bound | None:
        join = self._join
        part, texts = ("on", join.on) if isinstance(join, AsOfJoin) else ("where", join.where)
        for at, text in enumerate(texts):
            place = part if len(texts) == 1 else f"{part}.{at}"
            for condition in conjuncts(text):
                self.is_unsure |= not self._told(place, condition, self._add)
        for name, text in join.select:
            self._told(f"select.{name}", text, functools.partial(self._choose, name))
        text = f"{shown(self._aliases[0])}.{KEY}" if join.key is None else join.key
        self._told("key", text, self._rekey)
        self.is_unsure |= not self._told(part, "", self._settle)
        if self.is_unsure or self.key is None or len(self.select) < len(join.select):
            return None
        inputs = tuple(
            BoundInput(each.alias, each.relation, tuple(sorted(filters)))
            for each, filters in zip(join.inputs, self._filters, strict=True)
        )
        made = tuple(self.variables), tuple(self._predicates), tuple(self.select)
        return Bound(join, inputs, *made, self.key)

    def meeting_columns(self) -> set[str]:
        """The columns of the first input that conditions with others read."""
        terms = (term.flat for each in self.variables for term in each if term.input == 0)
        read = {column for each in (*terms, *self._predicates) for column in each.columns}
        return {
            column.partition(".")[2]
            for column in read
            if qualified.alias_of(column) == self._aliases[0]
        }

    def _told(self, part: str, text: str, take: Callable[[str], None]) -> bool:
        """Whether an expression can be taken; a problem of it is noted."""
        try:
            take(text)
        except UnknownError:
            return False
        except ExpressionError as error:
            self.problems.append((part, str(error)))
            return False
        return True

    def _choose(self, name: str, text: str) -> None:
        self.select.append((name, qualified.flat(text, self._scopes)))

    def _rekey(self, text: str) -> None:
        self.key = qualified.flat(text, self._scopes)

    def _settle(self, _: str) -> None:
        self.variables = self._variables()

    def _add(self, text: str) -> None:
        equality = qualified.sides(text)
        is_collated = equality is not None and any(map(_is_collated, equality))
        if equality is not None and not is_collated:
            left, right = self._both(equality)
            if len(left.aliases) == len(right.aliases) == 1 and left.aliases != right.aliases:
                _refuse_other_kind(equality, left, right)
                self._unite(self._term(equality.left, left), self._term(equality.right, right))
                return
        made = qualified.flat(text, self._scopes, condition=True)
        match sorted(made.aliases):
            case []:
                raise ExpressionError(f'"{text}" reads no input; leave it out')
            case [alias]:
                self._filters[self._aliases.index(alias)].add(self._own(text, alias))
            case _ if is_collated:
                raise ExpressionError(
                    f"{text}: a collation does not reach what a join compares; compare texts that "
                    "are equal as they stand, as in lower(…)"
                )
            case _:
                self._predicates.append(made)

    def _both(self, equality: Sides) -> list[Flat]:
        """The sides of an equality.  Raises: ExpressionError, with what is wrong with both."""
        made: list[Flat] = []
        problems: dict[str, None] = {}
        for side in equality:
            try:
                made.append(qualified.flat(side, self._scopes))
            except UnknownError:
                continue
            except ExpressionError as error:
                problems[str(error)] = None
        if problems:
            raise ExpressionError("; and ".join(problems))
        if len(made) < len(equality):
            raise UnknownError
        return made

    def _own(self, text: str, alias: str) -> str:
        return qualified.own(text, alias, self._scopes[alias])

    def _term(self, text: str, made: Flat) -> Term:
        (alias,) = made.aliases
        return Term(self._aliases.index(alias), self._own(text, alias), made)

    def _unite(self, one: Term, other: Term) -> None:
        groups = [self._equal.get(_name(term), {_name(term): term}) for term in (one, other)]
        united = {**groups[0], **groups[1]}
        self._equal.update(dict.fromkeys(united, united))

    def _variables(self) -> list[Variable]:
        """The sets of equal terms, with one term an input."""
        found = []
        groups = {id(group): group for group in self._equal.values()}
        for group in groups.values():
            first: dict[int, Term] = {}
            for _, term in sorted(group.items()):
                kept = first.setdefault(term.input, term)
                if kept is not term:
                    self._add_equal(kept, term)
            found.append(tuple(first.values()))
        return sorted(found, key=lambda variable: [_name(term) for term in variable])

    def _add_equal(self, one: Term, other: Term) -> None:
        made = qualified.equality(one.flat, other.flat)
        if isinstance(self._join, AsOfJoin) and one.input == 0:
            # It says what matches; what does not is still an update of the left.
            self._predicates.append(made)
        else:
            self._filters[one.input].add(f"({one.own} = {other.own})")


def _name(term: Term) -> tuple[int, str]:
    return term.input, term.own


def _refuse_other_kind(equality: Sides, left: Flat, right: Flat) -> None:
    if _kind(left.type) != _kind(right.type):
        raise ExpressionError(
            f"{equality.left} = {equality.right} compares {left.type} with {right.type}, which "
            f"are not equal as data; {_remedy(equality, left.type, right.type)}"
        )
    if not compares_as_data(left.type):
        raise ExpressionError(
            f"{equality.left} = {equality.right} compares {left.type}, whose equal values may "
            "differ as data, as 1 month and 30 days do; compare seconds, as in "
            f"epoch({equality.left}) = epoch({equality.right})"
        )


def _is_collated(side: str) -> bool:
    return "'class': 'COLLATE'" in str(tree_of(side))


def _remedy(equality: Sides, left: str, right: str) -> str:
    """How the two sides of an equality can be made of one kind."""
    sides = {left: equality.left, right: equality.right}
    match sides:
        case {"BLOB": raw, "VARCHAR": _}:
            return f"make text of one side, as in decode({raw})"
        case {"BLOB": raw, "JSON": text}:
            return f"make text of both, as in decode({raw}) = CAST({text} AS VARCHAR)"
        case {"JSON": text, **others}:
            (other,) = others
            return f"cast one side, as in CAST({text} AS {other})"
        case _:
            return f"cast one side, as in CAST({equality.left} AS {right})"


def _kind(type_: str) -> str:
    """Types of one kind are equal as data where they are equal in SQL."""
    exact = (*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT")
    is_exact = type_ in exact or isinstance(type_of(type_), Decimal)
    return "exact number" if is_exact else type_
