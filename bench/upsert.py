"""The main job, measured: upsert topic to diff topic, exactly once.

    python bench/upsert.py                    everything, full size: about 15 minutes
    python bench/upsert.py throughput --records 200000 --keys 20000
    python bench/upsert.py latency
    python bench/upsert.py sparse
    python bench/upsert.py reduce              how many keys have each value, an exchange away

A broker of its own is started, and its cost is not counted; everything that `ikebana
run` starts is.  A table is printed, and the figures with the machine are written to
bench/results/ as JSON.
"""

import argparse
import collections
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import generate
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from measure import Cost, Watched
from places import HERE, Place
from rich.console import Console
from rich.table import Table

from ikebana.codecs import canonical
from ikebana.processor.kafka import broker

_CONSOLE = Console()
RUN = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()", "run"]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        choices=["all", "throughput", "latency", "sparse", "reduce"],
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--max", type=int, default=0, help="records a batch; 0: the default")
    parser.add_argument(
        "--only", default="", help="throughput: only cases that begin so: json/ingest"
    )
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
    found: list[dict[str, Any]] = []
    with broker.running() as running:
        servers = running.bootstrap_servers
        if args.what in ("all", "throughput"):
            found += throughput(servers, folder, args)
        if args.what in ("all", "latency"):
            found.append(latency(servers, folder, args.shards))
        if args.what in ("all", "sparse"):
            found.append(sparse(servers, folder, args.shards))
        if args.what in ("all", "reduce"):
            found.append(reduced(servers, folder, args))
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"upsert-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), "results": found}, indent=1))
    table(found)
    _CONSOLE.print(f"written to {path}")


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load": os.getloadavg(),
    }


def pipeline(
    folder: Path,
    name: str,
    topic: str,
    value_format: str,
    time_domain: str,
    shards: int,
    limit: int = 0,
    heartbeat: float = 0,
    interval: str = "",
    place: Place = HERE,
) -> Path:
    """Write a pipeline file for the job; `interval` is that between batches."""
    path = folder / f"{name}.yaml"
    source = {"max_records_per_batch": limit} if limit else {}
    path.write_text(
        yaml.safe_dump(
            {
                "pipeline": name,
                "inputs": {"customers": {"topic": topic, "format": value_format}},
                "operators": {"current": {"upsert": "customers"}},
                "outputs": {"diffs": {"from": "current", "topic": f"{name}.diffs"}},
                "time": time_domain,
                "source": source,
                "run": {
                    "shards": shards,
                    "checkpoint": str(folder / name / "checkpoint"),
                    "local_directory": str(folder / name / "local"),
                    "heartbeat": heartbeat,
                    **({"trigger_interval": interval} if interval else {}),
                    **place.run,
                },
                "spark": dict(place.spark),
            }
        )
    )
    return path


def throughput(servers: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A backlog, from start to end of the process, for each format and time domain."""
    topic = "bench-input"
    generate.make_topic(servers, topic)
    generate.fill(servers, topic, generate.upserts(args.records, args.keys))
    found = []
    for value_format, domain in [
        ("bytes", "ingest"),
        ("json", "ingest"),
        ("bytes", "offset"),
        ("json", "offset"),
    ]:
        if not f"{value_format}/{domain}".startswith(args.only):
            continue
        name = f"bench-{value_format}-{domain}"
        path = pipeline(folder, name, topic, value_format, domain, args.shards, args.max)
        log = folder / f"{name}.log"
        watched = Watched([*RUN, str(path), "--once", "--bootstrap-servers", servers], log)
        cost = watched.wait(1800)
        if cost.returncode:
            sys.exit(f"{name} ended with {cost.returncode}:\n{log.read_text()[-3000:]}")
        row = {
            "job": f"throughput {value_format}, {domain} time",
            "records": args.records,
            "keys": args.keys,
            **costs(cost, args.records),
            **outputs(servers, f"{name}.diffs", topic),
            "state_mib": round(size(folder / name / "checkpoint" / "shards") / 2**20, 1),
            "local_mib": round(size(folder / name / "local") / 2**20, 1),
        }
        found.append(row)
        _CONSOLE.print(row)
    return found


def reduced(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """How many keys have each of 1,000 values: an upsert, then a reduction by another key."""
    topic, name = "bench-reduce-input", "bench-reduce"
    generate.make_topic(servers, topic)
    generate.fill(servers, topic, generate.upserts(args.records, args.keys))
    path = pipeline(folder, name, topic, "json", "ingest", args.shards, args.max)
    document = yaml.safe_load(path.read_text())
    document["inputs"]["customers"]["columns"] = {"amount": "DOUBLE"}
    document["operators"]["counts"] = {
        "reduce": "current",
        "by": "amount::INTEGER % 1000",
        "aggregates": {"n": "count(*)"},
    }
    document["outputs"] = {"counts": {"from": "counts", "topic": f"{name}.counts"}}
    path.write_text(yaml.safe_dump(document))
    log = folder / f"{name}.log"
    cost = Watched([*RUN, str(path), "--once", "--bootstrap-servers", servers], log).wait(1800)
    if cost.returncode:
        sys.exit(f"{name} ended with {cost.returncode}:\n{log.read_text()[-3000:]}")
    truth: dict[Any, Any] = {}
    for message in records_of(servers, topic):
        truth[_data(message.key())] = _data(message.value())
    amounts = [json.loads(value)["amount"] for value in truth.values() if value is not None]
    expected = collections.Counter(b"%d" % (round(amount) % 1000) for amount in amounts)
    got: collections.Counter[tuple[Any, Any]] = collections.Counter()
    for message in records_of(servers, f"{name}.counts"):
        data = message.key(), json.loads(message.value())["n"]
        got[data] += int(dict(message.headers())["diff"])
    return {
        "job": "reduce by value, json, ingest time",
        "records": args.records,
        "keys": args.keys,
        **costs(cost, args.records),
        "values": len(expected),
        "exact": dict(+got) == dict.fromkeys(expected.items(), 1),
        "state_mib": round(size(folder / name / "checkpoint" / "shards") / 2**20, 1),
    }


def latency(servers: str, folder: Path, shards: int) -> dict[str, Any]:
    """From sending an update to a reader of committed records having its +1, at 200 a second."""
    topic, name, rate, seconds, warm_s = "bench-latency", "bench-lag", 200, 60, 20
    generate.make_topic(servers, topic)
    path = pipeline(folder, name, topic, "bytes", "ingest", shards)
    log = folder / f"{name}.log"
    watched = Watched([*RUN, str(path), "--bootstrap-servers", servers], log)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    sent: list[float] = []

    def send() -> None:
        at = len(sent)
        producer.produce(topic, key=b"%d" % (at % 1000), value=b"%d" % at)
        sent.append(time.time())
        producer.poll(0)

    send()
    reader = _reader(servers, f"{name}.diffs", watched)
    delays: list[float] = []
    begun = time.time()
    cpu_at = 0.0
    while time.time() < begun + warm_s + seconds:
        if time.time() >= begun + len(sent) / rate:
            send()
        message = reader.poll(0.002)
        if message is None or message.error() or dict(message.headers())["diff"] != b"1":
            continue
        at = int(message.value())
        if sent[at] > begun + warm_s:
            cpu_at = cpu_at or watched.cpu_s()
            delays.append(time.time() - sent[at])
    cpu = watched.cpu_s() - cpu_at
    reader.close()
    watched.process.terminate()
    cost = watched.wait(60)
    delays.sort()
    return {
        "job": f"latency at {rate} updates/s",
        "records": len(delays),
        "p50_ms": round(1000 * statistics.median(delays)),
        "p95_ms": round(1000 * delays[int(len(delays) * 0.95)]),
        "cpu_cores": round(cpu / seconds, 2),
        "peak_rss_mib": round(cost.peak_rss_mib),
        "returncode": cost.returncode,
    }


def sparse(servers: str, folder: Path, shards: int) -> dict[str, Any]:
    """5,000 random updates a batch on 2,000,000 keys: the time of a batch."""
    topic, name, keys, size_of_batch = "bench-sparse", "bench-sparse", 2_000_000, 5_000
    generate.make_topic(servers, topic)
    generate.fill(servers, topic, generate.distinct(keys))
    log = folder / f"{name}.log"
    path = pipeline(folder, name, topic, "bytes", "ingest", shards)
    load = Watched([*RUN, str(path), "--once", "--bootstrap-servers", servers], log).wait(1800)
    uniform = generate.upserts(60 * size_of_batch, keys, seed=2)
    generate.fill(servers, topic, uniform)
    path = pipeline(folder, name, topic, "bytes", "ingest", shards, size_of_batch)
    cost = Watched([*RUN, str(path), "--once", "--bootstrap-servers", servers], log).wait(1800)
    progress = folder / name / "checkpoint" / "commits"
    times = sorted(
        (file.stat().st_mtime for file in progress.iterdir() if file.name.isdigit()),
    )[-50:]
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    return {
        "job": f"{size_of_batch} updates a batch on {keys} keys",
        "records": 60 * size_of_batch,
        "load_cpu_s_per_million": round(load.cpu_s / (keys / 1e6), 1),
        "load_records_per_s": round(keys / load.wall_s),
        "batch_s_median": round(statistics.median(gaps), 2),
        "batch_s_p95": round(gaps[int(len(gaps) * 0.95)], 2),
        "peak_rss_mib": round(max(load.peak_rss_mib, cost.peak_rss_mib)),
        "state_mib": round(size(folder / name / "checkpoint" / "shards") / 2**20, 1),
        "local_mib": round(size(folder / name / "local") / 2**20, 1),
    }


def costs(cost: Cost, records: int) -> dict[str, Any]:
    """The figures of a run for each million records."""
    millions = records / 1e6
    return {
        "records_per_s": round(records / cost.wall_s),
        "cpu_s_per_million": round(cost.cpu_s / millions, 1),
        **{
            f"{kind}_cpu_s_per_million": round(seconds / millions, 1)
            for kind, seconds in sorted(cost.cpu_by_kind.items())
        },
        "peak_rss_mib": round(cost.peak_rss_mib),
        "wall_s": round(cost.wall_s, 1),
    }


def outputs(servers: str, topic: str, source: str) -> dict[str, Any]:
    """How many updates came out, and whether they accumulate to what the input says."""
    held: dict[bytes, collections.Counter[bytes]] = collections.defaultdict(collections.Counter)
    updates = 0
    for message in records_of(servers, topic):
        held[message.key()][message.value()] += int(dict(message.headers())["diff"])
        updates += 1
    truth: dict[Any, Any] = {}
    for message in records_of(servers, source):
        truth[_data(message.key())] = _data(message.value())
    got = {
        _data(key): _data(value)
        for key, values in held.items()
        for value, count in values.items()
        if count == 1
    }
    exact = {k: v for k, v in truth.items() if v is not None} == got and not any(
        count not in (0, 1) for values in held.values() for count in values.values()
    )
    return {"updates": updates, "exact": exact}


def _data(message: bytes | None) -> bytes | None:
    return None if message is None else canonical.canonical(message)


def records_of(servers: str, topic: str) -> Any:
    """Every committed record of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in left])
    while left:
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                left.discard(message.partition())
            else:
                yield message
    consumer.close()


def _reader(servers: str, topic: str, watched: Watched) -> Consumer:
    """A reader of committed records of a topic that is about to be made."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    deadline = time.monotonic() + 120
    while not (found := reader.list_topics(timeout=10).topics.get(topic)):
        if time.monotonic() > deadline or watched.process.poll() is not None:
            sys.exit("the pipeline did not start")
    reader.assign([TopicPartition(topic, p, 0) for p in found.partitions])
    while (message := reader.poll(1.0)) is None or message.error():
        if time.monotonic() > deadline:
            sys.exit("the pipeline did not answer")
    return reader


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    found = subprocess.run(["du", "-sb", str(folder)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def table(found: list[dict[str, Any]]) -> None:
    """Print the figures, a column for each run."""
    shown = Table("figure", *(row["job"] for row in found))
    names = dict.fromkeys(name for row in found for name in row if name != "job")
    for name in names:
        shown.add_row(name, *(str(row.get(name, "")) for row in found))
    _CONSOLE.print(shown)


if __name__ == "__main__":
    main()
