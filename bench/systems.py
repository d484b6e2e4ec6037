"""One of the systems that are compared, on a job: its topics, its command, what came out."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flink
import generate
import kafka_streams
import msgspec
import yaml
from backlogs import Caught, Committed, Ends, Worker, newest, send
from join_data import PARTITIONS, Row
from places import HERE, Place
from upsert import records_of, size

import ikebana
from ikebana.processor.explain.explanation import explained
from support.waiting import patient

_QUIET_S = patient(2.0)
# A task of Kafka Streams waits a second for its other topic.
_STREAMS_QUIET_S = patient(4.0)
# Where in a job's folder its state is; Kafka Streams has a changelog in Kafka besides.
_STATE = {"ikebana": "checkpoint/shards", "flink": "checkpoints", "kafka-streams": "store"}
_decode = msgspec.json.Decoder().decode


class Bench:
    """One system over topics of its own, which are named as their relations are.

    ikebana runs in a place, once for each name of a run.
    """

    def __init__(
        self,
        folder: Path,
        servers: str,
        system: str,
        args: argparse.Namespace,
        place: Place = HERE,
        run: str = "",
    ) -> None:
        self.folder = folder
        self.servers = servers
        self.system = system
        self.args = args
        self._place = place
        self._run = run or system

    def topic(self, job: str, relation: str) -> str:
        """The topic of a relation of a job."""
        return f"{self._run}.{job}.{relation}"

    def make(self, job: str, sources: Sequence[str], outputs: Sequence[str]) -> None:
        """Make the topics of a job; ikebana makes those of its outputs itself."""
        for relation in [*sources, *(() if self.system == "ikebana" else outputs)]:
            generate.make_topic(self.servers, self.topic(job, relation), PARTITIONS)

    def send(
        self,
        job: str,
        backlog: dict[str, Any],
        at_once: Callable[[], object] | None = None,
    ) -> None:
        """Write a backlog: records by relation."""
        by_topic = [(self.topic(job, relation), given) for relation, given in backlog.items()]
        send(self.servers, by_topic, at_once)

    def started(
        self, job: str, sections: dict[str, Any], sql: Sequence[str], outputs: Sequence[str]
    ) -> Worker:
        """Start the system's form of a job."""
        topics = [self.topic(job, output) for output in outputs]
        ends = Ends(self.servers, topics)
        log = self.folder / f"{self.system}-{job}.log"
        sources = [source["topic"] for source in sections["inputs"].values()]
        if self.system == "flink":
            command = flink.command(self.folder, f"flink-{job}", sql, self.args.parallelism)
            # With a checkpoint it commits what it has read, and what came of that.
            committed = Committed(self.servers, f"flink.{job}", sources)
            return Worker(command, log, ends, committed, _QUIET_S)
        if self.system == "kafka-streams":
            place = self.folder / f"kafka-streams-{job}"
            place.mkdir()
            group = f"kafka-streams.{job}"
            # Its program knows the inputs of a job by their order.
            command = kafka_streams.joins(place, job, self.servers, group, topics[0], sources)
            committed = Committed(self.servers, group, sources)
            return Worker(command, log, ends, committed, _STREAMS_QUIET_S)
        path = self._written(job, sections)
        command = [*self._place.command, "run", str(path), "--bootstrap-servers", self.servers]
        checkpoint = self.folder / f"ikebana-{job}" / "checkpoint"
        caught = Caught(self.servers, checkpoint, sources, topics)
        return Worker(
            command, log, lambda: (ends(), newest(checkpoint)), caught, _QUIET_S, self._place
        )

    def _written(self, job: str, sections: dict[str, Any]) -> Path:
        """The pipeline file of a job."""
        limit = {"max_records_per_batch": self.args.max} if self.args.max else {}
        place = self.folder / f"ikebana-{job}"
        document = {
            "pipeline": f"bench-{self._run}-{job}",
            **sections,
            "source": limit,
            "run": {
                "shards": self.args.shards,
                "checkpoint": str(place / "checkpoint"),
                "local_directory": str(place / "local"),
                "heartbeat": 0,
                **self._place.run,
            },
            "spark": dict(self._place.spark),
        }
        path = self.folder / f"{job}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def estimated_us(self, job: str, inputs: Mapping[str, float]) -> float:
        """What `ikebana explain` says that so many changes of each input take of CPU."""
        plan = ikebana.load(self.folder / f"{job}.yaml").plan()
        by_input = {work.input: work.cpu_us for work in explained(plan).estimates}
        return sum(count * by_input[name] for name, count in inputs.items())

    def state_mib(self, job: str) -> float:
        """The size of a job's checkpoint."""
        place = self.folder / f"{self.system}-{job}"
        return round(size(place / _STATE[self.system]) / 2**20, 1)

    def rows(self, job: str, output: str, columns: Sequence[str], promise: str) -> list[Row]:
        """What an output comes to: rows, each as often as it is there."""
        topic, messages = self.topic(job, output), Counter[bytes]()
        last: dict[bytes, bytes | None] = {}
        for message in records_of(self.servers, topic):
            if promise == "upsert":
                last[message.key()] = message.value()
            elif promise == "diff":
                messages[message.value()] += int(dict(message.headers())["diff"])
            else:
                messages[message.value()] += 1
        messages.update(value for value in last.values() if value is not None)
        if any(count < 0 for count in messages.values()):
            sys.exit(f"{topic}: a row has a negative count")
        decoded = map(_decode, messages.elements())
        return [tuple(row.get(column) for column in columns) for row in decoded]
