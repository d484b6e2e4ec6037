"""The life of a pipeline of orders in two worlds: in memory, and over Kafka without Spark.

In both a test sends records, runs batches that some shards commit, and starts the pipeline with
other plans and numbers of shards.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql.streaming.datasource import ReadMaxRows

from ikebana import Plan
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.commits import CommitRecord, reports_of
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.edit_description import EditDescription
from ikebana.processor.checkpoint.next_step import Desired, Observed, StartStep, World, start
from ikebana.processor.engine import task
from ikebana.processor.engine.opening import KafkaWorld, Opened
from ikebana.processor.engine.task import OpenShards
from ikebana.processor.engine.testing.run import MemoryWorld
from ikebana.processor.kafka import takeover
from ikebana.processor.spark import query
from ikebana.processor.spark.signals import Signals
from ikebana.processor.spark.source import StreamReader
from ikebana.testing import Run
from support.pipeline_processes import create, produce

_TEXT = """
pipeline: {name}
kafka: {{bootstrap.servers: "{servers}"}}
run: {{checkpoint: "{place}", heartbeat: 0s}}
time: {time}
inputs:
  orders: {{topic: {name}.in, columns: {{n: BIGINT, note: VARCHAR}}}}
operators:
  order: {{upsert: orders}}
  slim: {{linear: order, where: n > {least}, select: {{{columns}}}}}
  sums: {{reduce: slim, by: n, aggregates: {{m: count(*)}}}}
outputs:
  slim: {{from: slim, topic: {name}.slim}}
  sums: {{from: sums, topic: {name}.sums}}
"""


class Started(NamedTuple):
    """The steps that a start took before its last one, and what `ikebana plan` said before it."""

    taken: list[str]
    step: StartStep
    plan: EditDescription

    @property
    def steps(self) -> list[str]:
        """All steps in their order."""
        return [*self.taken, self.step.action]


class _Watched:
    """A world that remembers the steps that were taken in it; `meanwhile` is called once."""

    def __init__(self, world: World, meanwhile: Callable[[], None] | None) -> None:
        self._world, self._meanwhile = world, meanwhile
        self.taken: list[str] = []
        self.plan: EditDescription | None = None

    def look(self) -> Observed:
        return self._world.look()

    def hold(self, step: StartStep) -> Observed:
        if (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()
        return self._world.hold(step)

    def take(self, step: StartStep) -> None:
        self.taken.append(step.action)
        self._world.take(step)


def started(world: World, desired: Desired, meanwhile: Callable[[], None] | None) -> Started:
    """Start, and tell what was planned and done."""
    watched = _Watched(world, meanwhile)
    plan = describe("c", world.look(), desired)
    step = start(watched, desired)
    return Started(watched.taken, step, plan)


class Life(Protocol):
    """A pipeline that has not run yet, at first of two shards."""

    def start(
        self, shards: int = 2, meanwhile: Callable[[], None] | None = None, **parts: Any
    ) -> Started:
        """Start with a plan, as a new process; see `plan_of`.

        `meanwhile` is called before the start holds the pipeline.
        """

    def send(self, count: int) -> None:
        """Write so many new orders."""

    def batch(self, committed: Collection[int] | None = None) -> None:
        """Log the next batch, and run it in these shards, or in all, which finishes it."""

    def go_on(self) -> None:
        """Finish the last batch, and run others until nothing is left to do."""

    def recover(self, **parts: Any) -> None:
        """Lose the checkpoint, and recover with a plan."""


def plan_of(name: str, place: str = "c", servers: str = "b:1", **parts: Any) -> Plan:
    """The pipeline; `parts` are its `time`, the `least` number that it shows, and `columns`."""
    return _parsed(name, place, servers, **parts)[0]


def _parsed(name: str, place: str, servers: str, **parts: Any) -> tuple[Plan, Settings]:
    words = {"time": "ingest", "least": 3, "columns": "n: n", **parts}
    text = _TEXT.format(name=name, place=place, servers=servers, **words)
    plan, settings, *_ = parse(text, "orders.yaml", environ={})
    return plan.portable(), settings


class MemoryLife:
    """The life of a run in memory."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0
        self._run = Run(plan_of(name), shards=2)

    def start(
        self, shards: int = 2, meanwhile: Callable[[], None] | None = None, **parts: Any
    ) -> Started:
        plan = plan_of(self._name, **parts)
        result = started(MemoryWorld(self._run, shards), Desired(plan, shards), meanwhile)
        self._run.restart(plan, shards=shards)
        return result

    def send(self, count: int) -> None:
        for key, value in _orders(self._count, count):
            self._run.topics.send(f"{self._name}.in", key, value)
        self._count += count

    def batch(self, committed: Collection[int] | None = None) -> None:
        if committed is None:
            assert self._run.batch(), "there is no batch"
        else:
            assert self._run.crash(committed=committed), "there is no batch"

    def go_on(self) -> None:
        # What precedes a plan ends by itself; another start goes on.
        run = self._run
        while (run._unfinished is not None or not run._is_over()) and run.batch():
            pass

    def recover(self, **parts: Any) -> None:
        self._run.recover(plan_of(self._name, **parts))


class DrivenRun:
    """A run that a start over Kafka has opened; the test runs its batches in place of Spark."""

    def __init__(self, opening: Opened, settings: Settings, folder: Path, number: int = 1) -> None:
        edit, groups = query._edit(opening), tuple(range(opening.step.metadata.shards))
        self.stop = folder / f"stop-{number}"
        config = query._source_config(opening, settings, groups, 1, self.stop, edit, "")
        self._job = query._job(opening, settings, groups, str(folder / "local"), edit)
        self._layout, self._begin = opening.layout, opening.step.metadata.start
        Signals(self.stop).write(opening.takeover.state.reports)
        self._reader = StreamReader(config)

    def next(self, committed: Collection[int] | None = None) -> list[CommitRecord] | None:
        """Run the last batch if it is unfinished, else the next one, if there is any.

        It is committed by these shards, or by all, which finishes it; these are their commit
        records.
        """
        layout, logged = self._layout, self._layout.logged()
        number = logged.batch - layout.first_batch
        if logged.batch == logged.committed:
            last = (logged.offset or self._begin).to_json()
            self._reader.prepareForTriggerAvailableNow()
            after = self._reader.latestOffset(last, ReadMaxRows(1_000))
            if after == last:
                return None
            number += 1
            self._write("offsets", number, f"v1\n{{}}\n{json.dumps(after)}")
        before = layout.offset(number - 1) if number else self._begin
        commits = self._run(before.to_json(), layout.offset(number).to_json(), committed)
        if committed is None:
            self._write("commits", number, "v1\n{}")
        return commits

    def _run(
        self, before: dict[str, Any], after: dict[str, Any], committed: Collection[int] | None
    ) -> list[CommitRecord]:
        rows: dict[int, list[bytes]] = defaultdict(list)
        for share in self._reader.partitions(before, after):
            for chunk in self._reader.read(share):
                for _, shard, row in zip(*(each.to_pylist() for each in chunk), strict=True):
                    rows[shard].append(row)
        commits = []
        for shard in range(self._job.shards) if committed is None else committed:
            commit = task.last_commit(self._job, shard)
            assert commit is not None
            state = task.encode_state(commit.manifest)
            commits.append(OpenShards(most=0).run(self._job, shard, state, rows[shard]))
        if committed is None:
            Signals(self.stop).write(reports_of(commits))
        return commits

    def _write(self, log: str, number: int, text: str) -> None:
        """Write an entry of one of Spark's logs."""
        folder = Path(self._layout.location) / log
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}").write_text(text)


class KafkaLife:
    """The life of a pipeline over Kafka, without Spark."""

    def __init__(self, name: str, servers: str, folder: Path) -> None:
        self._name, self._servers, self._folder, self._count = name, servers, folder, 0
        self._place = folder / "first"
        self._starts = 0
        create(servers, f"{name}.in", 1)

    def start(
        self, shards: int = 2, meanwhile: Callable[[], None] | None = None, **parts: Any
    ) -> Started:
        plan, settings = _parsed(self._name, str(self._place), self._servers, **parts)
        desired = Desired(plan, shards)
        settings = replace(settings, shards=shards)
        world = KafkaWorld(desired, settings, lambda _: None, lambda _: None)
        result = started(world, desired, meanwhile)
        self._starts += 1
        opening = world.opened(result.step)
        self._run = DrivenRun(opening, settings, self._folder, self._starts)
        return result

    def send(self, count: int) -> None:
        produce(self._servers, f"{self._name}.in", _orders(self._count, count))
        self._count += count

    def batch(self, committed: Collection[int] | None = None) -> None:
        assert self._run.next(committed) is not None, "there is no batch"

    def go_on(self) -> None:
        while self._run.next() is not None:
            pass

    def recover(self, **parts: Any) -> None:
        self._place = self._folder / "second"
        plan, settings = _parsed(self._name, str(self._place), self._servers, **parts)
        settings = replace(settings, shards=2)
        left = takeover.read_remains(plan, settings)
        takeover.recover(plan, settings, left, Checkpoint(str(self._place)))


def _orders(begin: int, count: int) -> list[tuple[bytes, bytes]]:
    """New orders, of the numbers from 4 on."""
    return [
        (b'"%d"' % each, b'{"n":%d,"note":"a note"}' % (each + 4))
        for each in range(begin, begin + count)
    ]
