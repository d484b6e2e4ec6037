"""The topics that a pipeline writes; a start creates the missing ones.

They are those of outputs and of their progress, markers, and the loopback topic of plans that
hop.
"""

from collections.abc import Container, Iterator, Mapping

from confluent_kafka.admin import AdminClient

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.deciding.topic import Topic
from ikebana.processor.kafka import client, markers, topics
from ikebana.processor.planning import progress, ways
from ikebana.processor.planning.plan import Output, Plan

# An update is longer than the upsert that it comes from, an error record nearly twice as
# long as its message: what an input topic could hold must not be too long for ours.
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
    existing: Mapping[str, Topic],
) -> bool:
    """Make the topics that are missing, and partitions of new shards; whether a topic was."""
    for name, partitions in by_shard(plan, shards).items():
        if name in existing and existing[name].partitions < partitions:
            topics.add_partitions(admin, name, partitions)
    made = list(missing(plan, settings, shards, existing))
    for name, count, own in made:
        topics.create(admin, name, count, settings.replication_factor, own)
    return bool(made)


def by_shard(plan: Plan, shards: int) -> dict[str, int]:
    """The topics that have a partition a shard, with their number of partitions."""
    found = {plan.markers_topic: shards + 1}
    if progress.has_hops(plan):
        found[plan.loopback_topic] = shards
    return found


def missing(
    plan: Plan, settings: Settings, shards: int, existing: Container[str]
) -> Iterator[tuple[str, int, dict[str, str]]]:
    """The topics that a start makes: name, number of partitions, settings."""
    own = {plan.markers_topic: {**_LARGEST_MESSAGE, **markers.TOPIC_SETTINGS}}
    wanted: list[tuple[str, int | Output, Mapping[str, str]]] = [
        (name, partitions, own.get(name, _DIFF_TOPIC))
        for name, partitions in by_shard(plan, shards).items()
    ]
    for output in plan.published:
        its = _UPSERT_TOPIC if output.traits.latest else _DIFF_TOPIC
        wanted += [(output.topic, output, its), (output.progress_topic, 1, _DIFF_TOPIC)]
    for name, count, own_settings in wanted:
        if name not in existing:
            partitions = count if isinstance(count, int) else _partitions(plan, settings, count)
            yield name, partitions, {**own_settings, **settings.topic_settings}


def _partitions(plan: Plan, settings: Settings, output: Output) -> int:
    """As many as the output asks for, else as its input's topics have at most."""
    if output.partitions is not None:
        return output.partitions
    read = {
        topic
        for way in ways.paths(plan, output.source)
        for topic in ways.input_of(plan, way.root).topics
    }
    admin = client.admin({**settings.kafka, **settings.source_kafka})
    return max((topic.partitions for topic in topics.describe(admin, read).values()), default=1)
