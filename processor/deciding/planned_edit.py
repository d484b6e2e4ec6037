"""Describe what a start with a plan would change, and why it would be refused now."""

import msgspec

from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.edit_plan import EditPlan, Refused
from ikebana.processor.checkpoint.evolution import resumed
from ikebana.processor.checkpoint.planned_edit import planned
from ikebana.processor.checkpoint.state_figures import StateFigures
from ikebana.processor.deciding.starting import plan_refusals
from ikebana.processor.planning.plan import Plan


def planned_start(
    location: str,
    birth: Birth | None,
    logged: Logged | None,
    plan: Plan,
    shards: int,
    figures: StateFigures | None = None,
) -> EditPlan:
    """Describe what a run with `plan` changes in a checkpoint, and why it would be refused now.

    Unfinished batches, and updates between operators, refuse it.  Topics are not looked at;
    `preflight` checks those.
    """
    found = planned(location, birth, plan, shards, logged=logged, figures=figures)
    if birth is None or logged is None or not found.edited:
        return found
    waits = [
        Refused("", refusal.message, refusal.hint or "")
        for refusal in plan_refusals(birth, resumed(birth, plan), logged)
    ]
    return msgspec.structs.replace(found, refused=(*found.refused, *waits))
