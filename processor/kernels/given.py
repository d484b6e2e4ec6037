"""Call a user's function: return its results as canonical JSON, or the reason of its failure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ikebana.codecs import canonical
from ikebana.processor.ground.generations import shown
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


def given(role: str, function: Any, called: Callable[[], Any]) -> list[bytes]:
    """The data that a call of `function` gives, as canonical bytes.

    `role` is what the function is to whoever named it.  Raises: FailureError.
    """
    try:
        result = called()
        # Text and objects can be iterated over as well, but who gives one means it as such.
        several = isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping)
        items = list(result) if several else []
    except Refused as refused:
        # A record is UTF-8, which not every text can be.
        raise FailureError(str(refused).encode(errors="replace").decode()) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- what a user's function raises is data
        raise FailureError(f"{role} {name_of(function)} {raised(error)}") from None
    if not several:
        problem = f"gave a {type(result).__name__} in place of a collection"
        raise FailureError(f"{role} {name_of(function)} {problem}")
    try:
        return list(map(canonical.encode, items))
    except (Exception, SystemExit):  # noqa: BLE001 -- nor do we know what it gives
        problem = "gave data that have no JSON form"
        raise FailureError(f"{role} {name_of(function)} {problem}") from None
