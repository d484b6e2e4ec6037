"""What a batch costs the driver and the brokers by shards and executors: measured, and added up.

    python bench/cluster_model.py                      64 executors and 256 shards, beside smaller
    python bench/cluster_model.py --points 2x4 8x32 64x256 --partitions 64
    python bench/cluster_model.py --figures bench/results/cluster-*.json

Executors are not started.  What a batch takes by shards is measured in this process over a broker
of its own: minting, the shards' ticks, their commit records (written in as many transactions, read
again), and the progress.  Spark's share is that of batches of 100 records with one and with more
executors: that of `--figures`, which cluster.py has written, or of the options.  Added up they say
what is saturated first when batches follow one another without a pause: the driver, the brokers,
or what the driver waits for.  What executors do by themselves is divided among them.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import markdown
import psutil
import upsert
from confluent_kafka.admin import AdminClient, NewTopic

from ikebana import Input, Output, Upsert
from ikebana.arrangements.manifest import Manifest
from ikebana.processor.base.rows import Tick, pack
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.kafka import broker, client, progress_topic, transactions
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import reclock
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.slices import slices
from ikebana.processor.topics.source_offset import SourceOffset

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
    parser.add_argument("--driver-ms", type=float, default=140.0, help="its CPU of a batch")
    parser.add_argument("--more-ms", type=float, default=2.0, help="of it for each more executor")
    parser.add_argument("--executor-ms", type=float, default=80.0, help="CPU of an executor")
    parser.add_argument("--figures", type=Path, help="a result of cluster.py, in their place")
    args = parser.parse_args()
    if args.figures is not None:
        vars(args).update(of_figures(json.loads(args.figures.read_text())["results"]))
    rows = []
    with tempfile.TemporaryDirectory(prefix="ikebana-model-"), broker.running() as running:
        assert running.pid is not None
        for point in args.points:
            executors, _, shards = point.partition("x")
            name = f"model-{point}"
            steps = Steps(
                name, running.bootstrap_servers, running.pid, int(shards), args.partitions
            )
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


def of_figures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The options, by batches of 100 on the fewest and on the most executors."""
    cpu: dict[int, dict[str, float]] = {
        int(each["place"]): each["cpu"]
        for each in found
        if each["part"] == "batch100" and each["place"].isdigit()
    }
    few, many = min(cpu), max(cpu)
    if few == many:
        sys.exit("the figures have batches on one number of executors only")

    def of(count: int, *, executors: bool) -> float:
        theirs = ("executors", "owners", "hosts")
        return sum(ms for part, ms in cpu[count].items() if part.startswith(theirs) == executors)

    driver = of(few, executors=False)
    return {
        "driver_ms": driver,
        "more_ms": max(0.0, (of(many, executors=False) - driver) / (many - few)),
        "executor_ms": of(many, executors=True) / many,
    }


def row(
    executors: int, shards: int, took: dict[str, Took], args: argparse.Namespace
) -> dict[str, Any]:
    """The model of one size: the steps, their sums, and what follows."""
    ours = {name: step for name, step in took.items() if name != _COMMITS}
    driver_ms = args.driver_ms + (executors - 1) * args.more_ms
    driver_ms += sum(step.cpu_ms for step in ours.values())
    broker_ms = sum(step.broker_ms for step in took.values())
    # Shards of an executor commit side by side, but each has a core only.
    own_ms = args.executor_ms + took[_COMMITS].cpu_ms / executors
    at_least = {"the driver": driver_ms, "the brokers": broker_ms, "executors": own_ms}
    first = max(at_least, key=lambda name: at_least[name])
    return {
        "executors": executors,
        "shards": shards,
        **{f"{name}, ms (CPU; broker's)": _step(step) for name, step in took.items()},
        "driver, CPU ms": round(driver_ms),
        "brokers, CPU ms": round(broker_ms),
        "an executor, CPU ms": round(own_ms),
        "saturated first": f"{first}, at {1000 / at_least[first]:.1f} batches/s",
    }


def _step(step: Took) -> str:
    return f"{step.wall_ms:.1f} ({step.cpu_ms:.1f}; {step.broker_ms:.1f})"


_COMMITS = "commits of shards"


class Steps:
    """The steps of a batch of so many shards and partitions, over a broker."""

    def __init__(self, name: str, servers: str, pid: int, shards: int, partitions: int) -> None:
        self._kafka, self._broker = {"bootstrap.servers": servers}, psutil.Process(pid)
        self._shards, self._partitions = shards, partitions
        self._name = name
        self.plan = Plan(
            self._name,
            (Input("rows", (f"{self._name}.in",), key_format="bytes"),),
            (Upsert("current", "rows"),),
            (Output("out", "current", f"{self._name}.out"),),
        )
        admin = AdminClient({**self._kafka, "log_level": 0})
        wanted = {self.plan.commits_topic: shards + 1}
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
        look = MintingState(
            {topic: dict.fromkeys(partitions, 10_000_000)}, {topic: dict.fromkeys(partitions, 0)}
        )
        last = SourceOffset(-1, 0, 1, {topic: dict.fromkeys(partitions, 0)}, "p")

        def mint() -> None:
            nonlocal last
            trigger = reclock.BatchTrigger(last.upper + 450, 100_000)
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
        driver = TransactionalProducer(self._kafka, transactions.driver_id(self._name), 60)
        owners = [
            TransactionalProducer(self._kafka, transactions.task_id(self._name, shard), 60)
            for shard in range(self._shards)
        ]
        found[_COMMITS] = self._took(lambda: self._commit(owners))
        commits = [self._commit_record(shard) for shard in range(self._shards)]
        found["progress"] = self._took(
            lambda: progress_topic.publish(self.plan, driver, self._admin, commits) and None
        )
        return found

    def _commit(self, owners: Sequence[TransactionalProducer]) -> None:
        """Commit each shard's batch, one after the other."""
        self._batch += 1
        for shard, owner in enumerate(owners):
            commit = self._commit_record(shard)
            with owner.transaction() as producer:
                transactions.produce_commit(producer, self.plan.commits_topic, commit)

    def _commit_record(self, shard: int) -> CommitRecord:
        return CommitRecord(
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
