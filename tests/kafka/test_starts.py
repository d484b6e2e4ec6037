"""Where inputs begin to read real topics: at times and offsets, first and after an edit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from ikebana import Input, Output, Plan, Upsert
from ikebana.errors import SourceError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.takeover import read_remains
from ikebana.processor.planning.starts import text_of
from support.pipeline_processes import create

pytestmark = pytest.mark.kafka

# The timestamps of the records of each partition; of the third there are none.
TIMES = {0: [1_000, 2_000, 3_000, 1_500], 1: [2_500]}


@pytest.fixture
def topic(broker: Broker, topic_name: Callable[[str], str]) -> str:
    """A topic with these records."""
    name = topic_name("starts")
    create(broker.bootstrap_servers, name, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition, times in TIMES.items():
        for time in times:
            producer.produce(name, b"v", b"k", partition=partition, timestamp=time)
    assert producer.flush(30) == 0
    return name


def plan_of(topic: str, start: Any) -> Plan:
    """The last values of the topic from there."""
    source = Input("rows", (topic,), start=text_of(start))
    return Plan("p", (source,), (Upsert("u", "rows"),), (Output("o", "u", "o"),))


def inputs_of(broker: Broker, plan: Plan) -> Inputs:
    """What asks the brokers."""
    return Inputs(plan, {"bootstrap.servers": broker.bootstrap_servers})


@pytest.mark.parametrize(
    ("start", "positions"),
    [
        ("earliest", {0: 0, 1: 0, 2: 0}),
        ("latest", {0: 4, 1: 1, 2: 0}),
        (1_500, {0: 1, 1: 0, 2: 0}),
        (2_000, {0: 1, 1: 0, 2: 0}),
        (2_600, {0: 2, 1: 1, 2: 0}),
        (9_000, {0: 4, 1: 1, 2: 0}),
        ({0: 3, 1: 1, 2: 0}, {0: 3, 1: 1, 2: 0}),
    ],
)
def test_a_partition_begins_at_its_first_record_that_is_not_earlier(
    broker: Broker, topic: str, start: Any, positions: dict[int, int]
) -> None:
    """Or at its end; the brokers know the times.  An edit finds the same place."""
    inputs = inputs_of(broker, plan_of(topic, start))

    assert inputs.start().positions == {topic: positions}
    if start != "latest":
        # The mint of an edit takes the ends of a look instead.
        assert inputs.look({"another": {0: 1}}).begins[topic] == positions


def test_a_topic_that_has_been_read_is_not_looked_for_again(broker: Broker, topic: str) -> None:
    """Its start may be gone by then."""
    inputs = inputs_of(broker, plan_of(topic, {0: 99, 1: 0, 2: 0}))

    with pytest.raises(SourceError, match="has the offsets from 0 up to 4"):
        inputs.start()
    assert inputs.start([topic]).positions == {topic: {0: 0, 1: 0, 2: 0}}
    assert inputs.look({topic: {0: 4, 1: 1, 2: 0}}).begins[topic][0] == 0


@pytest.mark.parametrize(
    ("start", "positions"),
    [(2_600, {0: 2, 1: 1, 2: 0}), ({0: 3, 1: 1, 2: 0}, {0: 3, 1: 1, 2: 0})],
)
def test_a_recovery_finds_the_start_again(
    broker: Broker, topic: str, start: Any, positions: dict[int, int]
) -> None:
    """By the file; other starts need none."""
    settings = Settings("c", {"bootstrap.servers": broker.bootstrap_servers})
    plan = plan_of(topic, start)
    for of_plan, starts in ((plan, {topic: positions}), (plan_of(topic, "earliest"), {})):
        assert read_remains(replace(of_plan, name=f"p-{topic}"), settings).starts == starts
