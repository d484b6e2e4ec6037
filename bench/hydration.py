"""An edit that goes through 2,000,000 rows of state, and what it costs those outputs that go on.

    python bench/hydration.py                          about 10 minutes on a quiet machine
    python bench/hydration.py --rows 200000 --rate 500

One checkpoint in five runs: it is loaded; an added reduction is filled, and nothing comes; records
come at a rate; another reduction is filled while they come; an output with all rows is added while
they come.  Half of these records are of other rows, which an output of before shows, and half
change rows that are gone through.

CPU is of the whole process tree of `ikebana run`, between the moments at which the first and the
last batch of an edit are published.  A live record's CPU during an edit is what is left without
the CPU of the same edit while nothing came.  A batch lasts from one progress record of the output
of before to the next; that is what its readers notice.
"""

import argparse
import itertools
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import generate
import yaml
from confluent_kafka import Producer
from measure import Watched
from rich.console import Console
from upsert import RUN, machine, records_of

from ikebana.codecs.diff import ProgressRecord, decode_progress
from ikebana.processor.kafka import broker

_CONSOLE = Console()
_NAME = "bench-hydration"
_WARM_S, _MEASURED_S = 15, 40


def main() -> None:
    """Run the five, and print and write what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=int, default=2_000, help="live records a second")
    parser.add_argument("--shards", type=int, default=4)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-hydration-"))
    with broker.running() as running:
        found = Bench(
            running.bootstrap_servers, folder, given.rows, given.rate, given.shards
        ).run()
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"hydration-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), "results": found}, indent=1))
    _CONSOLE.print(f"written to {path}")


class Closed(NamedTuple):
    """A progress record of an output, and when it was published."""

    record: ProgressRecord
    at: float


class Bench:
    """The pipeline, its broker, and the records that come."""

    def __init__(self, servers: str, folder: Path, rows: int, rate: int, shards: int) -> None:
        self._servers, self._folder, self._rows, self._rate = servers, folder, rows, rate
        self._shards = shards
        self._draw = random.Random(1)
        self._sent = itertools.count()

    def run(self) -> list[dict[str, Any]]:
        """Do the five runs; the figures of each."""
        for topic in ("rows", "live"):
            generate.make_topic(self._servers, topic)
        generate.fill(self._servers, "rows", generate.distinct(self._rows))
        found = [self._loaded(), self._edited("an added reduction, nothing comes", ["first"])]
        with self._live():
            found.append(self._going_on())
            found.append(self._edited("the same, records come", ["first", "second"]))
            found.append(self._edited("all rows, records come", ["first", "second", "all"]))
        quiet, before, during = found[1], found[2], found[3]
        left = during["cpu_s"] - quiet["cpu_s"]
        found.append(
            {
                "cpu_us_a_live_record_before": before["cpu_us_a_record"],
                "cpu_us_a_live_record_during": round(1e6 * left / during["live_records"]),
            }
        )
        _CONSOLE.print(found[-1])
        return found

    def _pipeline(self, shown: Sequence[str]) -> Path:
        """The file, with what edits have added."""
        operators: dict[str, Any] = {
            "row": {"upsert": "rows"},
            "current": {"upsert": "live"},
            "sums": {"reduce": "row", "by": "id % 10", "aggregates": {"n": "count(*)"}},
        }
        outputs = {"current": {"from": "current", "topic": f"{_NAME}.current"}}
        outputs["sums"] = {"from": "sums", "topic": f"{_NAME}.sums"}
        for number, name in enumerate(shown):
            if name != "all":
                aggregates = {"n": "count(*)", "most": "max(amount)"}
                by = f"id % {1000 + number}"
                operators[name] = {"reduce": "row", "by": by, "aggregates": aggregates}
            source = "row" if name == "all" else name
            outputs[name] = {"from": source, "topic": f"{_NAME}.{name}"}
        columns = {"id": "BIGINT", "name": "VARCHAR", "amount": "DOUBLE", "updated": "BIGINT"}
        path = self._folder / f"{_NAME}.yaml"
        document = {
            "pipeline": _NAME,
            "inputs": {
                "rows": {"topic": "rows", "columns": columns},
                "live": {"topic": "live", "columns": {"n": "BIGINT"}},
            },
            "operators": operators,
            "outputs": outputs,
            # Whole rows are kept from the beginning, so that no topic is read again.
            "pushdown": False,
            "run": {
                "shards": self._shards,
                "checkpoint": str(self._folder / "checkpoint"),
                "local_directory": str(self._folder / "local"),
            },
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def _started(self, shown: Sequence[str], *more: str) -> Watched:
        command = [*RUN, str(self._pipeline(shown)), *more, "--bootstrap-servers", self._servers]
        return Watched(command, self._log)

    @property
    def _log(self) -> Path:
        return self._folder / f"{_NAME}.log"

    def _loaded(self) -> dict[str, Any]:
        cost = self._started([], "--once").wait(1800)
        if cost.returncode:
            sys.exit(f"loading ended with {cost.returncode}:\n{self._log.read_text()[-3000:]}")
        return self._told(
            {
                "what": f"{self._rows:,} rows loaded",
                "records_per_s": round(self._rows / cost.wall_s),
                "peak_rss_mib": round(cost.peak_rss_mib),
            }
        )

    def _going_on(self) -> dict[str, Any]:
        """Records come, and nothing else happens."""
        watched = self._started(["first"])
        self._wait_for("current", watched, after=time.time())
        threading.Event().wait(_WARM_S)
        begin, cpu = time.time(), watched.cpu_s()
        threading.Event().wait(_MEASURED_S)
        end, cpu = time.time(), watched.cpu_s() - cpu
        peak = self._stopped(watched)
        records = self._live_records(begin, end)
        return self._told(
            {
                "what": f"{self._rate:,} records a second come",
                "live_records": records,
                "cpu_us_a_record": round(1e6 * cpu / records),
                **self._batches(begin, end),
                "peak_rss_mib": peak,
            }
        )

    def _edited(self, what: str, shown: Sequence[str]) -> dict[str, Any]:
        """What was added last is filled from the state."""
        watched = self._started(shown)
        cpu: list[tuple[float, float]] = []
        name = shown[-1]
        end = begin = None
        while end is None:
            if watched.process.poll() is not None:
                sys.exit(f"{what}: it has ended:\n{self._log.read_text()[-3000:]}")
            cpu.append((time.time(), watched.cpu_s()))
            threading.Event().wait(0.5)
            closed = self._closed(name)
            begin = closed[0].at if closed else None
            end = next((c.at for c in closed if c.record.upper > closed[0].record.upper), None)
        assert begin is not None
        cpu.append((time.time(), watched.cpu_s()))
        # A few batches more, in which what has come meanwhile is through.
        threading.Event().wait(5)
        peak = self._stopped(watched)
        told = {
            "what": what,
            "rows_per_s": round(self._rows / (end - begin)),
            "wall_s": round(end - begin, 1),
            "cpu_s": round(at_time(cpu, end) - at_time(cpu, begin), 1),
            "written_at_once": closed_with(self._closed(name), end),
            "peak_rss_mib": peak,
            **self._batches(begin, end),
        }
        if live := self._live_records(begin, end):
            told["live_records"] = live
        return self._told(told)

    def _told(self, figures: dict[str, Any]) -> dict[str, Any]:
        _CONSOLE.print(figures)
        return figures

    def _stopped(self, watched: Watched) -> int:
        watched.process.send_signal(signal.SIGTERM)
        return round(watched.wait(120).peak_rss_mib)

    def _wait_for(self, output: str, watched: Watched, *, after: float) -> None:
        while not any(closed.at > after for closed in self._closed(output)):
            if watched.process.poll() is not None:
                sys.exit(f"it has ended:\n{self._log.read_text()[-3000:]}")
            threading.Event().wait(0.5)

    def _closed(self, output: str) -> list[Closed]:
        topic = f"{_NAME}.{output}.progress"
        try:
            found = list(records_of(self._servers, topic))
        except KeyError:
            return []
        return [
            Closed(decode_progress(each.value()), each.timestamp()[1] / 1000) for each in found
        ]

    def _batches(self, begin: float, end: float) -> dict[str, Any]:
        """How far apart readers of the output of before see batches."""
        times = [each.at for each in self._closed("current") if begin <= each.at <= end]
        gaps = [after - before for before, after in itertools.pairwise([begin, *times])]
        return {
            "batches": len(times),
            "batch_s_median": round(statistics.median(gaps), 2),
            "batch_s_longest": round(max(gaps), 2),
            # Of these, how long after the beginning they ended.
            "longest_at_s": [
                (round(gap, 2), round(at - begin, 1))
                for gap, at in sorted(zip(gaps, times, strict=True), reverse=True)[:4]
            ],
        }

    def _live_records(self, begin: float, end: float) -> int:
        """The records that were taken up: each second one is a new key of the output of before."""
        found = [each.record.count for each in self._closed("current") if begin < each.at <= end]
        return 2 * sum(found)

    @contextmanager
    def _live(self) -> Iterator[None]:
        """Let records come, until the block is left."""
        stop = threading.Event()
        thread = threading.Thread(target=self._send, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _send(self, stop: threading.Event) -> None:
        producer, begun = (
            Producer({"bootstrap.servers": self._servers, "linger.ms": 20}),
            time.time(),
        )
        # A sample of few rows is changed more than once.
        rounds = (generate.distinct(self._rows, seed) for seed in itertools.count(2))
        changed = itertools.chain.from_iterable(rounds)
        sent = 0
        while not stop.wait(0.02):
            while sent < (time.time() - begun) * self._rate / 2:
                number = next(self._sent)
                producer.produce("live", key=b"%d" % number, value=b'{"n": %d}' % number)
                _, value = next(changed)
                key = b'{"id": %d}' % self._draw.randrange(self._rows)
                producer.produce("rows", key=key, value=value)
                sent += 1
            producer.poll(0)
        producer.flush()


def at_time(samples: Sequence[tuple[float, float]], at: float) -> float:
    """What was measured about a moment, between two samples."""
    after = min(bisect_left(samples, (at, 0.0)), len(samples) - 1)
    if after == 0:
        return samples[0][1]
    (left, low), (right, high) = samples[after - 1], samples[after]
    return low + (high - low) * min(1.0, (at - left) / (right - left))


def closed_with(closed: Sequence[Closed], at: float) -> int:
    """How many updates were written with the batch that was published at a time."""
    return next(each.record.count for each in closed if each.at == at)


if __name__ == "__main__":
    main()
