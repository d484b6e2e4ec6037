"""Aggregates as users write them: classes whose instances have the result of many rows."""

from decimal import Decimal
from typing import Any


class Total:
    """The sum of whole numbers, which takes and gives back."""

    def __init__(self) -> None:
        self.total = 0
        self.many = 0

    def accumulate(self, x: int) -> None:
        self.total += x
        self.many += 1

    def retract(self, x: int) -> None:
        self.total -= x
        self.many -= 1

    def result(self) -> str:
        return f"{self.total} of {self.many}"


class Longest:
    """The longest text, which is sought again among all."""

    def __init__(self) -> None:
        self.longest = ""

    def accumulate(self, text: str) -> None:
        if len(text) > len(self.longest):
            self.longest = text

    def result(self) -> str:
        return self.longest


class Weighed:
    """An average of numbers by weights, of two arguments."""

    def __init__(self) -> None:
        self.sum = self.weight = Decimal(0)

    def accumulate(self, x: int, weight: int) -> None:
        self.sum += x * weight
        self.weight += weight

    def retract(self, x: int, weight: int) -> None:
        self.sum -= x * weight
        self.weight -= weight

    def result(self) -> float | None:
        return float(self.sum / self.weight) if self.weight else None


class Fussy(Total):
    """A sum that takes no number above 100, and comes to none at 13."""

    def accumulate(self, x: int) -> None:
        if x > 100:
            raise ValueError("too large")
        super().accumulate(x)

    def result(self) -> Any:
        return 13 if self.total == 13 else super().result()


class NoResult:
    """It lacks a method."""

    def accumulate(self, x: int) -> None:
        """Take nothing."""
