"""Sections that become operators only when the types of the collections they read are known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ikebana.processor.base import log_lines
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import ALL_READ, Input, Operator, Unread
from ikebana.processor.relational.known import KnownRelations, MakingError, UnmadeError
from ikebana.processor.relational.sql import sql_operators, tables_of
from ikebana.processor.relational.sql_shape import notes

Problem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Derived:
    """A section that is translated into operators.

    `kind` is the section's key in the file, such as `sql`; `make` translates it.
    """

    name: str
    kind: str
    make: Callable[[KnownRelations], tuple[Operator, ...]]
    reads: Callable[[], Iterable[str]]
    """The names of the collections that it reads."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The operators of all sections, in file order; problems; and sections that have none."""

    operators: tuple[Operator, ...]
    problems: tuple[Problem, ...]
    lost: frozenset[str]


def from_sql(name: str, text: str, key: str | None) -> Derived:
    """A view in SQL."""

    def make(pipeline: KnownRelations) -> tuple[Operator, ...]:
        try:
            operators = sql_operators(name, text, pipeline, key)
        except SqlQueryError as error:
            raise MakingError(error.with_place(text), "sql") from None
        for note in notes(text):
            log_lines.warning(f"operators.{name}.sql: {note}")
        return operators

    return Derived(name, "sql", make, lambda: tables_of(text))


def resolved(
    inputs: Iterable[Input], parts: Sequence[Operator | Derived], unread: Unread = ALL_READ
) -> Resolved:
    """Translate all derived sections, each after the collections that it reads.

    `unread` lists parts of the file that could not be parsed.
    """
    waiting = {part.name: part for part in parts if isinstance(part, Derived)}
    plain = [part for part in parts if not isinstance(part, Derived)]
    pipeline = KnownRelations(inputs, plain, waiting, unread)
    derived: dict[str, tuple[Operator, ...]] = {}
    problems: list[Problem] = []
    lost: set[str] = set()
    stuck = False
    while waiting and not stuck:
        stuck = True
        for name, part in list(waiting.items()):
            try:
                derived[name] = part.make(pipeline)
            except UnmadeError:
                continue
            except (MakingError, ExpressionError) as error:
                place = getattr(error, "part", "") or part.kind
                problems.append((f"operators.{name}.{place}", str(error)))
                lost.add(name)
            else:
                pipeline.catalog.add(derived[name])
            stuck = False
            del waiting[name]
            if name in derived:
                pipeline.pending.discard(name)
    problems += _circles(waiting, plain)
    lost |= waiting.keys()
    in_order = [
        derived.get(part.name, ()) if isinstance(part, Derived) else (part,) for part in parts
    ]
    operators = tuple(operator for each in in_order for operator in each)
    return Resolved(operators, tuple(problems), frozenset(lost))


def _circles(waiting: dict[str, Derived], plain: Iterable[Operator]) -> Iterator[Problem]:
    """A problem for each section that reads itself, directly or through others."""
    reads = {each.name: set(kind_of(each).sources(each)) for each in plain}
    reads |= {name: set(part.reads()) for name, part in waiting.items()}
    for name, part in waiting.items():
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            for source in reads.get(ahead.pop(), ()):
                if source not in seen:
                    seen.add(source)
                    ahead.append(source)
        if name in seen:
            yield f"operators.{name}.{part.kind}", "it reads itself, through what it reads"
