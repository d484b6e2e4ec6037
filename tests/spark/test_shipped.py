"""What is installed from the wheel, as the image does it, runs as what the tests run."""

import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.base.machine import find_java
from ikebana.processor.spark import class_archive
from support.pipeline_processes import PipelineOver, upserts
from support.shipped import Shipped, installed
from support.waiting import patient

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The wheel in an environment of its own."""
    return installed(tmp_path_factory.mktemp("shipped"), quick=True)


def test_nothing_of_the_checkout_is_imported(shipped: Shipped) -> None:
    """The package comes from the wheel, with its compiled code."""
    asked = subprocess.run(
        [shipped.command, "--version"],
        env=shipped.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    assert asked.stdout.strip().endswith("with compiled code")
    place = subprocess.run(
        [shipped.folder / "bin" / "python", "-c", "import ikebana; print(ikebana.__file__)"],
        env=shipped.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    assert Path(place.stdout.strip()).is_relative_to(shipped.folder)


def test_the_fast_paths_are_on_in_the_environment_of_the_image(
    pipeline_over: PipelineOver, shipped: Shipped
) -> None:
    """With the Dockerfile's variables shards have owners, classes an archive, and rows are exact.

    `PYSPARK_PYTHON` names Python otherwise than the command's first line does, and
    `SPARK_CONF_DIR` and `SPARK_HOME` are set.
    """
    pipeline = pipeline_over(2, upserts(900, 200, Random(1)), limit=400)
    environment = {**os.environ, **shipped.environment(os.environ)}

    run = pipeline.start("--once", environment=environment, command=[shipped.command])
    with run:
        assert run.wait(patient(120)) == 0, run.text

    assert pipeline.judged() == {}
    archive = "yes"
    if class_archive.existing(find_java(os.environ)) is None:
        archive = "no (there is none yet: `ikebana prepare` makes it)"
    assert (
        f"fast paths: owners yes, class archive {archive}, compiled code yes, forks yes"
        in run.text
    )
