"""A process that is lost at any moment of a start: the run goes on, or ends by its name."""

import re
from random import Random

import pytest

from support.lost_processes import MOMENTS, Moment, lost
from support.pipeline_processes import PipelineOver, upserts

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
    pipeline_over: PipelineOver, moment: Moment
) -> None:
    """Nothing is left running, and nothing is lost or doubled, also by the next start."""
    pipeline = pipeline_over(2, upserts(600, 200, Random(1)), limit=200)

    outcome = lost(pipeline, moment)

    print(outcome.status, outcome.text)
    assert outcome.left == []
    assert "Traceback" not in outcome.text
    if outcome.status:
        (told,) = re.findall("^ikebana: (.*)", outcome.text, re.MULTILINE)
        assert NAMES.search(told), outcome.text
        pipeline.drained()
    assert pipeline.judged() == {}
