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

    New joins in `hydrating` are to get what was there before these times, and with `hydrates`
    they get a portion of it now.  Parts of the store in `released` are deleted, as much as fits
    into a batch.  With `editing`, the plan has taken the place of another at that time, and what
    outputs and fresh operators get of it is on its way; while it fills, it is the edit that takes
    a portion with `hydrates`.  With `rebuilding`, the batch is one of those that make the state of
    a lost checkpoint anew.

    `owns` says whether the shard is that of a key; by default it is the only shard.  With
    `early`, inputs in `mode: diffs` may give updates of times that are not closed yet; those with
    event time always may.  The `budget` is what the batch may take; without one, any time.
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
