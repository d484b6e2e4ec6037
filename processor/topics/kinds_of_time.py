"""The kinds of times that collections have: of the clock, in milliseconds, or offsets.

Offsets are numbers of records (`time: offset`) and positions in a source's log.  Times of both
kinds have no order that means anything, so nothing can be read as of a time of both.
"""

from collections.abc import Mapping

from ikebana.codecs.diff import Times
from ikebana.errors import IkebanaError
from ikebana.processor.base.texts import EPOCH_MS
from ikebana.processor.planning.plan import LOG_CLOCKS, Input, Plan

# A clock says less than this in the first three years after 1970 only.
_OFFSETS = range(1, 10**11)
_HINT = (
    "Read the ones and the others by themselves. Pipelines with the same `time` (ingest or "
    "offset) have times of one kind."
)


class MixedTimesError(IkebanaError):
    """Collections with times of different kinds are to be read together."""


def of_plan(plan: Plan) -> Times | None:
    """The kind of the times of a plan's outputs; None if they come from topics of updates."""
    if not plan.is_dated:
        return "clock" if plan.time == "ingest" else "offset"
    return next(filter(None, map(of_input, plan.inputs)), None)


def of_input(source: Input) -> Times | None:
    """The kind of an input's own times, if the plan determines it."""
    event = source.event_time
    return None if event is None else "offset" if event.clock in LOG_CLOCKS else "clock"


def kind_of(recorded: Times | None, upper: int) -> Times | None:
    """The kind of a collection's times, as recorded, else by its frontier; None if unknown.

    Versions that recorded nothing leave only the frontier's magnitude.

    >>> kind_of("offset", 10**12), kind_of(None, 1_700_000_000_500), kind_of(None, 3)
    ('offset', 'clock', 'offset')
    """
    if recorded is not None:
        return recorded
    return "clock" if upper in EPOCH_MS else "offset" if upper in _OFFSETS else None


def mixed(kinds: Mapping[str, Times | None]) -> str | None:
    """Say why collections cannot be read together, by their names; None if they can.

    >>> mixed({"cities": "clock", "places": "offset", "empty": None})
    'times of offset and of clock cannot be read together: offset of "places", clock of "cities"'
    """
    offsets, clocks = (
        " and ".join(f'"{name}"' for name, kind in kinds.items() if kind == times)
        for times in ("offset", "clock")
    )
    if not offsets or not clocks:
        return None
    return (
        "times of offset and of clock cannot be read together: "
        f"offset of {offsets}, clock of {clocks}"
    )


def refuse_mixed(kinds: Mapping[str, Times | None]) -> None:
    """Refuse to read collections together.  Raises: MixedTimesError."""
    if (words := mixed(kinds)) is not None:
        raise MixedTimesError(words, hint=_HINT)
