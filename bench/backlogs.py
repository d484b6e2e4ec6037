"""Backlogs that a running command works off, and what each of them costs it.

A backlog is one Kafka transaction, so all of it is there to be read at one moment; the
command runs all the while.  Its cost is the CPU of the whole process tree from that moment
until nothing more comes of it, and a second longer, for what is done behind a commit.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import generate
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from join_data import Message
from measure import Watched
from places import HERE, Place

from ikebana.processor.kafka import topics
from ikebana.processor.kafka.diff_topic import DiffTopic

_LOOK_S = 0.2
_BEHIND_S = 1.0
_PHASE_S = 1_800.0

# A message, perhaps with the partition that it is for.
Record = Message | tuple[bytes, bytes | None, int]
Backlog = Sequence[tuple[str, Iterable[Record]]]


class Phase(NamedTuple):
    """What came of one backlog; `wall_s` is until the last of it was there."""

    records: int
    cpu_by_kind: dict[str, float]
    wall_s: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the whole process tree."""
        return sum(self.cpu_by_kind.values())

    @property
    def us_each(self) -> float:
        """CPU microseconds a record."""
        return self.cpu_s / self.records * 1e6

    def us_by_kind(self) -> dict[str, float]:
        """CPU microseconds a record of the driver, its JVM and its workers."""
        return {
            kind: round(spent / self.records * 1e6, 1) for kind, spent in self.cpu_by_kind.items()
        }


class Worker:
    """A running command, measured backlog by backlog.

    `progress` is anything that changes when the command gets on; a backlog is done when
    that has changed, `done` says so, and it has not changed for `quiet_s`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        progress: Callable[[], object],
        done: Callable[[], bool],
        quiet_s: float,
        place: Place = HERE,
    ) -> None:
        self.watched = Watched(command, log, place.environment, others=place.others)
        self._log = log
        self._progress = progress
        self._done = done
        self._quiet_s = quiet_s
        self._last = progress()
        self._begun = time.monotonic()
        self._spent: dict[str, float] = {}

    def begin(self) -> None:
        """What is spent from now on is the next phase's."""
        self._begun, self._spent = time.monotonic(), self.watched.cpu_by_kind()

    def phase(self, records: int, quiet_s: float | None = None) -> Phase:
        """Wait until a backlog is done, with another `quiet_s` if it is given."""
        moved_at, cpu_at = 0.0, self._spent
        quiet_s = self._quiet_s if quiet_s is None else quiet_s
        while not (moved_at and time.monotonic() > moved_at + quiet_s and self._done()):
            now = time.monotonic()
            if self.watched.process.poll() is not None or now > self._begun + _PHASE_S:
                self.stop()
                sys.exit(f"not done:\n{self._log.read_text(errors='replace')[-3000:]}")
            if (found := self._progress()) != self._last:
                self._last, moved_at = found, now
            if now < moved_at + _BEHIND_S:
                cpu_at = self.watched.cpu_by_kind()
            time.sleep(_LOOK_S)
        spent = {kind: cpu - self._spent.get(kind, 0.0) for kind, cpu in cpu_at.items()}
        return Phase(records, spent, moved_at - self._begun)

    def stop(self) -> float:
        """End it; all CPU seconds that it has taken."""
        self.watched.process.terminate()
        return self.watched.wait(60).cpu_s


class Ends:
    """Up to where topics can be read, by topic and partition; those that are there."""

    def __init__(self, servers: str, names: Sequence[str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._names = names

    def __call__(self) -> dict[str, dict[int, int]]:
        found = topics.describe(self._admin, self._names)
        return topics.ends(self._admin, {name: topic.partitions for name, topic in found.items()})


class Committed:
    """Whether a consumer group has committed all that topics hold."""

    def __init__(self, servers: str, group: str, names: Sequence[str]) -> None:
        settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(settings)
        self._ends = Ends(servers, names)

    def __call__(self) -> bool:
        ends = {
            (name, partition): end
            for name, by_partition in self._ends().items()
            for partition, end in by_partition.items()
        }
        found = self._consumer.committed([TopicPartition(*at) for at in ends], timeout=30)
        # The mark of a transaction's end is behind the last record, which is what counts.
        return all(at.offset >= ends[at.topic, at.partition] - 1 for at in found)


class Caught:
    """Whether a pipeline's outputs have what its inputs have held since `begin`."""

    def __init__(
        self, servers: str, checkpoint: Path, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self._servers = servers
        self._checkpoint = checkpoint
        self._ends = Ends(servers, inputs)
        self._outputs = outputs

    def __call__(self) -> bool:
        batches = _numbers(self._checkpoint / "offsets")
        if not batches or batches[-1:] != _numbers(self._checkpoint / "commits")[-1:]:
            return False
        text = (self._checkpoint / "offsets" / str(batches[-1])).read_text()
        logged = json.loads(text.splitlines()[2])
        read = logged["positions"]
        if any(
            read.get(name, {}).get(str(partition), 0) < end
            for name, ends in self._ends().items()
            for partition, end in ends.items()
        ):
            return False
        return all(self._closed(name) >= logged["upper"] for name in self._outputs)

    def _closed(self, output: str) -> int:
        with closing(DiffTopic({"bootstrap.servers": self._servers}, output)) as reading:
            last = reading.last_closed()
        return -1 if last is None else last.upper


def newest(checkpoint: Path) -> int:
    """The last batch that was committed, -1 before the first."""
    return max(_numbers(checkpoint / "commits"), default=-1)


def _numbers(folder: Path) -> list[int]:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def send(servers: str, backlog: Backlog, at_once: Callable[[], object] | None = None) -> int:
    """Write records into topics, in one transaction; how many they were.

    `at_once` is called just before all of them are there.
    """
    producer = _transactional(servers)
    producer.begin_transaction()
    sent = _produce(producer, backlog)
    if at_once is not None:
        at_once()
    producer.commit_transaction(60)
    return sent


def stream(
    servers: str, backlogs: Sequence[Backlog], apart_s: float, begin: Callable[[], object]
) -> float:
    """Write backlogs, each in a transaction and so many seconds after the one before.

    `begin` is called before the first one.  Returns the seconds from then on: if they are more
    than there were to be, the broker has not taken backlogs as fast as that.
    """
    producer = _transactional(servers)
    begin()
    begun = time.monotonic()
    for at, backlog in enumerate(backlogs):
        time.sleep(max(0.0, begun + at * apart_s - time.monotonic()))
        producer.begin_transaction()
        _produce(producer, backlog)
        producer.commit_transaction(60)
    return time.monotonic() - begun


def _transactional(servers: str) -> Producer:
    settings: dict[str, Any] = {
        "transactional.id": f"bench-{time.monotonic_ns()}",
        "transaction.timeout.ms": 900_000,
        "log_level": 0,
    }
    producer = generate.producer(servers, **settings)
    producer.init_transactions(60)
    return producer


def _produce(producer: Producer, backlog: Backlog) -> int:
    sent = 0
    for topic, records in backlog:
        for record in records:
            generate.produce(producer, topic, *record)
            sent += 1
    if producer.flush(120):
        raise KafkaException("not all messages of a backlog were sent")
    return sent
