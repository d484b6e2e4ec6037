"""A process that is lost at any moment of a start: the run goes on, or ends by its name."""

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.lost_processes import MOMENTS, Moment, lost
from support.output_judge import judge, truth_of
from support.pipeline_processes import Pipeline, create, produce, upserts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

# One in Spark's start and one in the query's in the usual run of tests.
QUICK = {"JVM 0.5 starting Spark", "stand-in of the offsets 0.0"}
# What an error calls the processes.
NAMES = re.compile(r"JVM|Java|Python worker|process that (owns|reads)|host")


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(
            moment, id=str(moment), marks=() if str(moment) in QUICK else pytest.mark.full
        )
        for moment in MOMENTS
    ],
)
def test_what_is_lost_in_a_start_is_started_again_or_named(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, moment: Moment
) -> None:
    """Nothing is left running, and nothing is lost or doubled, also by the next start."""
    servers, source = broker.bootstrap_servers, topic_name("lost")
    create(servers, source, 2)
    produce(servers, source, upserts(600, 200, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("started"), source, limit=200)

    outcome = lost(pipeline, moment)

    print(outcome.status, outcome.text)
    assert outcome.left == []
    assert "Traceback" not in outcome.text
    if outcome.status:
        (told,) = re.findall("^ikebana: (.*)", outcome.text, re.MULTILINE)
        assert NAMES.search(told), outcome.text
        pipeline.drained()
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
