"""Checks before a start: what would refuse it, or end it at once, and what to do.

A check is *ok*, *failed*, or *unknown* where it could not be looked at.  Nothing is
changed: no topic is made, no transaction begun, nobody fenced, so a pipeline that runs
goes on.  The traces are a small file that is written beside the checkpoint's and removed
again, and, where brokers check rights, a transactional id that nobody holds.

Here are the values, and the checks that need no broker; those of brokers are in
`kafka.preflight`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint, Logged
from ikebana.processor.checkpoint.evolution import changes, evolved, hints_kept
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.ground.check import Check, checked
from ikebana.processor.planning.plan import Plan


class Kept(NamedTuple):
    """What a checkpoint's location holds; without a birth record, nothing yet."""

    birth: Birth | None
    logged: Logged | None


def kept(checkpoint: Checkpoint) -> Kept:
    """Read what is there.

    Raises:
        CheckpointError: it cannot be read, or is not what it should be.
    """
    birth = checkpoint.birth()
    return Kept(birth, None if birth is None else checkpoint.logged(birth.first_batch))


def of_checkpoint(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Whether the checkpoint can be used, by this plan, and written."""
    where = f'checkpoint "{settings.checkpoint}"'

    def look() -> str:
        found = kept(Checkpoint(settings.checkpoint))
        if found.birth is None or found.logged is None:
            return "new: nothing is there yet"
        return f"{found.birth.id}, committed up to batch {found.logged.committed}"

    def write() -> str:
        Checkpoint(settings.checkpoint).probe()
        return "a small file was written, read and removed"

    def compare() -> str:
        birth = Checkpoint(settings.checkpoint).birth()
        if birth is None:
            return "nothing to compare with yet"
        same = evolved(birth, plan, settings.shards) == birth
        told = "the plan and the number of shards are the checkpoint's"
        if not same:
            told = f"the plan has changed as it may: {', '.join(changes(birth, plan))}"
        kept = hints_kept(birth, plan)
        return f"{told}; joins stay laid out by {', '.join(kept)} as before" if kept else told

    readable = checked(f"{where}: read", look)
    yield readable
    yield checked(f"{where}: write", write)
    if readable.status == "ok":
        yield checked(f"{where}: same plan", compare)
