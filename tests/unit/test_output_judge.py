"""The ends of topics, as tests ask for them, on a machine on which everything comes late."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support import output_judge


class Broker:
    """Answers as long as there are answers with an error of each."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(topics={"out": SimpleNamespace(partitions={0: None})})

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> Any:
        answer: Future[Any] = Future()
        if self._errors:
            answer.set_exception(KafkaException(KafkaError(self._errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)


def ends(monkeypatch: pytest.MonkeyPatch, *errors: int) -> output_judge.Positions:
    broker = Broker(*errors)
    monkeypatch.setattr(output_judge, "_admin", lambda _: broker)
    return output_judge.offsets("nowhere:1", ["out", "none"], committed_only=True)


def test_a_leader_that_is_not_known_yet_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Right after a topic is made, librdkafka finds no leader of it."""
    errors = (KafkaError._NOENT, KafkaError.NOT_LEADER_FOR_PARTITION)

    assert ends(monkeypatch, *errors) == {("out", 0): 7}


def test_another_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException):
        ends(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
