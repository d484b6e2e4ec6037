"""Preflight over real brokers: what it finds, and that it leaves everything as it was."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint.checkpoint import Checkpoint, metadata_of
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.cli.preflight import checks
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.takeover import Takeover, take_over
from support.pipeline_processes import (
    Pipeline,
    admin_of,
    configure,
    create,
    delete_before,
    ends_of,
    produce,
    recreate,
)

pytestmark = pytest.mark.kafka

BELONGS = "what belongs together"


@pytest.fixture
def fresh(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Pipeline:
    """A pipeline that has never run, with its input."""
    name = topic_name("preflight")
    create(broker.bootstrap_servers, name + ".in", 2)
    return Pipeline(tmp_path, broker.bootstrap_servers, name, name + ".in")


def started(pipe: Pipeline) -> Takeover:
    """Do what the driver does before its first batch."""
    plan, settings = pipeline.read(pipe.file(), environ=os.environ)
    checkpoint = Checkpoint(settings.checkpoint)
    metadata = checkpoint.metadata()
    if metadata is None:
        start = Inputs(plan, settings.kafka).start()
        metadata = metadata_of(settings.checkpoint, plan, settings.shards, start)
        checkpoint.write(metadata)
    logged = checkpoint.layout(metadata).logged
    return take_over(plan, settings, metadata, logged, lambda: None, "a test")


@pytest.fixture
def ran(fresh: Pipeline) -> Iterator[Pipeline]:
    """A pipeline that has been started."""
    taken = started(fresh)
    yield fresh
    del taken


def told(pipe: Pipeline) -> dict[str, str]:
    """By what is looked at: how it is, and the words."""
    return {c.check: f"{c.status}: {c.fact}" for c in checks(PipelineArgument(pipe.file()))}


def failed(pipe: Pipeline) -> dict[str, str]:
    """What has failed, and why; each says what to do."""
    found = [c for c in checks(PipelineArgument(pipe.file())) if c.status == "failed"]
    assert all(check.remedy for check in found), found
    return {check.check: check.fact for check in found}


def topics_of(servers: str) -> set[str]:
    return set(admin_of(servers).list_topics(timeout=30).topics)


def test_a_new_pipeline_may_start_and_nothing_is_made(fresh: Pipeline) -> None:
    """Topics that a start would make are judged by the brokers, and not made."""
    fresh.file()
    before = topics_of(fresh.servers), sorted(fresh.folder.rglob("*"))

    found = told(fresh)

    assert [words for words in found.values() if not words.startswith("ok: ")] == []
    assert found[f'input topic "{fresh.source}"'] == "ok: 2 partitions, may be read"
    assert found[f'topic "{fresh.target}"'] == "ok: will be made, with 2 partitions"
    assert found[f'topic "{fresh.name}.commits"'] == "ok: will be made, with 3 partitions"
    assert found[BELONGS] == "ok: nothing of this name has run yet"
    assert (topics_of(fresh.servers), sorted(fresh.folder.rglob("*"))) == before


def test_a_pipeline_that_runs_is_not_disturbed(fresh: Pipeline) -> None:
    """Its lease is not taken: it can still commit."""
    taken = started(fresh)
    ends = ends_of(fresh.servers, topics_of(fresh.servers))

    found = told(fresh)

    assert [words for words in found.values() if not words.startswith("ok: ")] == []
    assert found[BELONGS] == "ok: instance 1 was the last, by a test"
    assert found[f'topic "{fresh.name}.commits"'] == "ok: 3 partitions, may be read and written"
    assert ends_of(fresh.servers, topics_of(fresh.servers)) == ends
    with taken.producer.transaction():
        pass


def no_input(pipe: Pipeline) -> Pipeline:
    return replace(pipe, source="missing-" + pipe.source, checkpoint=pipe.folder / "none")


def too_many_replicas(pipe: Pipeline) -> Pipeline:
    return SinkOf3(pipe.folder, pipe.servers, pipe.name + "-3", pipe.source)


class SinkOf3(Pipeline):
    """One that asks for more replicas than there are brokers."""

    def file(self) -> Path:
        path = super().file()
        path.write_text(path.read_text()[:-1] + ', "sink": {"replication_factor": 3}}')
        return path


@pytest.mark.parametrize(
    ("changed", "what", "why"),
    [
        pytest.param(
            too_many_replicas,
            'topic "{0.name}-3.commits"',
            "does not exist and cannot be made",
            id="too few brokers",
        ),
        pytest.param(
            lambda pipe: pipe.but(max_batch="16m"),
            "run.max_batch",
            "is 960 s, the brokers end transactions after 900 s",
            id="batches longer than transactions",
        ),
    ],
)
def test_what_a_first_start_would_fail_at_is_told(
    fresh: Pipeline, changed: Callable[[Pipeline], Pipeline], what: str, why: str
) -> None:
    """Each by the name of what is to be mended."""
    assert why in failed(changed(fresh))[what.format(fresh)]


def test_an_input_topic_that_is_not_there_yet_is_a_warning(fresh: Pipeline) -> None:
    """A run waits for it; the topic that is probably meant is named."""
    pipe = no_input(fresh)

    assert told(pipe)[f'input topic "{pipe.source}"'] == (
        "warning: does not exist: a run waits for it, unless it is told --no-wait; "
        f'did you mean "{fresh.source}"?'
    )
    assert failed(pipe) == {}


@pytest.mark.parametrize(
    ("changed", "what", "why"),
    [
        pytest.param(
            lambda pipe: replace(pipe, domain="ingest"),
            'checkpoint "{0.place}": same plan',
            'time was "offset", is "ingest"',
            id="another plan",
        ),
        pytest.param(
            lambda pipe: replace(pipe, checkpoint=pipe.folder / "another"),
            BELONGS,
            "belongs to another checkpoint",
            id="another checkpoint",
        ),
    ],
)
def test_what_does_not_go_with_the_checkpoint_is_told(
    ran: Pipeline, changed: Callable[[Pipeline], Pipeline], what: str, why: str
) -> None:
    """In the words that a start would refuse it with."""
    assert why in failed(changed(ran))[what.format(ran)]


def test_an_input_that_is_another_one_is_told(ran: Pipeline) -> None:
    """Its offsets would mean other records."""
    recreate(ran.servers, ran.source)

    found = failed(ran)

    assert "was deleted and created again" in found[f'input topic "{ran.source}"']


def test_records_that_are_gone_before_they_were_read_are_told(ran: Pipeline) -> None:
    """Retention was shorter than the downtime."""
    produce(ran.servers, ran.source, [(b"k", b"1")] * 3, partition=1)
    delete_before(ran.servers, ran.source, {1: 2})

    found = failed(ran)

    where = f"{ran.source}[1]@0 comes next, and is no longer there"
    assert found == {f'input topic "{ran.source}"': where}


def test_an_output_that_was_compacted_since_is_told(ran: Pipeline) -> None:
    """It would lose updates."""
    configure(ran.servers, ran.target, "cleanup.policy", "compact")

    assert "is compacted" in failed(ran)[BELONGS]


def test_brokers_that_do_not_answer_end_it(fresh: Pipeline) -> None:
    """What they would be asked is unknown."""
    away = replace(fresh, servers="127.0.0.1:1")

    found = told(away)

    assert found["brokers"].startswith("failed: could not reach the brokers at 127.0.0.1:1")
    assert found["topics and rights"] == "unknown: not checked: the brokers do not answer"
