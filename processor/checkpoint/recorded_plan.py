"""The plan that the metadata of a checkpoint have recorded, and the plan before its last edit."""

import functools
from typing import Any

import msgspec

from ikebana.errors import CheckpointError, PlanError
from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.edits_resolved import as_written
from ikebana.processor.planning.plan import Plan


class UnreadableError(CheckpointError):
    """The recorded plan has parts that this version does not know."""


def recorded(birth: Birth) -> Plan:
    """The plan that a checkpoint is of.

    Of `errors.policy` it knows only whether errors are dropped: else they are recorded.

    Raises: CheckpointError, if it cannot be made any more.
    """
    try:
        return planned(birth.plan)
    except msgspec.ValidationError as error:
        raise UnreadableError(
            f"the plan that the checkpoint has run cannot be read by this version: {error}",
            hint="Go on with the version of ikebana that has run it.",
        ) from None
    except PlanError as error:
        listed = "; ".join(f"{path}: {problem}" for path, problem in error.problems)
        raise CheckpointError(
            f"the plan that the checkpoint has run cannot be made any more: {listed}",
            hint="An edit takes back what that plan has made, and so needs all that it names. Put "
            "back what is gone, run the old pipeline file with --once first, and then the new "
            "one; what only the old one names may go when `ikebana plan` says that nothing "
            "changes.",
        ) from None


def recorded_if_known(birth: Birth) -> Plan | None:
    """The plan that a checkpoint is of; None if this version cannot read it."""
    try:
        return planned(birth.plan)
    except (msgspec.ValidationError, PlanError):
        return None


def planned(plain: dict[str, Any]) -> Plan:
    """Read a plan that was recorded.

    Raises: msgspec.ValidationError or PlanError, if this version cannot.
    """
    return _planned(msgspec.json.encode(plain))


@functools.lru_cache(maxsize=4)
def _planned(known: bytes) -> Plan:
    # Cached, because a start asks several times, and checking a plan checks all its SQL.  An
    # error is not cached: a module of functions may be there the next time.
    plan = msgspec.json.decode(known, type=Plan)
    checked(as_written(plan))
    return plan
