"""Which input topics are still what they were: tables of what brokers say."""

from typing import Any

import pytest

from ikebana import EventTime, Input, Output, Plan, Upsert
from ikebana.errors import SourceError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.checkpoint.inputs import (
    beginnings_refusal,
    lost_end,
    read_whole,
    topics_refusal,
    writer_of,
)
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.topics.batch_selection import ClosedProgress
from support.histories import record


def refused(found: object) -> Reason | None:
    return found.reason if isinstance(found, Refusal) else None


def plan_of(*inputs: Input) -> Plan:
    return Plan("p", inputs, (), tuple(Output(i.name, i.name, f"{i.name}.out") for i in inputs))


DIFFS = plan_of(Input("a", ("ours.out",), "diff", mode="diffs"))
ONE = {"ours.out": TopicInfo("1", 1), "ours.out.progress": TopicInfo("2", 1)}


@pytest.mark.parametrize(
    ("found", "ids", "reason"),
    [
        pytest.param({"a": TopicInfo("1", 1), "b": TopicInfo("2", 1)}, {}, None, id="never read"),
        pytest.param(
            {"a": TopicInfo("1", 1), "b": TopicInfo("2", 1)}, {"a": "1"}, None, id="the same"
        ),
        pytest.param(
            {"a": TopicInfo("1", 1), "b": TopicInfo("2", 1)},
            {"a": "1", "b": "1"},
            Reason.TOPIC_CREATED_AGAIN,
            id="created again",
        ),
        pytest.param({"a": TopicInfo("1", 1)}, {}, Reason.MISSING_INPUT, id="not there"),
    ],
)
def test_input_topics_stay_the_same(
    found: dict[str, TopicInfo], ids: dict[str, str], reason: Reason | None
) -> None:
    """R4. Offsets of a topic that was created again mean other records."""
    assert refused(topics_refusal(["a", "b"], found, ids)) is reason


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        pytest.param({}, 'input topics "a", "b" do not exist', id="never read"),
        pytest.param({"b": "1"}, "was deleted", id="read before"),
    ],
)
def test_what_is_not_there_is_made_or_lost(ids: dict[str, str], told: str) -> None:
    """The remedy is not the same."""
    found = topics_refusal(["a", "b"], {}, ids)

    assert found is not None
    assert told in f"{found.message} {found.hint}"
    assert isinstance(found.error(), SourceError)


@pytest.mark.parametrize(
    ("end", "lost"),
    [(5, False), (6, False), (4, True)],
)
def test_a_partition_that_ends_before_what_was_read_has_lost_it(end: int, lost: bool) -> None:  # noqa: FBT001
    """R6. Nothing would ever come there, or others than were logged."""
    found = lost_end({"t": {0: 9, 1: end}, "new": {0: 1}}, {"t": {0: 9, 1: 5}})

    assert (refused(found) is Reason.LOST_END) == lost


def test_what_waits_for_missing_records_is_told() -> None:
    """R10. Diff topics with their progress, facts, and changes in transactions."""
    facts = Input("b", ("facts",), "cdcv2-json", mode="diffs")
    plain = Input("c", ("plain",))

    found = read_whole(
        Plan(
            "p",
            (*DIFFS.inputs, facts, plain),
            (Upsert("u", "c"),),
            (Output("out", "u", "out"),),
        )
    )

    assert found == {"ours.out": ["ours.out", "ours.out.progress"], "facts": ["facts"]}


@pytest.mark.parametrize(
    ("found", "begins", "reason"),
    [
        pytest.param(ONE, {}, None, id="whole"),
        pytest.param({}, {}, Reason.MISSING_INPUT, id="not there"),
        pytest.param(
            {"ours.out": TopicInfo("1", 1)}, {}, Reason.MISSING_INPUT, id="no progress topic"
        ),
        pytest.param(ONE, {"ours.out": {0: 1}}, Reason.LOST_BEGINNING, id="of the updates"),
        pytest.param(
            ONE, {"ours.out.progress": {0: 1}}, Reason.LOST_BEGINNING, id="of the progress"
        ),
    ],
)
def test_a_topic_whose_beginning_is_gone_is_not_begun_with(
    found: dict[str, TopicInfo], begins: dict[str, Any], reason: Reason | None
) -> None:
    """R10. A new reader would take what is left for all there was."""
    whole = {name: dict.fromkeys(range(topic.partitions), 0) for name, topic in found.items()}

    assert refused(beginnings_refusal(DIFFS, found, {**whole, **begins})) is reason


def closed(*checkpoints: str) -> list[ClosedProgress]:
    return [ClosedProgress(record(at, checkpoint=name), at) for at, name in enumerate(checkpoints)]


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        pytest.param("", [], "", id="nothing yet"),
        pytest.param("", ["a", "a"], "a", id="the first"),
        pytest.param("a", ["a"], "a", id="the same"),
        pytest.param("a", [], "a", id="nothing new"),
        pytest.param("a", ["a", "b"], Reason.OUTPUT_OF_ANOTHER_CHECKPOINT, id="another since"),
        pytest.param("", ["a", "b"], Reason.OUTPUT_OF_ANOTHER_CHECKPOINT, id="two at first"),
    ],
)
def test_a_diff_topic_is_of_one_checkpoint(
    known: str, found: list[str], expected: str | Reason
) -> None:
    """R4, R10. The updates of another begin anew, and would be added to those of before."""
    made = writer_of("t", known, closed(*found))

    assert (made.reason if isinstance(made, Refusal) else made) == expected


def test_transactions_are_told_in_one_partition() -> None:
    """R9. Else their records have no order."""
    event = EventTime(clock="transaction", transactions="t.transaction")
    source = Input("a", ("t.public.a",), value_format="debezium-json", event_time=event)
    plan = Plan("p", (source,), (Upsert("u", "a"),), (Output("out", "u", "out"),))
    topics = {"t.public.a": TopicInfo("1", 1), "t.transaction": TopicInfo("2", 2)}

    found = beginnings_refusal(plan, topics, {"t.public.a": {0: 0}, "t.transaction": {0: 0, 1: 0}})

    assert refused(found) is Reason.TRANSACTIONS_IN_PARTS
