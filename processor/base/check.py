"""A check before a start, with its result and a remedy."""

from collections.abc import Callable
from typing import Literal

import msgspec

from ikebana.errors import IkebanaError

Status = Literal["ok", "failed", "unknown", "warning"]
"""After a warning a start goes on, although there is probably a mistake."""


class Check(msgspec.Struct, frozen=True):
    """The subject of a check, its status, the fact behind that, and a remedy."""

    check: str
    status: Status
    fact: str = msgspec.field(name="told")
    remedy: str = ""


def checked(what: str, look: Callable[[], str]) -> Check:
    """Run a check: ok with the text that `look` returns, failed if it raises an error."""
    try:
        return Check(what, "ok", look())
    except IkebanaError as error:
        return refused(what, error)


def refused(what: str, error: IkebanaError) -> Check:
    """Make a failed check from an error."""
    return Check(what, "failed", error.message, error.hint or "")
