"""The topics that a pipeline writes; a start creates the missing ones.

They are the topics of outputs and of their progress, the topic of markers, and, for plans with
exchanges, the loopback topic.
"""

from collections.abc import Container, Iterator, Mapping

from confluent_kafka.admin import AdminClient

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.kafka import client, markers, topics
from ikebana.processor.planning import progress
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.plan import Output, Plan

# An update is longer than the upsert that it comes from, and an error record nearly twice as
# long as its message.  Our topics must have room for whatever an input topic can have.
_LARGEST_MESSAGE = {"max.message.bytes": str(64 << 20)}
_DIFF_TOPIC = {
    **_LARGEST_MESSAGE,
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}

_UPSERT_TOPIC = {**_LARGEST_MESSAGE, "cleanup.policy": "compact"}


def create(
    plan: Plan,
    settings: Settings,
    shards: int,
    admin: AdminClient,
    existing: Mapping[str, TopicInfo],
) -> bool:
    """Create missing topics and partitions; return whether any topic was missing."""
    # An edit may still use the exchange topic although the new plan has no exchange.
    for name, partitions in {plan.loopback_topic: shards, **by_shard(plan, shards)}.items():
        if name in existing and existing[name].partitions < partitions:
            topics.add_partitions(admin, name, partitions)
    new = list(missing(plan, settings, shards, existing))
    for name, count, of_topic in new:
        topics.create(admin, name, count, settings.replication_factor, of_topic)
    return bool(new)


def by_shard(plan: Plan, shards: int) -> dict[str, int]:
    """Return the topics with a partition for each shard, and their numbers of partitions."""
    partitions = {plan.markers_topic: shards + 1}
    if progress.has_hops(plan):
        partitions[plan.loopback_topic] = shards
    return partitions


def missing(
    plan: Plan, settings: Settings, shards: int, existing: Container[str]
) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield the topics that a start creates: name, number of partitions, settings."""
    special = {plan.markers_topic: {**_LARGEST_MESSAGE, **markers.TOPIC_SETTINGS}}
    needed: list[tuple[str, int | Output, Mapping[str, str]]] = [
        (name, partitions, special.get(name, _DIFF_TOPIC))
        for name, partitions in by_shard(plan, shards).items()
    ]
    for output in plan.published:
        its = _UPSERT_TOPIC if output.traits.latest else _DIFF_TOPIC
        needed += [(output.topic, output, its), (output.progress_topic, 1, _DIFF_TOPIC)]
    for name, count, own_settings in needed:
        if name not in existing:
            partitions = count if isinstance(count, int) else _partitions(plan, settings, count)
            yield name, partitions, {**own_settings, **settings.topic_settings}


def _partitions(plan: Plan, settings: Settings, output: Output) -> int:
    """Choose the number of partitions: the output's setting, else the largest of its inputs."""
    if output.partitions is not None:
        return output.partitions
    read = {
        topic
        for way in graph_of(plan).ways(output.source)
        for topic in graph_of(plan).input_of(way.root).topics
    }
    admin = client.admin(settings.reading_kafka)
    return max((topic.partitions for topic in topics.describe(admin, read).values()), default=1)
