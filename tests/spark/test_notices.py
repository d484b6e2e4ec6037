"""A run over a topic that is not there yet, and over messages without a declared column."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ikebana as ik
from ikebana.errors import SourceError
from ikebana.processor.building.handle import PipelineRun
from ikebana.processor.kafka.broker import Broker
from support.http_answers import ask, ask_json
from support.pipeline_processes import Pipeline, create, produce
from support.waiting import patient, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]
ROWS = [(b"%d" % at, json.dumps({"id": at, "name": "x"}).encode()) for at in range(2)]


def test_a_run_waits_for_its_topic_and_says_what_its_messages_lack(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """On the terminal, in /ready and as a metric; when it has a message with it, no more."""
    source = topic_name("people")
    columns = {"id": "BIGINT", "nom": "VARCHAR"}
    plan = {"inputs": {"changes": {"topic": source, "columns": columns}}}
    pipe = Pipeline(tmp_path, broker.bootstrap_servers, topic_name("loud"), source, plan=plan)
    with pipe.start("--http", "127.0.0.1:0") as run:
        run.wait_for("serving http")
        url = run.text.split("serving ")[1].split("/metrics")[0]
        run.wait_for(f'waiting for topic "{source}" of input changes')

        def ready() -> dict[str, Any]:
            found: dict[str, Any] = ask_json(url + "/ready")[1]
            return found

        # The notice comes a moment before the step of the start.
        waits = f'waiting for topic "{source}"'
        wait_until(lambda: waits in ready()["reason"], 60, "what the start waits for")
        assert [each["kind"] for each in ready()["notices"]] == ["topic"]

        create(broker.bootstrap_servers, source, 1)
        produce(broker.bootstrap_servers, source, ROWS)

        run.wait_for('warning: changes: no message of 2 has the column "nom", so it is null')
        run.wait_for('they have id, name; did you mean "name"?')
        assert [(each["kind"], each["of"]) for each in ready()["notices"]] == [("column", "nom")]
        assert 'ikebana_notices{input="changes",kind="column"' in ask(url + "/metrics")[1]
        produce(broker.bootstrap_servers, source, [(b"7", b'{"id": 7, "nom": "y"}')])
        wait_until(lambda: ready()["notices"] == [], 60, "no notice any more")
        assert run.text.count("warning: changes: no message") == 1
        assert run.stop() == 0


def test_a_run_in_python_has_its_notices_and_waits_or_refuses(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """With `once` it refuses, unless it is told to wait; a start that waits can be stopped."""
    source = topic_name("people")

    def pipeline() -> ik.Pipeline:
        made = ik.Pipeline(topic_name("shop"))
        columns = [ik.Column("id", "BIGINT"), ik.Column("nom", "VARCHAR")]
        made.topic(source, name="people", columns=columns).upsert().to(topic_name("out"))
        return made

    few = {"run": {"shards": 1, "master": "local[1]"}}

    def started(folder: str, *, once: bool = False) -> PipelineRun:
        place = str(tmp_path / folder)
        return pipeline().start(
            broker.bootstrap_servers, checkpoint=place, settings=few, once=once
        )

    with pytest.raises(SourceError, match="does not exist"):
        started("a", once=True).wait(patient(120))
    waits = started("b")
    wait_until(lambda: waits.step.startswith("waiting for topic"), 60, "it waits")
    assert [each.kind for each in waits.notices] == ["topic"]
    assert waits.stop(patient(60))
    assert waits.status == "ended"

    create(broker.bootstrap_servers, source, 1)
    produce(broker.bootstrap_servers, source, ROWS)
    run = started("c", once=True)
    assert run.wait(patient(240))
    assert [each.of for each in run.notices] == ["nom"]
    assert "did you mean" in repr(run)
