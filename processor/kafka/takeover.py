"""Take over a pipeline on its brokers, or recover one with a lost checkpoint from its topics.

`checkpoint.takeover` has the steps of a take-over, and their order.  `checkpoint.recovering`
decides what can be recovered.  The steps of a recovery:

1. look at the topics of the pipeline, and refuse what cannot be recovered;
2. fence the lost checkpoint's driver and tasks, and look again: from then on nobody writes there;
3. commit the next epoch and incarnation in the lease and in all commit records, with the producers
   that have fenced: an instance of the lost checkpoint that comes back finds them, and stops;
4. write the metadata of the new checkpoint.

The run that follows rebuilds the state.  After a death between 3 and 4 another `recover` finds
the same, except for a greater epoch.
"""

import functools
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from ikebana.codecs.errors import DecodeError
from ikebana.errors import CheckpointError, SourceError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import processes
from ikebana.processor.base.offsets import Positions, TopicInfo
from ikebana.processor.checkpoint import recovering, takeover
from ikebana.processor.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    Logged,
    metadata_of,
)
from ikebana.processor.checkpoint.commits import CommitRecord, Lease, first_commit
from ikebana.processor.checkpoint.inputs import topics_refusal
from ikebana.processor.checkpoint.recovering import Remains, Unclosed
from ikebana.processor.checkpoint.takeover import OutputState, TakeoverState, lasting_topics
from ikebana.processor.kafka import client, own_topics, rights, topics, transactions
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer, commit_alone
from ikebana.processor.planning import starts
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.replays import Ends, updates_of


class Takeover(NamedTuple):
    """The result of a take-over, with which the driver may start: its producer, and the state."""

    producer: TransactionalProducer
    state: TakeoverState

    @property
    def incarnation(self) -> int:
        """The number of this instance."""
        return self.state.lease.incarnation

    def confirm(self, plan: Plan) -> None:
        """Make sure that no newer instance has taken over since.

        Raises: FencedError.
        """
        commit_lease(self.producer, plan, self.state.lease)


def commit_lease(driver: TransactionalProducer, plan: Plan, lease: Lease) -> None:
    """Commit a lease.  Raises: FencedError, if a newer driver has fenced this one."""
    with driver.transaction() as producer:
        transactions.produce_lease(producer, plan.commits_topic, lease)


def take_over(
    plan: Plan,
    settings: Settings,
    metadata: CheckpointMetadata,
    look: Callable[[], Logged],
    accepted: Callable[[], None],
    holder: str,
    incarnation: int = 0,
) -> Takeover:
    """Become the one instance of the pipeline.

    `look` reads the checkpoint's logs; it is called after the lease is taken and the commit
    records are read.  `accepted` is called when everything fits and missing topics are created,
    before anything is written.  `incarnation` is the one that this run had before it was
    restarted; 0 at its first start.

    Raises:
        AccessError: the brokers do not let us do what a pipeline has to do.
        CheckpointError: checkpoint, commit records and output topics do not belong together.
        FencedError: an even newer instance came in between, or since `incarnation`.
    """
    with closing(KafkaBrokers(plan, settings, metadata.id, metadata.shards)) as brokers:
        state = takeover.take_over(plan, metadata, brokers, look, accepted, holder, incarnation)
        return Takeover(brokers.producer, state)


class KafkaBrokers:
    """The brokers of a pipeline, for one start; see `checkpoint.takeover.Brokers`.

    It can fence others only with the id of a `checkpoint`, and makes topics for so many `shards`.
    """

    producer: TransactionalProducer
    """The driver's, once older drivers are fenced."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        checkpoint: str = "",
        shards: int = 0,
        reader: RangeReader | None = None,
    ) -> None:
        self._plan, self._settings = plan, settings
        self._checkpoint, self._shards = checkpoint, shards
        self._sink = settings.writing_kafka
        self.admin = client.admin(settings.kafka)
        self.reader = RangeReader(settings.kafka) if reader is None else reader
        self.holds = False
        """Whether older drivers are fenced."""
        # By shard, an offset after all records that others committed before they were fenced.
        self._ends: dict[int, int] = {}

    def hold_lease(self) -> None:
        self.producer = self._transactions(transactions.driver_id(self._checkpoint))
        self.holds = True

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return topics.describe(self.admin, names)

    def last_lease(self) -> Lease | None:
        topic = self._plan.commits_topic
        return transactions.last_lease(self.reader, topic, self._end_of(topic))

    def fence(self, shard: int) -> Callable[[CommitRecord], None]:
        topic = self._plan.commits_topic
        fenced = self._transactions(transactions.task_id(self._checkpoint, shard))
        self._ends[shard] = fenced.end_of(topic, transactions.partition_of_shard(shard))
        return functools.partial(commit_alone, fenced, topic)

    def last_commit(self, shard: int) -> CommitRecord | None:
        end = self._ends.get(shard)
        return transactions.last_commit(self.reader, self._plan.commits_topic, shard, end)

    def shown(self, output: Output, existing: Mapping[str, TopicInfo]) -> OutputState:
        last, begins, policy = None, 0, ""
        if output.progress_topic in existing:
            end = self._end_of(output.progress_topic)
            last = last_progress(self.reader, output.progress_topic, end)
            begins, _ = self.reader.watermarks(output.progress_topic, 0)
        if output.topic in existing:
            policy = topics.settings_of(self.admin, output.topic).get("cleanup.policy", "delete")
        return OutputState(last, begins, existing.get(output.topic), policy)

    def make_topics(self, existing: Mapping[str, TopicInfo]) -> None:
        plan, settings, shards = self._plan, self._settings, self._shards
        if own_topics.create(plan, settings, shards, self.admin, existing):
            # The brokers report rights to a topic only when it exists.
            rights.require_rights(plan, settings, shards)

    def commit_lease(self, lease: Lease) -> None:
        commit_lease(self.producer, self._plan, lease)

    def close(self) -> None:
        self.reader.close()

    def _end_of(self, topic: str) -> int | None:
        """An offset after all that older drivers committed to a topic; None if they may go on."""
        return self.producer.end_of(topic, 0) if self.holds else None

    def _transactions(self, transactional_id: str) -> TransactionalProducer:
        within_s = self._settings.max_batch_s
        return TransactionalProducer(dict(self._sink), transactional_id, within_s)


def read_remains(plan: Plan, settings: Settings) -> Remains:
    """Read the topics of a pipeline; nothing is changed, and nobody is fenced.

    An instance that died may have left an open transaction.  What is after it is known from the
    commit records of other shards.

    Raises: IkebanaError, if the brokers do not answer or an input is missing.
    """
    client.reach(settings.reading_kafka)
    reader = _StableReader(settings.kafka, client.admin(settings.kafka))
    with closing(KafkaBrokers(plan, settings, reader=reader)) as brokers:
        return _Looking(plan, settings, brokers).left()


def recover(
    plan: Plan, settings: Settings, left: Remains, checkpoint: Checkpoint
) -> CheckpointMetadata:
    """Make the metadata of a checkpoint that goes on where the lost one has ended.

    `left` had no problems; any change since then is refused.

    Raises:
        CheckpointError: it can't be recovered any more.
        FencedError: an instance of the lost checkpoint is starting at this moment.
    """
    assert left.lease is not None, "nothing is left to go on from"
    lost = left.lease.checkpoint
    with closing(KafkaBrokers(plan, settings, lost)) as brokers:
        brokers.hold_lease()
        writers = {shard: brokers.fence(shard) for shard in left.commits}
        left = _Looking(plan, settings, brokers).left()
        lease = left.lease
        problems = [
            f"{each.path} {each.reason}" for each in recovering.rebuild_problems(plan, left)
        ]
        if lease is None or lease.checkpoint != lost or problems:
            raise CheckpointError(
                f"what is left of pipeline {plan.name!r} has changed while it was recovered"
                + "".join(f"; {each}" for each in problems),
                hint="Look again with --plan.",
            )
        metadata = metadata_of(
            settings.checkpoint, plan, settings.shards, recovering.rebuild(plan, left)
        )
        metadata = replace(metadata, id=lost, epoch=lease.epoch + 1, first_batch=left.batch + 1)
        ids = {
            name: left.topic_ids[name] for name in lasting_topics(plan) if name in left.topic_ids
        }
        incarnation, holder = lease.incarnation + 1, f"{socket.gethostname()}:{os.getpid()}"
        brokers.commit_lease(Lease(lost, metadata.epoch, incarnation, holder, ids))
        for shard, write in writers.items():
            retired = shard >= metadata.shards
            commit = first_commit(metadata, plan, shard)
            write(replace(commit, incarnation=incarnation, retired=retired))
    processes.fault_point("before_recovered", metadata.epoch)
    checkpoint.write(metadata)
    return metadata


class _StableReader(RangeReader):
    """A reader that takes the first open transaction of a partition as its end."""

    def __init__(self, settings: Mapping[str, str], admin: AdminClient) -> None:
        super().__init__(settings)
        self._admin = admin

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Read the first offset of a partition and its last stable one."""
        low, _ = super().watermarks(topic, partition)
        return low, topics.ends(self._admin, {topic: partition + 1})[topic][partition]


class _Looking:
    """The questions to the brokers about a pipeline, asked once.

    If its writers are fenced, no transaction is open, and all of their records are read.
    """

    def __init__(self, plan: Plan, settings: Settings, brokers: KafkaBrokers) -> None:
        self._plan, self._settings, self._brokers = plan, settings, brokers
        self._inputs: AdminClient = client.admin(settings.reading_kafka)

    def left(self) -> Remains:
        plan, brokers = self._plan, self._brokers
        read = topics.describe(self._inputs, plan.topics)
        if (refusal := topics_refusal(list(plan.topics), read, {})) is not None:
            raise refusal.error()
        asked = {name: topic.partitions for name, topic in read.items()}
        written = [t for output in plan.published for t in (output.topic, output.progress_topic)]
        existing = brokers.topics([plan.commits_topic, plan.exchange_topic, *written])
        shards, lease = 0, None
        if plan.commits_topic in existing:
            shards = transactions.shards_of(existing[plan.commits_topic].partitions)
            lease = brokers.last_lease()
        last = {shard: brokers.last_commit(shard) for shard in range(shards)}
        outputs = {o.name: brokers.shown(o, existing) for o in plan.published}
        had, lost = self._had(existing)
        ends = topics.ends(self._inputs, asked)
        return Remains(
            lease=lease,
            commits=last,
            outputs=outputs,
            unclosed={
                output.name: recovering.unclosed_records(
                    self._unclosed(output, outputs[output.name], lost),
                    output.name,
                    -1 if (closed := outputs[output.name].last) is None else closed.batch,
                    last.values(),
                )
                for output in plan.published
            },
            lost=lost,
            read_back=had,
            begins=topics.beginnings(self._inputs, asked),
            ends=ends,
            policies={
                name: topics.settings_of(self._inputs, name).get("cleanup.policy", "delete")
                for name in asked
            },
            topic_ids={name: topic.id for name, topic in {**existing, **read}.items()},
            exchanges=self._exchanges(existing),
            starts=self._starts(asked, ends),
        )

    def _starts(self, partitions: Mapping[str, int], ends: Positions) -> Positions:
        """Find the offsets at which inputs begin that start in the middle of their topics."""
        result = {}
        for source in self._plan.inputs:
            place = starts.place_of(source.start)
            for topic in source.topics:
                asked = {topic: partitions[topic]}
                if isinstance(place, starts.AtOffsets):
                    result[topic] = dict(place.offsets)
                elif isinstance(place, starts.AtTime):
                    later = topics.at_time(self._inputs, asked, place.ms)[topic]
                    result[topic] = {**ends[topic], **later}
        return result

    def _had(self, existing: Mapping[str, TopicInfo]) -> tuple[Ends, dict[str, str]]:
        """The offsets of outputs' contents in their topics, and why some cannot be read."""
        offsets: dict[str, Mapping[int, tuple[int, int]]] = {}
        lost = {}
        for output in self._plan.published:
            if output.topic not in existing or output.traits.codec is not None:
                continue
            try:
                offsets |= own_topics.contents(self._settings.kafka, [output.topic])
            except SourceError as error:
                lost[output.name] = error.message
        return offsets, lost

    def _unclosed(
        self,
        output: Output,
        has: OutputState,
        lost: Mapping[str, str],
    ) -> Unclosed:
        """Count the records of an output after the end of its last progress.

        For a format that cannot be retracted, offsets are counted, as nothing reads its messages.
        """
        if has.topic is None or output.name in lost:
            return Unclosed()
        ask = topics.high_watermarks if self._brokers.holds else topics.ends
        ends = ask(self._brokers.admin, {output.topic: has.topic.partitions})
        last = has.last
        starts, stand = ({}, 0) if last is None else (last.ends, last.upper)
        ranges = [
            Range(output.topic, partition, starts.get(partition, 0), end)
            for partition, end in ends[output.topic].items()
            if end > starts.get(partition, 0)
        ]
        if output.traits.codec is not None:
            return Unclosed(sum(each.end - each.start for each in ranges))
        times = [
            time
            for at, messages in self._brokers.reader.read(ranges)
            for message in messages
            for time in _times(output, at, message)
            if time >= stand
        ]
        return Unclosed(len(times), max(times, default=-1))

    def _exchanges(self, existing: Mapping[str, TopicInfo]) -> dict[int, int]:
        """The ends of the exchange topic: all of its messages belong to the lost state."""
        name = self._plan.exchange_topic
        if name not in existing:
            return {}
        return topics.high_watermarks(self._brokers.admin, {name: existing[name].partitions})[name]


def _times(output: Output, at: Range, record: KafkaMessage) -> list[int]:
    """The times of the updates of a message.

    Raises:
        SourceError: the message does not have the output's format.
    """
    message = Message(record.offset(), record.key(), record.value(), record.headers())
    try:
        updates = updates_of(output, at.topic, at.partition, message)
    except DecodeError as error:
        raise SourceError(
            f"cannot read {at.topic}[{at.partition}]@{message.offset} as {output.format}: "
            f"{error.reason}",
            hint="Something other than ikebana has written to the topic of output "
            f"{output.name!r}. Start with a new checkpoint, a new name of the pipeline, and new "
            "output topics.",
        ) from None
    return [update.time for update in updates]
