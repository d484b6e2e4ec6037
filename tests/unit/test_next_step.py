"""The next step of a start: a table of what is observed, and of what is desired."""

import pytest

from ikebana.processor.base.transition import NO_TRANSITION, Phase, Transition
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, metadata_of
from ikebana.processor.checkpoint.next_step import Desired, Observed, next_step
from ikebana.processor.checkpoint.recorded_plan import with_checkpoint_names
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.topics.source_offset import SourceOffset
from support.edited_shops import FIRST, plan_of

SAME, OTHER = plan_of(FIRST), plan_of(FIRST.replace("quantity > 3", "quantity > 5"))
IMPOSSIBLE = plan_of(FIRST.replace("topic: orders\n", "topic: others\n"))


def born(tasks: int = 0) -> CheckpointMetadata:
    start = SourceOffset(-1, 0, 0, {"orders": {0: 0}}, SAME.fingerprint())
    return metadata_of("/tmp/nowhere", SAME, 2, start, tasks=tasks)


def offset(
    frontiers: tuple[int, int] = (9, 9), transition: Transition = NO_TRANSITION
) -> SourceOffset:
    """Batch 4 of the plan; with these frontiers of the operators."""
    of = dict(zip(("order", "totals"), frontiers, strict=True))
    plan = with_checkpoint_names(born(), SAME).fingerprint()
    return SourceOffset(4, 5, 9, {"orders": {0: 7}}, plan, of, transition=transition)


FINISHED = Observed(born(), Logged(offset(), 4, 4), 4)
HALF = Observed(born(), Logged(offset(), 4, 3), 4, records=7)
VOID = Observed(born(), Logged(offset(), 4, 3), 3, records=7)
BETWEEN = Observed(born(), Logged(offset((9, 5)), 4, 4), 4)
_JOIN = Transition(phase=Phase.JOIN, joins=["pairs"])
JOINING = Observed(born(), Logged(offset(transition=_JOIN), 4, 4), 4)
UNFENCED = VOID._replace(committed=None)
REBUILT = Observed(born(), Logged(offset(transition=Transition(0, 5, Phase.REBUILD)), 4, 4), 4)
NEW = Observed(born(), Logged(None, -1, -1))


@pytest.mark.parametrize(
    ("observed", "desired", "expected"),
    [
        pytest.param(NEW, Desired(SAME, 2), "go on", id="new"),
        pytest.param(NEW, Desired(OTHER, 2), "edit", id="an edit before the first batch"),
        pytest.param(NEW, Desired(SAME, 3), "rescale", id="other shards before the first batch"),
        pytest.param(FINISHED, Desired(SAME, 2), "go on", id="as before"),
        pytest.param(FINISHED, Desired(OTHER, 2), "edit", id="another plan"),
        pytest.param(FINISHED, Desired(SAME, 3), "rescale", id="more shards"),
        pytest.param(FINISHED, Desired(OTHER, 1), "rescale", id="another plan, and fewer shards"),
        pytest.param(HALF, Desired(SAME, 2), "go on", id="unfinished, the same plan"),
        pytest.param(HALF, Desired(OTHER, 2), "finish", id="unfinished, another plan"),
        pytest.param(HALF, Desired(SAME, 3), "finish", id="unfinished, more shards"),
        pytest.param(HALF, Desired(SAME, 2, max_records=6), "go on", id="too large, but written"),
        pytest.param(VOID, Desired(SAME, 2), "go on", id="void, the same plan"),
        pytest.param(VOID, Desired(OTHER, 2), "drop", id="void, another plan"),
        pytest.param(VOID, Desired(SAME, 3), "drop", id="void, more shards"),
        pytest.param(VOID, Desired(SAME, 2, max_records=7), "go on", id="void, small enough"),
        pytest.param(VOID, Desired(SAME, 2, max_records=6), "drop", id="void, too large"),
        pytest.param(UNFENCED, Desired(OTHER, 2), "finish", id="perhaps void"),
        pytest.param(
            UNFENCED, Desired(SAME, 2, max_records=6), "go on", id="perhaps void, too large"
        ),
        pytest.param(BETWEEN, Desired(SAME, 2), "go on", id="between operators, the same plan"),
        pytest.param(BETWEEN, Desired(OTHER, 2), "finish", id="between operators, another plan"),
        pytest.param(JOINING, Desired(OTHER, 2), "finish", id="while a join begins, another plan"),
        pytest.param(REBUILT, Desired(SAME, 2), "go on", id="a rebuild, with the same plan"),
        pytest.param(
            REBUILT, Desired(OTHER, 2), Reason.REBUILD_UNDER_WAY, id="a rebuild, another plan"
        ),
        pytest.param(
            REBUILT, Desired(SAME, 1), Reason.REBUILD_UNDER_WAY, id="a rebuild, fewer shards"
        ),
        pytest.param(
            FINISHED, Desired(IMPOSSIBLE, 2), Reason.IMPOSSIBLE_EDIT, id="an impossible edit"
        ),
    ],
)
def test_the_first_line_that_applies_decides(
    observed: Observed, desired: Desired, expected: str | Reason
) -> None:
    """The table of the module's description."""
    step = next_step(observed, desired)

    assert (step.reason if isinstance(step, Refusal) else step.action) == expected
    if not isinstance(step, Refusal):
        # What has run holds the pipeline while its work is finished or its state is rewritten.
        holds_back = expected in ("finish", "rescale") or step.pending is not None
        assert step.finishes == holds_back
        assert (step.metadata == observed.metadata) == (holds_back or desired.plan == SAME)
        assert step.following.final == with_checkpoint_names(observed.metadata, desired.plan)


def test_a_step_does_not_fit_what_an_older_instance_has_left_since() -> None:
    """Its own work it runs again, and what it was decided to finish it finishes."""
    edit, same = (next_step(FINISHED, Desired(plan, 2)) for plan in (OTHER, SAME))
    finish = next_step(HALF, Desired(OTHER, 2))

    for step in (edit, same, finish):
        assert not isinstance(step, Refusal)
        assert step.fits(FINISHED.logged)
        for left in (HALF.logged, BETWEEN.logged):
            assert step.fits(left) == (step is not edit)


@pytest.mark.parametrize(
    ("had", "tasks", "expected"),
    [
        pytest.param(1, None, "go on", id="unknown"),
        pytest.param(1, 1, "go on", id="one task"),
        pytest.param(1, 2, "rescale", id="more tasks"),
        pytest.param(1, 0, "rescale", id="one for each shard"),
        pytest.param(2, 1, "go on", id="fewer tasks"),
        pytest.param(0, 9, "go on", id="more tasks than shards"),
    ],
)
def test_more_tasks_rewrite_the_state(had: int, tasks: int | None, expected: str) -> None:
    """Spark fixes their number with the state; fewer are no reason to rewrite it."""
    observed = Observed(born(had), Logged(offset(), 4, 4), 4)

    step = next_step(observed, Desired(SAME, 2, tasks))

    assert not isinstance(step, Refusal)
    assert step.action == expected
