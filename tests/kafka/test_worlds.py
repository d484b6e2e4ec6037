"""One suite of starts for both worlds: the same steps and words in memory and on Kafka."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ikebana.errors import CheckpointError
from support.worlds import KafkaLife, Life, MemoryLife, Started


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def life(request: pytest.FixtureRequest, topic_name: Callable[[str], str], tmp_path: Path) -> Life:
    """A pipeline that has read five orders in its first batch, in each world."""
    name = topic_name("life")
    result: Life = MemoryLife(name)
    if request.param == "kafka":
        servers = request.getfixturevalue("broker").bootstrap_servers
        result = KafkaLife(name, servers, tmp_path)
    assert result.start().steps == ["go on"]
    result.send(5)
    result.batch()
    result.go_on()
    return result


def test_the_same_plan_goes_on(life: Life) -> None:
    """Also with a batch that some shards have not committed: it is run again."""
    assert life.start().steps == ["go on"]
    life.send(4)
    life.batch(committed=[1])

    again = life.start()

    assert (again.steps, again.plan.result) == (["go on"], "nothing")


def test_another_plan_is_an_edit_until_a_batch_of_it_is_logged(life: Life) -> None:
    """A start that ends before has changed nothing: the next plan is an edit of the first one."""
    assert life.start(least=5).steps == ["edit"]
    again = life.start(least=6)
    assert (again.steps, again.step.metadata.edits) == (["edit"], 1)
    assert life.start().steps == ["go on"]
    assert life.start(least=6).steps == ["edit"]
    life.go_on()

    assert life.start(least=6).steps == ["go on"]
    assert life.start(least=5).step.metadata.edits == 2


def test_an_older_instance_goes_on_until_it_is_fenced(life: Life) -> None:
    """What it has left by then is finished as it began it."""
    life.send(4)

    finishing = life.start(least=5, meanwhile=lambda: life.batch(committed=[0]))

    assert finishing.plan.finishes is None
    assert finishing.steps == ["finish"]
    assert finishing.step.metadata.edits == 0
    life.go_on()
    assert life.start(least=5).steps == ["edit"]


def test_the_plan_of_before_finishes_what_a_shard_has_committed(life: Life) -> None:
    """It reads nothing, and then the other one goes on."""
    life.send(4)
    life.batch(committed=[0])

    finishing = life.start(least=5)

    assert finishing.steps == ["finish"]
    assert finishing.step.precedes
    assert finishing.plan.finishes is not None
    assert finishing.plan.finishes.words().endswith("or dropped if no shard has written it")
    life.go_on()
    assert life.start(least=5).steps == ["edit"]


@pytest.mark.parametrize(
    ("least", "shards", "steps"),
    [
        pytest.param(5, 2, ["drop", "edit"], id="another plan"),
        pytest.param(3, 3, ["drop", "rescale", "go on"], id="more shards"),
        pytest.param(5, 1, ["drop", "rescale", "edit"], id="both"),
    ],
)
def test_a_batch_that_no_shard_has_committed_is_dropped(
    life: Life, least: int, shards: int, steps: list[str]
) -> None:
    """If another plan or layout is to run."""
    life.send(4)
    life.batch(committed=[])

    assert life.start(shards, least=least).steps == steps
    life.go_on()
    assert life.start(shards, least=least).steps == ["go on"]


def test_the_state_is_rewritten_for_other_shards(life: Life) -> None:
    """When nothing is unfinished, and before an edit."""
    more = life.start(3)
    assert more.steps == ["rescale", "go on"]
    assert (more.step.metadata.shards, more.plan.gist()[1:]) == (
        3,
        ["the state is rewritten for 3 shards, from 2"],
    )
    life.send(3)
    life.batch(committed=[2])
    assert life.start(1, least=5).steps == ["finish"]
    life.go_on()
    assert life.start(1, least=5).steps == ["rescale", "edit"]


def test_an_input_is_read_again_for_more_columns(life: Life) -> None:
    """Beside the plan of before, until it has caught up; a start in between goes on with that."""
    wider = life.start(columns="n: n, note: note")
    assert wider.steps == ["read again"]
    assert wider.step.precedes
    assert life.start(columns="n: n, note: note").steps == ["read again"]


def test_impossible_edits_are_refused_in_the_same_words(life: Life) -> None:
    """By the command before, and by the start, which changes nothing."""
    with pytest.raises(CheckpointError) as refused:
        life.start(time="offset")

    assert refused.value.message == (
        'the checkpoint was made by another plan: time was "ingest", is "offset", which no edit '
        "can change"
    )
    assert refused.value.paths == ("time",)
    assert life.start().steps == ["go on"]


@pytest.mark.parametrize("change", [{"least": 5}, {"shards": 3}], ids=str)
def test_a_lost_checkpoint_is_made_anew_for_what_it_was_recovered_with(
    life: Life, change: dict[str, Any]
) -> None:
    """Until that is done, another plan or number of shards is refused."""
    life.recover()

    with pytest.raises(CheckpointError, match="is being built again, for the pipeline and the"):
        life.start(**change)
    assert life.start().steps == ["go on"]
    life.go_on()
    assert _last(life.start(**change)) == ("edit" if "least" in change else "go on")


def _last(start: Started) -> str:
    return start.step.action
