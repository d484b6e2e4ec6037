"""Pipelines as fault tests run them: a file, a real process, and ways to end it.

A pipeline runs as `ikebana run`, and all that it starts, the JVM and Python workers too,
can be found and killed.  What is in the topics is for
`judge` to tell.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import psutil
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ikebana.processor.spark.workers import serving
from support.output_judge import Progress, committed, judge, progress_of, truth_of
from support.process_trees import Family, kill, name_of
from support.sending import Sending
from support.waiting import patient, wait_until

START_S = 120.0
Upserts = Iterable[tuple[bytes, bytes | None]]
# Fixtures: makes a pipeline whose input has so many partitions, and some records; or one whose
# topics have these names behind its own, and that is to be given sections.
PipelineOver = Callable[..., "Pipeline"]
WrittenOver = Callable[..., "Written"]


@dataclass(frozen=True)
class Pipeline:
    """One upsert pipeline `name`: from topic `source` to `target`, everything in `folder`."""

    folder: Path
    servers: str
    name: str
    source: str
    domain: str = "offset"
    checkpoint: Path = Path()
    settings: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    limit: int = 500
    output: str = ""
    replicas: int = 1
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return self.output or self.name + ".out"

    @property
    def topics(self) -> list[str]:
        """What a run writes, but for the commit records."""
        outputs = [self.target, self.name + ".errors"]
        return [topic for output in outputs for topic in (output, output + ".progress")]

    @property
    def place(self) -> Path:
        return self.checkpoint if self.checkpoint.name else self.folder / "checkpoint"

    def but(self, **run: object) -> "Pipeline":
        """The same with other settings of `run`."""
        return replace(self, settings={**self.settings, **run})

    def file(self) -> Path:
        """Write the pipeline file; JSON is YAML."""
        path = self.folder / f"{self.name}.yaml"
        path.write_text(json.dumps(self.document()))
        return path

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        sections = {
            "inputs": {"changes": {"topic": self.source, "format": {"key": "bytes"}}},
            "operators": {"current": {"upsert": "changes"}},
            "outputs": {"out": {"from": "current", "topic": self.target}},
            "time": self.domain,
            **self.plan,
        }
        own = {
            **{"heartbeat": "500ms", "retained_batches": 1000, "trigger_interval": "0s"},
            **self.settings,
        }
        return self.around(sections, **own)

    def around(self, sections: Mapping[str, Any], **run: object) -> dict[str, Any]:
        """A pipeline file of these sections, with where this one runs, and settings of `run`."""
        return {
            "pipeline": self.name,
            **sections,
            **({"spark": dict(self.spark)} if self.spark else {}),
            "kafka": {"bootstrap.servers": self.servers},
            "source": {"max_records_per_batch": self.limit},
            **({"sink": {"replication_factor": self.replicas}} if self.replicas > 1 else {}),
            "run": {
                "checkpoint": str(self.place),
                "local_directory": str(self.folder / "local"),
                "shards": 2,
                "master": "local[2]",
                "driver_memory": "512m",
                **run,
            },
        }

    def start(
        self,
        *options: str,
        fault: str | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "ikebana"),
    ) -> "Run":
        """Start `ikebana run`; `fault` is a point of death without its once-file."""
        environment = {**os.environ, **(environment or {})}
        environment.pop("IKEBANA_FAULT", None)
        once = self.folder / "once"
        if fault is not None:
            point, batch, shard, *session = fault.split(":")
            once.unlink(missing_ok=True)
            environment["IKEBANA_FAULT"] = ":".join([point, batch, shard, str(once), *session])
        # Spark leaves its working folder behind when it is killed.
        environment["SPARK_LOCAL_DIRS"] = str(self.folder / "spark")
        environment["TMPDIR"] = str(self.folder)
        # Where functions of steps are found, here and in Spark's workers.
        tests = Path(__file__).parents[1]
        paths = [str(tests), str(tests.parent / "examples"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        log = self.folder / f"{len(list(self.folder.glob('run-*.log')))}"
        log = log.with_name(f"run-{log.name}.log")
        return Run([*command, "run", str(self.file()), *options], environment, log, once)

    def send(self, records: Upserts, partition: int | None = None) -> None:
        """Produce records into the input."""
        produce(self.servers, self.source, records, partition)

    def truth(self) -> dict[bytes, bytes]:
        """What the input comes to."""
        return truth_of(self.servers, self.source)

    def judged(self) -> dict[str, int]:
        """What is wrong with the output, by the input; see `judge`."""
        return judge(self.servers, self.target, self.truth())

    def dies(self, fault: str) -> "Run":
        """Run until it comes to this point, and kill what is left of it."""
        with self.start("--once", fault=fault) as run:
            run.wait_for_fault()
            if fault.endswith(":all"):
                run.wait(30)
        return run

    def drained(self, *options: str, timeout_s: float = 120.0) -> "Run":
        """Run until everything is done; fail if that does not end well."""
        run = self.start("--once", *options)
        with run:
            assert run.wait(timeout_s) == 0, run.text
        return run

    def progress(self) -> list[Progress]:
        """The progress published so far."""
        return progress_of(self.servers, self.target)

    def wait_for_batch(self, batch: int, timeout_s: float = START_S) -> None:
        """Return when the progress of a batch, or a later one, is published."""

        def published() -> bool:
            found = self.progress()
            return bool(found) and found[-1].batch >= batch

        wait_until(published, timeout_s, f"progress of batch {batch} in {self.target}")

    def wait_until_read(self, timeout_s: float = START_S) -> None:
        """Return when the last batch has read the input up to its present end."""
        ends = ends_of(self.servers, [self.source])
        wait_until(lambda: self.has_read(ends), timeout_s, f"{self.source} read up to {ends}")

    def has_read(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether the last batch that is done has read the input up to some ends."""
        logged, done = self.log("offsets"), set(self.log("commits"))
        last = max((at for at, batch in enumerate(logged) if batch in done), default=None)
        positions = {} if last is None else self.logged_positions(last)
        return all(
            positions.get(f"{topic}[{partition}]", 0) >= end
            for (topic, partition), end in ends.items()
        )

    def logged_upper(self) -> int:
        """The frontier of the source after the last batch that is logged."""
        last = self.log("offsets")[-1]
        lines = (self.logs / "offsets" / str(last)).read_text().splitlines()
        return int(json.loads(lines[2])["upper"])

    @property
    def logs(self) -> Path:
        """The folder of Spark's logs: that of the last epoch, if the state was rewritten."""
        epochs = (path for path in self.place.glob("epoch-*") if path.name[6:].isdigit())
        return max(epochs, key=lambda path: int(path.name[6:]), default=self.place)

    def log(self, kind: str) -> list[int]:
        """The batches in Spark's `offsets` or `commits` log."""
        folder = self.logs / kind
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def logged_positions(self, batch: int) -> dict[str, int]:
        """Up to where a batch reads, by `topic[partition]`; -1 is the last batch."""
        batches = self.log("offsets")
        if not batches:
            return {}
        text = (self.logs / "offsets" / str(batches[batch])).read_text()
        positions = json.loads(text.splitlines()[2])["positions"]
        return {f"{t}[{p}]": end for t, by in positions.items() for p, end in by.items()}


@dataclass(frozen=True)
class Written(Pipeline):
    """A pipeline of these sections."""

    sections: str = ""
    shards: int = 2

    def having(self, sections: Mapping[str, Any], **of_pipeline: Any) -> "Written":
        """The same pipeline with other sections."""
        return replace(self, sections=json.dumps(sections), **of_pipeline)

    def send_to(self, topic: str, records: Upserts, partition: int | None = None) -> None:
        """Produce records into a topic of this pipeline, `<its name>.<topic>`."""
        produce(self.servers, f"{self.name}.{topic}", records, partition)

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        return self.around(
            {**json.loads(self.sections), "time": self.domain},
            local_directory=str(self.folder / f"local-{self.name}"),
            heartbeat="500ms",
            shards=self.shards,
        )


def written(
    folder: Path,
    servers: str,
    name: str,
    sections: dict[str, Any],
    domain: str = "ingest",
    *,
    limit: int = 100,
) -> Written:
    """A pipeline with a checkpoint of its own."""
    return Written(
        folder,
        servers,
        name,
        "",
        domain,
        folder / f"checkpoint-{name}",
        limit=limit,
        sections=json.dumps(sections),
    )


class Run:
    """A running `ikebana run`, with everything that it has started."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], log: Path, once: Path
    ) -> None:
        self.log = log
        self.once = once
        self.family = Family()
        self.begun = time.monotonic()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**environment, **self.family.environment},
                cwd=log.parent,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; return the exit status."""
        try:
            return self._process.wait(patient(timeout_s))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended within {timeout_s} s:\n{self.text}") from None

    def wait_for(self, text: str, timeout_s: float = START_S) -> None:
        """Return when it has printed `text`."""
        wait_until(lambda: text in self.text or self.poll() is not None, timeout_s, text)
        assert text in self.text, self.text

    def wait_for_fault(self, timeout_s: float = START_S) -> None:
        """Return when it has come to its point of death."""
        wait_until(
            lambda: self.once.exists() or self.poll() is not None, timeout_s, "the point of death"
        )
        assert self.once.exists(), self.text

    def stop(self, timeout_s: float = START_S) -> int:
        """Ask it to end with SIGTERM; return the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(timeout_s)

    def workers(self) -> list[psutil.Process]:
        """The Python workers that Spark's daemon has forked, and the owners of shards."""
        found = []
        for process in self.family.alive():
            with contextlib.suppress(psutil.Error):
                if name_of(process) == serving.OWNER_NAME:
                    found.append(process)
                elif _is_daemon(process) and not process.children():
                    parent = process.parent()
                    # Where there is a host, another program stands in for the daemon.
                    if parent is not None and _is_daemon(parent):
                        found.append(process)
        return found

    def kill_driver(self) -> None:
        """Kill the driver alone; the others notice by and by."""
        self._process.kill()
        self._process.wait(10)

    def kill_jvm(self) -> bool:
        """Kill the JVM alone; whether there was one."""
        return kill(p for p in self.family.alive() if name_of(p) == "java")

    def kill_worker(self, choice: Random) -> bool:
        """Kill one Python worker; whether there was one."""
        workers = self.workers()
        return kill([choice.choice(workers)] if workers else [])

    def kill(self) -> None:
        """Kill everything that it has started, and return when nothing is left of it."""
        self.family.kill()
        self._process.wait(10)


def _is_daemon(process: psutil.Process) -> bool:
    daemon = "pyspark.daemon"
    return name_of(process) == daemon or daemon in " ".join(process.cmdline())


class Load(Sending):
    """Upserts in transactions, some aborted, at a steady rate until it is stopped."""

    def __init__(self, servers: str, topic: str, *, keys: int, rate: float, seed: int = 1) -> None:
        super().__init__()
        self.sent = self.aborted = 0
        self._servers = servers
        self._topic = topic
        self._rate = rate
        self._random = Random(seed)
        self._keys = keys

    def _send(self) -> None:
        producer = self._producer()
        begun, choice = time.monotonic(), self._random
        each = max(1, min(200, int(self._rate / 5)))
        while not self._end.is_set():
            producer.begin_transaction()
            for key, value in upserts(each, self._keys, choice):
                producer.produce(self._topic, key=key, value=value)
            if choice.random() < 0.1:
                producer = self._aborted(producer, each)
                continue
            try:
                insist(producer.commit_transaction)
            except KafkaException as error:
                # The broker was away for too long: nothing of it counts.
                if not error.args[0].txn_requires_abort() and not error.args[0].fatal():
                    raise
                producer = self._aborted(producer, each)
                continue
            self.sent += each
            self._end.wait(max(0.0, begun + self.sent / self._rate - time.monotonic()))

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._topic + "-load",
                "linger.ms": 5,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                "compression.type": "lz4",
            }
        )
        insist(producer.init_transactions)
        return producer

    def _aborted(self, producer: Producer, count: int) -> Producer:
        """Abort a transaction; whoever sends the next one."""
        self.aborted += count
        try:
            insist(producer.abort_transaction)
        except KafkaException as error:
            # A broker that was killed while it ended the transaction may have ended it.
            if not error.args[0].fatal():
                raise
            return self._producer()
        return producer


def insist(end: Callable[[float], object]) -> None:
    """End a transaction, over broker failures; asked again, librdkafka goes on with it."""
    while True:
        try:
            end(10)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def upserts(count: int, keys: int, choice: Random) -> Upserts:
    """Upserts of few values, so that repetitions, returns and tombstones occur."""
    for _ in range(count):
        key = b"k%d" % min(choice.randrange(keys), choice.randrange(keys))
        tombstone = choice.random() < 0.15
        yield key, None if tombstone else b'{"v":%d}' % choice.randrange(4)


def produce(
    servers: str,
    topic: str,
    records: Upserts,
    partition: int | None = None,
    *,
    transaction: str | None = None,
) -> Producer:
    """Produce and wait for the acknowledgements; a transaction is left open."""
    settings: dict[str, str | int] = {"bootstrap.servers": servers, "log_level": 0}
    if transaction is not None:
        # It has to stay open for as long as a pipeline starts on a slow machine.
        settings |= {"transactional.id": transaction, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    if transaction is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    where = {} if partition is None else {"partition": partition}
    for at, (key, value) in enumerate(records):
        producer.produce(topic, key=key, value=value, **where)
        if at % 1000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0
    return producer


def add_partitions(servers: str, topic: str, partitions: int) -> None:
    """Raise the number of partitions."""
    admin = admin_of(servers)
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def admin_of(servers: str) -> AdminClient:
    """A client for topics."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def create(
    servers: str,
    topic: str,
    partitions: int,
    settings: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
) -> None:
    """Create a topic and wait until it can be written."""
    admin = admin_of(servers)
    new = NewTopic(topic, partitions, replicas, config=dict(settings or {}))
    admin.create_topics([new])[topic].result(30)

    def led() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    wait_until(led, 30, f"leaders of {topic}")


def recreate(servers: str, topic: str) -> None:
    """Delete a topic and make another one of its name."""
    admin = admin_of(servers)
    partitions = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 30, f"end of {topic}")
    create(servers, topic, partitions)


def configure(servers: str, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    # An answer never comes once its client is gone.
    admin = admin_of(servers)
    admin.incremental_alter_configs([resource])[resource].result(30)


def delete_before(servers: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete the records of each partition before an offset; -1 means all."""
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    admin = admin_of(servers)
    for answer in admin.delete_records(asked).values():
        answer.result(30)


def ends_of(servers: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The high watermark of every partition of the topics that exist."""
    from support.output_judge import offsets

    return offsets(servers, topics, committed_only=False)


def records_of(servers: str, topic: str) -> int:
    """How many committed records there are to read."""
    return len(committed(servers, topic))


def put_back(copy: Path, place: Path) -> None:
    """Replace a folder by an earlier copy of it."""
    shutil.rmtree(place)
    shutil.copytree(copy, place)
