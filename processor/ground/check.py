"""A check before a start: what was looked at, how it is, and what to do about it."""

from collections.abc import Callable
from typing import Literal

import msgspec

from ikebana.errors import IkebanaError

Status = Literal["ok", "failed", "unknown"]


class Check(msgspec.Struct, frozen=True):
    """What was looked at, how it is, and what to do about it."""

    check: str
    status: Status
    told: str
    remedy: str = ""


def checked(what: str, look: Callable[[], str]) -> Check:
    """A check that is ok if `look` returns what it saw, and failed if it raises."""
    try:
        return Check(what, "ok", look())
    except IkebanaError as error:
        return refused(what, error)


def refused(what: str, error: IkebanaError) -> Check:
    """The check that has failed with this error."""
    return Check(what, "failed", error.message, error.hint or "")
