"""Topics of a pipeline whose records were copied to another cluster, to other offsets.

What the pipeline has written is refused there, and begins anew from inputs that were copied.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest
from confluent_kafka import Producer

from ikebana.processor.kafka.broker import Broker, running
from support.output_judge import committed, judge
from support.pipeline_processes import PipelineOver, admin_of, create, upserts
from support.recoveries import recover

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Broker]:
    """A second cluster."""
    with running(tmp_path / "other-broker") as broker:
        yield broker


def mirror(servers: str, other: str, topic: str) -> None:
    """Copy the committed records of a topic, each partition in order, as mirrors do."""
    partitions = len(admin_of(servers).list_topics(topic, timeout=10).topics[topic].partitions)
    create(other, topic, partitions)
    producer = Producer({"bootstrap.servers": other, "log_level": 0})
    for message in committed(servers, topic):
        producer.produce(
            topic,
            message.value(),
            message.key(),
            message.partition(),
            headers=message.headers(),
        )
    assert producer.flush(30) == 0


def test_copied_topics_are_refused_and_copied_inputs_begin_anew(
    pipeline_over: PipelineOver, other: Broker
) -> None:
    """With its checkpoint and without, nothing is written; then another pipeline has it all."""
    here = pipeline_over(2, upserts(600, 90, Random(1)))
    here.drained()
    names = [here.source, here.name + ".commits", *here.topics]
    for name in names:
        mirror(here.servers, other.bootstrap_servers, name)
    there = replace(here, servers=other.bootstrap_servers)
    had = {name: len(committed(there.servers, name)) for name in names}

    with there.start("--once") as run:
        assert run.wait(120) == 1
    assert "ikebana: " in run.text
    assert "Traceback" not in run.text
    rmtree(here.place)
    refused = recover(there, status=1)
    assert not there.place.exists()

    assert {name: len(committed(there.servers, name)) for name in names} == had, refused
    begins = replace(there, name=here.name + "-anew")
    begins.drained()
    assert judge(begins.servers, begins.target, here.truth()) == {}
