"""Two instances on one checkpoint, step by step, without Spark: who commits what."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.errors import FencedError
from ikebana.processor.checkpoint.checkpoint import Logged
from ikebana.processor.kafka.broker import Broker
from support.instances import KEYS, SHARDS, Instances, made

pytestmark = [pytest.mark.full, pytest.mark.kafka]


@pytest.fixture
def instances(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Instances:
    """A checkpoint on which nothing has run."""
    return made(broker, topic_name, tmp_path)


def test_what_the_older_instance_commits_while_it_is_taken_over_is_not_done_again(
    instances: Instances,
) -> None:
    """R5. The older one's task comes between the newer one's look at a commit record and its own.

    The newer instance fences shard 0 and reads its commit record, of batch 0.  Then a task of
    the older instance begins: it fences the newer one, finds no greater incarnation and
    commits batch 1.  If the newer instance now wrote the commit record that it had read, of
    batch 0, batch 1 would be made a second time.
    """
    older = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(older, shard, 0)
    instances.committed = 0
    instances.mint()
    newer = instances.take_over(accepted=lambda: void(instances.run(older, 0, 1)))
    with pytest.raises(FencedError, match="has taken over"):
        instances.run(older, 1, 1)
    for shard in range(SHARDS):
        instances.run(newer, shard, 1)
    expected = [
        (key, value, {"time": time, "diff": diff})
        for key in KEYS
        for value, time, diff in [(b"0", b"0", b"1"), (b"0", b"1", b"-1"), (b"1", b"1", b"1")]
    ]
    assert sorted(instances.updates(), key=repr) == sorted(expected, key=repr)


def test_a_batch_that_is_logged_while_it_is_taken_over_is_no_roll_back(
    instances: Instances,
) -> None:
    """The older one logs and commits batch 1 right after the newer one has read the log.

    The commit record of batch 1 lies beyond the log that the newer one saw; the checkpoint is
    sound all the same.
    """
    older = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(older, shard, 0)
    instances.committed = 0

    def look() -> Logged:
        found = instances.logged()
        instances.mint()
        instances.run(older, 0, 1)
        return found

    newer = instances.take_over(look=look)
    for shard in range(SHARDS):
        instances.run(newer, shard, 1)
    assert len(instances.updates()) == 6


def test_a_batch_is_adopted_without_reading_if_all_shards_have_committed_it(
    instances: Instances,
) -> None:
    """R19. Killed before Spark committed batch 1: with one shard missing it is read again."""
    first = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(first, shard, 0)
    instances.committed = 0
    offset = instances.mint()
    instances.run(first, 0, 1)
    second = instances.take_over()
    assert second.state.adopted != offset.digest()
    instances.run(second, 1, 1)
    assert instances.take_over().state.adopted == offset.digest()


def void(_: object) -> None:
    """Drop a result."""
