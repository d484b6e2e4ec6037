"""A broker that was replaced as the leader of a partition, and has not heard of it.

It still answers clients that ask it: with the end that the partition had then.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ikebana.errors import AwayError, SourceError
from ikebana.processor.kafka import client, progress_topic
from ikebana.processor.kafka.inputs import Inputs
from support.admin_answers import Answer, Described, Offset
from support.histories import PLAN, commit

OUT, ORDERS = PLAN.outputs[0].topic, PLAN.inputs[0].topics[0]


@dataclass
class Leaders:
    """An admin client of topics with one partition; `ends` are what it is told, one by one."""

    ends: list[int]
    asked: int = 0
    refreshed: list[int] = field(default_factory=list)

    def describe_topics(self, asked: Any, **_: object) -> Mapping[str, Answer]:
        return {name: Answer(Described("id", [0])) for name in asked.topic_names}

    def list_offsets(self, asked: Mapping[Any, object], **_: object) -> Mapping[Any, Answer]:
        end = self.ends[min(self.asked, len(self.ends) - 1)]
        self.asked += bool(asked)
        return {at: Answer(Offset(end)) for at in asked}

    def list_topics(self, *_: object, **__: object) -> None:
        self.refreshed.append(self.asked)


@dataclass
class Sent:
    """A lease whose transactions are kept."""

    records: list[tuple[str, bytes]] = field(default_factory=list)

    def transaction(self) -> "Sent":
        return self

    def __enter__(self) -> "Sent":
        return self

    def __exit__(self, *_: object) -> None: ...

    def produce(self, topic: str, value: bytes, **_: object) -> None:
        self.records.append((topic, value))


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each look takes a second."""
    ticks = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "sleep", lambda _: None)


def published(ends: list[int], updates: int, last: Mapping[str, Mapping[int, int]]) -> int:
    admin: Any = Leaders(ends)
    driver: Any = Sent()
    batch = [commit(0, 4, counts={"out": updates}, intervals=dict.fromkeys(NAMES, (4, 5)))]
    found = progress_topic.publish(PLAN, driver, as_admin(admin), batch, last=last)
    by_topic = {record.topic: record for record in found}
    return by_topic[OUT].ends[0]


NAMES = [output.name for output in PLAN.published]


def as_admin(leaders: Leaders) -> AdminClient:
    scripted: Any = leaders
    made: AdminClient = scripted
    return made


def test_ends_in_which_a_batch_does_not_fit_are_asked_for_again() -> None:
    """R10. A reader that reads up to them would find fewer updates than are counted."""
    assert published([10, 10, 13, 14], 3, {OUT: {0: 10}}) == 13


def test_ends_of_a_batch_without_updates_may_be_those_of_before() -> None:
    """Nothing lies behind them."""
    assert published([10, 99], 0, {OUT: {0: 10}}) == 10


def test_ends_of_which_nothing_is_known_are_taken() -> None:
    """An output that is new has no ends before."""
    assert published([10, 99], 3, {}) == 10


def test_ends_that_stay_too_low_are_an_outage() -> None:
    """Another start asks other brokers; nothing is published."""
    with pytest.raises(AwayError, match="the leaders of outputs"):
        published([10], 3, {OUT: {0: 10}})


def look(monkeypatch: pytest.MonkeyPatch, ends: list[int], read: int) -> int:
    leaders = Leaders(ends)
    monkeypatch.setattr(client, "admin", lambda _: leaders)
    found = Inputs(PLAN, {}).look({ORDERS: {0: read}})
    return found.ends[ORDERS][0]


def test_an_input_that_ends_before_what_was_read_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has lost nothing: another broker knows what has been written since."""
    assert look(monkeypatch, [5, 5, 9], 7) == 9


def test_an_input_that_has_lost_its_end_is_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that can be asked say the same."""
    with pytest.raises(SourceError, match=r"orders\[0\] ends at offset 5, .* it has lost records"):
        look(monkeypatch, [5], 7)
