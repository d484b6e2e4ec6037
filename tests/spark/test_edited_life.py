"""A short life of a checkpoint whose pipeline is edited, through Kafka and Spark.

`bench/edits.py` lives longer ones, with kills at random moments.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.edited_life import Life, brief_life
from support.pipeline_processes import START_S
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.mark.parametrize("edits", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_life_with_edits_and_a_kill_is_exact_at_each_closed_time(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, edits: int
) -> None:
    """Killed when the edit has begun, for which a topic was read again; records come meanwhile."""
    life = Life(tmp_path, broker.bootstrap_servers, topic_name("life"), Random(5))
    definitions = brief_life(edits)
    for number, definition in enumerate(definitions):
        life.send(80)
        pipeline = life.file(definition)
        if number == 1:
            with pipeline.start("--once") as run:
                # The first edit only reads again.
                wait_until(lambda: life.logged_edits() == 2, START_S, "a batch of the second edit")
                assert run.poll() is None, run.text
                run.kill()
            life.send(20)
        pipeline.drained()
        life.counts_from_now(definition)

    # And it goes on from there as any pipeline does.
    life.send(20)
    life.file(definitions[-1]).drained()
    life.log()

    assert life.wrong() == []
    # The last one reads nothing again: the rows of orders have all columns that the join needs.
    assert [at for at, _ in life.since] == [0, 2, 3][: edits + 1]
