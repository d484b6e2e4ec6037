"""The state row of a task: the manifests of its shards."""

import msgspec
import pytest

from ikebana.arrangements.manifest import Manifest
from ikebana.processor.engine.task import decode_state, encode_state
from ikebana.processor.spark import keyed_operator


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_row_gives_back_the_states_of_its_shards(shards: int) -> None:
    """In their order, byte for byte: a shard's task compares them with its commit record."""
    states = [encode_state(Manifest("id", shard, 7 * shard)) for shard in range(shards)]

    found = keyed_operator.parted(keyed_operator.joined(states))

    assert found == states
    assert [decode_state(each).version for each in found] == [7 * shard for shard in range(shards)]


def test_the_row_of_a_task_with_one_shard_is_that_shards_manifest() -> None:
    """So checkpoints with a task for each shard have the rows that they always had."""
    state = encode_state(Manifest("id", 3, 2))

    assert keyed_operator.joined([state]) == state
    assert (
        msgspec.json.decode(keyed_operator.joined([state, state]), type=list[Manifest])
        == [decode_state(state)] * 2
    )
