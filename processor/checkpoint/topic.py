"""A topic as brokers describe it."""

from typing import NamedTuple


class TopicInfo(NamedTuple):
    """The id of a topic, which a later one of the same name does not have, and its size."""

    id: str
    partitions: int
