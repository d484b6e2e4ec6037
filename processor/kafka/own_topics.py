"""The topics that a pipeline writes; a start creates the missing ones.

They are the topics of outputs and of their progress, the topic of commit records, and, for plans
with exchanges, the exchange topic.  A start also registers the schemas of outputs, which preflight
checks.  An edit finds in the topics of outputs what they have had, and retracts it.
"""

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.codecs.output_messages import Ids
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Check, checked
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.base.texts import counted
from ikebana.processor.base.transition import ReadBack
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.kafka import client, topics, transactions
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.registry import Registry
from ikebana.processor.kafka.snapshots import Snapshots
from ikebana.processor.planning import progress
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.outputs import shape_of
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics import replays
from ikebana.processor.topics.replays import Ends

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
    for name, partitions in {plan.exchange_topic: shards, **by_shard(plan, shards)}.items():
        if name in existing and existing[name].partitions < partitions:
            topics.add_partitions(admin, name, partitions)
    new = list(missing(plan, settings, shards, existing))
    for name, count, of_topic in new:
        topics.create(admin, name, count, settings.replication_factor, of_topic)
    return bool(new)


def by_shard(plan: Plan, shards: int) -> dict[str, int]:
    """Return the topics with a partition for each shard, and their numbers of partitions."""
    partitions = {plan.commits_topic: shards + 1}
    if progress.has_exchanges(plan):
        partitions[plan.exchange_topic] = shards
    return partitions


def missing(
    plan: Plan, settings: Settings, shards: int, existing: Container[str]
) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield the topics that a start creates: name, number of partitions, settings."""
    special = {plan.commits_topic: {**_LARGEST_MESSAGE, **transactions.COMMITS_SETTINGS}}
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


_LOOK_S = 5.0
_REMEDY = (
    "A registry takes columns that are added or left out, but by default no other types, and no "
    "other keys. Name another topic for the output, or another namespace by `record`, or set the "
    "compatibility of the subject."
)


class Subject(NamedTuple):
    """A subject, and the schema that an output has for it, of the kind of its format."""

    name: str
    schema: str
    kind: str


def subjects_of(plan: Plan, output: Output) -> tuple[Subject, Subject]:
    """The subjects of an output's keys and of its values."""
    assert output.traits.schemas is not None, f"{output.format} has no schemas"
    shape, codec = shape_of(plan, output), output.traits.schemas()
    names = f"{output.topic}-key", f"{output.topic}-value"
    if output.subjects != "topic":
        # A key without a record is refused with the plan.
        names = codec.names(shape)
        if output.subjects == "topic-record":
            names = f"{output.topic}-{names[0]}", f"{output.topic}-{names[1]}"
    of_key, of_value = codec.schemas(shape)
    return Subject(names[0], of_key, codec.KIND), Subject(names[1], of_value, codec.KIND)


def registered(plan: Plan, settings: Mapping[str, str]) -> dict[str, Ids]:
    """Register the schemas of outputs in Avro, and return their ids by output.

    Raises:
        ConfigError: the registry does not take a schema.
        SourceError: it is away, refuses us, or is no registry.
    """
    outputs = [output for output in plan.outputs if output.traits.in_registry]
    registry = Registry(settings) if outputs else None
    result = {}
    for output in outputs:
        assert registry is not None
        ids = []
        for subject in subjects_of(plan, output):
            try:
                ids.append(registry.register(*subject))
            except ConfigError as error:
                raise ConfigError(
                    f'cannot write output "{output.name}" under the subject '
                    f'"{subject.name}": {error.message}',
                    hint=_REMEDY,
                ) from error
        result[output.name] = Ids(*ids)
    return result


def schema_checks(plan: Plan, settings: Settings) -> Iterator[Check]:
    """Check that the registry would take the schemas of all outputs; it has to answer."""
    outputs = [output for output in plan.outputs if output.traits.in_registry]
    registry = Registry(settings.registry, _LOOK_S) if outputs else None
    for output in outputs:
        assert registry is not None
        for subject in subjects_of(plan, output):
            yield checked(f'subject "{subject.name}"', partial(_tried, registry, subject))


def _tried(registry: Registry, subject: Subject) -> str:
    if registry.takes(*subject):
        return "its newest schema and that of the output are compatible, or there is none yet"
    raise ConfigError(
        "the output's schema is not compatible with the newest one that is registered",
        hint=_REMEDY,
    )


_INSTEAD = (
    "The edit needs all that the output has had, and nothing else has it. Show the new collection "
    "in a new topic by another output, or leave this one as it was."
)


def contents(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> Ends:
    """Find the offsets of all updates of outputs, from their newest snapshots on, if any.

    Nobody may be writing to the topics.  An error topic `errors` without its beginning is left
    out: its errors are not retracted, and retention deletes them like the earlier ones.

    Raises: SourceError, if the beginning of a topic is gone, or the topic is; AwayError, if the
        brokers do not answer.
    """
    if not names:
        return {}
    admin, reader = client.admin(settings), RangeReader(settings)
    try:
        described = topics.describe(admin, names)
        offsets: dict[str, Mapping[int, tuple[int, int]]] = {}
        for name in names:
            if name not in described:
                raise SourceError(f'topic "{name}" is gone', hint=_INSTEAD)
            asked = {name: described[name].partitions}
            begins = topics.beginnings(admin, asked)[name]
            # What is committed lies before these, even if readers have to wait for it.
            ends = topics.high_watermarks(admin, asked)[name]
            snapshots = Snapshots(admin, reader, name, described[name].id)
            try:
                snapshot = snapshots.choose(None)
            except SourceError:
                if name != errors:
                    raise
                continue
            offsets |= replays.to_read(name, begins, ends, snapshot)
    except SourceError as error:
        raise SourceError(
            f"what an output has had cannot be taken back: {error.message}", hint=_INSTEAD
        ) from error
    finally:
        reader.close()
    return offsets


def begun(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> ReadBack:
    """The positions in outputs' own topics that the first batch of an edit logs."""
    return replays.nothing_read(contents(settings, names, errors))


def contents_checks(
    settings: Mapping[str, str], names: Collection[str], errors: str = ""
) -> list[Check]:
    """Check for each output's topic that an edit can retract its contents."""
    return [
        checked(f'topic "{name}": what it has had', partial(_described, settings, name, errors))
        for name in names
    ]


def _described(settings: Mapping[str, str], name: str, errors: str) -> str:
    return contents_words(contents(settings, [name], errors))


def contents_words(offsets: Ends) -> str:
    """Describe the offsets that are read of an output's topic."""
    if not offsets:
        return "left as it is, since its beginning is gone"
    count = replays.offsets_left(replays.nothing_read(offsets))
    where = "its own topic" if len(offsets) == 1 else "a snapshot of its own topic"
    return f"read from {where}, {counted(count, 'offset')}"


# The exchange topic moves updates between shards.  It has one partition for each shard, and no
# retention: the updates of a batch are read by the next one.


class Trimming:
    """Deletes records from the exchange topic that no batch will read again."""

    def __init__(self, admin: AdminClient, topic: str, retained: int) -> None:
        self._admin = admin
        self._topic = topic
        self._unread = UnreadExchanges(retained)

    def after(self, batch: Iterable[CommitRecord]) -> None:
        """Note where a committed batch began to read, and trim up to the oldest retained."""
        due = self._unread.after(batch)
        if not due:
            return
        asked = [TopicPartition(self._topic, partition, at) for partition, at in due.items()]
        try:
            answers = self._admin.delete_records(asked, request_timeout=client.REQUEST_S)
            for answer in answers.values():
                answer.result()
        except KafkaException:
            # A later batch trims again, up to a later offset.
            return
        self._unread.trimmed(due)


class UnreadExchanges:
    """Remembers where replayable batches began to read, so that earlier records can be trimmed."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._begins: deque[Mapping[int, int]] = deque()
        self._trimmed: Mapping[int, int] = {}

    def after(self, batch: Iterable[CommitRecord]) -> Mapping[int, int]:
        """Note a committed batch; return the offsets up to which partitions can be trimmed."""
        self._begins.append({commit.shard: commit.exchanges_from for commit in batch})
        if len(self._begins) <= self._retained:
            return {}
        oldest = self._begins.popleft()
        return {p: at for p, at in oldest.items() if at > self._trimmed.get(p, 0)}

    def trimmed(self, due: Mapping[int, int]) -> None:
        """Note that partitions have been trimmed up to these offsets."""
        self._trimmed = {**self._trimmed, **due}
