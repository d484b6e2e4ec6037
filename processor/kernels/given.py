"""A call of a user's function: its results as canonical JSON, or the reason of its failure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ikebana.codecs import canonical
from ikebana.processor.base import calls
from ikebana.processor.base.sharding import shown
from ikebana.processor.linear.functions import name_of, raised


class Refused(Exception):
    """Raise this in a function to refuse its arguments, with the reason.

    The reason becomes an error record; it should not hold the payload.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class FailureError(Exception):
    """A function failed, or returned data without a JSON form; the message says why."""

    def reason(self, operator: str) -> str:
        """The reason of the error record of an operator."""
        return f"operator {shown(operator)}: {self}" if operator else str(self)


def canonical_results(
    role: str, function: Any, called: Callable[[], Any], operator: str = ""
) -> list[bytes]:
    """Call a user's function; return each datum of its result as canonical bytes.

    `role` says in error messages what the function is for, such as "step".  Raises: FailureError.
    """

    def name() -> str:
        return f"{role} {name_of(function)}"

    calls.begin((operator, name, None))
    try:
        return _results(name, called)
    except calls.CallStopped:
        raise calls.stuck() from None
    finally:
        calls.end()


def _results(name: Callable[[], str], called: Callable[[], Any]) -> list[bytes]:
    try:
        result = called()
        # Text and objects are iterable too, but a function that returns one means a single datum.
        several = isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping)
        items = list(result) if several else []
    except Refused as refused:
        # An error record is UTF-8, and a text may have surrogates, which UTF-8 cannot encode.
        raise FailureError(str(refused).encode(errors="replace").decode()) from None
    except BaseException as error:
        # Whatever a user's function raises becomes an error record.
        if not calls.is_own_doing(error):
            raise
        raise FailureError(f"{name()} {raised(error)}") from None
    if not several:
        problem = f"gave a {type(result).__name__} in place of a collection"
        raise FailureError(f"{name()} {problem}")
    try:
        return list(map(canonical.encode, items))
    except BaseException as error:
        # Encoding may call methods of the user's objects, which may raise anything.
        if not calls.is_own_doing(error):
            raise
        problem = "gave data that have no JSON form"
        raise FailureError(f"{name()} {problem}") from None
