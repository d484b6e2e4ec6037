"""What all that draw queries at random have in common."""

from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Choices that are made one after the other, and aliases of which none comes twice."""

    def __init__(self, choice: Random) -> None:
        self.choice = choice
        self._count = 0

    def one(self, *of: T) -> T:
        """One of these, which are equally likely; one that stands twice is so twice."""
        return self.choice.choice(of)

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.choice.random() < share

    def alias(self, prefix: str = "r") -> str:
        """A name that has not been yet."""
        self._count += 1
        return f"{prefix}{self._count}"
