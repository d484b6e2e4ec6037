"""What a plan comes to if its records arrive in many batches."""

from collections.abc import Sequence
from typing import Any

from ikebana import Plan, Update
from ikebana.processor.engine.evaluate import Evaluation


def cut_at_every_time(
    plan: Plan, orders: Sequence[tuple[Any, Any, int]], *, optimized: bool
) -> list[Update[Any]]:
    """The updates of `out`, by a batch for each time."""
    evaluation = Evaluation(plan, optimized=optimized)
    return [
        update
        for time in range(max(time for *_, time in orders) + 1)
        for update in evaluation.advance(
            {"orders": [order for order in orders if order[2] == time]}, time + 1
        )["out"]
    ]
