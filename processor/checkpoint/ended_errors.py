"""Describe what an edit takes back out of the error topic."""

from collections.abc import Iterator

from ikebana.processor.checkpoint.edit_plan import Origin, PartPlan
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.plan import ERRORS


def errors_told(edit: Edit) -> Iterator[PartPlan]:
    """Yield the error topic as a part, if the edit has to read it."""
    if not edit.ended_errors:
        return
    which = "all errors" if edit.ended_errors.everything else "errors of what ends"
    why = f"{which} are taken back"
    if edit.ended_errors.everything:
        why += ", since errors.policy is drop now"
    topic = edit.after.error_topic
    yield PartPlan(
        "output",
        ERRORS,
        "replaced",
        "diff",
        why=why,
        filled_from=(Origin("own", topic),),
        shows="difference",
        topic=topic,
    )
