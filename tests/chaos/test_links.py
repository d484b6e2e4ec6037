"""Transactions over a link that is lost, against a broker behind a proxy."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from chaos.brokers import ProxiedBroker, proxied
from chaos.proxy import Proxy
from ikebana.errors import AwayError, FencedError
from ikebana.processor.kafka.transactions import TransactionalProducer
from support.output_judge import offsets, settled
from support.pipeline_processes import create
from support.waiting import wait_until

pytestmark = pytest.mark.kafka
_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def link() -> Iterator[tuple[ProxiedBroker, Proxy]]:
    with proxied() as made:
        yield made


def opened(broker: ProxiedBroker, timeout_s: float = _TIMEOUT_S) -> TransactionalProducer:
    settings = {"bootstrap.servers": broker.proxied_servers}
    return TransactionalProducer(settings, "theirs", timeout_s)


def send(
    producer: TransactionalProducer, topic: str, meanwhile: Callable[[Producer], object]
) -> None:
    """Commit a record in a transaction in which something happens."""
    with producer.transaction() as sender:
        sender.produce(topic, b"first")
        meanwhile(sender)


def sent_again(broker: ProxiedBroker, topic: str) -> list[bytes | None]:
    """Send a record with another producer; what is in the topic then."""
    send(opened(broker), topic, lambda _: None)
    return [message.value() for message in settled(broker.bootstrap_servers, topic)]


def test_a_transaction_that_the_brokers_ended_is_taken_over_by_nobody(
    link: tuple[ProxiedBroker, Proxy],
) -> None:
    """R5. They answer as to a fenced producer, and a run that believed it would end for good."""
    broker, _ = link
    create(broker.bootstrap_servers, "late", 1)

    def is_over() -> bool:
        servers = broker.bootstrap_servers
        stable, end = (offsets(servers, ["late"], committed_only=c) for c in (True, False))
        return stable == end

    def wait(sender: Producer) -> None:
        sender.flush(10)
        assert not is_over()
        wait_until(is_over, 30, "the end of the transaction by the broker")

    with pytest.raises(AwayError, match="took longer than 1 s"):
        send(opened(broker), "late", wait)
    assert sent_again(broker, "late") == [b"first"]


def test_one_that_another_took_over_in_time_is_told_so(
    link: tuple[ProxiedBroker, Proxy],
) -> None:
    """R5. The older one of two has to stop, also if both are quick."""
    broker, _ = link
    create(broker.bootstrap_servers, "taken", 1)

    def take(sender: Producer) -> None:
        sender.flush(10)
        opened(broker)

    with pytest.raises(FencedError, match="taken over by a newer holder"):
        send(opened(broker, 60), "taken", take)


def test_messages_that_a_lost_link_swallows_may_be_sent_again(
    link: tuple[ProxiedBroker, Proxy],
) -> None:
    """The transaction is aborted; that is no reason to end for good."""
    broker, proxy = link
    create(broker.bootstrap_servers, "lost", 1)

    def lose(sender: Producer) -> None:
        # The connections are there, so that nothing but the message gets lost.
        sender.flush(10)
        failed: list[object] = []
        proxy.become("half-open")
        sender.produce("lost", b"more", on_delivery=lambda error, _: failed.append(error))
        wait_until(lambda: sender.poll(0.1) >= 0 and bool(failed), 30, "a failed delivery")
        proxy.become("open")

    try:
        with pytest.raises(AwayError):
            send(opened(broker), "lost", lose)
    finally:
        proxy.become("open")
    assert sent_again(broker, "lost") == [b"first"]
