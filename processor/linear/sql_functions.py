"""Python functions in SQL: their long names, and the functions that DuckDB calls.

A pipeline declares a function under a short name.  The expressions of its plan have a long name,
with the function's module, its types, and whether it is called with null.  So an expression
means the same in every process, whatever else is declared there, and an edit sees that a name
now means another function.  DuckDB ignores the case of function names, so capitals are escaped.

The function is called for one row at a time.  If it raises, or returns a result of another than
the declared type, the expression fails for the row, as with any other error of SQL.
"""

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from ikebana.codecs import sql_type
from ikebana.codecs.sql_type import TypeTextError, parsed
from ikebana.processor.base import calls
from ikebana.processor.linear.functions import (
    FunctionError,
    exception_line,
    function_named,
    name_of,
)


class SqlFunction(NamedTuple):
    """A Python function as SQL knows it."""

    name: str
    """The short name."""
    function: str
    """As `module:function`."""
    parameters: tuple[str, ...]
    """Their types, in full."""
    returns: str
    takes_null: bool = False
    """Whether it is called with null; else its result is null if an argument is."""
    is_aggregate: bool = False
    """Whether it is a class with instances that aggregate many rows."""

    @property
    def long_name(self) -> str:
        """The name with all of its properties.

        >>> SqlFunction("Risk", "shop:risk", ("BIGINT",), "DOUBLE").long_name
        'risk python:shop:risk(bigint)->double'
        """
        listed = ", ".join(map(_lower, self.parameters))
        whole = f"{self.name.lower()} {_MARK}{self.function}({listed})->{_lower(self.returns)}"
        whole += _NULL * self.takes_null + _AGGREGATE * self.is_aggregate
        return re.sub(r"[A-Z^]", lambda capital: f"^{capital[0].lower()}", whole)


_MARK = "python:"
_NULL = " on null"
_AGGREGATE = " aggregate"
_LONG = re.compile(
    r"(\w+) python:([\w.]+:[\w.]+)\((.*)\)->(.*?)( on null)?( aggregate)?", re.DOTALL
)
_QUOTED = re.compile(r'"(\w+) python:(?:[^"]|"")*"')


def _lower(kind: str) -> str:
    """A type in small letters, if that is the same type."""
    lower = kind.lower()
    try:
        return lower if str(parsed(lower)) == kind else kind
    except TypeTextError:
        return kind


def function_of(long_name: str) -> SqlFunction | None:
    """The function of a long name; None if it is no long name.

    >>> function_of("risk python:shop:risk(bigint)->double").parameters
    ('BIGINT',)
    """
    whole = re.sub(r"\^(.)", lambda capital: capital[1].upper(), long_name)
    parts = _LONG.fullmatch(whole)
    if parts is None:
        return None
    name, function, listed, returns, null, aggregate = parts.groups()
    try:
        kinds = sql_type.parts(parsed(f"TUPLE({listed})")) if listed else ()
        result = str(parsed(returns))
    except TypeTextError:
        return None
    of = tuple(map(str, kinds))
    return SqlFunction(name, function, of, result, null is not None, aggregate is not None)


def as_written(text: str) -> str:
    """The text with short names, as the pipeline has it."""
    return _QUOTED.sub(r"\1", text) if _MARK in text else text


def place_as_written(text: str, at: int) -> int:
    """The position in the text with short names of a position in a text."""
    before = 0
    for name in _QUOTED.finditer(text):
        if name.start() >= at:
            break
        before += min(name.end(), at) - name.start() - min(len(name[1]), at - name.start())
    return at - before


def short_name(long_name: str) -> str:
    """The name that the pipeline has for a function."""
    return long_name.partition(" ")[0]


def is_long_name(name: str) -> bool:
    """Whether a function of DuckDB is one of these."""
    return name in DECLARED


def user_aggregate(name: str) -> SqlFunction | None:
    """The aggregate of a long name; None if it is no aggregate."""
    declared = DECLARED.get(name)
    return declared.of if declared is not None and declared.of.is_aggregate else None


def has_user_aggregate(text: str) -> bool:
    """Whether SQL may have a user-defined aggregate."""
    return _MARK in text and _AGGREGATE in text


def with_short_names(problem: str) -> str:
    """A message of DuckDB, with the short names of functions."""
    if _MARK in problem:
        for name in DECLARED:
            problem = problem.replace(name, short_name(name))
    return problem


class DeclaredFunction(NamedTuple):
    """A declared function, and the wrapper that DuckDB calls."""

    of: SqlFunction
    call: Callable[..., Any]


DECLARED: dict[str, DeclaredFunction] = {}
"""All functions that expressions of this process have named, by their long names."""


def declare(text: str) -> None:
    """Import the functions that an expression names.  Raises: FunctionError."""
    if _MARK not in text:
        return
    for quoted in _QUOTED.finditer(text):
        long_name = quoted[0][1:-1].replace('""', '"')
        if long_name not in DECLARED and (of := function_of(long_name)) is not None:
            DECLARED[long_name] = DeclaredFunction(of, _guarded(of, function_named(of.function)))


class CallError(Exception):
    """A function failed; the message says why, without payload except in what it raised."""


MARK_OF_ERROR = f"{CallError.__name__}: "


class _Ended(threading.local):
    """The exception that interrupted a call; DuckDB takes it for an error of data."""

    by: BaseException | None = None


_ended = _Ended()


def ended() -> BaseException | None:
    """Return and clear the exception that interrupted a call of this thread."""
    by, _ended.by = _ended.by, None
    return by


def _guarded(of: SqlFunction, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as DuckDB calls it."""
    name = name_of(of.function)

    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except BaseException as error:
            if not calls.is_own_doing(error):
                _ended.by = error
                raise
            raise CallError(f"{name} {exception_line(error)}") from None
        if result is not None and not fits(result, of.returns):
            raise CallError(f"{name} gave a {type(result).__name__} in place of {of.returns}")
        return result

    names = [f"p{at}" for at in range(len(of.parameters))]
    kind = inspect.Parameter.POSITIONAL_ONLY
    # DuckDB counts the parameters.
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, kind) for each in names]
    )
    return call


def fits(value: Any, kind: str) -> bool:
    """Whether a Python value fits a SQL type, as far as it can be checked before DuckDB."""
    test = _FITS.get(_kind(kind))
    return test is None or test(value)


def _kind(name: str) -> str:
    kind = sql_type.type_of(name)
    if isinstance(kind, sql_type.Decimal):
        return "DECIMAL"
    return type(kind).__name__ if not isinstance(kind, sql_type.Scalar) else name


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def _ranges() -> Iterator[tuple[str, Callable[[Any], bool]]]:
    for name, bits in (
        ("TINYINT", 8),
        ("SMALLINT", 16),
        ("INTEGER", 32),
        ("BIGINT", 64),
        ("HUGEINT", 128),
    ):
        yield name, _whole(-(1 << bits - 1), (1 << bits - 1) - 1)
        yield f"U{name}", _whole(0, (1 << bits) - 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Checks of results by type; DuckDB checks other types.
_FITS: Mapping[str, Callable[[Any], bool]] = {
    **dict(_ranges()),
    "BOOLEAN": lambda value: isinstance(value, bool),
    "DOUBLE": _is_number,
    "FLOAT": _is_number,
    "DECIMAL": lambda value: isinstance(value, int | Decimal) and not isinstance(value, bool),
    "VARCHAR": lambda value: isinstance(value, str),
    "BLOB": lambda value: isinstance(value, bytes),
    "DATE": lambda value: isinstance(value, date) and not isinstance(value, datetime),
    "TIMESTAMP": lambda value: isinstance(value, datetime),
    "List": lambda value: isinstance(value, list | tuple),
    "Struct": lambda value: isinstance(value, dict),
}


def problem_of_name(name: str) -> str:
    """Why a function cannot have a name; empty if it can."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return "a function's name has letters, digits and _, and begins with a letter"
    return ""


def problem_of_type(kind: str) -> str:
    """Why a parameter or a result cannot have a type; empty if it can."""
    try:
        parsed(kind)
    except TypeTextError as error:
        return str(error)
    return ""


def problem_of_aggregate(of: SqlFunction) -> str:
    """Why a class is no aggregate, or has types that are not allowed; empty if it is fine."""
    try:
        class_ = function_named(of.function)
    except FunctionError as error:
        return str(error)
    if not isinstance(class_, type) or not getattr(class_, "__dictoffset__", 0):
        return f"{of.function} is no class whose instances have attributes"
    lacking = [name for name in ("accumulate", "result") if not hasattr(class_, name)]
    if lacking:
        return f"{of.function} has no method {lacking[0]}()"
    if not of.parameters or of.takes_null:
        return "an aggregate has parameters, and takes rows in which none of them is null"
    if _kind(of.returns) not in _OF_JSON:
        return f"an aggregate gives JSON data, not {of.returns}: give a VARCHAR, and cast it"
    return ""


# Types with the same form of values in Python and in JSON.
_OF_JSON = {*(name for name, _ in _ranges()), "BOOLEAN", "DOUBLE", "FLOAT", "DECIMAL"}
_OF_JSON |= {"VARCHAR", "JSON", "List", "Struct"}


def problem_of_function(function: str) -> str:
    """Why a function does not exist; empty if it does."""
    try:
        function_named(function)
    except FunctionError as error:
        return str(error)
    return ""
