"""The flight examples as tests run them, and what their updates say at a time."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from flights import Message
from ikebana.arrangements.update import Update
from ikebana.processor.authoring.pipeline import read
from ikebana.processor.cli import demo
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
Updates = list[Update[Any]]


@cache
def flights_of_2013() -> Any:
    """The flights of the demo, 336,776, which take a second to read."""
    return demo.table("flights")


def two_days() -> Any:
    """The first two days, 1,785 flights."""
    year = flights_of_2013()
    return year[(year.month == 1) & (year.day < 3)]


def plan_of(name: str) -> Plan:
    """The plan of an example."""
    return read(EXAMPLES / f"{name}.yaml", environ={}).plan


class Replay:
    """A history through a plan in batches, each closing what those before it have shown."""

    def __init__(self, plan: Plan, messages: Sequence[Message], size: int) -> None:
        (source,) = plan.inputs
        assert source.event_time is not None
        running = Evaluation(plan)
        self.updates: dict[str, Updates] = {output.name: [] for output in plan.published}
        upper = 0
        for start in range(0, len(messages), size):
            upper = max(upper, running.greatest - source.event_time.lateness_ms)
            records = [(m.key, m.value, 0) for m in messages[start : start + size]]
            self._take(running.advance({source.name: records}, upper))
        self._take(running.advance({}, running.greatest + 1))
        if pending := running.pending():
            self._take(running.advance({}, max(pending) + 1))
        self.late = running.counted["late"]

    def _take(self, found: dict[str, Updates]) -> None:
        for name, updates in found.items():
            self.updates[name] += updates


def in_order(updates: Updates) -> list[tuple[int, str, int]]:
    """Updates in an order that is the same for equal ones.

    Error records lose their place: it is another one in another order, or in other partitions.
    """
    return sorted((u.time, json.dumps(_anywhere(u.data), sort_keys=True), u.diff) for u in updates)


def _anywhere(data: Any) -> Any:
    if not isinstance(data, dict) or "reason" not in data:
        return data
    place = {"topic", "partition", "offset"}
    return {name: part for name, part in data.items() if name not in place}


def at_each(updates: Updates, times: Iterable[int]) -> Iterator[list[Any]]:
    """The data at each of some growing times; all of them are there once."""
    ordered = sorted(updates, key=lambda update: update.time)
    held: Counter[str] = Counter()
    reached = 0
    for time in times:
        while reached < len(ordered) and ordered[reached].time <= time:
            update = ordered[reached]
            held[json.dumps(update.data)] += update.diff
            reached += 1
        held = +held if min(held.values(), default=0) >= 0 else held
        assert set(held.values()) <= {1}, f"at {time}"
        yield [json.loads(data) for data in held]


def counts_at(updates: Updates, times: Sequence[int], keys: Iterable[str]) -> dict[str, list[int]]:
    """What a reduction counts for each key at each of the times; 0 where it shows nothing."""
    found: dict[str, list[int]] = {key: [] for key in keys}
    for data in at_each(updates, times):
        shown = {key: value["flights"] for key, value in data}
        assert len(shown) == len(data), "two results of one key"
        assert shown.keys() <= found.keys()
        for key, counts in found.items():
            counts.append(shown.get(key, 0))
    return found


def refused_at(errors: Updates, time: int) -> dict[str, str]:
    """The keys of the error records at a time, and the events that they refuse."""
    (data,) = at_each(errors, [time])
    return {json.loads(base64.b64decode(e["key"])): _event(e["reason"]) for e in data}


def _event(reason: str) -> str:
    """The event of a reason such as `operator "states": cancel cannot follow landed`."""
    return reason.partition(": ")[2].split()[0]
