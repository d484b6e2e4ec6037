"""Upserts that say when they are, through a plan in shards, and what is shown at a time."""

from collections import Counter
from typing import Any

from ikebana import Column, EventTime, Input, Plan
from ikebana.codecs import canonical
from ikebana.processor.checkpoint import parts
from ikebana.testing import Run, Topics
from support.sums import summed

Row = tuple[Any, ...]


def dated(name: str, *columns: str, **more: Any) -> Input:
    """A topic of that name whose records say when they are; columns are "name TYPE"."""
    typed = tuple(Column(*column.split()) for column in columns)
    return Input(
        name,
        (name,),
        columns=typed,
        event_time=EventTime(clock="kafka", ahead_ms=None),
        **more,
    )


class Play:
    """A plan over such topics; what exchanges is read `most` messages at a time."""

    def __init__(self, plan: Plan, shards: int = 3, most: int = 1) -> None:
        self.topics = Topics()
        self.run = Run(plan, self.topics, shards, most)

    def say(self, topic: str, key: Any, value: Any, time: int) -> None:
        """Append a record; bytes are as they are, None for a value is a tombstone."""
        self.topics.send(topic, key, value, timestamp=time)

    def change(self, topic: str, key: Any, value: Any, time: int, diff: int) -> None:
        """Append an update of an input of updates, whose times are closed by `reach`."""
        self.topics.update(topic, key, value, time, diff)

    def reach(self, time: int) -> None:
        """Let all topics be at a time, without reading any."""
        for source in self.run.plan.inputs:
            for topic in source.topics:
                if source.value_format == "diff":
                    self.topics.close(topic, time)
                else:
                    self.say(topic, b'"nobody"', None, time)

    def close(self, time: int) -> None:
        """Close all times before this one, and read until there is nothing to do."""
        self.reach(time)
        self.run.read()

    def shown(self, output: str, time: int) -> dict[Row, int]:
        """The rows of an output at a time, each as often as it is there."""
        updates = self.updates(output)
        return summed((tuple(row), change) for *row, at, change in updates if at <= time)

    def updates(self, output: str) -> list[Row]:
        """The consolidated (key, values in order of their names, time, diff), in order of time."""
        updates = self.run.written.updates[output]
        sums = summed(((u.key, u.value, u.time), u.diff) for u in updates)
        found = [(*row(key, value), at, change) for (key, value, at), change in sums.items()]
        return sorted(found, key=lambda update: (update[-2], repr(update)))

    def errors(self) -> list[Row]:
        """What failed: (reason, time, diff)."""
        return [(of[4], *of[-2:]) for of in self.updates("errors")]

    def kept(self) -> Counter[str]:
        """How many entries of keys each operator has in the state of all shards."""
        return Counter(
            parts.operator_of(place)
            for store in self.run.stores
            for _, (place, _) in parts.to_new_shards(store.scan(b""), lambda _: 0)
        )


def row(key: bytes | None, value: bytes) -> Row:
    """A key and a value, the fields of an object in order of their names."""
    data = canonical.decode(value)
    fields = data.values() if isinstance(data, dict) else (data,)
    return (None if key is None else canonical.decode(key), *fields)
