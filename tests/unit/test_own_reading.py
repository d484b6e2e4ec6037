"""What an edit reads of topics that have lost their beginnings; the brokers are scripted."""

from collections.abc import Callable
from typing import Any

import pytest

from ikebana.codecs.diff import SnapshotRecord
from ikebana.errors import SourceError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.kafka import client, own_topics, topics

OUT, ERRORS = "out", "shop.errors"


class _Lost:
    """The snapshots of a topic, of which there are none, and whose beginning is gone."""

    def __init__(self, *_: object) -> None: ...

    def choose(self, _: None) -> SnapshotRecord | None:
        raise SourceError("its beginning is gone")


class _Closes:
    def __init__(self, _: object) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics that begin at offset 5."""
    asked: dict[str, Callable[..., Any]] = {
        "describe": lambda _, names: {name: TopicInfo(name, 1) for name in names},
        "beginnings": lambda _, of: {name: {0: 5} for name in of},
        "high_watermarks": lambda _, of: {name: {0: 9} for name in of},
    }
    monkeypatch.setattr(client, "admin", lambda _: None)
    monkeypatch.setattr(own_topics, "RangeReader", _Closes)
    monkeypatch.setattr(own_topics, "Snapshots", _Lost)
    for name, answer in asked.items():
        monkeypatch.setattr(topics, name, answer)


@pytest.mark.usefixtures("lost")
def test_an_output_whose_topic_has_lost_its_beginning_cannot_be_taken_back() -> None:
    with pytest.raises(SourceError, match="what an output has had cannot be taken back: its beg"):
        own_topics.contents({}, [OUT, ERRORS], ERRORS)


@pytest.mark.usefixtures("lost")
def test_errors_that_nobody_can_add_up_stay_where_they_are() -> None:
    """The edit goes on: they go as the rest of the topic has gone."""
    assert own_topics.contents({}, [ERRORS], ERRORS) == {}
    assert own_topics.begun({}, [ERRORS], ERRORS) == {}
    (check,) = own_topics.contents_checks({}, [ERRORS], ERRORS)
    assert check.status == "ok"
    assert "its beginning is gone" in check.fact
    # A recovery needs all of it.
    with pytest.raises(SourceError, match="its beginning is gone"):
        own_topics.contents({}, [ERRORS])
