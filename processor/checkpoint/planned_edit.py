"""Describe, before a start, what a run with a plan would change in a checkpoint."""

import msgspec

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.checkpoint.edit_description import all_new, described
from ikebana.processor.checkpoint.edit_plan import (
    EditPlan,
    PartPlan,
    RefusedChange,
    Rescaled,
    StateSize,
)
from ikebana.processor.checkpoint.evolution import (
    ImpossibleEditError,
    edit_to,
    evolved,
    resumed,
    unlogged,
)
from ikebana.processor.checkpoint.finishing import finishing
from ikebana.processor.checkpoint.layout import Logged
from ikebana.processor.checkpoint.state_figures import StateFigures
from ikebana.processor.planning.edits_problems import EditProblem
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import SourceOffset


def planned(
    location: str,
    birth: Birth | None,
    plan: Plan,
    shards: int,
    *,
    logged: Logged | None = None,
    figures: StateFigures | None = None,
) -> EditPlan:
    """Describe what a run of a plan would change, with the reasons if it would be refused.

    Without metadata everything is new.  `figures` are the sizes of the state; `logged` has the
    frontier and shows unfinished work.  Whether the topics belong to the checkpoint is checked by
    `preflight`, not here.
    """
    if birth is None:
        return all_new(plan, location)
    edit = edit_to(birth, plan)
    offset = None if logged is None else logged.offset
    after, refused = _after(birth, plan, offset or birth.start)
    parts: tuple[PartPlan, ...] = ()
    state: StateSize | None = None
    if edit is not None:
        parts, state = described(edit, plan, refused, figures)
    edited = bool(refused) or after != birth
    if not edited:
        # Without an edit, a part that was renamed in an earlier one counts as unchanged.
        parts = tuple(_as_before(part) for part in parts)
    waits = None
    rescales = shards != birth.shards
    if (edited or rescales) and not refused and logged is not None:
        waits = finishing(birth, resumed(birth, plan), logged, rescales=rescales)
    return EditPlan(
        plan.name,
        location,
        edited=edited,
        parts=parts,
        frontier=None if offset is None else offset.upper,
        refused=refused,
        state=state,
        finishes=waits,
        rescaled=Rescaled(birth.shards, shards) if rescales else None,
    )


def _as_before(part: PartPlan) -> PartPlan:
    return msgspec.structs.replace(part, does="stays") if part.does == "renamed" else part


def _after(
    birth: Birth, plan: Plan, last: SourceOffset
) -> tuple[Birth, tuple[RefusedChange, ...]]:
    """The metadata with the plan, and the reasons why a run would refuse it, if any."""
    after, problems = birth, list[EditProblem]()
    try:
        after = evolved(birth, plan)
        problems += unlogged(birth, plan, last) if last.batch >= 0 else ()
    except ImpossibleEditError as error:
        problems += error.problems
    except CheckpointError as error:
        return after, (RefusedChange("", error.message, error.hint or ""),)
    return after, tuple(RefusedChange(each.path, each.reason, each.remedy) for each in problems)
