"""Python functions as steps: how they are named, found, called, and what they may give."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ikebana.codecs import canonical
from ikebana.processor.linear import logic
from ikebana.processor.linear.logic import Logic, Triple
from ikebana.processor.linear.steps import Call


class LogicError(Exception):
    """A user's function failed on a datum; the reason has no payload."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(reason)
        self.operator = operator
        self.reason = reason


class FunctionError(Exception):
    """There is no such function; the message says why."""


def name_of(function: Any) -> str:
    """A function as "module:function"; also one that cannot be found by that name."""
    if isinstance(function, str):
        return function
    module = getattr(function, "__module__", "?")
    return f"{module}:{getattr(function, '__qualname__', repr(type(function)))}"


def found(function: Any) -> Any:
    """The function itself.  Raises: FunctionError."""
    if not isinstance(function, str):
        return function
    module, colon, name = function.partition(":")
    if not colon or not module or not name:
        raise FunctionError(f'"{function}" is not of the form module:function')
    try:
        here: Any = importlib.import_module(module)
    except ImportError as error:
        raise FunctionError(f'module "{module}" cannot be imported: {error}') from None
    for part in name.split("."):
        if not hasattr(here, part):
            raise FunctionError(f'module "{module}" has no "{name}"')
        here = getattr(here, part)
    if not callable(here):
        raise FunctionError(f'"{function}" is not callable')
    return here


def portable(function: Any) -> bool:
    """Whether another process finds the function by its name."""
    try:
        return isinstance(function, str) or found(name_of(function)) is function
    except FunctionError:
        return False


_LOGICS: dict[str, Callable[[Any], Logic]] = {
    "map": logic.mapping,
    "filter": logic.filtering,
    "flat_map": logic.flat_mapping,
    "explode": logic.exploding,
    "join_function": lambda function: function,
}


def guarded(operator: str, step: Call) -> Logic:
    """The logic of a step, whose failures are LogicErrors of the operator."""
    function = found(step.function)
    made = _LOGICS[step.kind](function)
    name = f"{step.kind} {name_of(step.function)}"

    def checked(data: Any) -> Iterator[Triple]:
        try:
            for result in made(data):
                yield _triple(result)
        except LogicError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever a user's function raises is data
            raise LogicError(operator, f"{name} raised {type(error).__name__}") from None

    def results(data: Any) -> Iterator[Triple]:
        for new, later, diff in checked(data):
            if not isinstance(new, tuple) or len(new) != 2:
                raise LogicError(operator, f"{name} gave data that is not a pair (key, value)")
            for number in (diff, 0 if later is None else later):
                if not isinstance(number, int):
                    kind = type(number).__name__
                    raise LogicError(operator, f"{name} gave a {kind} as time or diff")
            if later is not None and not step.moves_time:
                raise LogicError(operator, f"{name} gave a time, but says that it moves none")
            yield new, later, diff

    return results


def as_bytes(data: Any, *, raw: bool) -> bytes:
    """Data as bytes.  Raises: TypeError, ValueError and kin for what has no such form."""
    if not raw:
        return canonical.encode(data)
    if not isinstance(data, bytes):
        raise TypeError
    return data


def _triple(result: Any) -> Triple:
    data, time, diff = result
    return data, time, diff
