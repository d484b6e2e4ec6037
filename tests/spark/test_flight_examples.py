"""The flight examples through Kafka and Spark: event time, two partitions, restarts."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import flights
from ikebana.arrangements.update import Update
from ikebana.codecs import canonical
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.engine.evaluate import evaluate
from ikebana.processor.kafka.broker import Broker
from support.flight_examples import (
    EXAMPLES,
    Updates,
    at_each,
    counts_at,
    in_order,
    refused_at,
    two_days,
)
from support.flight_oracle import HOUR, STATES, Plain, hours
from support.output_judge import committed, progress_of
from support.pipeline_processes import Pipeline, create, produce

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

LATENESS = timedelta(hours=6)
MADE = {"departures": flights.departures, "events": flights.events}


class Examples(Pipeline):
    """Both examples as one pipeline, so that each is as far as the other."""

    def document(self) -> dict[str, Any]:
        """What the files say, with topics of this test."""
        found: dict[str, Any] = {}
        for name in ("in-the-air", "life-cycle"):
            told = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
            for section in ("inputs", "operators", "outputs"):
                found.setdefault(section, {}).update(told[section])
        for name, source in found["inputs"].items():
            source["topic"] = self.topic(name)
        for name, output in found["outputs"].items():
            output["topic"] = f"{self.name}.{name}"
        return self.around(found)

    def topic(self, name: str) -> str:
        return f"{self.source}.{name}"

    def updates(self, output: str) -> Updates:
        """What an output's topic holds."""
        found = []
        for message in committed(self.servers, f"{self.name}.{output}"):
            told = dict(message.headers())
            data: Any = canonical.decode(message.value())
            if output != "errors":
                data = (canonical.decode(message.key()), data)
            found.append(Update(data, int(told["time"]), int(told["diff"])))
        return found


def test_flight_examples_are_exact_over_partitions_restarts_and_deaths(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Three runs over two shuffled days, of which one died, equal the plain computation."""
    servers = broker.bootstrap_servers
    pipeline = Examples(tmp_path, servers, topic_name("flights"), topic_name("in"), limit=1_500)
    table = two_days()
    given = {}
    for name, made in MADE.items():
        create(servers, pipeline.topic(name), 2)
        messages = made(table)
        given[name] = [*flights.shuffled(messages, LATENESS, 5), flights.closing(messages[-1])]

    for name, messages in given.items():
        half = messages[: len(messages) // 2]
        produce(servers, pipeline.topic(name), [(m.key, m.value) for m in half])
    run = pipeline.drained(timeout_s=240)
    # What comes by an exchange has been read before.
    assert f" {sum(len(m) // 2 for m in given.values()):,} records, " in run.text
    for name, messages in given.items():
        *rest, last = messages[len(messages) // 2 :]
        produce(servers, pipeline.topic(name), [(m.key, m.value) for m in rest])
        # Every partition is waited for, so each of them is told how late it is.
        for partition in range(2):
            produce(servers, pipeline.topic(name), [(last.key, last.value)], partition)
    batch = max(pipeline.log("commits")) + 2
    with pipeline.start("--once", fault=f"after_commit:{batch}:1") as run:
        run.wait_for_fault(timeout_s=240)
    pipeline.drained(timeout_s=240)

    upper = progress_of(servers, f"{pipeline.name}.by_state")[-1].upper
    found = {name: pipeline.updates(name) for name in ("by_origin", "by_state", "states")}
    errors = pipeline.updates("errors")
    plan = parse(json.dumps(pipeline.document()), "file", environ={}).plan
    in_process = evaluate(
        plan, {name: [(m.key, m.value, 0) for m in all_] for name, all_ in given.items()}, upper
    )
    plain = Plain(table)
    times = hours("2013-01-01", "2013-01-04")
    times = times[times < upper].tolist()
    air = plain.in_the_air(times)

    assert upper > plain.departs[~plain.never_left].max() + 12 * HOUR
    for name, updates in {**found, "errors": errors}.items():
        assert in_order(updates) == in_order(in_process[name]), name
    assert counts_at(found["by_origin"], times, air) == air
    assert counts_at(found["by_state"], times, STATES) == plain.counts(times)
    for time, data in zip(times[::7], at_each(found["states"], times[::7]), strict=True):
        assert dict(data) == plain.states(time), time
        assert refused_at(errors, time) == plain.refused(time), time
