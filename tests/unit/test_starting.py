"""Which starts go on, and which are refused and why: tables of what is found."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ikebana import Output, Plan
from ikebana.errors import CheckpointError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.base.transition import Transition
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, described
from ikebana.processor.checkpoint.commits import Lease
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.checkpoint.takeover import Continuation, StartHistory, judge, lease_refusal
from support.histories import (
    PLAN,
    WITH_PAIRS,
    born,
    commit,
    history,
    lease,
    offset,
    record,
    shown,
    topics,
)

ERRORS = PLAN.published[-1]


def refused(found: object) -> Reason | None:
    return found.reason if isinstance(found, Refusal) else None


@pytest.mark.parametrize(
    ("before", "metadata", "existing", "reason"),
    [
        pytest.param(None, born(), {}, None, id="nothing has run"),
        pytest.param(lease(), born(), topics(), None, id="this checkpoint"),
        pytest.param(lease(epoch=1), born(epoch=1), topics(), None, id="as often rescaled"),
        pytest.param(lease(), born(epoch=1), topics(), None, id="rescaled since"),
        pytest.param(
            lease(checkpoint="other"),
            born(),
            topics(),
            Reason.PIPELINE_OF_ANOTHER_CHECKPOINT,
            id="another checkpoint",
        ),
        pytest.param(lease(epoch=1), born(), topics(), Reason.RESCALED_SINCE, id="an old form"),
        pytest.param(lease(), born(), topics(out=None), Reason.TOPIC_DELETED, id="deleted"),
        pytest.param(
            lease(),
            born(),
            topics(out=TopicInfo("2", 3)),
            Reason.TOPIC_CREATED_AGAIN,
            id="created again",
        ),
        pytest.param(
            lease(topic_ids={}), born(), topics(out=TopicInfo("2", 3)), None, id="a new output"
        ),
    ],
)
def test_the_lease_says_whose_the_pipeline_is(
    before: Lease | None,
    metadata: CheckpointMetadata,
    existing: dict[str, TopicInfo],
    reason: Reason | None,
) -> None:
    """R4. Asked before any shard is fenced."""
    assert refused(lease_refusal(PLAN, metadata, before, existing)) is reason


def test_the_exchange_topic_is_to_stay_the_same_too() -> None:
    """R4. What exchanges is in it, and nowhere else."""
    before = lease(topic_ids={WITH_PAIRS.exchange_topic: "1"})

    found = lease_refusal(WITH_PAIRS, born(WITH_PAIRS), before, topics())

    # Without exchanges nothing is expected of it.
    assert refused(lease_refusal(PLAN, born(), before, topics())) is None
    exchanges = replace(WITH_PAIRS, operators=(*PLAN.operators, _exchanging()))
    assert refused(found) is None
    assert (
        refused(lease_refusal(exchanges, born(exchanges), before, topics()))
        is Reason.TOPIC_DELETED
    )


def _exchanging() -> Any:
    pairs = WITH_PAIRS.operators[-1]
    return msgspec.structs.replace(pairs, where=("a.value = b.key",))


def with_output(**changed: Any) -> StartHistory:
    """A history whose first output is other than it should be."""
    return history(outputs={"out": shown(1, **changed), "errors": shown(1, ERRORS.topic)})


def as_format(form: Any) -> Plan:
    return replace(PLAN, outputs=(Output("out", "current", "out", format=form),))


def with_commits(**changed: Any) -> StartHistory:
    """A history in which shard 1 says something else."""
    return history(commits={0: commit(0, 1), 1: commit(1, 1, **changed)})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(history(), None, id="one history"),
        pytest.param(history(logged=Logged(offset(1), 1, 0)), None, id="one batch to finish"),
        pytest.param(
            with_output(last=record(1, checkpoint="other")),
            Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
            id="another checkpoint's output",
        ),
        pytest.param(
            with_output(last=record(2)), Reason.ROLLED_BACK, id="progress beyond the log"
        ),
        pytest.param(with_output(policy="compact,delete"), Reason.COMPACTED, id="compacted"),
        pytest.param(
            replace(with_output(policy="compact"), plan=as_format("upsert")),
            None,
            id="a compacted upsert output",
        ),
        pytest.param(
            with_output(topic=TopicInfo("out", 4)), None, id="more partitions of updates"
        ),
        *(
            pytest.param(
                replace(with_output(topic=TopicInfo("out", 4)), plan=as_format(form)),
                Reason.OTHER_PARTITIONS,
                id=f"more partitions of {form}",
            )
            for form in ("upsert", "debezium-json")
        ),
        pytest.param(
            with_commits(checkpoint="other"),
            Reason.COMMIT_OF_ANOTHER_CHECKPOINT,
            id="another checkpoint's commit record",
        ),
        pytest.param(
            with_commits(epoch=1), Reason.COMMIT_OF_ANOTHER_CHECKPOINT, id="rescaled since"
        ),
        pytest.param(
            with_commits(batch=2), Reason.ROLLED_BACK, id="a commit record beyond the log"
        ),
        pytest.param(
            with_commits(batch=0), Reason.COMMIT_RECORD_BEHIND, id="a commit record behind"
        ),
        pytest.param(with_commits(offset="other"), Reason.OTHER_OFFSET, id="another offset"),
        pytest.param(
            history(commits={0: commit(0, 1), 1: None}),
            Reason.NO_COMMIT_RECORD,
            id="no commit record",
        ),
        pytest.param(
            history(
                logged=Logged(None, -1, -1),
                outputs={o.name: shown(None, o.topic) for o in PLAN.published},
                commits={0: None, 1: None},
            ),
            None,
            id="nothing has run",
        ),
    ],
)
def test_checkpoint_commits_and_outputs_are_of_one_history(
    found: StartHistory, reason: Reason | None
) -> None:
    """R4, R18. Everything that is not is refused by name."""
    assert refused(judge(found)) is reason


def test_a_changed_plan_goes_on_when_all_is_level() -> None:
    """Of another plan is only what names it; what it has written is finished."""
    logged = offset(1, plan="another")
    commits = {shard: commit(shard, 1, offset=logged.digest()) for shard in range(2)}

    found = judge(history(logged=Logged(logged, 1, 1), commits=commits))

    assert refused(found) is None


def test_a_new_join_shows_itself_in_a_new_topic() -> None:
    """R16. What an older output of the name wrote would be taken for its own."""
    logged = Logged(offset(1), 1, 1)
    outputs = {o.name: shown(1, o.topic) for o in WITH_PAIRS.published}
    commits = {shard: commit(shard, 1) for shard in range(2)}
    metadata = born()
    edited = msgspec.structs.replace(
        metadata, edits=1, before=metadata.plan, plan=described(WITH_PAIRS)
    )
    found = history(
        plan=WITH_PAIRS, metadata=edited, logged=logged, outputs=outputs, commits=commits
    )

    assert refused(judge(found)) is Reason.TOPIC_OF_AN_OLDER_OUTPUT
    new = replace(found, outputs={**outputs, "pairs": shown(None, "pairs")})
    assert refused(judge(new)) is not Reason.TOPIC_OF_AN_OLDER_OUTPUT


def test_after_a_rescaling_too_a_new_output_takes_no_topic_of_an_older_one() -> None:
    """R16. No batch is in the log then: the metadata have the last one."""
    metadata = born(epoch=1, first_batch=2)
    last = offset(1)
    edited = msgspec.structs.replace(
        metadata, edits=1, before=metadata.plan, plan=described(WITH_PAIRS), start=last
    )
    outputs = {o.name: shown(1, o.topic) for o in WITH_PAIRS.published}
    found = history(
        plan=WITH_PAIRS,
        metadata=edited,
        logged=Logged(None, 1, 1),
        outputs=outputs,
        commits={shard: commit(shard, 1, offset=last.digest()) for shard in range(2)},
    )

    assert refused(judge(found)) is Reason.TOPIC_OF_AN_OLDER_OUTPUT
    run = msgspec.structs.replace(
        edited, start=msgspec.structs.replace(last, transition=Transition(1))
    )
    assert refused(judge(replace(found, metadata=run))) is None


def test_shards_that_come_back_by_a_rescaling_need_no_commit_of_their_own() -> None:
    """A shard that had been taken away says nothing of the one that is there now."""
    metadata = born(epoch=2, first_batch=2)
    gone = commit(1, 0, retired=True, epoch=1)
    commits = {0: commit(0, 1, epoch=1), 1: gone}
    found = history(metadata=metadata, logged=Logged(None, 1, 1), commits=commits)

    assert refused(judge(found)) is None
    committed = replace(found, logged=Logged(offset(2), 2, 2))
    assert refused(judge(replace(committed, commits={0: commit(0, 2, epoch=2), 1: gone}))) is (
        Reason.NO_COMMIT_RECORD
    )


def test_a_start_knows_what_is_published_what_is_new_and_what_waits() -> None:
    """An output that has lost its progress is not new, and others say what is published."""
    outputs = {"out": shown(None, begins=3), "errors": shown(1, ERRORS.topic)}
    commits = {0: commit(0, 1, waiting=2), 1: commit(1, 1, waiting=3)}

    found = judge(history(outputs=outputs, commits=commits))
    fresh = judge(history(outputs={**outputs, "out": shown(None)}))

    assert found == Continuation(
        published=1, new=frozenset(), waiting=5, ends={ERRORS.topic: {0: 1, 1: 1, 2: 1}}
    )
    assert isinstance(fresh, Continuation)
    assert fresh.new == {"out"}


def test_a_refusal_is_an_error_with_its_remedy() -> None:
    """The words are for people, the reason for tables like these."""
    found = judge(with_output(last=record(1, checkpoint="other")))

    assert isinstance(found, Refusal)
    error = found.error()
    assert isinstance(error, CheckpointError)
    assert error.message.startswith('output topic "out" belongs to another checkpoint (other')
    assert error.hint is not None
