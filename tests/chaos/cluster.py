"""Three brokers as one cluster, whose records survive the loss of any one of them.

Each is controller and broker in one process, with its data in a folder of its own.  Every topic
has three replicas, and records are acknowledged when two of them have them.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from chaos import networks
from chaos.networks import Network
from chaos.reassigning import reassign
from chaos.runs import Wrong
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import META, Broker, free_port, jars, random_id
from support.waiting import wait_until

NODES = 3
_HEAP = "-Xmx256m"
# Less than the seconds for which scenarios stop brokers, and more than a busy machine takes.
_SETTINGS = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    # A follower that stands still would hold up everything for half a minute.
    "replica.lag.time.max.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
}


class Node(Broker):
    """One of the brokers; `voters` has the addresses of all controllers by number.

    In a network it is the member of its number.
    """

    jvm_options = (_HEAP,)

    def __init__(
        self,
        data: Path,
        number: int,
        voters: Mapping[int, str],
        cluster_id: str,
        network: Network | None,
    ) -> None:
        java = find_java(os.environ)
        lib = jars(java)
        if network is not None:
            java = network.java(number, java, data)
        super().__init__(data, free_port(), _SETTINGS, java, lib)
        self.number = number
        host, _, _ = voters[number].rpartition(":")
        self.bootstrap_servers = f"{host}:{self.port}"
        self.listeners = {"PLAINTEXT": self.bootstrap_servers}
        self.admin_settings = {"bootstrap.servers": self.bootstrap_servers}
        self._voters = voters
        self._own_cluster = cluster_id

    def launch(self) -> None:
        """Start, and return before it serves clients: that takes two of three."""
        if not self.alive:
            self._hold_data()
            self._write_files()
            self._format()
            self._launch()

    def ready(self) -> None:
        """Return when it serves clients."""
        self._wait_until_ready()

    def _write_files(self) -> None:
        super()._write_files()
        file = self.data / "broker.properties"
        found = dict(line.split("=", 1) for line in file.read_text().splitlines())
        own = f"CONTROLLER://{self._voters[self.number]}"
        found["listeners"] = f"PLAINTEXT://{self.bootstrap_servers},{own}"
        voters = (f"{number}@{at}" for number, at in self._voters.items())
        found["controller.quorum.voters"] = ",".join(voters)
        found["node.id"] = str(self.number)
        file.write_text("".join(f"{key}={value}\n" for key, value in found.items()))

    def _format(self) -> None:
        super()._format()
        meta = self._logs / META
        text = re.sub(r"(?m)^node\.id=.*$", f"node.id={self.number}", meta.read_text())
        meta.write_text(re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={self._own_cluster}", text))


class Cluster:
    """The three brokers, which can be started and stopped one by one."""

    def __init__(self, data: Path, network: Network | None = None) -> None:
        self._network = network
        hosts = {
            number: "127.0.0.1" if network is None else network.address(number)
            for number in range(1, NODES + 1)
        }
        voters = {number: f"{host}:{free_port()}" for number, host in hosts.items()}
        name = random_id()
        self.nodes = [Node(data / str(n), n, voters, name, network) for n in voters]
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes)
        self.proxied_servers = self.bootstrap_servers
        """Where the pipeline connects: nothing is between it and the brokers."""
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def start(self) -> None:
        """Start those that do not run, and return when all serve clients."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.ready()

    def kill(self) -> None:
        """Kill all of them."""
        for node in self.nodes:
            node.kill()

    def pids(self) -> list[int]:
        """The processes of those that run."""
        return [node.pid for node in self.nodes if node.pid is not None]

    def leader_of(self, topic: str, partition: int = 0) -> Node:
        """The broker that leads a partition now, once there is one."""
        leaders: list[Node] = []

        def is_led() -> bool:
            known = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
            # A broker that has not heard of the topic yet knows no partitions.
            number = known[partition].leader if partition in known else None
            leaders.extend(node for node in self.nodes if node.number == number)
            return bool(leaders)

        wait_until(is_led, 30, f"a leader of {topic}[{partition}]")
        return leaders[0]

    def led_as_preferred(self) -> bool:
        """Give each partition its preferred leader; whether that one is in sync everywhere."""
        topics = self._admin.list_topics(timeout=30).topics.values()
        every = [TopicPartition(t.topic, p) for t in topics for p in t.partitions]
        self._admin.elect_leaders(ElectionType.PREFERRED, every).result(30)
        topics = self._admin.list_topics(timeout=30).topics.values()
        return all(p.leader == p.replicas[0] for t in topics for p in t.partitions.values())

    @contextmanager
    def apart(self, node: Node) -> Iterator[None]:
        """Keep a broker and the others from each other, not from clients, for a `with` block.

        Raises:
            Wrong: it takes a network of this machine's own, and that takes root.
        """
        if self._network is None:
            raise Wrong("brokers cannot be kept apart: a network of one's own takes root")
        with self._network.apart(node.number):
            yield

    def reassign(self, topics: Iterable[str], brokers: Sequence[int]) -> None:
        """Move topics to some of the brokers; return when they are there."""
        known = self._admin.list_topics(timeout=30).topics
        every = [(topic, partition) for topic in topics for partition in known[topic].partitions]
        count = len(brokers)
        reassign(
            self.bootstrap_servers,
            {at: [brokers[(n + i) % count] for i in range(count)] for n, at in enumerate(every)},
        )


@contextmanager
def clustered() -> Iterator[Cluster]:
    """Run three brokers for the length of a `with` block; with root, in a network of theirs."""
    folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-cluster-"))
    network = Network(range(1, NODES + 1)) if networks.available() else None
    made = Cluster(folder, network)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        if network is not None:
            network.close()
        shutil.rmtree(folder, ignore_errors=True)
