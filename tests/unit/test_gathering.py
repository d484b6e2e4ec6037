"""Records that come together make one batch: how long it waits for the last of them."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from ikebana import Input, Output, Plan, Upsert
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.inputs import Inputs

PLAN = Plan("p", (Input("a", ("t",)),), (Upsert("u", "a"),), (Output("o", "u", "out"),))


class Topic:
    """A topic whose ends are told one after the other, and a clock that waiting moves on."""

    def __init__(self, ends: Iterator[int | Exception]) -> None:
        self._ends = ends
        self.now = 0.0
        self.looks = 0

    def look(self, *_: object) -> dict[str, dict[int, int]]:
        self.looks += 1
        found = next(self._ends)
        if isinstance(found, Exception):
            raise found
        return {"t": {0: found}}

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("ends", "most_s", "looks", "waited_s"),
    [
        pytest.param([5, 5], 0.03, 2, 0.005, id="one record"),
        pytest.param([5, 9, 12, 12], 0.03, 4, 0.015, id="until no more comes"),
        pytest.param(range(1_000), 0.03, 6, 0.025, id="no longer than is said"),
        pytest.param([5], 0.0, 1, 0.0, id="not at all"),
        pytest.param([KafkaException("away")], 0.03, 1, 0.0, id="an error"),
    ],
)
def test_a_batch_waits_until_no_more_comes(
    monkeypatch: pytest.MonkeyPatch,
    ends: list[int | Exception],
    most_s: float,
    looks: int,
    waited_s: float,
) -> None:
    """The ends of two looks, a few milliseconds apart, are then the same; who looks next tells
    of an error."""
    topic = Topic(iter(ends))
    monkeypatch.setattr(topics, "ends", topic.look)
    monkeypatch.setattr(time, "sleep", topic.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: topic.now)

    Inputs(PLAN, {"bootstrap.servers": "127.0.0.1:1"}).wait_for_pause(most_s)

    assert topic.looks == looks
    assert topic.now == pytest.approx(waited_s)
