"""The input topics as the source sees them: how far they go, and whether they are the same.

A topic that was deleted and made anew has another id, and offsets that mean something
else; it is an error by name, never a silent skip.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException

from ikebana.arrangements.errors import SourceError
from ikebana.processor.kafka import client, loopback, topics
from ikebana.processor.kafka.dated_inputs import DatedInputs, check_beginnings
from ikebana.processor.kafka.topics import Positions, Topic
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.timing.reclock import SourceOffset

# New partitions are noticed this late while nothing comes in.
_DESCRIBE_EVERY_S = 5.0


class Look(NamedTuple):
    """The inputs at one moment; `begins` has every partition that is new."""

    ends: Positions
    begins: Positions
    ids: dict[str, str]


class Inputs:
    """Asks about the input topics of a plan, and remembers what seldom changes."""

    def __init__(self, plan: Plan, settings: Mapping[str, str]) -> None:
        self._plan = plan
        self._admin = client.admin(settings)
        self._topics = [*plan.topics, *plan.transaction_topics]
        self._hops = progress.has_hops(plan)
        self._hopped: tuple[int, dict[int, int]] | None = None
        self.dated = DatedInputs(plan, self._admin, settings) if plan.is_dated else None
        self._known: dict[str, Topic] = {}
        self._described = 0.0

    def start(self) -> SourceOffset:
        """Where a new checkpoint begins to read, settled once and for all."""
        self._describe({})
        check_beginnings(self._plan, self._admin)
        begins = topics.beginnings(self._admin, self._partitions)
        ends = topics.ends(self._admin, self._partitions)
        positions: Positions = {topic: begins[topic] for topic in self._plan.transaction_topics}
        for source in self._plan.inputs:
            for topic in source.topics:
                positions[topic] = (begins if source.start == "earliest" else ends)[topic]
        return SourceOffset(
            batch=-1,
            lower=0,
            upper=0,
            positions=positions,
            plan=self._plan.fingerprint(),
            topic_ids={name: topic.id for name, topic in self._known.items()},
        )

    def look(
        self, positions: Mapping[str, Mapping[int, int]], ids: Mapping[str, str] | None = None
    ) -> Look:
        """The last stable offsets now.

        Raises:
            SourceError: a topic is not there, is another one than `ids` says, or ends
                before `positions`.
        """
        if not self._known:
            self._describe(ids or {})
        try:
            ends = topics.ends(self._admin, self._partitions)
        except KafkaException:
            # A topic that is gone is told from brokers that are away by asking for it.
            self._describe(ids or {})
            raise
        moved = any(
            end != positions.get(topic, {}).get(partition, 0)
            for topic, by in ends.items()
            for partition, end in by.items()
        )
        if moved or time.monotonic() - self._described > _DESCRIBE_EVERY_S:
            if self._describe(ids or {}):
                ends = topics.ends(self._admin, self._partitions)
            for topic, by in ends.items():
                for partition, end in by.items():
                    if end < (position := positions.get(topic, {}).get(partition, 0)):
                        raise SourceError(
                            f"{topic}[{partition}] ends at {end}, but has been read up to "
                            f"{position}: it lost records",
                            hint="Start with a new checkpoint and new output topics.",
                        )
        new = {
            topic: count
            for topic, count in self._partitions.items()
            if any(p not in positions.get(topic, {}) for p in range(count))
        }
        begins = topics.beginnings(self._admin, new)
        return Look(
            ends,
            {topic: begins.get(topic, dict.fromkeys(by, 0)) for topic, by in ends.items()},
            {name: topic.id for name, topic in self._known.items()},
        )

    def hops(self, batch: int, shards: int) -> dict[int, int]:
        """Up to where the loopback topic is written after a batch, by shard; empty without one.

        Nothing is written to it between two batches, so it is asked for once for each.
        """
        if not self._hops:
            return {}
        if self._hopped is None or self._hopped[0] != batch:
            ends = loopback.ends(self._admin, self._plan.loopback_topic, shards)
            self._hopped = batch, ends
        return self._hopped[1]

    @property
    def _partitions(self) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self._known.items()}

    def _describe(self, ids: Mapping[str, str]) -> bool:
        """Ask which topics there are; whether anything about them is new."""
        found = topics.describe(self._admin, self._topics)
        if missing := [name for name in self._topics if name not in found]:
            raise _missing(missing, known=any(name in ids for name in missing))
        for name in self._topics:
            if ids.get(name, found[name].id) != found[name].id:
                raise SourceError(
                    f'input topic "{name}" was deleted and made anew: its offsets mean other '
                    "records now",
                    hint="Start with a new checkpoint and new output topics.",
                )
        changed = found != self._known
        self._known = found
        self._described = time.monotonic()
        return changed


def _missing(names: list[str], *, known: bool) -> SourceError:
    """The error for input topics that are not there; `known` ones have been read from."""
    listed = ", ".join(f'"{name}"' for name in names)
    one = len(names) == 1
    fact = f"input topic {listed} does not exist" if one else f"input topics {listed} do not exist"
    if known:
        deleted = "It was deleted" if one else "What has been read from was deleted"
        return SourceError(
            fact, hint=f"{deleted}: start with a new checkpoint and new output topics."
        )
    them, name = ("it", "its name") if one else ("them", "their names")
    return SourceError(fact, hint=f"Create {them}, or mend {name} in the pipeline file.")
