"""Scopes: the columns that steps may name, with their types; and the errors of steps."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ikebana.processor.base.texts import suggestion
from ikebana.processor.linear.json_text import JSON, field_of

# The names of internal columns begin like this, in any case.
OURS = "ikebana_"
# The columns with the whole key and the whole value.
KEY, VALUE = f"{OURS}key", f"{OURS}value"
# Their short names, if no column has that name.
SHORT = {"key": KEY, "value": VALUE}
# The type of a column that a mistake elsewhere leaves unknown.
UNKNOWN = "?"


class ExpressionError(Exception):
    """An expression is refused; the message says why."""


class UnknownError(ExpressionError):
    """An expression reads a column that has an unknown type because of another mistake."""

    def __init__(self) -> None:
        super().__init__("it reads what is not known, because of another problem")


class Hidden(NamedTuple):
    """Fields that values have only if they are declared, by the prefix of their names."""

    prefix: str
    declared: tuple[str, ...]
    declare: str

    def require(self, name: str) -> None:
        """Refuse a field that no value has.  Raises: ExpressionError."""
        if name.startswith(self.prefix) and name not in self.declared:
            raise ExpressionError(
                f'no row has the field "{name}", which begins with the prefix {self.prefix}, '
                f"unless it is declared: declare it under {self.declare}.{name}"
            )


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

    `types` has SQL types by column.  With `open`, any other name is a field of the
    value, of type JSON; `declare` then says where its type can be declared.  A type that
    a mistake elsewhere leaves unknown is `UNKNOWN`: expressions that read it have no further
    problems; if `declare` is `UNKNOWN`, all columns are unknown.  `hidden` has, for
    columns with whole values, the fields that these lack.
    """

    types: Mapping[str, str]
    open: bool = False
    declare: str = ""
    hidden: Mapping[str, Hidden] = field(default_factory=dict)

    def column(self, name: str) -> str:
        """The column that a name means: a column of that name before the whole key or value.

        Raises: ExpressionError, if neither is certain.
        """
        whole = SHORT.get(name)
        if whole is None or name in self.types:
            return name
        for other in self.types:
            if other.lower() == name:
                raise ExpressionError(
                    f'there is no column "{name}", but "{other}"; the whole {name} is "{whole}"'
                )
        return whole

    def alike(self, name: str, other: str, of: str = "") -> str:
        """The problem of two columns that are one to SQL; `of` is written before columns."""
        way = field_of(f"{of}{self.called(VALUE)}", name)
        return (
            f'"{of}{name}" and "{of}{other}" differ in case alone, which SQL does not see; one of '
            f"them is {way}, as text"
        )

    def called(self, name: str) -> str:
        """The name of a column for people: the whole key is `key`, if no column has that name."""
        of, dot, last = name.rpartition(".")
        short = f"{of}{dot}{last.removeprefix(OURS)}"
        return short if last in (KEY, VALUE) and short not in self.types else name

    def type_of(self, name: str) -> str:
        """The SQL type of a column.  Raises: ExpressionError."""
        name = self.column(name)
        if name in self.types:
            return self.types[name]
        if VALUE in self.hidden:
            self.hidden[VALUE].require(name)
        if not self.open:
            # Such as "10": double quotes enclose a name.
            text = "" if name.isidentifier() else f"; a text stands in single quotes: '{name}'"
            meant = suggestion(name, [*map(self.called, self.types)])
            raise ExpressionError(f'there is no column "{name}"{meant}{text}')
        return UNKNOWN if self.declare == UNKNOWN else JSON


def plain(sql: str) -> str:
    """SQL for people, with the short names of the whole key and the whole value.

    >>> plain("ikebana_key::VARCHAR")
    'key::VARCHAR'
    """
    return _WHOLE.sub(r"\1", sql)


_WHOLE = re.compile(rf"\b{OURS}(key|value)\b")


def is_ours(name: str) -> bool:
    """Whether a name is reserved for internal columns."""
    return name.lower().startswith(OURS)


def unknown() -> Scope:
    """The scope of an unknown relation."""
    return Scope({KEY: UNKNOWN, VALUE: UNKNOWN}, open=True, declare=UNKNOWN)


class FrozenScope(NamedTuple):
    """A scope that can be hashed."""

    types: tuple[tuple[str, str], ...]
    open: bool
    declare: str
    hidden: tuple[tuple[str, Hidden], ...] = ()

    def thawed(self) -> Scope:
        """The scope."""
        return Scope(dict(self.types), self.open, self.declare, dict(self.hidden))


def frozen(scope: Scope) -> FrozenScope:
    """The scope in a form that can be hashed."""
    types, hidden = tuple(scope.types.items()), tuple(scope.hidden.items())
    return FrozenScope(types, scope.open, scope.declare, hidden)
