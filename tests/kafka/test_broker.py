"""The embedded broker keeps what it acknowledged, says why it cannot start, and ends with us."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ikebana.errors import BrokerError, ConfigError
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import Broker, free_port, jars, jars_fetched, running
from support.waiting import wait_until

pytestmark = pytest.mark.kafka


def create_topic(servers: str, topic: str) -> None:
    """Create a topic of one partition and wait for it."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(timeout=30)


def produce(servers: str, topic: str, *values: bytes) -> None:
    """Produce values and return when the broker has acknowledged all of them."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    """Read the first `count` committed values of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def read() -> bool:
            for message in consumer.consume(count, timeout=0.2):
                # While a broker comes back its partitions may be without a leader.
                if message.error() is None:
                    values.append(message.value())
            return len(values) >= count

        wait_until(read, 30, f"{count} committed records in {topic}")
    finally:
        consumer.close()
    return values


def is_served(port: int) -> bool:
    """Say whether somebody listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def exists(pid: int) -> bool:
    """Say whether a process with this id is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_transactions_commit_and_abort(broker: Broker, topic_name: Callable[[str], str]) -> None:
    """Committed records are read, aborted ones are not."""
    topic = topic_name("transactions")
    create_topic(broker.bootstrap_servers, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)

    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(30)

    assert committed(broker.bootstrap_servers, topic, 1) == [b"committed"]


def test_topics_are_not_created_by_accident(
    broker: Broker, topic_name: Callable[[str], str]
) -> None:
    """Producing to a topic that was never created is an error, not a new topic."""
    topic = topic_name("never-created")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "topic.metadata.propagation.max.ms": 100,
            "message.timeout.ms": 2000,
        }
    )
    refused: list[bool] = []

    producer.produce(topic, b"lost", on_delivery=lambda err, _: refused.append(err is not None))
    producer.flush(30)

    assert refused == [True]
    assert topic not in admin.list_topics(timeout=10).topics


@pytest.mark.long
def test_records_survive_whatever_ends_a_broker(tmp_path: Path) -> None:
    """A data folder is reused: after SIGKILL on the same port, and later on any port.

    Starting takes long, so one broker shows all that there is to see on the way.
    """
    data = tmp_path / "a folder, with = and \\"
    with running(data) as first:
        servers, killed = first.bootstrap_servers, first.pid
        create_topic(servers, "kept")
        produce(servers, "kept", b"before")
        with pytest.raises(BrokerError, match="another broker runs there"), running(data):
            pass
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(BrokerError, match=r"ended by itself with status 137.*broker\.log"):
            first.wait()
        was_alive = first.alive
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)

        first.restart()
        produce(servers, "kept", b"after")
        restarted = first.pid
        same = first.bootstrap_servers == servers
    with running(data) as second:
        values = committed(second.bootstrap_servers, "kept", 2)

    assert not was_alive
    assert same
    assert restarted != killed
    assert second.bootstrap_servers != servers
    assert values == [b"before", b"after"]


def test_a_temporary_data_folder_is_removed_at_the_end(broker: Broker) -> None:
    """Two brokers at once have their own ports; one without data leaves nothing behind."""
    with running(settings={"log.retention.ms": "12345"}) as other:
        data, pid = other.data, other.pid
        log = other.log_file.read_text()
        properties = (data / "broker.properties").read_text()

    assert other.bootstrap_servers != broker.bootstrap_servers
    errors = [line for line in log.splitlines() if " ERROR " in line]
    # A slow machine is no fault of the settings.
    assert [line for line in errors if "slow" not in line and "timed out" not in line] == []
    assert "log.retention.ms=12345\n" in properties
    assert pid is not None
    assert not exists(pid)
    assert not data.exists()


def test_settings_that_make_the_broker_are_refused() -> None:
    """Listeners, node and log folders are not the caller's to set."""
    with (
        pytest.raises(ConfigError, match=r"cannot set listeners, log\.dirs: "),
        running(settings={"log.dirs": "/", "listeners": "PLAINTEXT://0.0.0.0:9092"}),
    ):
        pass


def test_a_taken_port_is_said_before_anything_is_started(tmp_path: Path) -> None:
    """In a line, and with what to do; whether it is a broker that listens there or not."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError) as raised, running(tmp_path, port):
            pass

    assert raised.value.message == f"could not start a broker: port {port} at 127.0.0.1 is in use"
    assert "choose another port" in (raised.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_another_broker_on_the_port_is_not_taken_for_ours(tmp_path: Path, broker: Broker) -> None:
    """Answers of a stranger on our port are no sign that our broker is ready."""
    java = find_java(os.environ)
    own = Broker(tmp_path, broker.port, {}, java, jars(java))

    with pytest.raises(BrokerError, match="Address already in use"):
        own.start()

    assert not own.alive


def test_a_damaged_data_folder_is_said_with_the_log(tmp_path: Path) -> None:
    """A broker that cannot read its data does not start; the message names the log."""
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\nnode.id=one\n")

    with pytest.raises(BrokerError) as raised, running(tmp_path):
        pass

    assert str(tmp_path / "broker.log") in str(raised.value)
    assert "node.id" in str(raised.value)


def test_jars_that_cannot_be_fetched_are_said_with_the_log_of_ivy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that fails names Ivy's log and leaves nothing that looks fetched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS",
        f"-Duser.home={tmp_path} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9",
    )

    with pytest.raises(BrokerError) as raised:
        jars(find_java(os.environ))

    assert str(tmp_path / "cache" / "ikebana" / "kafka-4.2.1-ivy.log") in str(raised.value)
    assert "Connection refused" in str(raised.value)
    assert raised.value.hint is not None
    assert not jars_fetched()


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.full),
        pytest.param(signal.SIGTERM, marks=pytest.mark.full),
        signal.SIGKILL,
    ],
)
def test_the_command_serves_until_a_signal_ends_it(tmp_path: Path, ending: signal.Signals) -> None:
    """`ikebana broker` says where it listens; no signal leaves a broker behind."""
    port = str(free_port())
    program = "from ikebana.processor.cli.broker import broker_command; broker_command()"
    command = [sys.executable, "-c", program, "--port", port, "--data", str(tmp_path)]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running_command:
        assert running_command.stdout is not None
        ready = running_command.stdout.readline()
        running_command.send_signal(ending)
        rest = running_command.stdout.read()
        status = running_command.wait(60)

    assert ready == (
        f"broker ready at 127.0.0.1:{port} "
        f"(data in {tmp_path}, log in {tmp_path / 'broker.log'}); Ctrl-C to stop\n"
    )
    killed = ending == signal.SIGKILL
    assert rest == ("" if killed else "broker stopped\n")
    assert status == (-signal.SIGKILL if killed else 0)
    wait_until(lambda: not is_served(int(port)), 30, "the end of the broker")
