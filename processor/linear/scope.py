"""What steps may name, and what is said of a step that cannot be.  DuckDB is not needed here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ikebana.processor.linear.json_text import JSON

# The columns that stand for the whole key and the whole value.
KEY = "key"
VALUE = "value"
# The names of columns that are ours begin like this.
OURS = "__"


class ExpressionError(Exception):
    """An expression that cannot stand where it does; the message says why."""


class StepError(Exception):
    """A step that cannot be; `part` is the part of it that is at fault, as in the file."""

    def __init__(self, step: int, part: str, problem: str) -> None:
        super().__init__(problem)
        self.step = step
        self.part = part
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may name.

    `types` are SQL types by column.  With `open`, any other name is a field of the
    value, of type JSON; `declare` then says where its type can be declared.
    """

    types: Mapping[str, str]
    open: bool = False
    declare: str = ""

    def type_of(self, name: str) -> str:
        """The SQL type of a column.  Raises: ExpressionError."""
        if name in self.types:
            return self.types[name]
        if not self.open:
            raise ExpressionError(
                f'there is no column "{name}"; there are {", ".join(sorted(self.types))}'
            )
        return JSON


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
