"""What is read of a broker that was replaced as leader, and has not heard of it."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from chaos import networks
from chaos.cluster import NODES, Cluster, Node, clustered
from chaos.runs import paused
from ikebana import Output, Plan
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.takeover import KafkaBrokers
from ikebana.processor.kafka.transactions import TransactionalProducer, last_message
from support.output_judge import settled
from support.pipeline_processes import create
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.full, pytest.mark.timeout(300)]
_TOPIC = "records"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with clustered() as made:
        yield made


def process(node: Node) -> psutil.Process:
    assert node.pid is not None
    return psutil.Process(node.pid)


def leader_and_others(cluster: Cluster, topic: str = _TOPIC) -> tuple[Node, list[Node], str]:
    """The broker that leads a topic's partition, the other ones, and the servers of these."""
    leader = cluster.leader_of(topic)
    others = [node for node in cluster.nodes if node is not leader]
    return leader, others, ",".join(node.bootstrap_servers for node in others)


def commit(servers: str, value: bytes) -> None:
    """Commit a record in place of whoever held the transactional id."""
    with TransactionalProducer({"bootstrap.servers": servers}, "held", 60).transaction() as sender:
        sender.produce(_TOPIC, value, b"key")


def elect(servers: str, before: Node, topic: str = _TOPIC) -> None:
    """Return when the brokers at `servers` have somebody else lead the partition."""

    def is_led() -> bool:
        # A client that goes on learns of all brokers, and may ask the one that has not heard.
        asked = Producer({"bootstrap.servers": servers, "log_level": 0})
        leader = asked.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
        return leader not in (-1, before.number)

    wait_until(is_led, 60, "another leader")


def high_watermark(admin: AdminClient) -> int:
    return topics.high_watermarks(admin, {_TOPIC: 1})[_TOPIC][0]


def test_what_was_committed_is_read_and_nothing_in_its_place(
    cluster: Cluster,
) -> None:
    """R5. Who fences and then reads must not go on from an older record than the last."""
    create(cluster.bootstrap_servers, _TOPIC, 1, replicas=NODES)
    commit(cluster.bootstrap_servers, b"first")
    deposed, rest, others = leader_and_others(cluster)
    reader = RangeReader({"bootstrap.servers": deposed.bootstrap_servers})
    found: list[bytes | None] = []

    def read() -> None:
        message = last_message(reader, _TOPIC, 0, end)
        found.append(None if message is None else message.value())

    assert [message.value() for message in settled(cluster.bootstrap_servers, _TOPIC)] == [
        b"first"
    ]
    with ExitStack() as stack:
        with paused([process(deposed)]):
            elect(others, deposed)
            commit(others, b"second")
            now = TransactionalProducer({"bootstrap.servers": others}, "held", 60)
            end = now.end_of(_TOPIC, 0)
            # The one that was deposed cannot hear of it.
            stack.enter_context(paused(list(map(process, rest))))
        old = last_message(reader, _TOPIC, 0)
        reading = threading.Thread(target=read)
        reading.start()
    reading.join()

    assert old is not None
    assert old.value() == b"first", "the broker has heard of it: this tests nothing"
    assert found == [b"second"]


def test_a_leader_that_is_apart_tells_old_ends_and_nobody_is_misled(cluster: Cluster) -> None:
    """R10. Clients reach it, the other brokers do not: it still answers, as it was before."""
    if not networks.available():
        pytest.skip("a network of one's own takes root")
    create(cluster.bootstrap_servers, _TOPIC, 1, replicas=NODES)
    commit(cluster.bootstrap_servers, b"first")
    alone, rest, others = leader_and_others(cluster)
    # It knows the leader of now.
    admin = client.admin({"bootstrap.servers": cluster.bootstrap_servers})
    high_watermark(admin)
    with cluster.apart(alone):
        elect(others, alone)
        commit(others, b"second")
        # Kafka's marker of the transaction may come after this end.
        there = high_watermark(client.admin({"bootstrap.servers": others}))

        def told() -> int:
            return high_watermark(client.admin({"bootstrap.servers": alone.bootstrap_servers}))

        # What is told of it is that it leads, and what it had then.  A client that has heard of
        # the others would ask them.
        with paused(process(node) for node in rest):
            wait_until(lambda: told() < there, 60, "the end that the broker apart knows")
    wait_until(lambda: high_watermark(admin) >= there, 60, "the end that all know")


def test_a_start_does_not_take_old_progress_for_the_last(cluster: Cluster, tmp_path: Path) -> None:
    """R5. A start that believed a leader apart would publish a batch twice."""
    if not networks.available():
        pytest.skip("a network of one's own takes root")
    topic = "out.progress"
    create(cluster.bootstrap_servers, topic, 1, replicas=NODES)
    alone, rest, others = leader_and_others(cluster, topic)
    output = Output("out", "facts", "out")
    plan = Plan("pipeline", (), (), (output,))
    settings = Settings(str(tmp_path), {"bootstrap.servers": others}, shards=1)
    reader = RangeReader({"bootstrap.servers": alone.bootstrap_servers})
    brokers = KafkaBrokers(plan, settings, "checkpoint", 1, reader)
    brokers.hold_lease()
    shown: list[int] = []

    def show() -> None:
        last = brokers.shown(output, brokers.topics([topic])).last
        assert last is not None
        shown.append(last.batch)

    def publish(batch: int) -> None:
        record = ProgressRecord(
            "checkpoint", "pipeline", "out", batch, batch, batch + 1, 0, {0: 0}, "collection"
        )
        with brokers.producer.transaction() as producer:
            producer.produce(topic, record.encode(), record.key())

    publish(1)
    show()
    with cluster.apart(alone):
        elect(others, alone, topic)
        # A producer that goes on may ask the broker apart who leads.
        brokers.hold_lease()
        publish(2)
        with paused(process(node) for node in rest):
            old = last_progress(reader, topic)
        starting = threading.Thread(target=show)
        starting.start()
    starting.join()

    assert old is not None
    assert old.batch == 1, "the broker has heard of it: this tests nothing"
    assert shown == [1, 2]


def test_partitions_move_to_other_brokers_and_back(cluster: Cluster) -> None:
    """Nothing of what was committed is lost on the way."""
    create(cluster.bootstrap_servers, _TOPIC, 2, replicas=NODES)
    commit(cluster.bootstrap_servers, b"first")
    for brokers in ([1, 2], [3, 2], [2, 3, 1]):
        cluster.reassign([_TOPIC], brokers)
        commit(cluster.bootstrap_servers, b"then %d" % brokers[0])

    values = [message.value() for message in settled(cluster.bootstrap_servers, _TOPIC)]
    assert sorted(filter(None, values)) == [b"first", b"then 1", b"then 2", b"then 3"]
