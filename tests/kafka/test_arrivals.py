"""Waiting for records: it ends when one is there, and not before."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ikebana.processor.kafka import client
from ikebana.processor.kafka.inputs import Arrivals
from support.pipeline_processes import create, produce
from support.waiting import patient

pytestmark = pytest.mark.kafka

# Far longer than any of the tests is to take.
_LONG_S = 60.0
_SHORT_S = 0.3


@pytest.fixture
def topic(servers: str, topic_name: Callable[[str], str]) -> str:
    """An empty topic of two partitions."""
    name = topic_name("arrivals")
    create(servers, name, 2)
    return name


@pytest.fixture
def arrivals(settings: dict[str, str]) -> Iterator[Arrivals]:
    """Somebody who waits."""
    made = Arrivals(settings)
    yield made
    made.close()


def _produce(servers: str, topic: str, partition: int) -> None:
    produce(servers, topic, [(b"k", b"a record")], partition)


def _took(wait: Callable[[], object]) -> float:
    before = time.monotonic()
    wait()
    return time.monotonic() - before


def test_a_record_that_is_there_ends_the_waiting(
    servers: str, topic: str, arrivals: Arrivals
) -> None:
    """Whatever partition it is in."""
    _produce(servers, topic, 1)

    assert _took(lambda: arrivals.wait({topic: {0: 0, 1: 0}}, _LONG_S)) < _LONG_S


def test_a_record_that_comes_ends_the_waiting(
    servers: str, topic: str, arrivals: Arrivals
) -> None:
    """It comes while somebody waits already."""
    coming = threading.Timer(0.2, _produce, [servers, topic, 0])
    coming.start()

    assert _took(lambda: arrivals.wait({topic: {0: 0, 1: 0}}, _LONG_S)) < _LONG_S
    coming.join()


def test_nothing_new_is_waited_for_as_long_as_is_said(
    servers: str, topic: str, arrivals: Arrivals
) -> None:
    """What lies before the positions has been read."""
    _produce(servers, topic, 0)

    for _ in range(2):
        assert _took(lambda: arrivals.wait({topic: {0: 1, 1: 0}}, _SHORT_S)) >= _SHORT_S * 0.9


def test_a_record_that_has_come_ends_no_second_waiting_at_once(
    servers: str, topic: str, arrivals: Arrivals
) -> None:
    """Or who cannot use it yet would ask without a pause."""
    _produce(servers, topic, 0)
    arrivals.wait({topic: {0: 0, 1: 0}}, _LONG_S)

    paused = _took(lambda: arrivals.wait({topic: {0: 0, 1: 0}}, _LONG_S))

    assert 0.01 <= paused < _LONG_S
    # Behind it, there is nothing again.
    assert _took(lambda: arrivals.wait({topic: {0: 1, 1: 0}}, _SHORT_S)) >= _SHORT_S * 0.9


def test_an_open_transaction_ends_no_waiting(servers: str, topic: str, arrivals: Arrivals) -> None:
    """Its records are none before it is committed."""
    producer = client.transactional_producer(
        {"bootstrap.servers": servers}, f"{topic}-writer", 60.0
    )
    producer.begin_transaction()
    producer.produce(topic, b"not yet", partition=0)
    assert producer.flush(patient(30)) == 0

    assert _took(lambda: arrivals.wait({topic: {0: 0, 1: 0}}, _SHORT_S)) >= _SHORT_S * 0.9
    producer.commit_transaction(patient(30))
    assert _took(lambda: arrivals.wait({topic: {0: 0, 1: 0}}, _LONG_S)) < _LONG_S


def test_positions_that_are_gone_end_the_waiting(topic: str, arrivals: Arrivals) -> None:
    """Why they are gone is told by who looks at the topics."""
    assert _took(lambda: arrivals.wait({topic: {0: 7, 1: 0}}, _LONG_S)) < _LONG_S
