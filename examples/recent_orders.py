"""How many orders are in each state, of those whose state changed in the last hour."""

from datetime import timedelta
from typing import TypedDict

import ikebana as ik


class State(TypedDict):
    status: str
    since: int


FOLLOWING = {None: {"place": "placed"}, "placed": {"pay": "paid"}, "paid": {"ship": "shipped"}}


def next_state(states: list[State], event: str, time: int) -> list[State]:
    status = states[0]["status"] if states else None
    return [{"status": FOLLOWING[status][event], "since": time}]


shop = ik.Pipeline("recent-orders")
when = ik.event_time(clock="kafka", lateness=timedelta(seconds=5))
states = shop.topic("order-events", event_time=when).machine(next_state)
recent = states.during(None, "since::BIGINT + 3600000").named("recent")
recent.reduce(by="status", name="by_status", orders="count(*)").to("recent")

if __name__ == "__main__":
    shop.run("localhost:9092", checkpoint="./recent-orders")
