"""Pipelines that start before there is any data, in one Spark: none of them dies of it."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ikebana.errors import SourceError
from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.spark import query
from ikebana.processor.spark.session import Spark
from ikebana.processor.watching.reports import BatchReport, Watcher
from support.output_judge import committed, progress_of
from support.pipeline_processes import create, produce

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

VALUES = [(b'"a"', b'{"t":3,"v":1}'), (b'"b"', b'{"t":5,"v":1}'), (b'"z"', b'{"t":9,"v":2}')]


class Batches(Watcher):
    """Keeps the reports on batches, and calls a function at each step, if there is one."""

    def __init__(self, at_step: Callable[[str], None] | None) -> None:
        self.reports: list[BatchReport] = []
        self._at_step = at_step

    def step(self, what: str) -> None:
        if self._at_step is not None:
            self._at_step(what)

    def batch(self, report: BatchReport) -> None:
        self.reports.append(report)


class Ran:
    """Pipelines of one folder, each over a topic of its own, in one Spark."""

    def __init__(self, folder: Path, servers: str, prefix: str, opened: ExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self._spark: Spark | None = None
        self._prefix = prefix
        self.servers = servers

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def place(self, name: str) -> Path:
        return self._folder / name

    def once(self, name: str, at_step: Callable[[str], None] | None = None) -> list[BatchReport]:
        """The batches of `run --once` of a pipeline by its name."""
        topic, event = self.topic(name), {"of": "t", "lateness": "1s", "idle": "1s"}
        form: dict[str, Any] = {"topic": topic, "columns": {"t": "BIGINT", "v": "BIGINT"}}
        form |= {"event_time": event} if name == "event" else {}
        sections = {
            "pipeline": topic,
            "inputs": {"rows": form},
            "operators": {
                "current": {"upsert": "rows"},
                "by_value": {"reduce": "current", "by": "v", "aggregates": {"n": "count(*)"}},
            },
            "outputs": {
                "out": {"from": "current", "topic": f"{topic}.out"},
                "counts": {"from": "by_value", "topic": f"{topic}.counts"},
            },
            "time": "offset" if name == "aborted" else "ingest",
            "kafka": {"bootstrap.servers": self.servers},
            "run": {
                "checkpoint": str(self.place(name)),
                "local_directory": str(self._folder / f"local-{name}"),
                "shards": 2,
                "master": "local[2]",
                "driver_memory": "512m",
            },
        }
        read = pipeline.parse(json.dumps(sections), "file", environ={})
        if self._spark is None:
            self._spark = self._opened.enter_context(Spark(read.settings, self._prefix))
        batches = Batches(at_step)
        running = query.start(self._spark, read.plan, read.settings, batches, once=True)
        running.wait(lambda: False)
        return batches.reports

    def counts(self, name: str) -> Counter[bytes]:
        """What the counts by value come to."""
        found: Counter[bytes] = Counter()
        for message in committed(self.servers, f"{self.topic(name)}.counts"):
            found[message.key() + message.value()] += int(dict(message.headers())["diff"])
        return +found


@pytest.fixture
def ran(
    broker: Broker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ran]:
    """Pipelines to run, and an end of the Spark that ran them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    with ExitStack() as opened:
        yield Ran(tmp_path, broker.bootstrap_servers, topic_name("nothing"), opened)


def first(batches: list[BatchReport]) -> tuple[int, int]:
    """Which batch came first, and how many records it had."""
    return batches[0].batch, batches[0].records


def no_spark(step: str) -> None:
    """Die when everything has been taken over and nothing has been read."""
    if step == "starting Spark":
        raise InterruptedError(step)


def test_pipelines_start_on_nothing_and_go_on(ran: Ran) -> None:
    """On topics without records, in event time too, and on one with an aborted transaction.

    One goes on from a checkpoint whose log holds a first batch that is none: so it was
    logged once, and such a batch can be run by nobody.  In event time all that was read shows
    once its topic is silent.
    """
    with pytest.raises(SourceError, match="does not exist"):
        ran.once("ingest")
    assert not ran.place("ingest").exists()
    names = ["ingest", "event", "aborted"]
    for name in [*names, "failed"]:
        create(ran.servers, ran.topic(name), 1)
    aborted = ran.topic("aborted")
    produce(ran.servers, aborted, VALUES, transaction=aborted).abort_transaction(30)
    for name in names:
        assert first(ran.once(name)) == (0, 0), name
        assert progress_of(ran.servers, f"{ran.topic(name)}.out")[0].batch == 0
    assert ran.once("ingest") == [], "it runs batches on nothing"
    with pytest.raises(InterruptedError):
        ran.once("failed", no_spark)
    # What Spark has written by the time at which its first batch fails.
    shutil.copy(ran.place("ingest") / "metadata", ran.place("failed"))
    log = ran.place("failed") / "offsets" / "0"
    log.parent.mkdir()
    shutil.copy(ran.place("ingest") / "offsets" / "0", log)
    head = log.read_text().splitlines()[:2]
    metadata = Checkpoint(str(ran.place("failed"))).metadata()
    assert metadata is not None
    log.write_text("\n".join([*head, json.dumps(metadata.start.to_json())]))

    for name in [*names, "failed"]:
        produce(ran.servers, ran.topic(name), VALUES)
        batches = ran.once(name)
        assert sum(batch.records for batch in batches) == 3, name
        assert batches[-1].waiting == 0
        assert ran.counts(name) == Counter({b'1{"n":2}': 1, b'2{"n":1}': 1}), name
