"""The last edit of a checkpoint's plan, in its metadata."""

import msgspec

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint
from ikebana.processor.checkpoint.edit_plan import EditPlan


def recorded(birth: Birth, plan: EditPlan) -> Birth:
    """The metadata with the description of its last edit."""
    return msgspec.structs.replace(birth, last_edit=msgspec.to_builtins(plan))


def last_edit(location: str) -> EditPlan | None:
    """Read the description of a checkpoint's last edit; None if it is missing or unreadable."""
    try:
        birth = Checkpoint(location).birth()
        if birth is None or not birth.last_edit:
            return None
        return msgspec.convert(birth.last_edit, EditPlan)
    except (CheckpointError, msgspec.ValidationError):
        # Later versions may describe an edit in a form that this one does not know.
        return None
