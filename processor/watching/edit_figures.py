"""The last edit of a run's plan, and how far it is."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ikebana.processor.checkpoint.edit_plan import EditPlan
from ikebana.processor.watching.batch_report import Filling

# Before it comes; while it goes through the state; while its time is not closed; when all is done.
EditState = Literal["to come", "filling", "waiting", "through"]


class FillingFigures(msgspec.Struct):
    """How far an edit is in filling: its part of all parts, the share, and keys so far."""

    part: int
    parts: int
    name: str
    share: float
    keys: int


class EditFigures(msgspec.Struct):
    """The last edit as `ikebana plan` describes it, if there was one, and how far it is.

    `state` is null before the first batch of a run.
    """

    edit: dict[str, Any] | None
    state: EditState | None = None
    filling: FillingFigures | None = None


def filling_figures(filling: Filling, keys: int) -> FillingFigures:
    """Say how far an edit is."""
    part = min(filling.done + 1, filling.parts)
    return FillingFigures(part, filling.parts, filling.name, filling.share, keys)


def edit_figures(
    edit: EditPlan | None,
    filling: FillingFigures | None,
    frontiers: Mapping[str, int],
    *,
    to_come: bool,
) -> EditFigures:
    """Say how far an edit is; `frontiers` are those of outputs, empty before the first batch."""
    if edit is None:
        return EditFigures(None)
    state: EditState | None = "through"
    if to_come:
        state = "to come"
    elif filling is not None:
        state = "filling"
    elif not frontiers:
        state = None
    elif edit.frontier is not None:
        shown = [part.name for part in edit.parts if part.shows in ("difference", "everything")]
        if any(frontiers.get(name, edit.frontier + 1) <= edit.frontier for name in shown):
            state = "waiting"
    return EditFigures(edit.as_json(), state, filling)
