"""What a start makes of brokers' answers about rights that those of the tests never give."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, NewTopic

from ikebana.errors import AccessError
from ikebana.processor.authoring import pipeline
from ikebana.processor.kafka import client, reading_rights, rights
from ikebana.processor.kafka.reading_rights import TopicRights
from ikebana.processor.kafka.rights import Rights
from ikebana.processor.kafka.snapshots import Snapshots
from support.pipeline_processes import Pipeline


def answer(value: Any, code: int = KafkaError.NO_ERROR) -> "Future[Any]":
    """A question's answer, or the error that brokers give."""
    found: Future[Any] = Future()
    if code == KafkaError.NO_ERROR:
        found.set_result(value)
    else:
        found.set_exception(KafkaException(KafkaError(code)))
    return found


class Brokers:
    """Stands in for a client of brokers; topics by name, with what may be done."""

    def __init__(
        self,
        topics: dict[str, list[AclOperation] | None],
        making: int,
        hidden: Iterable[str] = (),
        group: int = KafkaError.GROUP_ID_NOT_FOUND,
    ) -> None:
        self._topics = topics
        self._making = making
        self._hidden = set(hidden)
        self._group = group

    def describe_topics(self, asked: Any, **_: object) -> dict[str, "Future[Any]"]:
        return dict(self._described(asked.topic_names))

    def _described(self, names: Iterable[str]) -> Iterator[tuple[str, "Future[Any]"]]:
        for name in names:
            if name in self._hidden:
                yield name, answer(None, KafkaError.TOPIC_AUTHORIZATION_FAILED)
            elif name in self._topics:
                may = self._topics[name]
                told = SimpleNamespace(topic_id=name, partitions=[0], authorized_operations=may)
                yield name, answer(told)
            else:
                yield name, answer(None, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def create_topics(self, new: list[NewTopic], **_: object) -> dict[str, "Future[Any]"]:
        return {topic.topic: answer(None, self._making) for topic in new}

    def describe_consumer_groups(self, names: list[str], **_: object) -> Any:
        return {name: answer(None, self._group) for name in names}


def demand(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    topics: dict[str, list[AclOperation] | None],
    making: int,
    read_back: Iterable[str] = (),
) -> Rights:
    """Ask such brokers as a start does; what it then knows."""
    monkeypatch.setattr(client, "admin", lambda _: Brokers(topics, making))
    pipe = Pipeline(folder, "localhost:1", "shop", "orders")
    plan, settings = pipeline.read(pipe.file(), environ=os.environ)
    rights.require_rights(plan, settings, 1, read_back)
    return Rights(plan, settings, 1)


def test_brokers_that_tell_nothing_of_rights_refuse_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it claim anything; a topic that may be seen and nothing else is another thing."""
    told = demand(tmp_path, monkeypatch, {"orders": None}, KafkaError.NO_ERROR)
    state = told.state("orders")
    assert isinstance(state, TopicRights)
    assert state.allowed is None

    with pytest.raises(AccessError, match='input topic "orders" may not be read'):
        demand(tmp_path, monkeypatch, {"orders": [AclOperation.DESCRIBE]}, KafkaError.NO_ERROR)


def test_a_topic_that_another_broker_knows_already_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a new topic one after the other; other errors are reasons."""
    may: list[AclOperation] | None = [AclOperation.READ, AclOperation.DESCRIBE]
    topics = {"orders": may}

    demand(tmp_path, monkeypatch, topics, KafkaError.TOPIC_ALREADY_EXISTS)

    with pytest.raises(AccessError, match="does not exist and cannot be made"):
        demand(tmp_path, monkeypatch, topics, KafkaError.INVALID_REPLICATION_FACTOR)


def test_an_edit_asks_for_the_right_to_read_the_topic_that_it_takes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the client that looks after the pipeline's own topics; no other start asks for it."""
    written = [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]
    topics: dict[str, list[AclOperation] | None] = {"orders": None, "shop.out": written}
    demand(tmp_path, monkeypatch, topics, KafkaError.NO_ERROR)

    with pytest.raises(AccessError, match=r'topic "shop\.out" may not be read') as refused:
        demand(tmp_path, monkeypatch, topics, KafkaError.NO_ERROR, ["shop.out"])
    assert "--operation Read" in (refused.value.hint or "")


SERVERS = {"bootstrap.servers": "kafka:9093", "sasl.username": "ann"}
DESCRIBE, READ, WRITE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE
DELETE = AclOperation.DELETE
READABLE = ("out", "out.progress", "out.snapshot")


def reading(
    monkeypatch: pytest.MonkeyPatch,
    may: dict[str, list[AclOperation]],
    form: str = "diff",
    hidden: Iterable[str] = (),
    group: int = KafkaError.GROUP_ID_NOT_FOUND,
    making: int = KafkaError.NO_ERROR,
    **how: bool,
) -> AccessError | None:
    """Why a reader of `out` that may do this is refused; None if it is not."""
    monkeypatch.setattr(client, "admin", lambda _: Brokers({**may}, making, hidden, group))
    monkeypatch.setattr(client, "reach", lambda _: None)
    try:
        reading_rights.reach(SERVERS, {"out": form}, **how)
    except AccessError as refused:
        return refused
    return None


ALL = {topic: [DESCRIBE, READ] for topic in READABLE}


def test_a_reader_needs_no_more_than_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that has no snapshots is no lack; brokers that tell no rights refuse nobody."""
    assert reading(monkeypatch, ALL) is None
    assert reading(monkeypatch, {t: ALL[t] for t in READABLE[:2]}) is None
    assert reading(monkeypatch, {topic: [] for topic in READABLE}) is None
    # CDCv2 has its progress in the topic, and other formats have no snapshots.
    hidden = ("out.progress", "out.snapshot")
    assert reading(monkeypatch, {"out": ALL["out"]}, "cdcv2-json", hidden) is None
    assert reading(monkeypatch, ALL, "upsert", ["out.snapshot"]) is None


@pytest.mark.parametrize("topic", READABLE)
def test_each_right_of_a_reader_is_told_when_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """With the command that grants it, whether it may see the topic or not."""
    wanted = f"--allow-principal User:ann --operation Read --topic {topic}"
    for refused in (
        reading(monkeypatch, {**ALL, topic: [DESCRIBE]}),
        reading(monkeypatch, ALL, hidden=[topic]),
    ):
        assert refused is not None
        assert f'cannot read out: topic "{topic}" may not be ' in refused.message
        assert wanted in (refused.hint or "")


def test_the_group_of_a_reader_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and never joined."""
    refused = reading(monkeypatch, ALL, group=KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert refused is not None
    assert refused.message == 'cannot read out: group "ikebana" may not be seen'
    assert "--operation Describe --group ikebana" in (refused.hint or "")


def test_who_compacts_needs_to_write_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """And to make their topic, if it is not there; who deletes, to delete."""
    may = {**ALL, "out.snapshot": [DESCRIBE, READ, WRITE, DELETE]}
    assert reading(monkeypatch, may, compacts=True) is None
    refused = reading(monkeypatch, ALL, compacts=True)
    assert refused is not None
    assert 'topic "out.snapshot" may not be written, may not be trimmed' in refused.message
    without = {topic: ALL[topic] for topic in READABLE[:2]}
    assert reading(monkeypatch, without, compacts=True) is None
    forbidden = KafkaError.TOPIC_AUTHORIZATION_FAILED
    refused = reading(monkeypatch, without, making=forbidden, compacts=True)
    assert refused is not None
    assert 'topic "out.snapshot" does not exist and may not be made' in refused.message
    assert "--operation Create --topic out.snapshot" in (refused.hint or "")
    refused = reading(monkeypatch, may, compacts=True, deletes=True)
    assert refused is not None
    for topic in READABLE[:2]:
        assert f"--operation Delete --topic {topic}" in (refused.hint or "")


def test_snapshots_that_may_not_be_seen_are_told() -> None:
    """A pipeline reads a compacted topic from them, and cannot know whether there are any."""
    brokers: Any = Brokers({}, KafkaError.NO_ERROR, ["out.snapshot"])
    nobody: Any = None
    with pytest.raises(AccessError, match=r'topic "out\.snapshot".* may not be seen') as refused:
        Snapshots(brokers, nobody, "out", "id").records()
    assert 'Grant Read on topic "out.snapshot"' in (refused.value.hint or "")
