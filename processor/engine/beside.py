"""What a batch does beside its records: joins begin, an edit of the plan is filled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ikebana.processor.base.transition import NO_TRANSITION, Transition
from ikebana.processor.engine.budget import Budget
from ikebana.processor.planning.edits import Edit


def _owns_all(_: bytes) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Beside:
    """What a shard does in a batch beside its records; most batches leave all at its default.

    * `transition`: the transition that this batch belongs to, and `edit`, the last change of the
      plan, if there was one.
    * `released`: parts of the store to delete, as much as fits into a batch.
    * `owns`: whether a key belongs to this shard; by default this is the only shard.
    * `early`: inputs in `mode: diffs` may give updates of times that are not closed yet.  Inputs
      with event time always may.
    * `budget`: how much time the batch may take; without one, any.
    """

    early: bool = False
    transition: Transition = NO_TRANSITION
    edit: Edit | None = None
    released: Sequence[str] = ()
    owns: Callable[[bytes], bool] = _owns_all
    budget: Budget | None = None


NOTHING_BESIDE = Beside()
