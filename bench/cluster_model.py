"""What a batch costs the driver and the brokers by shards and executors: measured, and added up.

    python bench/cluster_model.py                      64 executors and 256 shards, beside smaller
    python bench/cluster_model.py --points 2x4 8x32 64x256 --partitions 64

Executors are not started.  What a batch takes by shards is measured in this process over a broker
of its own: minting, the shards' ticks, their commit records (written in as many transactions, read
again by the driver), and the progress.  Spark's own share is taken from cluster.py's figures on
one and more executors (`--base-ms`, `--executor-ms`), and so is a record's (`--record-us`).  Of
that follow the shortest interval of batches, what is saturated first, and how much is read then.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import markdown
import psutil
import upsert
from confluent_kafka.admin import AdminClient, NewTopic

from ikebana import Input, Output, Upsert
from ikebana.arrangements.manifest import Manifest
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.kafka import broker, client, markers, progress_topic
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.plan import Plan
from ikebana.processor.rows.envelope import Tick, pack
from ikebana.processor.timing import reclock
from ikebana.processor.timing.slices import slices
from ikebana.processor.timing.source_offset import SourceOffset
from ikebana.processor.timing.taking import Look

_TIMES = 20


class Took(NamedTuple):
    """What a step of a batch takes: milliseconds, and of CPU of this process and the broker."""

    wall_ms: float
    cpu_ms: float
    broker_ms: float = 0.0


def main() -> None:
    """Measure the steps, and print the model's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", nargs="+", default=["2x4", "8x32", "64x256"])
    parser.add_argument("--partitions", type=int, default=64, help="of the input")
    parser.add_argument("--base-ms", type=float, default=120.0, help="Spark's CPU a batch")
    parser.add_argument("--executor-ms", type=float, default=48.0, help="of it for each more")
    parser.add_argument("--record-us", type=float, default=8.0, help="of a record, on executors")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ikebana-model-"), broker.running() as running:
        assert running.pid is not None
        for point in args.points:
            executors, _, shards = point.partition("x")
            steps = Steps(running.bootstrap_servers, running.pid, int(shards), args.partitions)
            rows.append(row(int(executors), int(shards), steps.measured(), args))
    print(
        "\n".join(markdown.table(list(rows[0]), [[*map(markdown.cell, r.values())] for r in rows]))
    )
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"model-{time.strftime('%Y%m%d-%H%M%S')}.json"
    told = {"machine": upsert.machine(), "args": vars(args), "results": rows}
    path.write_text(json.dumps(told, indent=1))
    print(f"written to {path}")


def row(
    executors: int, shards: int, took: dict[str, Took], args: argparse.Namespace
) -> dict[str, Any]:
    """The model of one size: the steps, their sums, and what follows."""
    driver_ms = args.base_ms + (executors - 1) * args.executor_ms
    driver_ms += sum(step.cpu_ms for name, step in took.items() if name != _COMMITS)
    broker_ms = sum(step.broker_ms for step in took.values())
    serial_ms = sum(step.wall_ms for name, step in took.items() if name != _COMMITS)
    # With a core each, the driver's work and the brokers' are what cannot be divided.
    at_least_ms = max(driver_ms, broker_ms, serial_ms)
    first = {driver_ms: "the driver", broker_ms: "the brokers", serial_ms: "waiting"}[at_least_ms]
    per_s = executors / (args.record_us / 1e6)
    return {
        "executors": executors,
        "shards": shards,
        **{f"{name}, ms (broker)": _step(step) for name, step in took.items()},
        "driver, CPU ms": round(driver_ms, 1),
        "brokers, CPU ms": round(broker_ms, 1),
        "shortest batch, ms": round(at_least_ms, 1),
        "saturated first": first,
        "records/s of the executors": round(per_s),
        "records a batch then": round(per_s * at_least_ms / 1000),
    }


def _step(step: Took) -> str:
    return f"{step.wall_ms:.2f} ({step.broker_ms:.1f})"


_COMMITS = "commits of shards"


class Steps:
    """The steps of a batch of so many shards and partitions, over a broker."""

    def __init__(self, servers: str, pid: int, shards: int, partitions: int) -> None:
        self._kafka, self._broker = {"bootstrap.servers": servers}, psutil.Process(pid)
        self._shards, self._partitions = shards, partitions
        self._name = f"model-{shards}"
        self.plan = Plan(
            self._name,
            (Input("rows", (f"{self._name}.in",), key_format="bytes"),),
            (Upsert("current", "rows"),),
            (Output("out", "current", f"{self._name}.out"),),
        )
        admin = AdminClient({**self._kafka, "log_level": 0})
        wanted = {self.plan.markers_topic: shards + 1}
        for output in self.plan.published:
            wanted |= {output.topic: 4, output.progress_topic: 1}
        new = [NewTopic(name, count, 1) for name, count in wanted.items()]
        for answer in admin.create_topics(new).values():
            answer.result(120)
        self._admin = client.admin(self._kafka)
        self._batch = 0

    def measured(self) -> dict[str, Took]:
        """Each step, as the mean of some times."""
        topic = f"{self._name}.in"
        partitions = range(self._partitions)
        look = Look(
            {topic: dict.fromkeys(partitions, 10_000_000)}, {topic: dict.fromkeys(partitions, 0)}
        )
        last = SourceOffset(-1, 0, 1, {topic: dict.fromkeys(partitions, 0)}, "p")

        def mint() -> None:
            nonlocal last
            trigger = reclock.Trigger(last.upper + 450, 100_000)
            found = reclock.mint(self.plan, last, look, trigger)
            # Spark logs it, and the source and its planner read it again.
            SourceOffset.from_json(json.loads(json.dumps(found.to_json())))
            found.digest()
            assert list(slices(self.plan, last, found))
            last = found

        tick = Tick(
            batch=1,
            lower=1,
            upper=2,
            offset="0" * 16,
            plan="0" * 16,
            intervals={"current": (1, 2)},
            behind=0,
            adopted=False,
        )
        found = {"minting": self._took(mint)}
        found["ticks"] = self._took(lambda: [pack(tick) for _ in range(self._shards)])
        lease = TransactionalProducer(self._kafka, markers.driver_id(self._name), 60)
        owners = [
            TransactionalProducer(self._kafka, markers.task_id(self._name, shard), 60)
            for shard in range(self._shards)
        ]
        found[_COMMITS] = self._took(lambda: self._commit(owners))
        with closing(Reader(self._kafka)) as reader:
            told: list[Marker] = []

            def read() -> None:
                told[:] = markers.last_markers(reader, self.plan.markers_topic, self._shards)
                assert len(told) == self._shards

            found["reading commits"] = self._took(read)
        found["progress"] = self._took(
            lambda: progress_topic.publish(self.plan, lease, self._admin, told) and None
        )
        return found

    def _commit(self, owners: Sequence[TransactionalProducer]) -> None:
        """Commit each shard's batch, one after the other."""
        self._batch += 1
        for shard, owner in enumerate(owners):
            marker = self._marker(shard)
            with owner.transaction() as producer:
                markers.produce_marker(producer, self.plan.markers_topic, marker)

    def _marker(self, shard: int) -> Marker:
        return Marker(
            checkpoint=self._name,
            epoch=0,
            incarnation=1,
            shard=shard,
            batch=self._batch,
            lower=self._batch,
            upper=self._batch + 1,
            offset="0" * 16,
            plan="0" * 16,
            records=100,
            behind=0,
            counts={output.name: 0 for output in self.plan.published},
            manifest=Manifest(self._name, shard),
            intervals={
                output.name: (self._batch, self._batch + 1) for output in self.plan.published
            },
            took={"read": 0.1, "kernels": 0.1, "files": 0.1, "commit": 0.1},
        )

    def _took(self, step: Callable[[], object]) -> Took:
        step()
        times = _TIMES if self._shards <= 32 else 5
        cpu, theirs, begun = _cpu_ms(psutil.Process()), _cpu_ms(self._broker), time.monotonic()
        for _ in range(times):
            step()
        wall = 1000 * (time.monotonic() - begun) / times
        cpu = (_cpu_ms(psutil.Process()) - cpu) / times
        return Took(wall, cpu, (_cpu_ms(self._broker) - theirs) / times)


def _cpu_ms(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(1000 * (times.user + times.system))


if __name__ == "__main__":
    main()
