"""Take over a pipeline on its brokers; `checkpoint.takeover` has the steps and their order."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.checkpoint import takeover
from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.commits import Lease, Marker
from ikebana.processor.checkpoint.starting import OutputState
from ikebana.processor.checkpoint.takeover import TakeoverState
from ikebana.processor.kafka import client, markers, own_topics, rights, topics
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer, commit_marker
from ikebana.processor.planning.plan import Output, Plan


class Takeover(NamedTuple):
    """The result of a take-over, with which the driver may start: its producer, and the state."""

    lease: TransactionalProducer
    state: TakeoverState

    @property
    def incarnation(self) -> int:
        """The number of this instance."""
        return self.state.lease.incarnation

    def confirm(self, plan: Plan) -> None:
        """Make sure that no newer instance has taken over since.

        Raises: FencedError.
        """
        commit_lease(self.lease, plan, self.state.lease)


def commit_lease(holder: TransactionalProducer, plan: Plan, lease: Lease) -> None:
    """Commit a lease.  Raises: FencedError, if a newer driver has fenced this one."""
    with holder.transaction() as producer:
        markers.produce_lease(producer, plan.markers_topic, lease)


def take_over(
    plan: Plan,
    settings: Settings,
    birth: Birth,
    look: Callable[[], Logged],
    accepted: Callable[[], None],
    holder: str,
    incarnation: int = 0,
) -> Takeover:
    """Become the one instance of the pipeline.

    `look` reads the checkpoint's logs; it is called after the lease is taken and the markers are
    read.  `accepted` is called when everything fits and missing topics are created, before
    anything is written.  `incarnation` is the one that this run had before it was restarted; 0 at
    its first start.

    Raises:
        AccessError: the brokers do not let us do what a pipeline has to do.
        CheckpointError: checkpoint, markers and output topics do not belong together.
        FencedError: an even newer instance came in between, or since `incarnation`.
    """
    with closing(KafkaBrokers(plan, settings, birth.id, birth.shards)) as brokers:
        state = takeover.take_over(plan, birth, brokers, look, accepted, holder, incarnation)
        return Takeover(brokers.lease, state)


class _Claimant:
    def __init__(self, transactions: TransactionalProducer, topic: str) -> None:
        self._transactions, self._topic = transactions, topic

    def commit(self, marker: Marker) -> None:
        commit_marker(self._transactions, self._topic, marker)


class KafkaBrokers:
    """The brokers of a pipeline, for one start; see `checkpoint.takeover.Brokers`.

    It can fence others only with the id of a `checkpoint`, and makes topics for so many `shards`.
    """

    lease: TransactionalProducer

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
        self.lease = self._transactions(markers.driver_id(self._checkpoint))
        self.holds = True

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return topics.describe(self.admin, names)

    def last_lease(self) -> Lease | None:
        topic = self._plan.markers_topic
        end = self.lease.end_of(topic, 0) if self.holds else None
        return markers.last_lease(self.reader, topic, end)

    def fence(self, shard: int) -> _Claimant:
        topic = self._plan.markers_topic
        fenced = self._transactions(markers.task_id(self._checkpoint, shard))
        self._ends[shard] = fenced.end_of(topic, markers.partition_of(shard))
        return _Claimant(fenced, topic)

    def last_marker(self, shard: int) -> Marker | None:
        end = self._ends.get(shard)
        return markers.last_marker(self.reader, self._plan.markers_topic, shard, end)

    def shown(self, output: Output, existing: Mapping[str, TopicInfo]) -> OutputState:
        last, begins, policy = None, 0, ""
        if output.progress_topic in existing:
            last = last_progress(self.reader, output.progress_topic)
            begins, _ = self.reader.watermarks(output.progress_topic, 0)
        if output.topic in existing:
            policy = topics.settings_of(self.admin, output.topic).get("cleanup.policy", "delete")
        return OutputState(last, begins, existing.get(output.topic), policy)

    def make_topics(self, existing: Mapping[str, TopicInfo]) -> None:
        plan, settings, shards = self._plan, self._settings, self._shards
        if own_topics.create(plan, settings, shards, self.admin, existing):
            # The brokers report rights to a topic only when it exists.
            rights.demand(plan, settings, shards)

    def commit_lease(self, lease: Lease) -> None:
        commit_lease(self.lease, self._plan, lease)

    def close(self) -> None:
        self.reader.close()

    def _transactions(self, transactional_id: str) -> TransactionalProducer:
        within_s = self._settings.max_batch_s
        return TransactionalProducer(dict(self._sink), transactional_id, within_s)
