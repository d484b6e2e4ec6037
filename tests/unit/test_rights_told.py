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
from ikebana.processor.configuring import pipeline
from ikebana.processor.kafka import client, rights
from ikebana.processor.kafka.rights import Rights
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

    def __init__(self, topics: dict[str, list[AclOperation] | None], making: int) -> None:
        self._topics = topics
        self._making = making

    def describe_topics(self, asked: Any, **_: object) -> dict[str, "Future[Any]"]:
        return dict(self._described(asked.topic_names))

    def _described(self, names: Iterable[str]) -> Iterator[tuple[str, "Future[Any]"]]:
        for name in names:
            if name in self._topics:
                may = self._topics[name]
                told = SimpleNamespace(topic_id=name, partitions=[0], authorized_operations=may)
                yield name, answer(told)
            else:
                yield name, answer(None, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def create_topics(self, new: list[NewTopic], **_: object) -> dict[str, "Future[Any]"]:
        return {topic.topic: answer(None, self._making) for topic in new}

    def describe_consumer_groups(self, names: list[str], **_: object) -> Any:
        return {name: answer(None, KafkaError.GROUP_ID_NOT_FOUND) for name in names}


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
    rights.demand(plan, settings, 1, read_back)
    return Rights(plan, settings, 1)


def test_brokers_that_tell_nothing_of_rights_refuse_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it claim anything; a topic that may be seen and nothing else is another thing."""
    told = demand(tmp_path, monkeypatch, {"orders": None}, KafkaError.NO_ERROR)
    state = told.state("orders")
    assert isinstance(state, rights.Found)
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
