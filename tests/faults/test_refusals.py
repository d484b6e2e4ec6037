"""What does not fit together is refused by name, and nothing is written."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from random import Random
from shutil import copytree, rmtree

import pytest

from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import (
    Pipeline,
    PipelineOver,
    admin_of,
    configure,
    create,
    delete_before,
    ends_of,
    produce,
    put_back,
    records_of,
    recreate,
    upserts,
)
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def prepared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A checkpoint with some batches, and beside it, in `earlier`, a copy of less age."""
    folder = tmp_path_factory.mktemp("refused")
    servers, source = broker.bootstrap_servers, f"in-{folder.name}-{id(folder)}"
    create(servers, source, 2)
    produce(servers, source, upserts(600, 100, Random(1)))
    pipeline = Pipeline(folder, servers, f"refused-{id(folder)}", source, limit=200)
    pipeline.drained()
    copytree(pipeline.place, folder / "earlier")
    produce(servers, source, upserts(600, 100, Random(2)))
    pipeline.drained()
    return pipeline


@contextmanager
def deleted(pipeline: Pipeline) -> Iterator[Pipeline]:
    aside = pipeline.place.rename(pipeline.folder / "aside")
    yield pipeline
    assert not pipeline.place.exists()
    aside.rename(pipeline.place)


@contextmanager
def copied(pipeline: Pipeline) -> Iterator[Pipeline]:
    copy = pipeline.folder / "copy"
    copytree(pipeline.place, copy)
    yield replace(pipeline, checkpoint=copy)
    rmtree(copy)


@contextmanager
def rolled_back(pipeline: Pipeline) -> Iterator[Pipeline]:
    copytree(pipeline.place, pipeline.folder / "later")
    put_back(pipeline.folder / "earlier", pipeline.place)
    yield pipeline
    put_back(pipeline.folder / "later", pipeline.place)
    rmtree(pipeline.folder / "later")


@contextmanager
def named_alike(pipeline: Pipeline) -> Iterator[Pipeline]:
    checkpoint = pipeline.folder / "namesake"
    yield replace(pipeline, output=pipeline.target + "-other", checkpoint=checkpoint)
    assert not checkpoint.exists()


@contextmanager
def compacted_output(pipeline: Pipeline) -> Iterator[Pipeline]:
    configure(pipeline.servers, pipeline.target, "cleanup.policy", "compact")
    yield pipeline
    configure(pipeline.servers, pipeline.target, "cleanup.policy", "delete")


@contextmanager
def another_plan(pipeline: Pipeline) -> Iterator[Pipeline]:
    yield replace(pipeline, domain="ingest")


@contextmanager
def no_input(pipeline: Pipeline) -> Iterator[Pipeline]:
    yield replace(pipeline, source="missing-" + pipeline.source)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(deleted, ["belongs to another checkpoint", "deleted"], id="deleted"),
        pytest.param(copied, ["it was copied or moved", "--relocate"], id="copied"),
        pytest.param(rolled_back, ["rolled back, or is an old copy"], id="rolled back"),
        pytest.param(named_alike, ["belongs to another checkpoint"], id="name used elsewhere"),
        pytest.param(compacted_output, ["is compacted"], id="output compacted"),
        pytest.param(another_plan, ['time was "offset", is "ingest"'], id="another plan"),
        pytest.param(no_input, ["input topic", "does not exist"], id="no input"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    prepared: Pipeline,
    changed: Callable[[Pipeline], AbstractContextManager[Pipeline]],
    said: list[str],
) -> None:
    """R4. Each case's name says how it comes about.

    To go on would be to skip batches that others have committed, or to make them twice.
    """
    before = readable(prepared)
    with changed(prepared) as pipeline, pipeline.start("--once") as run:
        assert run.wait(60) == 1, run.text
        text = run.text
        # Nor is any topic made.
        known = admin_of(prepared.servers).list_topics(timeout=30).topics
        assert (pipeline.target in known) == (pipeline.target == prepared.target)
    assert "Traceback" not in text, text
    for part in ["ikebana: ", "\nHint: ", *said]:
        assert part in text, text
    assert readable(prepared) == before


def readable(pipeline: Pipeline) -> dict[str, int]:
    """How many records there are to read in the pipeline's topics, as far as these exist.

    A start reads up to records of its own, which it aborts: they move the ends of topics.
    """
    existing = ends_of(pipeline.servers, pipeline.topics)
    return {topic: records_of(pipeline.servers, topic) for topic, _ in existing}


@pytest.fixture
def begun(pipeline_over: PipelineOver) -> Pipeline:
    """A checkpoint that has been born and nothing more; its input has five records."""
    pipeline = pipeline_over(1, upserts(5, 100, Random(1)))
    with pipeline.start("--once") as run:
        run.wait_for("starting Spark")
    return pipeline


def refused(pipeline: Pipeline, said: str) -> None:
    before = readable(pipeline)
    with pipeline.start("--once") as run:
        assert run.wait(90) == 1, run.text
        assert said in run.text, run.text
        assert "\nHint: " in run.text, run.text
        assert "Traceback" not in run.text, run.text
    assert readable(pipeline) == before


def test_an_output_that_was_deleted_is_not_made_anew(begun: Pipeline) -> None:
    """Its updates cannot be made again, with another topic of its name or without."""
    recreate(begun.servers, begun.target)
    refused(begun, f'output topic "{begun.target}" was deleted and created again')
    admin = admin_of(begun.servers)
    admin.delete_topics([begun.target])[begun.target].result(30)
    wait_until(lambda: begun.target not in admin.list_topics(timeout=10).topics, 30, "deletion")
    refused(begun, f'output topic "{begun.target}" was deleted since')


def test_an_input_that_was_made_anew_is_not_read(begun: Pipeline) -> None:
    """Offset 5 of another topic is another record."""
    recreate(begun.servers, begun.source)
    begun.send(upserts(7, 100, Random(2)))
    refused(begun, f'input topic "{begun.source}" was deleted and created again')


def test_records_that_were_deleted_before_they_were_read_are_missed(begun: Pipeline) -> None:
    """R6. A reader that went on at the first record there is would lose keys in silence."""
    delete_before(begun.servers, begun.source, {0: 3})
    refused(begun, "no longer has this offset")
