"""What is asked of Kafka's clients, and what their answers come to; the clients are scripted."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.codecs.diff import ProgressRecord, decode_progress
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka import client, own_topics, progress_topic, topics, transactions
from ikebana.processor.kafka.inputs import ExchangeEnds
from ikebana.processor.kafka.own_topics import Trimming
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer
from support.admin_answers import Answer, Described, Offset
from support.histories import PLAN, commit
from support.waiting import wait_until


@dataclass(frozen=True)
class Event:
    """A message, or an error at an offset."""

    at: int
    code: int | None = None
    of: str = "t"

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


@dataclass
class Script:
    """A consumer that gives these events, one at a time."""

    events: deque[Event]

    def poll(self, _: float) -> Event | None:
        return self.events.popleft() if self.events else None

    def consume(self, _: int, __: float) -> list[Event]:
        return [self.events.popleft()] if self.events else []

    def list_topics(self, *_: object, **__: object) -> None: ...
    def assign(self, _: object) -> None: ...
    def unassign(self) -> None: ...
    def incremental_unassign(self, _: object) -> None: ...


EOF = KafkaError._PARTITION_EOF


def read(
    monkeypatch: pytest.MonkeyPatch, events: Iterable[Event], wanted: Range, patience_s: float = 5
) -> list[int]:
    monkeypatch.setattr(client, "consumer", lambda _: Script(deque(events)))
    found = RangeReader({}).read([wanted], patience_s)
    return [message.offset() for _, messages in found for message in messages]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([Event(0), Event(1), Event(2)], [0, 1, 2], id="all of it"),
        pytest.param([Event(0), Event(1), Event(3, EOF)], [0, 1], id="ends with a marker"),
        pytest.param([Event(0), Event(5)], [0], id="a record beyond it"),
        pytest.param(
            [Event(1, EOF), Event(1), Event(2, EOF), Event(2)], [1, 2], id="not stable yet"
        ),
        pytest.param([Event(0, of="other"), Event(2)], [2], id="left over of another range"),
    ],
)
def test_a_range_is_read_when_the_position_has_reached_its_end(
    monkeypatch: pytest.MonkeyPatch, events: list[Event], expected: list[int]
) -> None:
    """R6. An end of the partition below the range's own means wait."""
    assert read(monkeypatch, events, Range("t", 0, 0, 3)) == expected


def test_a_long_range_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """R6. Many are taken at once, and none is left."""
    assert read(monkeypatch, map(Event, range(300)), Range("t", 0, 0, 300)) == [*range(300)]


@pytest.mark.parametrize(
    ("events", "error"),
    [
        pytest.param([Event(0, KafkaError._AUTO_OFFSET_RESET)], SourceError, id="gone"),
        pytest.param([Event(0), Event(1, EOF)], AwayError, id="does not come"),
    ],
)
def test_a_range_that_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, events: list[Event], error: type[SourceError]
) -> None:
    """R6. It is never taken for a shorter one."""
    with pytest.raises(error, match=r"t\[0\]@"):
        read(monkeypatch, events, Range("t", 0, 0, 3), patience_s=0)


def test_a_consumer_reads_what_is_committed_and_nothing_in_place_of_what_is_gone() -> None:
    """R6. Whatever the user's settings say."""
    theirs = {"auto.offset.reset": "earliest", "isolation.level": "read_uncommitted"}
    found = client.consumer_settings(theirs)

    assert found["auto.offset.reset"] == "error"
    assert found["isolation.level"] == "read_committed"
    assert found["enable.partition.eof"] == "true"


def test_a_transaction_lasts_as_long_as_the_longest_batch() -> None:
    """R5. One that the brokers end before would fail the batch."""
    found = client.producer_settings({"transaction.timeout.ms": "1"}, "id", 90.5)

    assert found["transaction.timeout.ms"] == "90500"
    assert found["transactional.id"] == "id"


def test_transactional_ids_are_those_of_a_checkpoint() -> None:
    """R4. Another checkpoint's tasks neither fence ours nor are fenced."""
    makers = (
        transactions.driver_id,
        transactions.trial_id,
        lambda checkpoint: transactions.task_id(checkpoint, 0),
        lambda checkpoint: transactions.task_id(checkpoint, 1),
    )
    ids = [make(checkpoint) for make in makers for checkpoint in ("one", "two")]

    assert len({*ids}) == len(ids)


@dataclass
class Sent:
    """A producer in a transaction: what is visible, and what is not yet."""

    committed: list[tuple[str, Any]] = field(default_factory=list)
    opened: list[tuple[str, Any]] = field(default_factory=list)

    def begin_transaction(self) -> None:
        self.opened = []

    def produce(self, topic: str, value: Any = None, *_: Any, **__: Any) -> None:
        self.opened.append((topic, value))

    def abort_transaction(self, _: float) -> None:
        self.opened = []

    def commit_transaction(self, _: float) -> None:
        self.committed += self.opened


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    producer = Sent()
    monkeypatch.setattr(transactions, "transactional_producer", lambda *_: producer)
    return producer


def test_an_error_commits_nothing(sent: Sent) -> None:
    """R1. Half a batch is never seen, and the error goes on."""
    held = TransactionalProducer({}, "id", 1)

    def half() -> None:
        with held.transaction() as producer:
            producer.produce("t", b"1")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        half()

    assert sent.committed == []
    with held.transaction() as producer:
        producer.produce("t", b"2")
    assert sent.committed == [("t", b"2")]


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_message_that_is_too_large_is_told_with_its_remedy(sent: Sent, code: int) -> None:
    """It is no matter of how long a batch may take, and would be the same after a restart."""
    error = KafkaError(code, "ProduceRequest for out [0] failed", *(False, False, True))

    def refuse(_: float) -> None:
        raise KafkaException(error)

    sent.commit_transaction = refuse  # type: ignore[method-assign]
    held = TransactionalProducer({}, "id", 1)

    with pytest.raises(SourceError, match=r"for out \[0\]") as raised, held.transaction():
        pass

    assert not isinstance(raised.value, AwayError)
    assert "max.message.bytes" in str(raised.value.hint)


class Answers:
    """An admin client of topics with one partition, in which a transaction is open."""

    STABLE, HIGH = 5, 8

    def __init__(self) -> None:
        self.deleted: list[dict[int, int]] = []
        self.away = False

    def describe_topics(self, asked: Any, **_: object) -> Mapping[str, Answer]:
        return {name: Answer(Described("id", [0])) for name in asked.topic_names}

    def list_offsets(
        self, asked: Mapping[Any, object], isolation_level: IsolationLevel, **_: object
    ) -> Mapping[Any, Answer]:
        stable = isolation_level == IsolationLevel.READ_COMMITTED
        return {at: Answer(Offset(self.STABLE if stable else self.HIGH)) for at in asked}

    def delete_records(self, asked: Sequence[Any], **_: object) -> Mapping[Any, Answer]:
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.deleted.append({at.partition: at.offset for at in asked})
        return {}


def as_admin(answers: Answers) -> AdminClient:
    scripted: Any = answers
    made: AdminClient = scripted
    return made


def test_ends_to_read_up_to_are_stable() -> None:
    """R6. A reader of committed records cannot reach the high watermark."""
    assert topics.ends(as_admin(Answers()), {"t": 1}) == {"t": {0: Answers.STABLE}}
    assert topics.high_watermarks(as_admin(Answers()), {"t": 1}) == {"t": {0: Answers.HIGH}}


def test_progress_ends_are_high_watermarks(sent: Sent) -> None:
    """R20. The last stable offset moves only after a commit has returned."""
    batch = [commit(0, 4, intervals={o.name: (4, 5) for o in PLAN.published})]

    found = progress_topic.publish(
        PLAN, TransactionalProducer({}, "id", 1), as_admin(Answers()), batch
    )

    assert [record.ends for record in found] == [{0: Answers.HIGH}] * len(PLAN.published)
    assert [_decoded(value) for _, value in sent.committed] == found
    assert [topic for topic, _ in sent.committed] == [o.progress_topic for o in PLAN.published]


def _decoded(value: bytes) -> ProgressRecord:
    return decode_progress(value)


def test_what_no_batch_reads_again_is_deleted() -> None:
    """R13. What could not be deleted is, with more, after a later batch."""
    admin = Answers()
    trimming = Trimming(as_admin(admin), "exchange", retained=2)
    for batch in range(5):
        admin.away = batch == 3
        trimming.after([commit(0, batch, exchanges_from=batch * 10)])

    # After batch 4 those from 3 on are retained: 2 batches, and the one that may be redone.
    assert admin.deleted == [{0: 20}]


def test_the_exchange_topic_is_asked_once_for_each_batch() -> None:
    """R13. What one batch has written, the next one reads."""
    ends, asked = ExchangeEnds(), iter([{0: 1}, {0: 2}])

    found = [ends.after(batch, lambda: next(asked)) for batch in (0, 0, 1, 1)]

    assert found == [{0: 1}, {0: 1}, {0: 2}, {0: 2}]


def test_topics_are_made_to_last() -> None:
    """R4, R10. Commit records (of which the newest counts), diffs, progress have no retention."""
    settings = Settings("/nowhere", {"bootstrap.servers": "localhost:1"}, shards=2)
    outputs = {output.topic for output in PLAN.published}

    made = {
        name: (count, its) for name, count, its in own_topics.missing(PLAN, settings, 2, outputs)
    }

    count, its = made.pop(PLAN.commits_topic)
    assert count == 3
    assert its["cleanup.policy"] == "compact"
    assert not {"retention.ms", "retention.bytes"} & {*its}
    assert {*made} == {output.progress_topic for output in PLAN.published}
    for count, its in made.values():
        assert count == 1
        assert its["cleanup.policy"] == "delete"
        assert (its["retention.ms"], its["retention.bytes"]) == ("-1", "-1")


class Partition(Script):
    """A consumer of one partition of ten records, from where it is assigned."""

    def assign(self, to: list[TopicPartition]) -> None:  # type: ignore[override]
        (place,) = to
        self.events = deque(map(Event, range(place.offset, 10)))


def test_ranges_of_one_partition_are_read_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of an input that is read again beside others; a consumer reads at one place."""
    monkeypatch.setattr(client, "consumer", lambda _: Partition(deque()))
    ranges = [Range("t", 0, 0, 3), Range("t", 0, 4, 4), Range("t", 0, 7, 9)]
    found: dict[Range, list[int]] = {}
    for at, messages in RangeReader({}).read(ranges):
        found.setdefault(at, []).extend(message.offset() for message in messages)

    assert found == {ranges[0]: [0, 1, 2], ranges[2]: [7, 8]}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._DESTROY_BROKER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_broker_of_several_that_is_lost_may_come_back(code: int) -> None:
    """librdkafka calls none of these retriable, wherever they come from."""
    error = KafkaException(KafkaError(code))

    assert isinstance(client.away_error(error), AwayError)
    assert client.away_name_in(f"Exception: {error!r}") is not None


def test_updates_lie_in_kafka_with_their_time_and_diff_as_headers() -> None:
    """In the partitions of their keys, with the time at which they were written.

    The brokers are those that librdkafka has for tests.
    """
    producer = TransactionalProducer({"test.mock.num.brokers": "1"}, "t", 10)
    updates = [
        KeyedUpdate(b"k%d" % at, b"v", at // 3, 1 - at % 3) for at in range(9) if at % 3 != 1
    ]
    with producer.transaction() as sender:
        assert producer.produce("t", updates) == len(updates)
        for at in range(9):
            sender.produce("t", value=b"named", key=b"k%d" % at)
    (broker,) = sender.list_topics(timeout=10).brokers.values()
    consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "t"})
    partitions = sender.list_topics("t", timeout=10).topics["t"].partitions
    consumer.assign([TopicPartition("t", partition, 0) for partition in partitions])
    found: list[Any] = []

    def all_read() -> bool:
        found.extend(m for m in consumer.consume(100, 0.1) if m.error() is None)
        return len(found) == len(updates) + 9

    wait_until(all_read, 20, "all records have been read")
    consumer.close()
    told = {m.key(): (m.value(), m.headers()) for m in found if m.headers()}
    now_ms = time.time() * 1000

    assert told == {
        key: (value, [("time", b"%d" % at), ("diff", b"%d" % diff)])
        for key, value, at, diff in updates
    }
    assert {(m.key(), m.partition()) for m in found if m.headers()} <= {
        (m.key(), m.partition()) for m in found if not m.headers()
    }
    assert all(now_ms - m.timestamp()[1] < 600_000 for m in found)


def test_an_empty_address_is_refused_before_anybody_is_asked() -> None:
    """librdkafka would try ten seconds to reach nobody."""
    with pytest.raises(ConfigError, match="no brokers are named") as error:
        client.reach({"bootstrap.servers": " "})

    assert error.value.hint == "Give --bootstrap-servers HOST:PORT."
