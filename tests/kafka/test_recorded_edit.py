"""A start with another plan records what it changes, for the console and for later starts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana import Input, Linear, Output, Plan, Upsert, steps
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.edit_description import EditDescription, last_edit
from ikebana.processor.engine.opening import opened
from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import create

pytestmark = pytest.mark.kafka


def _plan(name: str, at_least: int) -> Plan:
    return Plan(
        name,
        inputs=(Input("orders", (name + ".in",)),),
        operators=(
            Upsert("order", "orders"),
            Linear("large", "order", (steps.where(f"value->>'$.n' > '{at_least}'"),)),
        ),
        outputs=(Output("large", "large", name + ".large"),),
    )


def test_the_last_edit_is_recorded(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As it was told; one that no batch has begun is replaced by the next; others leave it."""
    name = topic_name("edited")
    create(broker.bootstrap_servers, name + ".in", 1)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    settings = Settings(checkpoint=str(tmp_path), kafka=kafka, shards=1)

    def start(at_least: int) -> EditDescription | None:
        told: list[EditDescription] = []
        opened(_plan(name, at_least), settings, on_step=lambda _: None, on_edit=told.append)
        return told[-1] if told else None

    assert start(1) is None
    assert last_edit(str(tmp_path)) is None
    for at_least in (2, 3):
        told = start(at_least)
        assert told is not None
        assert last_edit(str(tmp_path)) == told
        does = {(part.kind, part.name): part.does for part in told.parts}
        assert does["operator", "large"] == "replaced"
    metadata = Checkpoint(str(tmp_path)).metadata()
    assert metadata is not None
    assert metadata.edits == 1
    # The first plan again: nothing was edited.
    assert start(1) is None
    assert last_edit(str(tmp_path)) is None
