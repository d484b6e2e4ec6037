"""Functions of reductions as users write them, importable by name."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from ikebana.processor.kernels.user_calls import Refused

Rows = list[tuple[Any, int]]

# Minutes on the ground that end a journey.
LAYOVER = 120


def middle(key: Any, rows: Rows) -> list[Any]:
    """The median of the amounts, each as often as it is there."""
    return [median(row["amount"] for row, count in rows for _ in range(count))]


def journeys(key: Any, rows: Rows) -> Iterator[Any]:
    """Flights of a passenger that follow each other closely, as one journey each."""
    journey: list[Any] = []
    for flight in sorted((row for row, _ in rows), key=lambda row: row["departs"]):
        if journey and flight["from"] != journey[-1]["to"]:
            raise Refused("a passenger cannot be in two places")
        if journey and flight["departs"] - journey[-1]["arrives"] > LAYOVER:
            yield _journey(journey)
            journey = []
        journey.append(flight)
    yield _journey(journey)


def _journey(flights: list[Any]) -> dict[str, Any]:
    return {
        "from": flights[0]["from"],
        "to": flights[-1]["to"],
        "minutes": flights[-1]["arrives"] - flights[0]["departs"],
    }
