"""The states of a flight, and what its events make of them."""

from typing import Any

from ikebana import TOMBSTONE, Refused

FOLLOWING = {
    None: {"schedule": "scheduled"},
    "scheduled": {"depart": "departed", "cancel": "cancelled"},
    "departed": {"arrive": "arrived"},
}


def next_state(states: list[str], event: Any, time: int) -> list[str]:
    """The state after an event; a tombstone forgets the flight."""
    if event is TOMBSTONE:
        return []
    state = states[0] if states else None
    following = FOLLOWING.get(state, {}).get(event["event"])
    if following is None:
        raise Refused(f"{event['event']} cannot follow {state}")
    return [following]
