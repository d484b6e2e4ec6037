"""Brokers that are away are no topics that have lost their records."""

from typing import Any

import pytest

from ikebana.errors import AwayError, SourceError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.kafka import client, own_topics, topics
from ikebana.processor.kafka.records import record_at


class _Reader:
    def __init__(self, *_: object) -> None:
        pass

    def watermarks(self, *_: object) -> tuple[int, int]:
        raise AwayError("the brokers did not answer")

    def close(self) -> None:
        pass


def _failing(kind: type[SourceError | AwayError]) -> type:
    class Failing:
        def __init__(self, *_: object) -> None:
            pass

        def choose(self, _: int | None) -> None:
            raise kind("no answer")

    return Failing


@pytest.mark.parametrize("errors", ["out", ""])
def test_contents_are_not_given_up_in_an_outage(
    monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    """Also those of the error topic: without them its errors would never be retracted."""

    def offsets(*_: object) -> Any:
        return {"out": {0: 0}}

    monkeypatch.setattr(client, "admin", lambda _: None)
    monkeypatch.setattr(own_topics, "RangeReader", _Reader)
    monkeypatch.setattr(topics, "describe", lambda *_: {"out": TopicInfo("id", 1)})
    monkeypatch.setattr(topics, "beginnings", offsets)
    monkeypatch.setattr(topics, "high_watermarks", offsets)
    monkeypatch.setattr(own_topics, "Snapshots", _failing(AwayError))

    with pytest.raises(AwayError, match=r"^no answer"):
        own_topics.contents({}, ["out"], errors)

    monkeypatch.setattr(own_topics, "Snapshots", _failing(SourceError))
    if errors:
        assert own_topics.contents({}, ["out"], errors) == {}
    else:
        with pytest.raises(SourceError, match="cannot be taken back"):
            own_topics.contents({}, ["out"], errors)


def test_a_record_is_not_called_deleted_in_an_outage() -> None:
    """Whoever looks at it is told that the brokers are away."""
    with pytest.raises(AwayError):
        record_at(_Reader(), ("t", 0, 0))  # type: ignore[arg-type]
