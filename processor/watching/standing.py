"""Describe the records that wait for the frontier, and the inputs that hold it back."""

from ikebana.processor.base.texts import moment
from ikebana.processor.checkpoint.parts import MOST_COUNTED
from ikebana.processor.topics.reach import InputsState


def nowhere() -> None:
    """Return None: no input has times of its own, or their frontiers are not known yet."""


def held_words(standing: InputsState | None, waiting: int) -> str | None:
    """Describe how many records wait for which inputs; None if none waits.

    >>> late = InputsState(40, {"orders": 90, "customers": 40}, [], ["customers"], ahead=True)
    >>> held_words(late, 22)
    '22 records wait for customers to come past 40'
    """
    if not waiting:
        return None
    count = f"{'at least ' if waiting >= MOST_COUNTED else ''}{waiting:,} records"
    verb = "wait" if waiting > 1 else "waits"
    count = count if waiting > 1 else "1 record"
    if standing is None:
        return f"{count} {verb} for the frontier to pass their times"
    if not standing.held_by:
        return f"{count} {verb} for a record of a later time than all that were seen"
    names = " and ".join(standing.held_by)
    return f"{count} {verb} for {names} to come past {moment(standing.upper)}"


def stands_words(standing: InputsState) -> str:
    """Describe the frontier of each input.

    >>> state = InputsState(40, {"orders": 90, "names": 40}, ["names"], ["orders"], ahead=True)
    >>> stands_words(state)
    'names is silent after 39, orders is at 90'
    """
    words = [
        f"{name} is silent after {moment(at - 1)}"
        if name in standing.silent
        else f"{name} is at {moment(at)}"
        for name, at in standing.frontiers.items()
    ]
    words += [f"{name} is silent" for name in standing.silent if name not in standing.frontiers]
    return ", ".join(sorted(words))
