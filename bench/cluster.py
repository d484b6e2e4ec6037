"""One machine, the image's environment, and executors: what the same pipelines cost on each.

    python bench/cluster.py                            every part and place, three rounds: hours
    python bench/cluster.py --quick                    whether it works: some minutes
    python bench/cluster.py --only batch100 rate --on local image 2
    python bench/cluster.py --rounds 1 --on local 2 --spark spark.executor.memory=512m

Places are `local` (this checkout, two slots), `image` (the wheel, laid out as in the image, with
its variables), and a number of executors of one core each, of a standalone cluster here.
In each round every place runs once, in an order of its own.  Figures are least, median and
greatest of the rounds, and ratios those to the first place in the same round.  CPU is that of all
processes of the pipeline, by part; the broker, Spark's master and workers, and who sends and reads
are not counted.  Rows are compared with what was sent (`exact`).

    start      from the command to the first record that is read
    batch100   100 records, sent when those before are read: from sending to reading, CPU each
    batch5000  the same of 5,000
    bulk       a backlog that is there at once
    memory     what is held after all that, each page in parts where processes share it
    rate       200 records a second, at the usual interval between batches
    idle       nothing to do
    asof, q3   the jobs of joins.py, smaller: CPU of a change, warm

Kafka Streams with two instances beside two executors: `beside.py --systems kafka-streams*2
json/ingest*2`.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import cluster_table
import generate
import joins
import places
import upsert
from backlogs import Ends, newest, send
from confluent_kafka import Consumer, TopicPartition
from measure import Watched
from places import Place
from rich.console import Console
from systems import Bench

from ikebana.processor.kafka import broker

_CONSOLE = Console(width=160)
_START_S = 300.0
_LONGEST_S = 1_800.0
_RATE = 200
# Parts that one run of a pipeline has, in this order; between batches there is no interval.
_BATCHES = ("start", "batch100", "batch5000", "bulk", "memory")
# Those with the usual interval.
_STREAMS = ("rate", "idle")
_JOINS: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {"asof": joins.asof, "q3": joins.q3}
PARTS = (*_BATCHES, *_STREAMS, *_JOINS)


class Measured(NamedTuple):
    """What a part came to in a place: figures by name, and of its CPU each process's share."""

    round: int
    place: str
    part: str
    figures: dict[str, float]
    cpu: dict[str, float]
    exact: bool = True


class Sizes(NamedTuple):
    """How much of each part there is."""

    warm: int = 60
    batches: int = 100
    warm_large: int = 8
    batches_large: int = 24
    rate_s: float = 60.0
    idle_s: float = 20.0
    bulk: int = 800_000
    joins: float = 0.3


QUICK = Sizes(6, 10, 1, 3, 8.0, 4.0, 20_000, 0.01)


def main() -> None:
    """Measure what is asked for, print the tables, and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts")
    parser.add_argument("--on", nargs="+", help="local, image, or how many executors")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one round, small, on local and 2")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--spark", nargs="*", default=[], help="settings of Spark: name=value")
    args = parser.parse_args()
    sizes = QUICK if args.quick else Sizes()
    on = args.on or (["local", "2"] if args.quick else ["local", "image", "1", "2", "4"])
    spark = dict(each.split("=", 1) for each in args.spark)
    found: list[Measured] = []
    with (
        tempfile.TemporaryDirectory(prefix="ikebana-bench-") as name,
        broker.running() as running,
    ):
        for at in range(args.rounds or (1 if args.quick else 3)):
            first = at % len(on)
            for where in (*on[first:], *on[:first]):
                folder = Path(name) / f"{where}-{at}"
                folder.mkdir()
                with places.place(where, Path(name), spark) as place:
                    run = Runs(at, place, folder, running.bootstrap_servers, sizes, args.shards)
                    for each in run.measured(args.only):
                        found.append(each)
                        _CONSOLE.print(where, each.part, each.figures, each.cpu)
    path = _kept(args, on, found)
    print("\n".join(cluster_table.tables(on, [each._asdict() for each in found])))
    print(f"written to {path}")
    sys.exit(not all(each.exact for each in found))


def _kept(args: argparse.Namespace, on: Sequence[str], found: Sequence[Measured]) -> Path:
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"cluster-{time.strftime('%Y%m%d-%H%M%S')}.json"
    told = {"machine": upsert.machine(), "args": vars(args) | {"on": on}}
    path.write_text(json.dumps({**told, "results": [each._asdict() for each in found]}, indent=1))
    return path


class Runs:
    """The pipelines of one place in one round."""

    def __init__(
        self, at: int, place: Place, folder: Path, servers: str, sizes: Sizes, shards: int
    ) -> None:
        self._round, self._place, self._folder = at, place, folder
        self._servers, self._sizes, self._shards = servers, sizes, shards

    def measured(self, parts: Sequence[str]) -> Iterator[Measured]:
        """Measure some parts."""
        for lived, interval in ((_BATCHES, "0s"), (_STREAMS, "")):
            if wanted := [part for part in lived if part in parts]:
                yield from self._lived(wanted, interval)
        for part, job in _JOINS.items():
            if part in parts:
                yield self._joined(part, job)

    def _lived(self, parts: Sequence[str], interval: str) -> Iterator[Measured]:
        name = f"{self._folder.name}-{parts[0]}"
        with ExitStack() as stack:
            life = Life(self._servers, self._folder, name, self._place, self._shards, interval)
            stack.callback(life.close)
            first = life.first()
            for part in parts:
                match part:
                    case "start":
                        figures, cpu = first
                    case "batch100":
                        figures, cpu = life.portions(100, self._sizes.warm, self._sizes.batches)
                    case "batch5000":
                        warm, count = self._sizes.warm_large, self._sizes.batches_large
                        figures, cpu = life.portions(5_000, warm, count)
                    case "bulk":
                        figures, cpu = life.bulk(self._sizes.bulk)
                    case "memory":
                        figures, cpu = life.memory()
                    case "rate":
                        figures, cpu = life.rate(self._sizes.rate_s)
                    case _:
                        figures, cpu = life.idle(self._sizes.idle_s)
                yield Measured(self._round, self._place.name, part, figures, cpu)
            exact = life.is_exact()
        yield Measured(self._round, self._place.name, f"rows of {parts[0]}", {}, {}, exact)

    def _joined(self, part: str, job: Callable[[Bench], list[dict[str, Any]]]) -> Measured:
        scale = self._sizes.joins
        args = argparse.Namespace(
            customers=int(15_000 * scale),
            orders=int((500_000 if part == "asof" else 150_000) * scale),
            lines=int(600_000 * scale),
            updates=int(150_000 * scale),
            backlogs=3,
            prices=int(100_000 * scale),
            products=max(10, int(5_000 * scale)),
            format="diff",
            shards=self._shards,
            max=0,
        )
        name = self._folder.name
        (row,) = job(Bench(self._folder, self._servers, "ikebana", args, self._place, name))
        of = "order" if part == "asof" else "line"
        figures = {
            f"CPU us {'an' if part == 'asof' else 'a'} {of}": statistics.fmean(
                row[f"us a {of}, warm"]
            ),
            f"{of}s/s": statistics.fmean(row[f"{of}s/s, warm"]),
        }
        return Measured(self._round, self._place.name, part, figures, {}, row["exact"])


Figures = tuple[dict[str, float], dict[str, float]]


class Life:
    """A pipeline of one upsert that runs, what is sent to it, and what is read of it.

    Of a portion of records each has a key of its own, so one row with +1 comes of it.
    """

    def __init__(
        self, servers: str, folder: Path, name: str, place: Place, shards: int, interval: str
    ) -> None:
        self._servers, self._source, self._output = servers, f"{name}.in", f"{name}.diffs"
        self._checkpoint = folder / name / "checkpoint"
        self._log, self._sent, self._place = folder / f"{name}.log", 0, place
        generate.make_topic(servers, self._source)
        self._producer = generate.producer(servers, **{"linger.ms": 1})
        self._portions = itertools.count(1)
        path = folder / f"{name}.json"
        document = {
            "pipeline": name,
            "inputs": {"rows": {"topic": self._source, "format": "json"}},
            "operators": {"current": {"upsert": "rows"}},
            "outputs": {"diffs": {"from": "current", "topic": self._output}},
            "run": {
                "shards": shards,
                "checkpoint": str(self._checkpoint),
                "local_directory": str(folder / name / "local"),
                "heartbeat": 0,
                **({"trigger_interval": interval} if interval else {}),
                **place.run,
            },
            "spark": dict(place.spark),
        }
        path.write_text(json.dumps(document))
        # One record is there, so that the start ends with it.
        self._send(0, [0])
        command = [*place.command, "run", str(path), "--bootstrap-servers", servers]
        self._begun = time.time()
        self._watched = Watched(
            command, self._log, place.environment, 0.5, place.others, places.part
        )
        self._reader = Reader(servers, self._output)

    def close(self) -> None:
        """End the run."""
        self._reader.close()
        if self._watched.process.poll() is None:
            self._watched.process.terminate()
        self._watched.wait(120)

    def first(self) -> Figures:
        """Wait until the record is read that was there before the start."""
        self._wait(0, 1, _START_S)
        wall = self._reader.delays[-1][0] - self._begun
        cpu = self._cpu()
        return {"s": wall, "CPU s": sum(cpu.values())}, cpu

    def portions(self, size: int, warm: int, count: int) -> Figures:
        """Send portions, each when the one before is read."""
        # Of a thousand keys, or of twenty times as many as a large portion has.
        keys = max(1_000, 20 * size if size > 1_000 else 0)
        before: dict[str, float] = {}
        walls = []
        for at in range(warm + count):
            if at == warm:
                before = self._cpu()
            portion = next(self._portions)
            begun = time.monotonic()
            self._send(portion, [(self._sent + at) % keys for at in range(size)])
            self._wait(portion, size)
            walls.append(time.monotonic() - begun)
            time.sleep(0.02)
        # What is done behind a commit belongs to it.
        time.sleep(0.3)
        cpu = _less(self._cpu(), before, count / 1000)
        return {
            "p50 ms": 1000 * statistics.median(walls[warm:]),
            "p90 ms": 1000 * sorted(walls[warm:])[int(count * 0.9)],
            "CPU ms": sum(cpu.values()),
        }, cpu

    def bulk(self, records: int) -> Figures:
        """A backlog, after one of half its size."""
        self._reader.close()
        choice = random.Random(1)
        self._backlog(records // 2, choice)
        before = self._cpu()
        wall = self._backlog(records, choice)
        time.sleep(0.3)
        cpu = _less(self._cpu(), before, records / 1e6)
        return {"CPU s a million": sum(cpu.values()), "records/s": records / wall}, cpu

    def _backlog(self, records: int, choice: random.Random) -> float:
        """Send records that are there at once; the seconds from then until all are read."""
        backlog = [
            (b'{"id":%d}' % choice.randrange(200_000), b'{"n":%d,"t":%d}' % (n, n))
            for n in range(records)
        ]
        begun: list[float] = []
        send(
            self._servers,
            [(self._source, backlog)],
            lambda: begun.append(time.monotonic()),
        )
        self._wait_until_read()
        return time.monotonic() - begun[0]

    def memory(self) -> Figures:
        """What the driver, with all on its machine, and executors hold."""
        by_executor = places.memory_by_executor()
        driver = places.pss_mib(self._watched.processes())
        figures = {"driver MiB": driver, "all MiB": driver + sum(by_executor)}
        if by_executor:
            figures["largest executor MiB"] = max(by_executor)
        return figures, {}

    def rate(self, seconds: float) -> Figures:
        """Send at a steady rate; the first two fifths are not counted."""
        portion, begun, at, measured_at = next(self._portions), time.time(), 0, 0.0
        before: dict[str, float] = {}
        while (now := time.time()) < begun + seconds:
            if not measured_at and now > begun + 0.4 * seconds:
                before, measured_at = self._cpu(), time.time()
            due = int((now - begun) * _RATE)
            # A key comes again when all before is read.
            self._send(portion, [each % 20_000 for each in range(at, due)])
            at = due
            time.sleep(0.005)
        after, ended_at = self._cpu(), time.time()
        last = self._sent
        self._wait_for(lambda: self._reader.newest[portion] >= last, _LONGEST_S, "the last one")
        delays = sorted(
            read_at - sent_at
            for read_at, sent_at in self._reader.delays
            if measured_at < sent_at < ended_at
        )
        cpu = _less(after, before, ended_at - measured_at)
        return {
            "p50 ms": 1000 * statistics.median(delays),
            "p95 ms": 1000 * delays[int(len(delays) * 0.95)],
            "cores": sum(cpu.values()),
        }, cpu

    def idle(self, seconds: float) -> Figures:
        """Nothing is sent."""
        time.sleep(min(5.0, seconds))
        before, begun = self._cpu(), time.monotonic()
        time.sleep(seconds)
        cpu = _less(self._cpu(), before, time.monotonic() - begun)
        return {"cores": sum(cpu.values())}, cpu

    def is_exact(self) -> bool:
        """Let it read everything and end; whether the output has what the input says."""
        self._wait_until_read()
        self.close()
        return bool(upsert.outputs(self._servers, self._output, self._source)["exact"])

    def _send(self, portion: int, keys: Iterable[int]) -> None:
        """Send a record for each key, and wait until the broker has them."""
        now = time.time()
        for key in keys:
            self._sent += 1
            told = b'{"p":%d,"n":%d,"t":%f}' % (portion, self._sent, now)
            generate.produce(self._producer, self._source, b'{"id":%d}' % key, told)
        assert self._producer.flush(60) == 0, "the broker does not take the records"

    def _wait(self, portion: int, count: int, within_s: float = _LONGEST_S) -> None:
        self._wait_for(
            lambda: self._reader.read[portion] >= count, within_s, f"{count} records of {portion}"
        )

    def _wait_for(self, true: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not self._reader.wait(true, 0.5):
            self._fail_if(time.monotonic() > deadline, what)

    def _wait_until_read(self) -> None:
        ends = Ends(self._servers, [self._source])()[self._source]
        deadline = time.monotonic() + _LONGEST_S
        while not self._has_read(ends):
            self._fail_if(time.monotonic() > deadline, "all to be read")
            time.sleep(0.02)

    def _has_read(self, ends: dict[int, int]) -> bool:
        if (last := newest(self._checkpoint)) < 0:
            return False
        text = (self._checkpoint / "offsets" / str(last)).read_text()
        read = json.loads(text.splitlines()[2])["positions"].get(self._source, {})
        return all(read.get(str(partition), 0) >= end for partition, end in ends.items())

    def _fail_if(self, is_late: bool, what: str) -> None:  # noqa: FBT001
        if is_late or self._watched.process.poll() is not None:
            sys.exit(f"{self._place.name}: no {what}\n{self._log.read_text()[-3000:]}")

    def _cpu(self) -> dict[str, float]:
        self._watched.look()
        return self._watched.cpu_by_kind()


def _less(after: dict[str, float], before: dict[str, float], per: float) -> dict[str, float]:
    found = {part: (spent - before.get(part, 0.0)) / per for part, spent in after.items()}
    return dict(sorted(found.items(), key=lambda each: -each[1]))


class Reader:
    """Reads an output as it comes, in a thread: records with +1, by the portion they are of.

    `read` counts them, `newest` has the number of the last one, and `delays` when each was read
    and sent.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.read: Counter[int] = Counter()
        self.newest: Counter[int] = Counter()
        self.delays: list[tuple[float, float]] = []
        self._servers, self._topic = servers, topic
        self._changed = threading.Condition()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to become true of what is read."""
        with self._changed:
            return self._changed.wait_for(true, seconds)

    def close(self) -> None:
        """Read no more."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": self._topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        }
        consumer = Consumer(settings)
        # The topic is made by the pipeline.
        while not self._end.wait(0.05):
            if found := consumer.list_topics(timeout=10).topics.get(self._topic):
                consumer.assign([TopicPartition(self._topic, p, 0) for p in found.partitions])
                break
        while not self._end.is_set():
            messages = consumer.consume(5_000, 0.01)
            now = time.time()
            with self._changed:
                for message in messages:
                    if not message.error() and int(dict(message.headers())["diff"]) > 0:
                        self._note(json.loads(message.value()), now)
                self._changed.notify_all()
        consumer.close()

    def _note(self, row: dict[str, Any], now: float) -> None:
        self.read[row["p"]] += 1
        self.newest[row["p"]] = max(self.newest[row["p"]], row["n"])
        self.delays.append((now, row["t"]))


if __name__ == "__main__":
    main()
