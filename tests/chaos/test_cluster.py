"""What is read of a broker that was replaced as leader, and has not heard of it."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from confluent_kafka import Producer

from chaos import networks
from chaos.cluster import NODES, Cluster, Node, clustered
from chaos.runs import paused
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import RangeReader
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


def commit(servers: str, value: bytes) -> None:
    """Commit a record in place of whoever held the transactional id."""
    with TransactionalProducer({"bootstrap.servers": servers}, "held", 60).transaction() as sender:
        sender.produce(_TOPIC, value, b"key")


def elect(servers: str, before: Node) -> None:
    """Return when somebody else leads the partition."""
    client = Producer({"bootstrap.servers": servers, "log_level": 0})
    wait_until(
        lambda: (
            client.list_topics(_TOPIC, timeout=10).topics[_TOPIC].partitions[0].leader
            not in (-1, before.number)
        ),
        60,
        "another leader",
    )


def test_what_was_committed_is_read_and_nothing_in_its_place(
    cluster: Cluster,
) -> None:
    """R5. Who fences and then reads must not go on from an older record than the last."""
    create(cluster.bootstrap_servers, _TOPIC, 1, replicas=NODES)
    commit(cluster.bootstrap_servers, b"first")
    deposed = cluster.leader_of(_TOPIC)
    rest = [node for node in cluster.nodes if node is not deposed]
    others = ",".join(node.bootstrap_servers for node in rest)
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
    alone = cluster.leader_of(_TOPIC)
    others = ",".join(n.bootstrap_servers for n in cluster.nodes if n is not alone)
    # It knows the leader of now.
    admin = client.admin({"bootstrap.servers": cluster.bootstrap_servers})
    before = topics.high_watermarks(admin, {_TOPIC: 1})[_TOPIC][0]
    with cluster.apart(alone):
        elect(others, alone)
        commit(others, b"second")
        there = topics.high_watermarks(client.admin({"bootstrap.servers": others}), {_TOPIC: 1})

        def told() -> int:
            asked = client.admin({"bootstrap.servers": alone.bootstrap_servers})
            return topics.high_watermarks(asked, {_TOPIC: 1})[_TOPIC][0]

        # What is told of it is that it leads, and what it had then.  A client that has heard of
        # the others may ask them.
        wait_until(lambda: told() == before, 60, "a client that is told of the broker apart")
        assert there[_TOPIC][0] > before
    wait_until(
        lambda: topics.high_watermarks(admin, {_TOPIC: 1}) == there, 60, "the end that all know"
    )


def test_partitions_move_to_other_brokers_and_back(cluster: Cluster) -> None:
    """Nothing of what was committed is lost on the way."""
    create(cluster.bootstrap_servers, _TOPIC, 2, replicas=NODES)
    commit(cluster.bootstrap_servers, b"first")
    for brokers in ([1, 2], [3, 2], [2, 3, 1]):
        cluster.reassign([_TOPIC], brokers)
        commit(cluster.bootstrap_servers, b"then %d" % brokers[0])

    values = [message.value() for message in settled(cluster.bootstrap_servers, _TOPIC)]
    assert sorted(filter(None, values)) == [b"first", b"then 1", b"then 2", b"then 3"]
