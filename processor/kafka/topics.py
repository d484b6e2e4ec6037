"""Ask brokers about topics (partitions, ids, offsets), and create topics.

The partition of a key is by the hash that Kafka's clients use.  A topic that is read for long
must not be replaced by another one of its name (`ReadTopics`).
"""

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ikebana.errors import SourceError
from ikebana.processor.base.offsets import Positions, TopicInfo
from ikebana.processor.kafka import client
from ikebana.processor.kafka.client import REQUEST_S, Result, patiently, with_leaders

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995

AskOffsets = Callable[[AdminClient, Mapping[str, int]], Positions]
"""A question for offsets, such as `ends`."""

# How long to ask again for a topic that existed: a broker may not have heard of it yet.
_GONE_S = 5.0
_PAUSE_S = 0.5
NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
"""The codes for a topic that does not exist, and for a name that no topic can have."""


def describe(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Describe the topics of these names that exist."""
    asked = collection_of(names)

    def ask() -> dict[str, TopicInfo]:
        described = {}
        answers = admin.describe_topics(asked, request_timeout=REQUEST_S)
        for name, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                if error.args[0].code() in NO_TOPIC:
                    continue
                raise
            described[name] = TopicInfo(str(description.topic_id), len(description.partitions))
        return described

    return patiently(ask, "the brokers")


def collection_of(names: Iterable[str]) -> TopicCollection:
    """The topics of these names; the client refuses to ask for an empty one."""
    return TopicCollection([name for name in names if name])


def ends(admin: AdminClient, partitions: Mapping[str, int]) -> Positions:
    """Read the last stable offset of each partition, before the first open transaction.

    `partitions` has the numbers of partitions by topic.  A reader of committed records can
    reach these offsets, but perhaps not the high watermarks.
    """
    return _offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)


def high_watermarks(admin: AdminClient, partitions: Mapping[str, int]) -> Positions:
    """Read the offset after the last record of each partition, committed or not.

    When a commit has returned, all records of the transaction lie before this offset; the
    last stable offset moves a moment later.
    """
    return _offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def beginnings(admin: AdminClient, partitions: Mapping[str, int]) -> Positions:
    """Read the first offset of each partition that still exists."""
    return _offsets(admin, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)


def at_time(admin: AdminClient, partitions: Mapping[str, int], ms: int) -> Positions:
    """Read the offset of the first record at or after a time, in each partition.

    The time is in milliseconds since 1970.  Partitions without such a record are left out.
    """
    which = OffsetSpec.for_timestamp(ms)
    offsets = _offsets(admin, partitions, which, IsolationLevel.READ_COMMITTED, or_none=True)
    return {t: {p: at for p, at in by.items() if at >= 0} for t, by in offsets.items()}


def _offsets(
    admin: AdminClient,
    partitions: Mapping[str, int],
    which: OffsetSpec,
    isolation: IsolationLevel,
    *,
    or_none: bool = False,
) -> Positions:
    asked = {
        TopicPartition(topic, partition): which
        for topic, count in partitions.items()
        for partition in range(count)
    }

    def ask() -> Positions:
        offsets: Positions = {topic: {} for topic in partitions}
        answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_S)
        for at, answer in answers.items():
            offsets[at.topic][at.partition] = answer.result().offset
        if not or_none and any(offset < 0 for by in offsets.values() for offset in by.values()):
            # While a broker comes back there may be neither an offset nor an error.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return offsets

    if not asked:
        return {topic: {} for topic in partitions}
    return patiently(lambda: with_leaders(ask, admin, partitions), "the brokers")


def from_leaders(
    ask: Callable[[], Result],
    admin: AdminClient,
    are_old: Callable[[Result], bool],
    patience_s: float,
) -> Result:
    """Ask for the ends of partitions until they are not old; return the last answer after a time.

    A broker that was replaced as a partition's leader, and has not noticed it, answers with an old
    end.  A reader that believed it would miss records.
    """
    deadline = time.monotonic() + patience_s
    while are_old(ends := ask()) and time.monotonic() < deadline:
        # Metadata from some other broker choose whom the client asks next.
        patiently(lambda: admin.list_topics(timeout=REQUEST_S), "the brokers")
        time.sleep(_PAUSE_S)
    return ends


def settings_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """Read the settings of an existing topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def ask() -> dict[str, str]:
        answer = admin.describe_configs([resource], request_timeout=REQUEST_S)[resource]
        return {name: entry.value for name, entry in answer.result().items()}

    return patiently(ask, f'topic "{topic}"')


def create(
    admin: AdminClient, name: str, partitions: int, replication: int, settings: Mapping[str, str]
) -> None:
    """Create a topic; an existing one is left as it is."""
    new = NewTopic(name, partitions, replication, config=dict(settings))

    def ask() -> None:
        try:
            admin.create_topics([new], request_timeout=REQUEST_S)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    patiently(ask, f'topic "{name}"')
    patiently(lambda: _described(admin, name), f'topic "{name}"')


def add_partitions(admin: AdminClient, name: str, partitions: int) -> None:
    """Raise the number of partitions of a topic."""
    from confluent_kafka.admin import NewPartitions

    patiently(
        lambda: admin.create_partitions([NewPartitions(name, partitions)])[name].result(),
        f'topic "{name}"',
    )


def _described(admin: AdminClient, name: str) -> None:
    """Raise a retriable error until the brokers name leaders for a new topic."""
    topic = admin.list_topics(name, timeout=REQUEST_S).topics[name]
    # A broker that has not heard of the topic yet says that there is none.
    if topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise KafkaException(topic.error)
    if not topic.partitions or any(p.leader < 0 for p in topic.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def write_records(
    servers: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> None:
    """Create a topic with one partition, and write records into it in order."""
    settings = {"bootstrap.servers": servers}
    create(client.admin(settings), topic, 1, 1, {})
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 50, "log_level": 0})
    for key, value in records:
        client.enqueue(producer, topic, key=key, value=value)
    producer.flush()


def murmur2(data: bytes) -> int:
    """Compute the murmur2 hash that Kafka's clients use, an unsigned number of 32 bits.

    >>> hex(murmur2(b"kafka"))
    '0xd067cf64'
    """
    size = len(data)
    hashed = (0x9747B28C ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        part ^= part >> 24
        hashed = (hashed * _M & _MASK) ^ (part * _M & _MASK)
    if size > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _M & _MASK
    return hashed ^ (hashed >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Choose the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class NoTopicError(SourceError):
    """There is no topic of this name, or none yet."""


class ReadTopics:
    """A topic that is read, with its progress and snapshots; `topic_id` is its id, if known."""

    def __init__(self, admin: AdminClient, topic: str, topic_id: str | None = None) -> None:
        self._admin, self._topic = admin, topic
        self._ids: dict[str, str] = {} if topic_id is None else {topic: topic_id}

    def described(self, *names: str) -> dict[str, TopicInfo]:
        """Describe the topics that exist.

        Raises:
            SourceError: a topic that was seen before was deleted.
        """
        deadline = time.monotonic() + _GONE_S
        while True:
            existing = describe(self._admin, names)
            ids = {name: topic.id for name, topic in existing.items()}
            gone = [name for name in names if self._ids.get(name) not in (None, ids.get(name))]
            if not gone:
                self._ids |= ids
                return existing
            if time.monotonic() >= deadline:
                raise self._deleted(gone[0], anew=gone[0] in existing)
            time.sleep(_PAUSE_S)

    def existing_id(self) -> str:
        """The id of the topic.  Raises: NoTopicError."""
        if self._topic not in (described := self.described(self._topic)):
            raise NoTopicError(
                f'cannot read topic "{self._topic}": it does not exist',
                hint="Check its name and --bootstrap-servers; "
                "the first run of a pipeline makes its topics.",
            )
        return described[self._topic].id

    def offsets(self, ask: AskOffsets, name: str, partitions: int | None = None) -> dict[int, int]:
        """Ask for offsets of the partitions of a topic, by default of all of them.

        Raises:
            SourceError: the topic, or another one that was seen before, was deleted.
        """
        if partitions is None:
            partitions = self.described(name)[name].partitions
        try:
            return ask(self._admin, {name: partitions})[name]
        except KafkaException:
            # This finds out whether a topic is gone or the brokers are away.
            self.described(*self._ids)
            raise

    def reaching(self, ask: AskOffsets, name: str, least: Mapping[int, int]) -> dict[int, int]:
        """Ask for the ends of the partitions in `least` until they are not before those there.

        An end that is before `least` after some seconds is returned.

        Raises: SourceError, as `offsets`.
        """
        return from_leaders(
            lambda: self.offsets(ask, name, 1 + max(least)),
            self._admin,
            lambda offsets: any(offsets.get(p, 0) < end for p, end in least.items()),
            _GONE_S,
        )

    def _deleted(self, gone: str, *, anew: bool) -> SourceError:
        message = f'cannot go on reading "{self._topic}": topic "{gone}" was deleted'
        if anew:
            return SourceError(
                f"{message} and created again",
                hint="Read it from its beginning: begin again, and leave a token out.",
            )
        return SourceError(
            message,
            hint="Its updates cannot be written again: start its pipeline with a new checkpoint "
            "and new output topics, and read those.",
        )
