"""What a batch does beside its records: joins begin, an edit of the plan is filled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ikebana.arrangements.frontier import Time
from ikebana.processor.base.rebuilding import Rebuilding
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.editing import Editing


def _owns_all(_: bytes) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Beside:
    """What a shard does in a batch beside its records; most batches leave all at its default.

    * `hydrating`: the new joins that are being hydrated, and the time at which each begins.
    * `hydrates`: this batch takes one portion, for the edit while it fills, else for these joins.
    * `released`: parts of the store to delete, as much as fits into a batch.
    * `editing`: the edit that this batch belongs to.
    * `rebuilding`: the rebuild of the state of a lost checkpoint that this batch belongs to.
    * `owns`: whether a key belongs to this shard; by default this is the only shard.
    * `early`: inputs in `mode: diffs` may give updates of times that are not closed yet.  Inputs
      with event time always may.
    * `budget`: how much time the batch may take; without one, any.
    """

    early: bool = False
    hydrating: Mapping[str, Time] = field(default_factory=dict)
    hydrates: bool = False
    released: Sequence[str] = ()
    editing: Editing | None = None
    rebuilding: Rebuilding | None = None
    owns: Callable[[bytes], bool] = _owns_all
    budget: Budget | None = None


NOTHING_BESIDE = Beside()
