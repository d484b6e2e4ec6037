"""What a scripted admin client of Kafka answers with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    """A future that is done: with a result, or with an error that it raises."""

    of: Any

    def result(self) -> Any:
        if isinstance(self.of, Exception):
            raise self.of
        return self.of


@dataclass
class Offset:
    offset: int


@dataclass
class Described:
    topic_id: str
    partitions: Sequence[int]
