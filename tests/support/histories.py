"""Checkpoints, logs, commit records and leases as plain values, for what is decided from them."""

from dataclasses import replace
from typing import Any

import msgspec

from ikebana import DeltaJoin, Input, JoinInput, Output, Plan, Upsert
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, metadata_of
from ikebana.processor.checkpoint.commits import CommitRecord, Lease, first_commit
from ikebana.processor.checkpoint.takeover import OutputState, StartHistory, lasting_topics
from ikebana.processor.planning import progress
from ikebana.processor.topics.source_offset import SourceOffset

PLAN = Plan(
    "shop",
    inputs=(Input("changes", ("orders",)),),
    operators=(Upsert("current", "changes"),),
    outputs=(Output("out", "current", "out"),),
    time="offset",
)
SHARDS = 2
PAIR = (JoinInput("a", "current"), JoinInput("b", "current"))
PAIRS = DeltaJoin("pairs", PAIR, ("a.key = b.key",), (("one", "a.key"),))
WITH_PAIRS = replace(
    PLAN,
    operators=(*PLAN.operators, PAIRS),
    outputs=(*PLAN.outputs, Output("pairs", "pairs", "pairs")),
)


def offset(batch: int, of: Plan = PLAN, **changed: Any) -> SourceOffset:
    """The logged offset of a batch, which is one unit of time, after which all are level."""
    at = batch + 1
    names = progress.edges(of)
    logged = SourceOffset(
        batch, batch, at, {"orders": {0: at}}, of.fingerprint(), dict.fromkeys(names, at)
    )
    return msgspec.structs.replace(logged, **changed)


def born(plan: Plan = PLAN, shards: int = SHARDS, **changed: Any) -> CheckpointMetadata:
    """A checkpoint called "ours" that begins with batch 0."""
    metadata = metadata_of(
        "/nowhere", plan, shards, SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    )
    return msgspec.structs.replace(metadata, id="ours", **changed)


def commit(
    shard: int, batch: int, metadata: CheckpointMetadata | None = None, /, **changed: Any
) -> CommitRecord:
    """The commit record of a shard that has committed a batch as instance 1."""
    made = msgspec.structs.replace(
        first_commit(metadata or born(), PLAN, shard),
        batch=batch,
        offset=offset(batch).digest(),
        incarnation=1,
    )
    return msgspec.structs.replace(made, **changed)


def lease(**changed: Any) -> Lease:
    """The lease of instance 1 on topics that are as in `topics`."""
    ids = {name: topics()[name].id for name in lasting_topics(PLAN)}
    return msgspec.structs.replace(Lease("ours", 0, 1, "a test", ids), **changed)


def topics(**changed: TopicInfo | None) -> dict[str, TopicInfo]:
    """The topics of PLAN once it has run; None takes one away."""
    found: dict[str, TopicInfo | None] = {
        PLAN.commits_topic: TopicInfo("m", SHARDS + 1),
        **{topic: TopicInfo(topic, 3) for o in PLAN.published for topic in (o.topic,)},
        **{o.progress_topic: TopicInfo(o.progress_topic, 1) for o in PLAN.published},
        **changed,
    }
    return {name: topic for name, topic in found.items() if topic is not None}


def record(batch: int, topic: str = "out", **changed: Any) -> ProgressRecord:
    """The progress of a batch, over three partitions."""
    made = ProgressRecord(
        "ours", "shop", topic, batch, batch, batch + 1, 0, {0: 1, 1: 1, 2: 1}, "upserts"
    )
    return msgspec.structs.replace(made, **changed)


def shown(batch: int | None, topic: str = "out", /, **changed: Any) -> OutputState:
    """What the brokers say of an output whose progress ends with a batch."""
    last = None if batch is None else record(batch, topic)
    return replace(OutputState(last, 0, TopicInfo(topic, 3), "delete"), **changed)


def history(batch: int = 1, plan: Plan = PLAN, **changed: Any) -> StartHistory:
    """Everything of one history, which has committed and published up to a batch."""
    made = StartHistory(
        plan,
        born(plan),
        Logged(offset(batch, plan), batch, batch),
        {o.name: shown(batch, o.topic) for o in plan.published},
        {shard: commit(shard, batch, offset=offset(batch, plan).digest()) for shard in range(2)},
    )
    return replace(made, **changed)
