"""Scopes: the columns that steps may name, with their types; and the errors of steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ikebana.processor.ground.spelling import instead
from ikebana.processor.linear.json_text import JSON

# The columns that stand for the whole key and the whole value.
KEY = "key"
VALUE = "value"
# The names of columns that are ours begin like this.
OURS = "__"
# The type of what cannot be told because of a mistake elsewhere.
UNKNOWN = "?"


class ExpressionError(Exception):
    """An expression is refused; the message says why."""


class UnknownError(ExpressionError):
    """An expression reads a column whose type another mistake leaves unknown."""

    def __init__(self) -> None:
        super().__init__("it reads what is not known, because of another problem")


class StepError(Exception):
    """A step is refused; `part` is the key of the faulty part in a pipeline file."""

    def __init__(self, step: int, part: str, problem: str) -> None:
        super().__init__(problem)
        self.step = step
        self.part = part
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may name.

    `types` are SQL types by column.  With `open`, any other name is a field of the
    value, of type JSON; `declare` then says where its type can be declared.  A type that
    cannot be told because of a mistake elsewhere is `UNKNOWN`: nothing is said of what
    reads it; a scope that is `UNKNOWN` to `declare` has such types alone.
    """

    types: Mapping[str, str]
    open: bool = False
    declare: str = ""

    def type_of(self, name: str) -> str:
        """The SQL type of a column.  Raises: ExpressionError."""
        if name in self.types:
            return self.types[name]
        if not self.open:
            # Such as "10": what double quotes have is a name.
            text = "" if name.isidentifier() else f"; a text stands in single quotes: '{name}'"
            raise ExpressionError(f'there is no column "{name}"{instead(name, self.types)}{text}')
        return UNKNOWN if self.declare == UNKNOWN else JSON


def unknown() -> Scope:
    """The scope of a relation of which nothing can be told."""
    return Scope({KEY: UNKNOWN, VALUE: UNKNOWN}, open=True, declare=UNKNOWN)


class FrozenScope(NamedTuple):
    """A scope that can be a key."""

    types: tuple[tuple[str, str], ...]
    open: bool
    declare: str

    def thawed(self) -> Scope:
        """The scope."""
        return Scope(dict(self.types), self.open, self.declare)


def frozen(scope: Scope) -> FrozenScope:
    """The scope as a key."""
    return FrozenScope(tuple(scope.types.items()), scope.open, scope.declare)
