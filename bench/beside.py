"""The main job beside Kafka Streams and Flink: upserts become updates, in turns, in one run.

    python bench/beside.py dense                       2,000,000 upserts over 200,000 keys
    python bench/beside.py dense --records 10000000    so many that starts hardly count
    python bench/beside.py sparse                      2,000,000 keys, then backlogs of 5,000
    python bench/beside.py sparse --systems kafka-streams json/ingest --rounds 1
    python bench/beside.py sparse --warm 30            by then Java has compiled what it will
    python bench/beside.py sparse --size 200000 --backlogs 3 --warm 1
    python bench/beside.py sparse --rate 60000 --warm 60 --backlogs 240     one after the other
    python bench/beside.py sparse --restarts           also with no local state any more
    python bench/beside.py dense --systems 'kafka-streams*2' 'json/ingest*2'

All systems work exactly once, with a commit (Kafka Streams) or a checkpoint (Flink) a second, and
run until they are ended.  A backlog's cost is the CPU of the whole process tree until the last of
it is committed and a second longer; the first one's includes the start.  With `--rate` backlogs
come one after the other, so many records a second, whether those before are through or not.

In each round every system runs once, in an order of its own, on a new output.  Ratios are those to
the first of the systems in the same round.  `kafka-streams` writes what ikebana writes: values as
they came, time and diff in headers; `kafka-streams/envelope` writes JSON objects with key, value,
time and diff.  `json/ingest/1s` begins a batch a second, which is as often as the others commit;
by default that is every 450 ms.  `kafka-streams*2` are two instances with a thread each, and
`json/ingest*2` has two executors with a core each.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import flink
import generate
import kafka_streams
import msgspec
from backlogs import Backlog, Caught, Committed, Ends, Phase, Worker, newest, send, stream
from places import HERE, Place, executors
from rich.console import Console
from rich.table import Table
from upsert import RUN, machine, pipeline, records_of, size

from ikebana.codecs import canonical
from ikebana.processor.kafka import broker

_CONSOLE = Console()
_SYSTEMS = (
    "kafka-streams",
    "kafka-streams/envelope",
    "flink",
    "json/ingest",
    "bytes/ingest",
    "json/offset",
    "bytes/offset",
    "json/ingest/1s",
    "bytes/ingest/1s",
)
_SEVERAL = ("kafka-streams*2", "json/ingest*2", "bytes/ingest*2")
_RESTARTS = ("s of a restart, with a backlog", "s of a restart without local state")
_QUIET_S = 2.0
_decode = msgspec.json.Decoder().decode


class Ran(NamedTuple):
    """What a system took in a round: the first backlog with the start, and those after it."""

    system: str
    first: Phase
    rest: list[Phase]
    updates: int
    local_mib: float
    peak_mib: float
    exact: bool
    restarts: list[Phase]

    def figures(self) -> dict[str, float]:
        """What is compared, by name."""
        found = {
            "CPU s/M, with the start": self.first.us_each,
            "records/s, with the start": self.first.records / self.first.wall_s,
        }
        cpu = [phase.cpu_s for phase in self.rest]
        wall = [phase.wall_s for phase in self.rest]
        if self.rest:
            records = sum(phase.records for phase in self.rest)
            found |= {
                "CPU s/M, backlogs": sum(cpu) / records * 1e6,
                "records/s, backlogs": records / sum(wall),
            }
        if len(self.rest) > 1:
            found |= {
                "CPU s a backlog, median": statistics.median(cpu),
                "s a backlog, median": statistics.median(wall),
                "s a backlog, p99": sorted(wall)[int(len(wall) * 0.99)],
            }
        for name, phase in zip(_RESTARTS, self.restarts, strict=False):
            found[name] = phase.wall_s
        return found | {"local MiB": self.local_mib, "peak MiB": self.peak_mib}


def main() -> None:
    """Run the systems in turns, and print their figures and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["dense", "sparse"])
    parser.add_argument("--systems", nargs="+", choices=(*_SYSTEMS, *_SEVERAL), default=_SYSTEMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000, help="dense")
    parser.add_argument("--keys", type=int, help="200,000; sparse: 2,000,000")
    parser.add_argument("--backlogs", type=int, default=20, help="sparse")
    parser.add_argument("--size", type=int, default=5_000, help="sparse: records of a backlog")
    parser.add_argument("--warm", type=int, default=0, help="sparse: backlogs before that")
    parser.add_argument("--rate", type=float, help="sparse: records a second, in a stream")
    parser.add_argument("--restarts", action="store_true", help="sparse: start again at the end")
    parser.add_argument("--shards", type=int, default=4)
    args = parser.parse_args()
    args.keys = args.keys or (200_000 if args.what == "dense" else 2_000_000)
    rounds: list[list[Ran]] = []
    with (
        tempfile.TemporaryDirectory(prefix="ikebana-bench-") as folder,
        broker.running() as running,
    ):
        servers = running.bootstrap_servers
        for at in range(args.rounds):
            order = [*args.systems[at % len(args.systems) :], *args.systems]
            source = f"in-{at}"
            generate.make_topic(servers, source)
            rounds.append([])
            for number, system in enumerate(list(dict.fromkeys(order))):
                # Backlogs add to the input, so each system has one of its own then.
                if args.what == "sparse":
                    source = f"in-{at}-{number}"
                    generate.make_topic(servers, source)
                if args.what == "sparse" or not number:
                    _fill(servers, source, args)
                mine = Path(folder) / f"{system.replace('/', '-').replace('*', 'x')}-{at}"
                mine.mkdir()
                with _place(system, mine) as place:
                    ran = _run(system, place, mine, servers, source, args)
                rounds[-1].append(ran)
                _CONSOLE.print(system, ran.figures(), "exact" if ran.exact else "WRONG")
    _write(args, rounds)
    sys.exit(not all(ran.exact for each in rounds for ran in each))


def _fill(servers: str, topic: str, args: argparse.Namespace) -> None:
    dense = args.what == "dense"
    records = generate.upserts(args.records, args.keys) if dense else generate.distinct(args.keys)
    generate.fill(servers, topic, records)


def _place(system: str, folder: Path) -> AbstractContextManager[Place]:
    """Where a system runs: `*N` of ikebana are executors."""
    name, _, count = system.partition("*")
    if count and name != "kafka-streams":
        return executors(int(count), folder)
    return nullcontext(HERE)


def _run(
    system: str, place: Place, folder: Path, servers: str, source: str, args: argparse.Namespace
) -> Ran:
    output = f"{folder.name}.diffs"
    worker = _worker(system, place, folder, servers, source, output, args.shards)
    dense = args.what == "dense"
    first = worker.phase(args.records if dense else args.keys)
    rest = [] if dense else _backlogs(worker, servers, source, args)
    local = size(folder) / 2**20
    worker.watched.process.terminate()
    cost = worker.watched.wait(60)
    restarts: list[Phase] = []
    for lost in (False, True) if args.restarts and not dense else ():
        if lost:
            shutil.rmtree(_local_state(system, folder))
        records = generate.upserts(args.size, args.keys, seed=len(restarts))
        send(servers, [(source, records)])
        again = _worker(system, place, folder, servers, source, output, args.shards)
        restarts.append(again.phase(args.size))
        again.stop()
    updates, exact = _judged(servers, source, output, _of_flink if system == "flink" else _of_ours)
    sizes = round(local, 1), round(cost.peak_rss_mib)
    return Ran(system, first, rest, updates, *sizes, exact, restarts)


def _backlogs(worker: Worker, servers: str, source: str, args: argparse.Namespace) -> list[Phase]:
    """Send backlogs; what each took, or, if they come in a stream, all of them together."""

    def backlog(at: int) -> Backlog:
        return [(source, [*generate.upserts(args.size, args.keys, seed=at + 2)])]

    whole = args.warm + args.backlogs
    found: list[Phase] = []
    if not args.rate:
        for at in range(whole):
            send(servers, backlog(at), worker.begin)
            phase = worker.phase(args.size, quiet_s=0.0 if at < args.warm else None)
            if at >= args.warm:
                found.append(phase)
        return found
    for part in filter(None, (range(args.warm), range(args.warm, whole))):
        some = [backlog(at) for at in part]
        took = stream(servers, some, args.size / args.rate, worker.begin)
        found = [worker.phase(args.size * len(some))]
        _CONSOLE.print(f"sent in {took:.1f} s, through after {found[0].wall_s:.1f} s")
    return found if args.backlogs else []


def _local_state(system: str, folder: Path) -> Path:
    """The folder without which a system has to fetch its state."""
    return (
        folder / "store" if system.startswith("kafka-streams") else folder / folder.name / "local"
    )


def _worker(
    system: str,
    place: Place,
    folder: Path,
    servers: str,
    source: str,
    output: str,
    shards: int,
) -> Worker:
    log, ends = folder / "log", Ends(servers, [output])
    is_peer = system == "flink" or system.startswith("kafka-streams")
    if is_peer and not ends().get(output):
        generate.make_topic(servers, output)
    if system == "flink":
        given = {"servers": servers, "source": source, "output": output, "group": output}
        sql = [flink.statements("upsert", given)]
        command = flink.command(folder, "flink", sql, 2)
        return Worker(command, log, ends, Committed(servers, output, [source]), _QUIET_S)
    if system.startswith("kafka-streams"):
        form = "envelope" if system.endswith("envelope") else "headers"
        count = int(system.partition("*")[2] or 1)
        command = kafka_streams.command(folder, servers, source, output, form, count)
        return Worker(command, log, ends, Committed(servers, output, [source]), _QUIET_S)
    value_format, time_domain, *interval = system.partition("*")[0].split("/")
    path = pipeline(
        folder,
        folder.name,
        source,
        value_format,
        time_domain,
        shards,
        interval="".join(interval),
        place=place,
    )
    checkpoint = folder / folder.name / "checkpoint"
    caught = Caught(servers, checkpoint, [source], [output])
    return Worker(
        [*RUN, str(path), "--bootstrap-servers", servers],
        log,
        lambda: (ends(), newest(checkpoint)),
        caught,
        _QUIET_S,
        place,
    )


def _judged(
    servers: str,
    source: str,
    output: str,
    read: Callable[[Iterable[Any]], Iterator[tuple[bytes, int]]],
) -> tuple[int, bool]:
    """How many updates came out, and whether they accumulate to what the input says."""
    truth: dict[bytes, bytes | None] = {}
    for message in records_of(servers, source):
        truth[message.key()] = message.value()
    expected = Counter(_row(value) for value in truth.values() if value is not None)
    updates = 0
    rows: Counter[bytes] = Counter()
    for row, diff in read(records_of(servers, output)):
        rows[row] += diff
        updates += 1
    rows = Counter({row: count for row, count in rows.items() if count})
    return updates, rows == expected


def _row(value: bytes) -> bytes:
    return canonical.canonical(value)


def _of_ours(messages: Iterable[Any]) -> Iterator[tuple[bytes, int]]:
    for message in messages:
        headers = message.headers()
        if headers is None:
            update = _decode(message.value())
            yield _row(json.dumps(update["value"]).encode()), update["diff"]
        else:
            yield _row(message.value()), int(dict(headers)["diff"])


def _of_flink(messages: Iterable[Any]) -> Iterator[tuple[bytes, int]]:
    for message in messages:
        change = _decode(message.value())
        gone = change["op"] == "d"
        yield _row(json.dumps(change["before" if gone else "after"]).encode()), -1 if gone else 1


def _write(args: argparse.Namespace, rounds: Sequence[Sequence[Ran]]) -> None:
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"beside-{args.what}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    rows = [[{**ran._asdict(), **ran.figures()} for ran in each] for each in rounds]
    path.write_text(
        json.dumps({"machine": machine(), "args": vars(args), "rounds": rows}, indent=1)
    )
    base = args.systems[0]
    for name in rounds[0][0].figures():
        shown = Table(name, "min", "median", "max", f"ratio to {base}: min", "median", "max")
        for system in args.systems:
            values, against = [], []
            for each in rounds:
                by_system = {ran.system: ran.figures()[name] for ran in each}
                values.append(by_system[system])
                against.append(by_system[system] / by_system[base])
            shown.add_row(system, *_spread(values), *_spread(against))
        _CONSOLE.print(shown)
    _CONSOLE.print(f"written to {path}")


def _spread(values: Sequence[float]) -> list[str]:
    return [
        f"{each:.3g}" if each < 1000 else f"{each:,.0f}"
        for each in (min(values), statistics.median(values), max(values))
    ]


if __name__ == "__main__":
    main()
