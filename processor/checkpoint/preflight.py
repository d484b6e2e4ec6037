"""Checks before a start: find what would make it fail, with remedies.

A check is *ok*, *failed*, or *unknown* if it could not be made.  Checks change nothing: they
create no topic, begin no transaction and fence no producer, so a running pipeline continues.
They write and remove a small file beside the checkpoint's files, and leave an unused
transactional id on brokers that check rights.

This module has the checks without brokers; `kafka.preflight` has the others.
"""

from collections.abc import Iterator, Mapping

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.check import Check, checked
from ikebana.processor.base.counting import counted
from ikebana.processor.base.java import java_of
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.evolution import hints_kept
from ikebana.processor.checkpoint.next_step import Desired, next_step, observed_at
from ikebana.processor.checkpoint.planned_edit import planned
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.history import files_of


def of_java(environ: Mapping[str, str]) -> Check:
    """Check that there is a Java for Spark."""

    def look() -> str:
        java, version = java_of(environ)
        return f"version {version}, {java}"

    return checked("Java", look)


def of_histories(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the files of histories can be read, where a start would read them."""
    for source in plan.inputs:
        if source.history is None:
            continue

        def look(name: str = source.name) -> str:
            if observed_at(Checkpoint(settings.checkpoint)) is not None:
                return "the checkpoint has begun, and reads no more files"
            files = files_of(plan)[name]
            rows = sum(each.rows for each in files)
            return f"{counted(rows, 'row')} in {counted(len(files), 'file')}"

        yield checked(f'history of input "{source.name}"', look)


def of_checkpoint(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the checkpoint can be read and written, and fits the plan."""
    where = f'checkpoint "{settings.checkpoint}"'

    def look() -> str:
        observed = observed_at(Checkpoint(settings.checkpoint))
        if observed is None:
            return "new: nothing is there yet"
        return f"{observed.birth.id}, committed up to batch {observed.logged.committed}"

    def write() -> str:
        Checkpoint(settings.checkpoint).probe()
        return "a small file was written, read and removed"

    def compare() -> str:
        observed = observed_at(Checkpoint(settings.checkpoint))
        if observed is None:
            return "nothing to compare with yet"
        desired = Desired(plan, settings.shards)
        step = next_step(observed, desired)
        if isinstance(step, Refusal):
            raise step.error()
        gist = planned(settings.checkpoint, observed, desired).gist()
        changes = "; ".join(gist) or "the plan and the number of shards are the checkpoint's"
        hints = hints_kept(observed.birth, plan)
        return (
            f"{changes}; joins stay laid out by {', '.join(hints)} as before" if hints else changes
        )

    readable = checked(f"{where}: read", look)
    yield readable
    yield checked(f"{where}: write", write)
    if readable.status == "ok":
        yield checked(f"{where}: same plan", compare)
