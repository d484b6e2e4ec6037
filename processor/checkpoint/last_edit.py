"""The last edit of a checkpoint's plan, as its metadata has it."""

import msgspec

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint
from ikebana.processor.checkpoint.edit_description import described
from ikebana.processor.checkpoint.edit_plan import EditPlan
from ikebana.processor.checkpoint.evolution import edit_of
from ikebana.processor.planning.edits_resolved import as_written


def recorded(birth: Birth, plan: EditPlan) -> Birth:
    """The metadata with the description of its last edit."""
    return msgspec.structs.replace(birth, last_edit=msgspec.to_builtins(plan))


def last_edit(location: str) -> EditPlan | None:
    """Describe the last edit of a checkpoint; None if there was none, or it is not known any more.

    That of a checkpoint whose last edit was made before descriptions were recorded follows from
    its plans, and has no time.
    """
    try:
        birth = Checkpoint(location).birth()
        if birth is None or not birth.edits or birth.before == birth.plan:
            return None
        if birth.last_edit:
            return msgspec.convert(birth.last_edit, EditPlan)
        edit = edit_of(birth)
    except (CheckpointError, msgspec.ValidationError):
        # Later versions may say of an edit what this one does not know.
        return None
    assert edit is not None, "edits without a last one"
    parts, _ = described(edit, as_written(edit.after))
    return EditPlan(edit.after.name, location, edited=True, parts=parts)
