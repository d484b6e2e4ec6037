"""The source and the shards over Kafka, without Spark: first batches of nothing, and silence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ikebana.errors import SourceError
from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.engine.opening import opened
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.spark.signals import Signals
from ikebana.processor.topics.batch_selection import InputsState
from support.pipeline_processes import create, produce
from support.worlds import DrivenRun

pytestmark = pytest.mark.kafka

SHARDS = 2
ROWS = [(b'"a"', b'{"t":3,"v":1}'), (b'"b"', b'{"t":5,"v":1}'), (b'"z"', b'{"t":9,"v":2}')]
EVENT = {"event_time": {"of": "t", "lateness": "1s", "idle": "300ms"}}


class Driven(DrivenRun):
    """A pipeline whose batches the test drives, as Spark would with `--once`."""

    def __init__(
        self, folder: Path, servers: str, name: str, domain: str, inputs: dict[str, Any]
    ) -> None:
        columns = {"columns": {"t": "BIGINT", "v": "BIGINT"}}
        document = {
            "pipeline": name,
            "inputs": {of: {**columns, **form} for of, form in inputs.items()},
            "operators": {f"u-{of}": {"upsert": of} for of in inputs},
            "outputs": {of: {"from": f"u-{of}", "topic": f"{name}.{of}"} for of in inputs},
            "time": domain,
            "kafka": {"bootstrap.servers": servers},
            "run": {"checkpoint": str(folder / name), "shards": SHARDS, "heartbeat": "0s"},
        }
        plan, settings, *_ = pipeline.parse(json.dumps(document), "file", environ={})
        opening = opened(plan.portable(), settings, lambda _: None, lambda _: None)
        super().__init__(opening, settings, folder)

    def once(self) -> list[list[CommitRecord]]:
        """The commit records of the batches of a run that ends when nothing is left."""
        return list(iter(self.next, None))


def written(batches: list[list[CommitRecord]]) -> int:
    """How many updates batches have written."""
    return sum(sum(commit.counts.values()) for commits in batches for commit in commits)


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize(
    ("domain", "form"), [("ingest", {}), ("offset", {}), ("ingest", EVENT)], ids=str
)
def test_a_start_on_nothing_is_a_batch_of_every_shard(
    broker: Broker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    domain: str,
    form: dict[str, Any],
    *,
    aborted: bool,
) -> None:
    """Also where all that was written was aborted; what comes later is read and shown."""
    servers, topic = broker.bootstrap_servers, topic_name("nothing")
    inputs = {"rows": {"topic": topic, **form}}
    with pytest.raises(SourceError, match="does not exist"):
        Driven(tmp_path, servers, topic, domain, inputs)
    create(servers, topic, 1)
    if aborted:
        produce(servers, topic, ROWS, transaction=topic).abort_transaction(30)
    driven = Driven(tmp_path, servers, topic, domain, inputs)

    (first,) = driven.once()
    assert [(commit.batch, commit.records) for commit in first] == [(0, 0)] * SHARDS
    assert driven.once() == []
    produce(servers, topic, ROWS)
    batches = driven.once()

    assert [commits[0].batch for commits in batches] == list(range(1, len(batches) + 1))
    # In event time what was last shows when the topic has been silent.
    assert (written(batches), sum(commit.waiting for commit in batches[-1])) == (3, 0)


def test_a_stop_before_the_first_batch_leaves_one_that_can_be_run(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Spark runs a first batch whatever it is told: it is none that was not minted."""
    topic = topic_name("stopped")
    create(broker.bootstrap_servers, topic, 1)
    inputs = {"rows": {"topic": topic}}
    driven = Driven(tmp_path, broker.bootstrap_servers, topic, "offset", inputs)
    driven.stop.touch()

    (first,) = driven.once()

    assert [commit.batch for commit in first] == [0] * SHARDS


def test_a_silent_input_is_told_and_holds_nothing(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Of two inputs one is never silent: it is told that it holds the other's records."""
    servers, name = broker.bootstrap_servers, topic_name("two")
    orders, customers = f"{name}-orders", f"{name}-customers"
    for topic in (orders, customers):
        create(servers, topic, 1)
    never = {"event_time": {**EVENT["event_time"], "lateness": "0s", "idle": "never"}}
    inputs = {"orders": {"topic": orders, **EVENT}, "customers": {"topic": customers, **never}}
    driven = Driven(tmp_path, servers, name, "ingest", inputs)
    produce(servers, customers, ROWS[:1])
    produce(servers, orders, ROWS)

    held = driven.once()
    told = Signals(driven.stop).last(InputsState)
    assert told is not None
    assert (told.upper, told.held_by, told.ahead) == (3, ["customers"], True)
    assert sum(commit.waiting for commit in held[-1]) == 4
    produce(servers, customers, [(b'"c"', b'{"t":9,"v":1}')])
    more = driven.once()
    told = Signals(driven.stop).last(InputsState)
    assert told is not None
    assert (told.upper, told.silent) == (9, ["orders"])
    assert (written([*held, *more]), sum(commit.waiting for commit in more[-1])) == (3, 2)
