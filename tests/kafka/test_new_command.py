"""`ikebana new` over a topic of a broker: what is read of it, and what is written."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ikebana.errors import SourceError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.records import sampled

pytestmark = pytest.mark.kafka


def test_a_topic_becomes_a_pipeline_file(broker: Broker, tmp_path: Path) -> None:
    """The earliest and the newest of each partition are seen, and no more is read."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    for topic in ("new-orders", "new-later"):
        topics.create(client.admin(settings), topic, 3, 1, {})
    producer = Producer(settings)
    for number in range(600):
        last = {"late": 2.5} if number > 590 else {}
        value = json.dumps({"quantity": number, **last})
        producer.produce("new-orders", key=str(number), value=value, partition=number % 2)
    producer.flush()
    path = tmp_path / "orders.yaml"

    found = sampled(settings, "new-orders")
    words = ["new", str(path), "--topic", "new-orders", "--topic", "new-later"]
    done = CliRunner().invoke(cli, [*words, "--brokers", broker.bootstrap_servers])

    assert len(found) == 200
    assert done.exit_code == 0, done.output
    plan, read = parse(path.read_text(), str(path), environ={})
    assert [(c.name, c.type) for c in plan.inputs[0].columns] == [
        ("quantity", "BIGINT"),
        ("late", "DOUBLE"),
    ]
    assert plan.inputs[1].topics == ("new-later",)
    assert "new-later:\nThe topic has no messages" in done.stderr
    assert read.kafka["bootstrap.servers"] == broker.bootstrap_servers


def test_an_empty_topic_has_nothing_to_show(broker: Broker) -> None:
    """And one that is not there is named."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    topics.create(client.admin(settings), "new-empty", 2, 1, {})

    assert sampled(settings, "new-empty") == []
    for name in ("new-nowhere", "no name of a topic!", ""):
        with pytest.raises(SourceError, match=f'there is no topic "{name}"'):
            sampled(settings, name)
