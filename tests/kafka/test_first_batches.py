"""The source and the shards over Kafka, without Spark: first batches of nothing, and silence."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from ikebana.errors import SourceError
from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint.checkpoint import Checkpoint, birth_of
from ikebana.processor.checkpoint.commits import Marker, reports_of
from ikebana.processor.engine import task as shard_batch
from ikebana.processor.engine.task import Job
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.takeover import take_over
from ikebana.processor.planning import progress
from ikebana.processor.spark.source import StreamReader
from ikebana.processor.spark.source_task import SourceConfig, last_signal, write_signal
from ikebana.processor.topics.taking import InputsState
from support.pipeline_processes import create, produce

pytestmark = pytest.mark.kafka

SHARDS = 2
LIMIT = ReadMaxRows(100)
ROWS = [(b'"a"', b'{"t":3,"v":1}'), (b'"b"', b'{"t":5,"v":1}'), (b'"z"', b'{"t":9,"v":2}')]
EVENT = {"event_time": {"of": "t", "lateness": "1s", "idle": "300ms"}}


class Driven:
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
        self.plan, settings, *_ = pipeline.parse(json.dumps(document), "file", environ={})
        kafka = dict(settings.kafka)
        birth = birth_of(settings.checkpoint, self.plan, SHARDS, Inputs(self.plan, kafka).start())
        logged = Checkpoint(settings.checkpoint).layout(birth).logged
        taken = take_over(self.plan, settings, birth, logged, lambda: None, "a test")
        self.stop = folder / f"{name}.stop"
        write_signal(self.stop, taken.state.reports)
        self._job = Job(
            plan=self.plan,
            kafka=kafka,
            sink_kafka={},
            checkpoint=birth.id,
            epoch=0,
            incarnation=taken.incarnation,
            first_batch=0,
            location=settings.checkpoint,
            local=str(folder / "local"),
            labels=tuple(range(SHARDS)),
            seeds={},
            retained=20,
            max_batch_s=60,
        )
        self._config = SourceConfig(
            plan=self.plan,
            kafka=kafka,
            start=birth.start,
            labels=list(range(SHARDS)),
            readers=1,
            max_records=100,
            heartbeat_s=0,
            stop=str(self.stop),
            exchanges=progress.has_hops(self.plan),
            incarnation=taken.incarnation,
            adopted=taken.state.adopted,
        )
        self._states: dict[int, bytes] = {}
        self.last: dict[str, Any] = birth.start.to_json()

    def once(self) -> list[list[Marker]]:
        """The markers of the batches of a run that ends when nothing is left."""
        reader = StreamReader(self._config)
        reader.prepareForTriggerAvailableNow()
        batches = []
        while (end := reader.latestOffset(self.last, LIMIT)) != self.last:
            batches.append(self._batch(reader, end))
            self.last = end
        return batches

    def _batch(self, reader: StreamReader, end: dict[str, Any]) -> list[Marker]:
        rows: dict[int, list[bytes]] = defaultdict(list)
        for share in reader.partitions(self.last, end):
            for made in reader.read(share):
                for _, shard, chunk in zip(*(each.to_pylist() for each in made), strict=True):
                    rows[shard].append(chunk)
        found = []
        for shard in range(SHARDS):
            marker = shard_batch.run(self._job, shard, self._states.get(shard), rows[shard])
            self._states[shard] = shard_batch.encode_state(marker.manifest)
            found.append(marker)
        write_signal(self.stop, reports_of(found))
        return found


def written(batches: list[list[Marker]]) -> int:
    """How many updates batches have written."""
    return sum(sum(marker.counts.values()) for markers in batches for marker in markers)


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
    assert [(marker.batch, marker.records) for marker in first] == [(0, 0)] * SHARDS
    assert driven.once() == []
    produce(servers, topic, ROWS)
    batches = driven.once()

    assert [markers[0].batch for markers in batches] == list(range(1, len(batches) + 1))
    # In event time what was last shows when the topic has been silent.
    assert (written(batches), sum(marker.waiting for marker in batches[-1])) == (3, 0)


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

    assert [marker.batch for marker in first] == [0] * SHARDS


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
    told = last_signal(driven.stop, InputsState)
    assert told is not None
    assert (told.upper, told.held_by, told.ahead) == (3, ["customers"], True)
    assert sum(marker.waiting for marker in held[-1]) == 4
    produce(servers, customers, [(b'"c"', b'{"t":9,"v":1}')])
    more = driven.once()
    told = last_signal(driven.stop, InputsState)
    assert told is not None
    assert (told.upper, told.silent) == (9, ["orders"])
    assert (written([*held, *more]), sum(marker.waiting for marker in more[-1])) == (3, 2)
