"""What of a pipeline can be rebuilt without its checkpoint, and what is refused by its name."""

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import Message

from ikebana import Plan
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.update import Interval
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.diff import ProgressRecord
from ikebana.errors import SourceError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.base.transition import Phase, Rebuilding
from ikebana.processor.checkpoint.checkpoint import Logged, metadata_of
from ikebana.processor.checkpoint.commits import CommitRecord, Lease, first_commit
from ikebana.processor.checkpoint.recovering import (
    Remains,
    Unclosed,
    problems,
    rebuild,
    rebuild_problems,
    unclosed_records,
)
from ikebana.processor.checkpoint.takeover import Continuation, OutputState, StartHistory, judge
from ikebana.processor.engine.editing import output_intervals
from ikebana.processor.kafka.progress_topic import Closing, closings
from ikebana.processor.kafka.reader import Range
from ikebana.processor.kafka.takeover import _times
from ikebana.processor.planning.progress import edges
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.reclock import BatchTrigger, mint
from ikebana.processor.topics.source_offset import is_settled
from unit.test_source_reading import KafkaMessage

SHOP = """
pipeline: shop
kafka: {bootstrap.servers: 'localhost:9092'}
run: {checkpoint: ./c}
inputs:
  orders: {topic: orders, columns: {customer: BIGINT}}
  customers: {topic: customers, columns: {name: VARCHAR}}
  clicks: {topic: clicks, mode: append, columns: {n: BIGINT}}
  events: {topic: events}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  clicked: {linear: clicks, where: n > 1}
  EXTRA
outputs:
  all: {from: order, topic: all FORMAT}
  clicked: {from: clicked, topic: clicked}
"""
MACHINE = "status: {state_machine: events, step: 'machines:one_more'}"
AS_OF = """found:
    as_of_join: {o: order, c: customer}
    on: [o.customer = c.key::BIGINT]
    select: {name: c.name}
"""
TOPICS = ("orders", "customers", "clicks", "events")


def plan_of(extra: str = "", form: str = "", text: str = SHOP) -> Plan:
    text = text.replace("EXTRA", extra).replace("FORMAT", form)
    return parse(text, "shop.yaml", environ={}).plan


def progress(
    topic: str, batch: int = 7, upper: int = 40, checkpoint: str = "id"
) -> ProgressRecord:
    return ProgressRecord(
        checkpoint, "shop", topic, batch, upper - 1, upper, 3, {0: 9}, "collection"
    )


def left(plan: Plan, **other: Any) -> Remains:
    """What a pipeline leaves that has lost nothing but its checkpoint."""
    outputs = {
        o.name: OutputState(progress(o.topic), 0, TopicInfo("t", 1)) for o in plan.published
    }
    given: dict[str, Any] = {
        "lease": Lease("id", 0, 1, "here", {o.topic: o.topic for o in plan.published}),
        "commits": {},
        "outputs": outputs,
        "unclosed": {o.name: Unclosed() for o in plan.published},
        "lost": {},
        "read_back": {o.topic: {0: (0, 9)} for o in plan.published},
        "begins": {topic: {0: 0} for topic in TOPICS},
        "ends": {topic: {0: 5} for topic in TOPICS},
        "policies": {},
        "topic_ids": {o.topic: o.topic for o in plan.published},
        "exchanges": {},
    }
    return Remains(**{**given, **other})


def commit(batch: int, upper: int) -> CommitRecord:
    return CommitRecord(
        checkpoint="id",
        epoch=0,
        incarnation=1,
        shard=0,
        batch=batch,
        lower=upper - 2,
        upper=upper,
        offset="",
        plan="",
        records=0,
        behind=0,
        counts={},
        manifest=Manifest("id", 0),
    )


def told(plan: Plan, found: Remains) -> dict[str, str]:
    return {each.path: each.reason for each in rebuild_problems(plan, found)}


def test_what_is_whole_has_no_problems() -> None:
    plan = plan_of()
    assert list(problems(plan)) == []
    assert list(rebuild_problems(plan, left(plan))) == []


@pytest.mark.parametrize(
    ("plan", "path", "reason"),
    [
        pytest.param(plan_of(MACHINE), "operators.status", "a state machine", id="machine"),
        pytest.param(plan_of(AS_OF), "operators.found", "as of a time", id="as-of join"),
        pytest.param(
            plan_of(text=SHOP.replace("topic: customers,", "topic: customers, start: latest,")),
            "inputs.customers",
            "read from the end",
            id="latest",
        ),
        pytest.param(
            plan_of(
                text=SHOP.replace("{topic: orders,", "{topic: orders, event_time: {clock: kafka},")
            ),
            "inputs.orders",
            "times of its own",
            id="event time",
        ),
    ],
)
def test_what_only_the_checkpoint_had_is_refused(plan: Plan, path: str, reason: str) -> None:
    (found,) = problems(plan)
    assert found.path == path
    assert reason in found.reason
    assert found.instead


def test_a_machine_may_be_said_not_to_depend_on_times() -> None:
    assert list(problems(plan_of(MACHINE), ["status"])) == []


@pytest.mark.parametrize("name", TOPICS[:3])
def test_an_input_that_has_lost_its_beginning_is_refused(name: str) -> None:
    plan = plan_of()
    begins = {**left(plan).begins, name: {0: 3}}
    assert (
        f"{name}[0] begins at offset 3" in told(plan, left(plan, begins=begins))[f"inputs.{name}"]
    )


def test_only_rows_by_key_may_come_of_a_compacted_topic() -> None:
    plan = plan_of(MACHINE)
    found = told(plan, left(plan, policies=dict.fromkeys(TOPICS, "compact")))
    assert sorted(found) == ["inputs.clicks", "inputs.events"]


def test_a_format_that_cannot_be_taken_back_needs_another_topic() -> None:
    plan = plan_of(form=", format: upsert")
    whole = left(plan)
    assert "format upsert" in told(plan, whole)["outputs.all"]
    outputs = {**whole.outputs, "all": OutputState()}
    ids = {topic: of for topic, of in whole.topic_ids.items() if topic != "all"}
    lease = Lease("id", 0, 1, "here", ids)
    assert told(plan, left(plan, outputs=outputs, topic_ids=ids, lease=lease)) == {}


@pytest.mark.parametrize(
    ("last", "count", "refused"),
    [
        pytest.param(None, 0, False, id="it is new"),
        pytest.param({0: 0}, 0, False, id="nothing is closed"),
        pytest.param(None, 1, True, id="somebody else's messages"),
        pytest.param({0: 0}, 1, True, id="messages that are not closed"),
        pytest.param({0: 9}, 0, True, id="messages that are closed"),
    ],
)
def test_an_empty_topic_that_is_there_already_is_as_good_as_a_new_one(
    last: dict[int, int] | None, count: int, *, refused: bool
) -> None:
    """Whoever creates topics himself has made it before `recover`."""
    plan = plan_of(form=", format: debezium-json")
    whole = left(plan)
    closed = None if last is None else msgspec.structs.replace(progress("all"), ends=last)
    found = left(
        plan,
        outputs={**whole.outputs, "all": OutputState(closed, 0, TopicInfo("all", 1))},
        unclosed={**whole.unclosed, "all": Unclosed(count)},
    )
    assert list(told(plan, found)) == (["outputs.all"] if refused else [])


def test_a_foreign_message_behind_the_progress_is_named_by_its_place() -> None:
    (output, *_) = plan_of(form=", format: cdcv2-json").outputs
    with pytest.raises(SourceError, match=r"cannot read all\[2\]@7 as cdcv2-json: JSON is mal"):
        _times(output, Range("all", 2, 5, 9), cast(Message, KafkaMessage(7, b"garbage")))


def test_outputs_that_cannot_go_on_are_refused() -> None:
    plan = plan_of()
    whole = left(plan)
    other = {**whole.outputs, "all": OutputState(progress("all", checkpoint="other"))}
    assert "belongs to checkpoint other" in told(plan, left(plan, outputs=other))["outputs.all"]
    gone = {**whole.outputs, "all": OutputState(None, begins=4)}
    assert "has lost its records" in told(plan, left(plan, outputs=gone))["outputs.all"]
    lost = {"all": "the beginning is gone"}
    assert told(plan, left(plan, lost=lost)) == {"outputs.all": "the beginning is gone"}
    ids = {**whole.topic_ids, "all": "another"}
    assert "created again" in told(plan, left(plan, topic_ids=ids))["outputs.all"]
    del ids["all"]
    assert "was deleted" in told(plan, left(plan, topic_ids=ids))["outputs.all"]


def test_an_output_that_an_edit_had_removed_needs_another_topic() -> None:
    """Its readers expect the batch after its last one, and the pipeline has closed more."""
    plan = plan_of()
    outputs = dict(left(plan).outputs)
    outputs["clicked"] = replace(outputs["clicked"], last=progress("clicked", 5, upper=30))
    found = told(plan, left(plan, outputs=outputs))

    assert found.keys() == {"outputs.clicked"}
    assert "ends with batch 5, and other outputs with batch 7" in found["outputs.clicked"]


def test_facts_of_a_batch_that_was_not_closed_are_refused() -> None:
    """How many a time has is in the topic itself, and counts what is taken back, too."""
    plan = plan_of(form=", format: cdcv2-json")
    found = left(plan, unclosed={**left(plan).unclosed, "all": Unclosed(2, 41)})
    assert "not closed" in told(plan, found)["outputs.all"]


def test_it_begins_beyond_all_that_was_written() -> None:
    plan = plan_of()
    assert left(plan).begin == 40
    assert left(plan, commits={0: commit(8, 47), 1: None}).begin == 47
    assert left(plan, commits={0: commit(8, 47), 1: None}).batch == 7
    found = left(plan, unclosed={**left(plan).unclosed, "all": Unclosed(2, 50)})
    made = rebuild(plan, found).transition.rebuilding
    assert made is not None
    assert (found.begin, made.stands["all"], made.unclosed) == (51, 40, {"all": 2})


def test_the_times_that_outputs_give_up_are_named() -> None:
    """From where each was closed up to where all begin; a new output had shown nothing."""
    plan = plan_of()
    whole = left(plan)
    shown = {**whole.outputs, "all": OutputState(progress("all", upper=38), 0, TopicInfo("t", 1))}
    behind = left(plan, outputs=shown)

    assert {*map(whole.given_up, whole.outputs)} == {range(40, 40)}
    assert {name: behind.given_up(name) for name in shown} == {
        **dict.fromkeys(shown, range(0)),
        "all": range(38, 40),
    }
    new = left(plan, outputs={**shown, "all": OutputState(None, 0, None)})
    assert new.given_up("all") == range(0)


def test_records_behind_an_open_transaction_are_counted_by_commit_records() -> None:
    """Which shard of a lost batch wrote first is chance, and a plan does not follow it."""
    committed = msgspec.structs.replace(commit(8, 47), counts={"all": 5, "clicked": 1})
    others = [commit(7, 40), None]

    assert unclosed_records(Unclosed(2, 41), "all", 7, [committed, *others]) == Unclosed(5, 46)
    assert unclosed_records(Unclosed(5, 41), "all", 7, [committed, *others]) == Unclosed(5, 41)
    assert unclosed_records(Unclosed(), "all", 8, [committed, *others]) == Unclosed()


def first_batch(plan: Plan, found: Remains) -> tuple[StartHistory, list[Closing]]:
    """The first batch of a rebuilt state: what a restart reads, and what it published.

    Every topic has one partition, with 9 records.
    """
    start = rebuild(plan, replace(found, read_back={}))
    metadata = msgspec.structs.replace(
        metadata_of("/nowhere", plan, 1, start), id="id", epoch=1, first_batch=found.batch + 1
    )
    began = StartHistory(
        plan,
        metadata,
        Logged(None, found.batch, found.batch),
        found.outputs,
        {0: first_commit(metadata, plan, 0)},
    )
    judged = judge(began)
    assert isinstance(judged, Continuation)
    offset = msgspec.structs.replace(start, batch=metadata.first_batch, upper=start.upper + 1)
    level = dict.fromkeys(edges(plan), Interval(start.upper, offset.upper))
    frozen = output_intervals(plan, level, start.transition, None)
    committed = msgspec.structs.replace(
        first_commit(metadata, plan, 0),
        batch=offset.batch,
        offset=offset.digest(),
        intervals={name: (at.lower, at.upper) for name, at in frozen.items()},
        transition=start.transition,
    )
    published = closings(
        plan,
        [committed],
        {output.topic: {0: 9} for output in plan.published},
        judged.new,
        metadata.begin,
        judged.ends,
    )
    shown = {
        each.output.name: OutputState(each.record, 0, TopicInfo(each.output.topic, 1))
        for each in published
    }
    again = StartHistory(
        plan, metadata, Logged(offset, offset.batch, offset.batch), shown, {0: committed}
    )
    return again, published


@pytest.mark.parametrize("form", ["diff", "cdcv2-json", "upsert", "debezium-json"])
def test_a_run_is_started_again_while_it_makes_the_state_of_a_new_output(form: str) -> None:
    """`recover` itself says to name a new topic for an output that cannot be taken back."""
    plan = plan_of(form=f", format: {form}")
    found = left(plan, outputs={**left(plan).outputs, "all": OutputState()})
    again, _ = first_batch(plan, found)
    assert isinstance(judge(again), Continuation)


@pytest.mark.parametrize("form", ["diff", "cdcv2-json", "upsert", "debezium-json"])
def test_outputs_of_which_nothing_was_closed_stand_at_0(form: str) -> None:
    """The lost run died in its first batch: shards had committed it, and none published it."""
    plan = plan_of(form=f", format: {form}")
    outputs = {o.name: OutputState(None, 0, TopicInfo(o.topic, 1)) for o in plan.published}
    found = left(plan, outputs=outputs, commits={0: commit(0, 47)})
    again, published = first_batch(plan, found)
    assert again.metadata.start.upper == 47
    for output, record, times in published:
        assert (record.batch, record.lower, record.upper, record.ends) == (0, 0, 0, {0: 0})
        # CDCv2 has the interval in the topic itself, and refuses one that ends before it begins.
        if output.traits.facts is not None:
            facts = output.traits.facts()
            for message in facts.encode_progress(record.lower, record.upper, times):
                assert facts.decode(message) == Progress(0, 0, {})
    assert isinstance(judge(again), Continuation)


@pytest.mark.parametrize(
    ("end", "own", "exchanges", "is_last"),
    [
        pytest.param(5, 1, 4, True, id="all is read"),
        pytest.param(4, 1, 4, False, id="records of an input are missing"),
        pytest.param(5, 3, 4, False, id="updates of an output are left"),
        pytest.param(5, 1, 9, False, id="rows are left in the exchange topic"),
    ],
)
def test_it_ends_when_all_is_read_and_nothing_is_on_its_way(
    *, end: int, own: int, exchanges: int, is_last: bool
) -> None:
    """A batch takes one offset of each topic, and at most four messages of the exchange topic."""
    plan = plan_of()
    found = left(
        plan,
        begins={topic: {0: end - 1} for topic in TOPICS},
        exchanges={0: 0},
        read_back={"all": {0: (0, own)}},
    )
    start = rebuild(plan, found)
    look = MintingState({topic: {0: end} for topic in plan.topics}, {}, exchanges={0: exchanges})

    after = mint(plan, start, look, BatchTrigger(42, limit=1, most_exchanges=4))

    assert after.transition.follows(start.transition)
    assert after.transition.phase is (Phase.REBUILT if is_last else Phase.REBUILD)


def test_new_partitions_and_later_records_wait() -> None:
    made = Rebuilding({"orders": {0: 5}}, {})
    ends = {"orders": {0: 8, 1: 2}, "customers": {0: 1}}
    assert made.readable(ends) == {"orders": {0: 5}}


def test_no_other_plan_goes_on_before_it_has_ended() -> None:
    plan = plan_of()
    start = rebuild(plan, left(plan, read_back={}))
    assert not is_settled(start)
    ended = start.transition.next(Phase.REBUILT)
    assert is_settled(msgspec.structs.replace(start, transition=ended))
