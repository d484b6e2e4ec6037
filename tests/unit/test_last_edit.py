"""What the metadata of a checkpoint has of the last edit of its plan."""

from pathlib import Path

import msgspec
import pytest

from ikebana import Plan
from ikebana.errors import CheckpointError
from ikebana.processor.base.transition import Transition
from ikebana.processor.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    Logged,
    metadata_of,
)
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.edit_description import (
    EditDescription,
    last_edit,
    with_last_edit,
)
from ikebana.processor.checkpoint.next_step import Desired, Observed
from ikebana.processor.checkpoint.recorded_plan import metadata_after, without_unlogged_edit
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.watching.monitor import edit_figures, filling_figures
from ikebana.processor.watching.reports import Filling
from support.edited_shops import FIRST, plan_of

CHANGED = FIRST.replace("quantity > 3", "quantity > 5")


def _edited(folder: Path) -> tuple[CheckpointMetadata, Plan]:
    """Metadata after an edit, before its description is recorded."""
    before, after = plan_of(FIRST), plan_of(CHANGED)
    start = SourceOffset(-1, 0, 0, {}, before.fingerprint())
    return metadata_after(metadata_of(str(folder), before, 2, start), after), after


def edit_to(metadata: CheckpointMetadata, plan: Plan) -> EditDescription:
    return describe("./c", Observed(metadata, Logged(None, -1, -1)), Desired(plan, 2))


def test_it_is_described_as_the_plan_command_did(tmp_path: Path) -> None:
    """With its time, from the file that is written."""
    metadata, after = _edited(tmp_path)
    begins = metadata_of(str(tmp_path), plan_of(FIRST), 2, metadata.start)
    told = msgspec.structs.replace(edit_to(begins, after), frontier=40)
    Checkpoint(str(tmp_path)).write(with_last_edit(metadata, told))

    assert last_edit(str(tmp_path)) == told


def test_there_may_be_none(tmp_path: Path) -> None:
    """No checkpoint, no edit, one that was taken back, or one of a later version."""
    assert last_edit(str(tmp_path / "nothing")) is None
    metadata, after = _edited(tmp_path)
    first = metadata_of(str(tmp_path), plan_of(FIRST), 2, metadata.start)
    told = edit_to(first, after)
    for each in (
        first,
        without_unlogged_edit(with_last_edit(metadata, told), None),
        msgspec.structs.replace(metadata, last_edit={"parts": "in words of later"}),
    ):
        Checkpoint(str(tmp_path)).write(each)
        assert last_edit(str(tmp_path)) is None


def test_metadata_of_before_an_edit_that_has_run_are_refused(tmp_path: Path) -> None:
    """An older copy of them was put back: under their plan the state would be another one."""
    after, _ = _edited(tmp_path)
    before = metadata_of(str(tmp_path), plan_of(FIRST), 2, after.start)
    logged = SourceOffset(7, 40, 41, {}, plan_of(CHANGED).fingerprint())
    logged = msgspec.structs.replace(logged, transition=Transition(after.edits))

    assert without_unlogged_edit(after, logged) == after
    with pytest.raises(CheckpointError, match="are of before edit 1 of the plan, under which"):
        without_unlogged_edit(before, logged)


def test_how_far_it_is() -> None:
    """From what the run is about to do to where outputs have passed its time."""
    plan = plan_of(FIRST)
    start = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    edit = edit_to(metadata_of("/tmp/nowhere", plan, 2, start), plan_of(CHANGED))
    edit = msgspec.structs.replace(edit, frontier=40)
    filling = filling_figures(Filling(1, 3, "sold", 0.4, 10), 70)

    def state(frontiers: dict[str, int], *, fills: bool = False, to_come: bool = False) -> object:
        found = edit_figures(edit, filling if fills else None, frontiers, to_come=to_come)
        assert found.edit is not None and found.edit["frontier"] == 40  # noqa: PT018
        return found.state

    assert state({}, to_come=True) == "to come"
    assert state({"large": 40}, fills=True) == "filling"
    assert state({}) is None
    assert state({"large": 40, "totals": 41}) == "waiting"
    assert state({"large": 41, "totals": 41}) == "through"
    assert edit_figures(None, None, {}, to_come=False).edit is None
    assert (filling.part, filling.parts, filling.keys) == (2, 3, 70)
