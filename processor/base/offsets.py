"""Topics as brokers describe them, and their offsets: how far they are read, and what is left."""

import re
from collections.abc import Mapping
from typing import NamedTuple

LONGEST_TOPIC = 249
"""The most letters that a topic's name may have."""
_TOPIC = re.compile(f"[A-Za-z0-9._-]{{1,{LONGEST_TOPIC}}}")
_PROGRESS = ".progress"

Positions = dict[str, dict[int, int]]
"""By topic and partition, an offset: where the partition begins or ends, or is read up to."""
Offsets = Mapping[str, Mapping[int, int]]
"""The same, which is only read."""


class TopicInfo(NamedTuple):
    """The id of a topic, which a later one of the same name does not have, and its size."""

    id: str
    partitions: int


def is_topic(name: str) -> bool:
    """Whether Kafka allows the name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def progress_topic(topic: str) -> str:
    """The topic with the progress of an output's topic."""
    return topic + _PROGRESS


def offset_in(topic: str, partition: int, *sources: Offsets) -> int:
    """The offset of a partition, by the first that has it; 0 if none has it."""
    for offsets in sources:
        if (offset := offsets.get(topic, {}).get(partition)) is not None:
            return offset
    return 0


def have_reached(positions: Offsets, ends: Offsets) -> bool:
    """Whether positions are at or beyond all of these offsets; unknown partitions are at 0."""
    return all(
        offset_in(topic, partition, positions) >= end
        for topic, by in ends.items()
        for partition, end in by.items()
    )


def count_between(starts: Offsets, ends: Offsets) -> int:
    """Count the offsets between starts and the ends of the same partitions."""
    return sum(ends[topic][p] - start for topic, by in starts.items() for p, start in by.items())


def portion(starts: Offsets, ends: Positions, limit: int | None) -> Positions:
    """Choose where a portion of about `limit` offsets between `starts` and `ends` ends.

    It has the same share of what is left of every partition, at least one offset.

    >>> portion({"t": {0: 0, 1: 10}}, {"t": {0: 90, 1: 20}}, 10)
    {'t': {0: 9, 1: 11}}
    """
    lag = count_between(starts, ends)
    if limit is None or lag <= limit:
        return dict(ends)
    return {
        topic: {p: start + -(-(ends[topic][p] - start) * limit // lag) for p, start in by.items()}
        for topic, by in starts.items()
    }
