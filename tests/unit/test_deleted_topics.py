"""Topics that are deleted, or not there yet, while they are followed; the brokers are scripted."""

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from ikebana.codecs.diff import ProgressRecord
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import ClosedBatch
from ikebana.processor.kafka import client, following, topics
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.kafka.following import Cdcv2Topic
from ikebana.serving.service import Service, ServiceOptions
from support.admin_answers import Answer
from support.served_topics import KEEP_ALL
from support.waiting import wait_until

OUT, PROGRESS, SNAPSHOT = "out", "out.progress", "out.snapshot"
CLOSED = ProgressRecord("c", "p", OUT, 0, 0, 10, 0, {0: 0}, "upserts")
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART


@dataclass
class Brokers:
    """An admin client of topics with one partition, by id; the progress has one record.

    So many of the next descriptions come from a broker that has heard of no topic, so many of the
    next questions for offsets fail, and so many are answered by one that leads no longer.
    """

    ids: dict[str, str] = field(default_factory=lambda: {OUT: "1", PROGRESS: "2"})
    unheard: int = 0
    failing: int = 0
    deposed: int = 0

    def describe_topics(self, asked: Any, **_: object) -> Mapping[str, Answer]:
        ids = {} if self.unheard else self.ids
        self.unheard = max(0, self.unheard - 1)
        return {
            name: Answer(
                SimpleNamespace(topic_id=ids[name], partitions=[0])
                if name in ids
                else KafkaException(KafkaError(UNKNOWN))
            )
            for name in asked.topic_names
        }

    def list_offsets(
        self, asked: Mapping[Any, object], isolation_level: IsolationLevel, **_: object
    ) -> Mapping[Any, Answer]:
        if self.failing:
            self.failing -= 1
            raise KafkaException(KafkaError(UNKNOWN))
        stable = isolation_level == IsolationLevel.READ_COMMITTED
        is_new = stable and not self.deposed
        self.deposed = max(0, self.deposed - 1)
        return {
            at: Answer(SimpleNamespace(offset=int(is_new and at.topic == PROGRESS)))
            for at in asked
        }

    def list_topics(self, **_: object) -> None:
        """Learn of other brokers."""


@dataclass(frozen=True)
class Record:
    """The record of the progress."""

    def topic(self) -> str:
        return PROGRESS

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return CLOSED.encode()


class Records:
    """A consumer of the progress."""

    def __init__(self) -> None:
        self._left: deque[Record] = deque()

    def list_topics(self, *_: object, **__: object) -> None: ...
    def assign(self, _: Sequence[TopicPartition]) -> None:
        self._left = deque([Record()])

    def poll(self, _: float) -> Record | None:
        return self._left.popleft() if self._left else None

    def unassign(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Those that every client asks; nobody waits for what is gone."""
    made = Brokers()
    monkeypatch.setattr(client, "admin", lambda _: made)
    monkeypatch.setattr(client, "consumer", lambda _: Records())
    monkeypatch.setattr(topics, "_GONE_S", 0.0)
    monkeypatch.setattr(topics, "_PAUSE_S", 0.0)
    return made


def uppers(reading: DiffTopic) -> list[int]:
    """The frontiers of what is closed and was not yielded yet."""
    return [part.progress.upper for part in reading.closed() if isinstance(part, ClosedBatch)]


ASKED: dict[str, Callable[[DiffTopic], object]] = {
    "closed": uppers,
    "last closed": DiffTopic.last_closed,
    "ends": DiffTopic.ends,
    "behind": DiffTopic.behind,
    "deleted": DiffTopic.deleted,
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_topic_that_was_deleted_is_told(
    brokers: Brokers, ask: Callable[[DiffTopic], object]
) -> None:
    """With its progress or without; it was a KeyError, or nothing at all."""
    reading = DiffTopic({}, OUT)
    assert uppers(reading) == [10]
    ask(reading)

    del brokers.ids[OUT]
    with pytest.raises(SourceError, match=r'"out": topic "out" was deleted\n') as refused:
        ask(reading)
    assert "new output topics" in (refused.value.hint or "")
    brokers.ids.clear()
    with pytest.raises(SourceError, match=r'"out": topic "out" was deleted\n'):
        ask(reading)


def test_a_progress_that_was_deleted_is_told(brokers: Brokers) -> None:
    """It was taken for one that is not there yet."""
    reading = DiffTopic({}, OUT)
    del brokers.ids[PROGRESS]

    with pytest.raises(SourceError, match=r'"out": topic "out\.progress" was deleted\n'):
        uppers(reading)


def test_a_progress_that_is_not_there_yet_is_waited_for(brokers: Brokers) -> None:
    """When it was there once, it has to stay."""
    del brokers.ids[PROGRESS]
    reading = DiffTopic({}, OUT)
    assert not reading.is_output
    assert uppers(reading) == []
    assert reading.last_closed() is None

    brokers.ids[PROGRESS] = "2"
    assert uppers(reading) == [10]
    del brokers.ids[PROGRESS]
    with pytest.raises(SourceError, match="was deleted"):
        uppers(reading)


def test_a_topic_that_is_not_there_is_refused(brokers: Brokers) -> None:
    """By its name, as one that never was."""
    brokers.ids.clear()
    with pytest.raises(SourceError, match='cannot read topic "out": it does not exist'):
        DiffTopic({}, OUT)


@pytest.mark.parametrize("name", [OUT, PROGRESS])
def test_a_topic_that_was_made_anew_is_another_one(brokers: Brokers, name: str) -> None:
    """Offsets of the one that was read mean nothing in it."""
    reading = DiffTopic({}, OUT)
    brokers.ids[name] = "3"

    with pytest.raises(SourceError, match=f'topic "{name}" was deleted and created again'):
        uppers(reading)


def test_a_broker_that_has_not_heard_of_a_topic_yet_deletes_none(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is asked for a while."""
    monkeypatch.setattr(topics, "_GONE_S", 60.0)
    reading = DiffTopic({}, OUT)

    brokers.unheard = 3
    assert uppers(reading) == [10]
    brokers.unheard = 3
    assert reading.behind() == 0


def test_a_broker_that_leads_no_longer_deletes_none(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with an older end, until the client asks the new leader."""
    reading = DiffTopic({}, OUT)
    assert uppers(reading) == [10]

    brokers.deposed = 3
    with pytest.raises(SourceError, match=r"cannot read out\.progress\[0\]@1: it ends at 0"):
        uppers(reading)
    monkeypatch.setattr(topics, "_GONE_S", 60.0)
    brokers.deposed = 3
    assert uppers(reading) == []
    assert not brokers.deposed


@pytest.mark.parametrize("ask", [uppers, DiffTopic.behind])
def test_a_topic_that_is_deleted_between_two_questions_is_told(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, ask: Callable[[DiffTopic], object]
) -> None:
    """Other errors of brokers are passed on."""
    reading = DiffTopic({}, OUT)
    brokers.failing = 1
    with pytest.raises(KafkaException):
        ask(reading)

    def gone(*_: object, **__: object) -> None:
        brokers.ids.clear()
        raise KafkaException(KafkaError(UNKNOWN))

    monkeypatch.setattr(brokers, "list_offsets", gone)
    with pytest.raises(SourceError, match="was deleted"):
        ask(reading)


def test_a_topic_that_goes_away_as_it_is_opened_is_told(brokers: Brokers) -> None:
    """The question where its snapshots begin was a KeyError."""
    reading = DiffTopic({}, OUT)
    brokers.ids.clear()

    with pytest.raises(SourceError, match=r'"out": topic "out" was deleted\n'):
        reading.begin()
    brokers.ids |= {OUT: "3", PROGRESS: "4"}
    with pytest.raises(SourceError, match=r'topic "out" was deleted and created again\n'):
        reading.begin()


ASKED_FOR = [PROGRESS, SNAPSHOT, SNAPSHOT, OUT, PROGRESS, SNAPSHOT]
"""Whose offsets an opening asks for, in this order."""


@pytest.mark.parametrize("answered", range(len(ASKED_FOR)))
def test_a_topic_that_goes_away_before_its_offsets_are_asked_for_is_told(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    """With all that belongs to it."""
    answer = brokers.list_offsets
    asked: list[str] = []

    def offsets(of: Mapping[Any, object], **given: Any) -> Mapping[Any, Answer]:
        asked.extend(at.topic for at in of)
        if len(asked) <= answered:
            return answer(of, **given)
        brokers.ids.clear()
        raise KafkaException(KafkaError(UNKNOWN))

    monkeypatch.setattr(brokers, "list_offsets", offsets)
    brokers.ids[SNAPSHOT] = "3"
    with pytest.raises(SourceError, match=r'"out": topic "out" was deleted\n'):
        DiffTopic({}, OUT).begin()

    assert asked == ASKED_FOR[: answered + 1]


@pytest.mark.parametrize("answered", [at for at, name in enumerate(ASKED_FOR) if name == SNAPSHOT])
def test_snapshots_that_go_away_before_their_offsets_are_asked_for_are_none(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    """The topic has all that they stand for, and is read from its beginning."""
    answer = brokers.list_offsets
    count = 0

    def offsets(of: Mapping[Any, object], **given: Any) -> Mapping[Any, Answer]:
        nonlocal count
        count += 1
        if count == answered + 1:
            del brokers.ids[SNAPSHOT]
        if SNAPSHOT in {at.topic for at in of} and SNAPSHOT not in brokers.ids:
            raise KafkaException(KafkaError(UNKNOWN))
        return answer(of, **given)

    monkeypatch.setattr(brokers, "list_offsets", offsets)
    brokers.ids[SNAPSHOT] = "3"
    reading = DiffTopic({}, OUT)
    reading.begin()

    assert count > answered
    assert uppers(reading) == [10]


FACTS: dict[str, Callable[[Cdcv2Topic], object]] = {
    "published": lambda reading: list(reading.published()),
    "behind": Cdcv2Topic.behind,
}


@pytest.mark.parametrize("ask", FACTS.values(), ids=FACTS)
def test_a_topic_of_facts_that_was_deleted_is_told(
    brokers: Brokers, ask: Callable[[Cdcv2Topic], object]
) -> None:
    """One that was created again was read on, at offsets of the one before."""
    reading = Cdcv2Topic({}, OUT, "cdcv2-json")
    ask(reading)

    brokers.ids[OUT] = "3"
    with pytest.raises(SourceError, match='topic "out" was deleted and created again'):
        ask(reading)
    del brokers.ids[OUT]
    with pytest.raises(SourceError, match=r'"out": topic "out" was deleted\n'):
        ask(reading)


@pytest.mark.parametrize(
    ("form", "gone"),
    [
        ("diff", [OUT]),
        ("diff", [PROGRESS]),
        ("diff", [OUT, PROGRESS]),
        ("cdcv2-json", [OUT]),
    ],
)
def test_a_server_ends_when_its_topic_is_deleted(
    brokers: Brokers, tmp_path: Path, form: str, gone: list[str]
) -> None:
    """It answered `/ready` with yes for ever, though nothing was read."""
    wanted = ServiceOptions({OUT: form}, tmp_path, KEEP_ALL)
    service = Service(wanted, functools.partial(following.follow, {}), print)
    service.start()
    try:
        wait_until(
            lambda: service.progress(OUT).caught_up_s is not None, 20, "the topic is followed"
        )
        assert service.failure is None
        for name in gone:
            del brokers.ids[name]
        wait_until(lambda: service.failure is not None, 20, "the deletion is found")
    finally:
        service.close()

    assert isinstance(service.failure, SourceError)
    assert f'topic "{gone[0]}" was deleted' in service.failure.message
