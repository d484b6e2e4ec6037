"""A topic as brokers describe it."""

from typing import NamedTuple


class Topic(NamedTuple):
    """What distinguishes a topic from a later one of the same name."""

    id: str
    partitions: int
