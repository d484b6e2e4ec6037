"""Machines as users write them, importable by name: each is a few lines of Python."""

from collections.abc import Iterable
from typing import Any

from ikebana.processor.kernels.state_machine import TOMBSTONE, Machine
from ikebana.processor.kernels.user_calls import Refused

States = list[Any]


def latest(states: States, event: Any, time: int) -> States:
    """The event itself, whatever was before."""
    return [] if event is TOMBSTONE else [event]


UPSERT = Machine(latest)


def one_more(states: States, event: Any, time: int) -> States:
    """How many events there have been since the last tombstone."""
    return [] if event is TOMBSTONE else [sum(states) + 1]


COUNTER = Machine(one_more)


def strict(states: States, event: Any, time: int) -> States:
    """The event itself, unless it is bad."""
    if event == "bad":
        raise Refused("it is bad")
    return [] if event is TOMBSTONE else [event]


def one_or_two(states: States, event: Any, time: int) -> States:
    """The event, and of odd ones the next one, too."""
    return [] if event is TOMBSTONE else [event, event + 1][: 1 + event % 2]


def two(states: States, event: Any, time: int) -> States:
    """The event, and of the event "two" two states at once."""
    return [] if event is TOMBSTONE else ["one", "two"] if event == "two" else [event]


def ten_more(states: States, event: Any, time: int) -> States:
    """Ten for each event since the last tombstone."""
    return [] if event is TOMBSTONE else [sum(states) + 10]


def ten_times(state: Any, version: int) -> Any:
    """What `ten_more` has where `one_more` has counted."""
    return 10 * state


# From each state, by each event, the next one.
LIFE_CYCLE = {
    None: {"place": "placed"},
    "placed": {"pay": "paid", "cancel": "cancelled"},
    "paid": {"ship": "shipped", "refund": "cancelled"},
    "shipped": {"deliver": "delivered"},
}


def next_status(states: States, event: Any, time: int) -> States:
    """An order's status; what the life cycle does not have is refused."""
    if event is TOMBSTONE:
        return []
    (status,) = states or [None]
    following = LIFE_CYCLE.get(status, {})
    if event not in following:
        raise Refused("illegal transition")
    return [following[event]]


ORDER = Machine(next_status)

GAP = 30


def extended(states: States, event: Any, time: int) -> States:
    """Sessions, of which the last goes on unless more than a gap has passed."""
    if event is TOMBSTONE:
        return []
    last = max(states, key=lambda session: session["until"], default=None)
    if last is None or time - last["until"] > GAP:
        return [*states, {"since": time, "until": time, "events": 1}]
    grown = last | {"until": time, "events": last["events"] + 1}
    return [grown if session == last else session for session in states]


def all_but_the_last(states: States) -> States:
    """The sessions that cannot go on."""
    return sorted(states, key=lambda session: session["until"])[:-1]


SESSIONS = Machine(extended)
CLOSED_SESSIONS = Machine(extended, view=all_but_the_last)

WINDOW = 10 * 60 * 1000
SMALL, LARGE = 10, 1000


def suspected(states: States, event: Any, time: int) -> Iterable[Any]:
    """Three small payments and then a large one, within ten minutes, others in between.

    A small payment may be one of the three or not: a pattern that has begun goes both ways.
    """
    if event is TOMBSTONE:
        return
    for state in states:
        if "alarm" in state:
            yield state
            continue
        if time - state["since"] > WINDOW:
            continue
        yield state
        if event <= SMALL and state["small"] < 3:
            yield {"since": state["since"], "small": state["small"] + 1}
        if event >= LARGE and state["small"] == 3:
            yield {"alarm": time}
    if event <= SMALL:
        yield {"since": time, "small": 1}


def alarms(states: States) -> States:
    """The times of the large payments."""
    return [state["alarm"] for state in states if "alarm" in state]


FRAUD = Machine(suspected, view=alarms)

QUIET = 5


def settled(states: States, event: Any, time: int) -> States:
    """A new value counts when it comes again after a time in which no other has come."""
    if event is TOMBSTONE:
        return []
    (state,) = states or [{"counts": [], "next": event, "since": time}]
    if event != state["next"]:
        return [state | {"next": event, "since": time}]
    if time - state["since"] >= QUIET:
        return [state | {"counts": [event]}]
    return [state]


def what_counts(states: States) -> States:
    """The value that counts, if there is one yet."""
    return [value for state in states for value in state["counts"]]


DEBOUNCE = Machine(settled, view=what_counts)


def is_large(row: tuple[Any, Any]) -> bool:
    """Whether the quantity of an order is more than 3."""
    _, value = row
    return bool(value["quantity"] > 3)
