"""A pipeline under load for a long time: memory, files, lag and disk stay as they are, or not.

    python bench/load.py                               half of its maximum for 30 minutes
    python bench/load.py --minutes 10 --share 0.7 --plain
    python bench/load.py --burst 20                    with a 20-fold burst in the middle
    python bench/load.py --cold 10000000               a start on a backlog, and nothing else
    python bench/load.py --skew                        a hot key, a hot join key, an uneven shard

A broker of its own is started, and `ikebana run` as a user would run it: an upsert of orders,
their sums by customer behind an exchange, and a join with customers; with `--plain` the upsert
alone.
First its maximum is measured, for a minute of backlog.  Then records come at a share of that.
Every few seconds all its processes are looked at: memory by kind (PSS: what processes share counts
once), open files, threads; the lag; the size and the files of the checkpoint and of the local
databases.  Through each series goes a line by least squares, without the first minutes.  A series
is flat if it would grow in an hour by less than `--tolerance` of its mean, by less than a floor
(`watch.FLOORS`), or by less than twice the error of the line.  At the end the outputs are compared
with what the input says.  The run ends by itself, with status 1 if anything is not flat or wrong.
"""

import argparse
import collections
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import generate
import upsert
import watch
import yaml
from confluent_kafka import Producer
from measure import Watched
from rich.console import Console

from ikebana.processor.kafka import broker
from ikebana.processor.rows.placing import shard_of

_CONSOLE = Console(width=120)
_START_S = 300.0
_DRAIN_S = 900.0
_BATCH_S = 360.0
CUSTOMERS = 1_000

Key = Callable[[random.Random], int]


def main() -> None:
    """Run what is asked for."""
    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-load-"))
    with broker.running() as running:
        servers = running.bootstrap_servers
        if args.cold:
            found = [cold(servers, folder, args)]
        elif args.skew:
            found = [case(servers, folder, args) for case in (hot_key, hot_join_key, uneven)]
        else:
            found = [steady(servers, folder, args)]
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"load-{time.strftime('%Y%m%d-%H%M%S')}.json"
    told = {"machine": upsert.machine(), "arguments": vars(args), "results": found}
    path.write_text(json.dumps(told, indent=1))
    _CONSOLE.print(f"written to {path}")
    sys.exit(0 if all(each["good"] for each in found) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm", type=float, help="minutes left out; by default a quarter")
    parser.add_argument("--share", type=float, default=0.5, help="of the measured maximum")
    parser.add_argument("--rate", type=float, help="records a second, in place of a share")
    parser.add_argument("--maximum", type=float, default=60.0, help="seconds to measure it")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--tolerance", type=float, default=0.05, help="of the mean, an hour")
    parser.add_argument("--plain", action="store_true", help="an upsert alone")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--burst", type=float, default=0.0, help="so many times the rate")
    parser.add_argument("--burst-seconds", type=float, default=10.0)
    parser.add_argument("--cold", type=int, default=0, metavar="RECORDS")
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--matches", type=int, default=100_000, help="--skew: rows of a join key")
    args = parser.parse_args()
    if args.warm is None:
        args.warm = args.minutes / 4
    return args


class Orders:
    """Upserts of orders, the same ones each time, and what they come to."""

    def __init__(self, keys: int, pick: Key | None = None, customers: int = CUSTOMERS) -> None:
        self.truth: dict[int, tuple[int, int] | None] = {}
        self.sent = 0
        self._random = random.Random(1)
        self._pick = pick or (lambda choice: choice.randrange(keys))
        self._customers = customers

    def some(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        """The next ones: 5% are tombstones."""
        choice = self._random
        for _ in range(count):
            key = self._pick(choice)
            order = None
            if choice.random() >= 0.05:
                order = choice.randrange(self._customers), choice.randrange(1_000)
            self.truth[key] = order
            self.sent += 1
            yield b"%d" % key, _value(order)

    def every(self, keys: int) -> Iterator[tuple[bytes, bytes | None]]:
        """One upsert for each key."""
        choice = self._random
        for key in range(keys):
            order = choice.randrange(self._customers), choice.randrange(1_000)
            self.truth[key] = order
            self.sent += 1
            yield b"%d" % key, _value(order)


def _value(order: tuple[int, int] | None) -> bytes | None:
    if order is None:
        return None
    customer, amount = order
    padding = "x" * 60
    return b'{"customer":%d,"amount":%d,"note":"%s"}' % (customer, amount, padding.encode())


class Sender:
    """Sends orders at a rate in a thread, until it is stopped."""

    def __init__(self, servers: str, topic: str, orders: Orders, rate: float) -> None:
        self.rate = rate
        self._orders, self._topic = orders, topic
        self._producer = producer(servers)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait until all is acknowledged."""
        self._end.set()
        self._thread.join()
        assert self._producer.flush(120) == 0, "the broker does not take the records"

    def _run(self) -> None:
        last, due = time.monotonic(), 0.0
        while not self._end.wait(0.02):
            now = time.monotonic()
            due = min(due + (now - last) * self.rate, self.rate)
            last = now
            send(self._producer, self._topic, self._orders.some(int(due)))
            due -= int(due)


def producer(servers: str) -> Producer:
    """A producer that puts the records of a key into one partition, in order."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "batch.size": 1 << 18,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
        }
    )


def send(to: Producer, topic: str, records: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Send records, as fast as the broker takes them."""
    for key, value in records:
        while True:
            try:
                to.produce(topic, value, key)
                break
            except BufferError:
                to.poll(0.1)
    to.poll(0)


def pipeline(folder: Path, name: str, args: argparse.Namespace) -> Path:
    """Write the pipeline file."""
    columns = {"customer": "BIGINT", "amount": "BIGINT", "note": "VARCHAR"}
    document: dict[str, Any] = {
        "pipeline": name,
        "inputs": {"orders": {"topic": f"{name}.orders", "columns": columns}},
        "operators": {"order": {"upsert": "orders"}},
        "outputs": {"current": {"from": "order", "topic": f"{name}.current"}},
        "run": {
            "shards": args.shards,
            "checkpoint": str(folder / name / "checkpoint"),
            "local_directory": str(folder / name / "local"),
        },
    }
    if not args.plain:
        document["inputs"]["customers"] = {
            "topic": f"{name}.customers",
            "columns": {"city": "VARCHAR"},
        }
        document["operators"] |= {
            "customer": {"upsert": "customers"},
            "totals": {
                "reduce": "order",
                "by": "customer",
                "aggregates": {"orders": "count(*)", "amount": "sum(amount)"},
            },
            "placed": {
                "delta_join": {"o": "order", "c": "customer"},
                "where": ["o.customer = c.key::BIGINT"],
                "select": {"amount": "o.amount", "city": "c.city"},
                "key": "o.key",
            },
        }
        document["outputs"] |= {
            each: {"from": each, "topic": f"{name}.{each}"} for each in ("totals", "placed")
        }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Running:
    """A pipeline that runs, and what it says of itself."""

    def __init__(self, servers: str, folder: Path, name: str, path: Path, *options: str) -> None:
        self.log = folder / f"{name}.log"
        self._folder = folder / name
        command = [*upsert.RUN, str(path), "--bootstrap-servers", servers]
        self.watched = Watched(
            [*command, "--http", "127.0.0.1:0", *options], self.log, every_s=1.0
        )
        self.url = wait_until(self._served, _START_S, "the run to serve its metrics")

    @property
    def folders(self) -> dict[str, Path]:
        """Where its state is."""
        return {each: self._folder / each for each in ("checkpoint", "local")}

    def records(self) -> int:
        """How many records it has read and committed."""
        return int(watch.metrics(self.url).get("ikebana_records_total", 0))

    def drained(self, records: int, within_s: float) -> float:
        """Wait until so many are committed, and everything is published; the seconds it took."""
        begun = time.monotonic()

        def done() -> bool:
            if self.watched.process.poll() is not None:
                raise Ended(self.text()[-3000:])
            told = watch.metrics(self.url)
            lag = told.get("ikebana_lag_seconds", 1e9)
            return told.get("ikebana_records_total", 0) >= records and lag < 30

        wait_until(done, within_s, f"{records:,} records to be read")
        return time.monotonic() - begun

    def stop(self) -> int:
        """Ask it to end, which it does after the batch that it is in."""
        if self.watched.process.poll() is None:
            self.watched.process.terminate()
        return self.watched.wait(_BATCH_S).returncode

    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def _served(self) -> str | None:
        if self.watched.process.poll() is not None:
            sys.exit(f"it ended:\n{self.text()[-3000:]}")
        found = re.search(r"serving (\S+)/metrics", self.text())
        return found and found[1]


class Ended(Exception):
    """The run has ended by itself; with what it has printed."""


def wait_until(true: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.5)
    raise TimeoutError(f"waited {within_s:.0f} s for {what}")


def prepared(servers: str, folder: Path, name: str, args: argparse.Namespace) -> Path:
    """Make the topics and the file of a pipeline."""
    generate.make_topic(servers, f"{name}.orders")
    if not args.plain:
        generate.make_topic(servers, f"{name}.customers")
        generate.fill(servers, f"{name}.customers", customers())
    return pipeline(folder, name, args)


def customers() -> Iterator[tuple[bytes, bytes | None]]:
    """One upsert for each customer."""
    for at in range(CUSTOMERS):
        yield b"%d" % at, b'{"city":"city %d"}' % (at % 50)


def steady(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A share of the maximum for a long time, with a burst in the middle if it is asked for."""
    name, orders = "steady", Orders(args.keys)
    path = prepared(servers, folder, name, args)
    topic, beside = f"{name}.orders", 0 if args.plain else CUSTOMERS
    send(to := producer(servers), topic, orders.every(args.keys))
    assert to.flush(120) == 0
    run = Running(servers, folder, name, path)
    try:
        run.drained(orders.sent + beside, _DRAIN_S)
        most = maximum(run, servers, topic, orders, args) if args.rate is None else None
        run.drained(orders.sent + beside, _DRAIN_S)
        rate = args.rate or most * args.share
        told = f"{rate:,.0f} records/s for {args.minutes:g} minutes"
        _CONSOLE.print(told if most is None else f"maximum {most:,.0f} records/s; {told}")
        sender = Sender(servers, topic, orders, rate)

        def behind(told: Mapping[str, float]) -> dict[str, float]:
            if not told:
                return {}
            read = told.get("ikebana_records_total", 0)
            return {
                "records behind": max(0.0, orders.sent + beside - read),
                "lag s": told.get("ikebana_lag_seconds", 0.0),
                "batches": told.get("ikebana_batch", 0.0),
            }

        sampler = watch.Sampler(run.watched, run.folders, run.url, args.every, behind)
        burst = _through(sampler, sender, args)
        sender.stop()
        samples = sampler.stop()
        drain_s = run.drained(orders.sent + beside, _DRAIN_S)
    finally:
        status = run.stop()
    kept = [each for each in samples if each.at_s >= args.warm * 60]
    bare = [each._replace(values=_bare(each.values)) for each in kept]
    found = watch.judged(bare, args.tolerance)
    _CONSOLE.print("\n".join(watch.table(found, bare)), soft_wrap=True, markup=False)
    flat = all(each for *_, each in found)
    wrong = verified(servers, name, orders, args)
    _CONSOLE.print(
        f"{'flat' if flat else 'NOT FLAT'} within {args.tolerance:.0%} of the mean an hour; "
        f"outputs {'exact' if not wrong else 'WRONG: ' + ', '.join(wrong)}; status {status}; "
        f"the rest was read in {drain_s:.0f} s",
        soft_wrap=True,
    )
    if burst:
        _CONSOLE.print(f"burst: {burst}", soft_wrap=True)
    return {
        "job": "steady",
        "records": orders.sent,
        "maximum": most,
        "rate": rate,
        "series": {name: line._asdict() | {"flat": flat} for name, line, flat in found},
        "burst": burst,
        "wrong": wrong,
        "good": flat and not wrong and status == 0,
    }


def _bare(values: Mapping[str, float]) -> dict[str, float]:
    """What ought to be flat."""
    return {name: value for name, value in values.items() if name != "batches"}


def maximum(
    run: Running, servers: str, topic: str, orders: Orders, args: argparse.Namespace
) -> float:
    """How many records a second it reads while there are always more."""
    end = threading.Event()
    to = producer(servers)

    def push() -> None:
        while not end.is_set():
            send(to, topic, orders.some(5_000))
            # A backlog of some batches is enough, and has to be read afterwards.
            while orders.sent - run.records() > 1_000_000 and not end.wait(0.2):
                pass

    pushing = threading.Thread(target=push, daemon=True)
    pushing.start()
    time.sleep(args.maximum / 3)
    begun, before = time.monotonic(), run.records()
    time.sleep(args.maximum * 2 / 3)
    found = (run.records() - before) / (time.monotonic() - begun)
    end.set()
    pushing.join()
    assert to.flush(120) == 0
    if not found:
        sys.exit(f"nothing was read in {args.maximum} s:\n{run.text()[-3000:]}")
    return found


def _through(
    sampler: watch.Sampler, sender: Sender, args: argparse.Namespace
) -> dict[str, float] | None:
    """Let the time pass; what a burst in the middle did, if there is one."""
    whole_s = args.minutes * 60
    if not args.burst:
        time.sleep(whole_s)
        return None
    time.sleep(whole_s / 2)
    at_s, rate = sampler.now_s, sender.rate
    before = [each.values for each in sampler.since(at_s / 2) if "lag s" in each.values]
    usual = statistics.median(each["records behind"] for each in before)
    memory = statistics.median(each["PSS MiB"] for each in before)
    sender.rate = rate * args.burst
    time.sleep(args.burst_seconds)
    sender.rate = rate
    ended_s = sampler.now_s

    def recovered() -> float | None:
        for each in sampler.since(ended_s):
            if each.values.get("records behind", 1e18) <= 2 * usual + rate:
                return each.at_s - ended_s
        return None

    try:
        took_s = wait_until(recovered, max(60.0, whole_s / 2), "the burst to be read")
    except TimeoutError:
        took_s = -1.0
    after = [each.values for each in sampler.since(at_s)]
    rest_s = whole_s - sampler.now_s
    if rest_s > 0:
        time.sleep(rest_s)
    return {
        "recovered_s": round(took_s, 1),
        "most_behind": max(each.get("records behind", 0) for each in after),
        "memory_before_mib": round(memory),
        "memory_peak_mib": round(max(each["PSS MiB"] for each in after)),
    }


def cold(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A start on a long backlog."""
    name, orders = "cold", Orders(args.keys)
    path = prepared(servers, folder, name, args)
    to = producer(servers)
    send(to, f"{name}.orders", orders.some(args.cold))
    assert to.flush(600) == 0
    begun = time.monotonic()
    run = Running(servers, folder, name, path)
    sampler = watch.Sampler(run.watched, run.folders, run.url, 1.0, lambda _: {})
    try:
        run.drained(orders.sent + (0 if args.plain else CUSTOMERS), 3 * _DRAIN_S)
        took_s = time.monotonic() - begun
    finally:
        samples = sampler.stop()
        status = run.stop()
    peaks = {
        each: round(max(sample.values.get(each, 0.0) for sample in samples))
        for each in ("PSS MiB", *(f"{kind} PSS MiB" for kind in watch.KINDS))
    }
    wrong = verified(servers, name, orders, args)
    _CONSOLE.print(
        f"a cold start on {args.cold:,} records took {took_s:.0f} s, "
        f"{args.cold / took_s:,.0f} records/s; peaks: {peaks}; "
        f"outputs {'exact' if not wrong else 'WRONG: ' + ', '.join(wrong)}",
        soft_wrap=True,
    )
    return {
        "job": "cold",
        "records": args.cold,
        "took_s": took_s,
        "peaks": peaks,
        "wrong": wrong,
        "good": not wrong and status == 0,
    }


def hot_key(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One key has half of all updates."""

    def pick(choice: random.Random) -> int:
        return 0 if choice.random() < 0.5 else choice.randrange(args.keys)

    return _skewed(servers, folder, args, "hot-key", Orders(args.keys, pick))


def uneven(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One shard has ten times the updates of each other."""
    of_first = [key for key in range(args.keys) if shard_of(b"%d" % key, args.shards) == 0]
    others = [key for key in range(args.keys) if shard_of(b"%d" % key, args.shards) != 0]
    share = 10 / (9 + args.shards)

    def pick(choice: random.Random) -> int:
        return choice.choice(of_first if choice.random() < share else others)

    return _skewed(servers, folder, args, "uneven", Orders(args.keys, pick))


def _skewed(
    servers: str, folder: Path, args: argparse.Namespace, name: str, orders: Orders
) -> dict[str, Any]:
    """A backlog of a million such records, and how the shards share it."""
    path = prepared(servers, folder, name, args)
    to = producer(servers)
    send(to, f"{name}.orders", orders.some(10 * args.keys))
    assert to.flush(120) == 0
    begun = time.monotonic()
    run = Running(servers, folder, name, path)
    sampler = watch.Sampler(run.watched, run.folders, run.url, 1.0, lambda told: told)
    try:
        run.drained(orders.sent + (0 if args.plain else CUSTOMERS), _DRAIN_S)
        took_s = time.monotonic() - begun
    finally:
        samples = sampler.stop()
        status = run.stop()
    warned = [line for line in run.text().splitlines() if "warning:" in line]
    wrong = verified(servers, name, orders, args)
    found = {
        "job": name,
        "records": orders.sent,
        "took_s": round(took_s, 1),
        "peak_mib": round(max((each.values["PSS MiB"] for each in samples), default=0)),
        "warned": warned,
        "wrong": wrong,
        "good": not wrong and status == 0,
    }
    _CONSOLE.print(found, soft_wrap=True)
    return found


def hot_join_key(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A join key with as many rows on both sides: one side is there, and the other one comes."""
    name, count = "hot-join", args.matches
    for side in ("lefts", "rights"):
        generate.make_topic(servers, f"{name}.{side}")

    def rows(some: range) -> Iterator[tuple[bytes, bytes | None]]:
        return ((b"%d" % at, b'{"at":1,"n":%d}' % at) for at in some)

    columns = {"at": "BIGINT", "n": "BIGINT"}
    sides = {side: {"topic": f"{name}.{side}s", "columns": columns} for side in ("left", "right")}
    document = {
        "pipeline": name,
        "inputs": {f"{side}s": each for side, each in sides.items()},
        "operators": {
            **{side: {"upsert": f"{side}s"} for side in sides},
            "pairs": {
                "delta_join": {"l": "left", "r": "right"},
                "where": ["l.at = r.at"],
                "select": {"l": "l.n", "r": "r.n"},
            },
        },
        "outputs": {"pairs": {"from": "pairs", "topic": f"{name}.pairs"}},
        "run": {
            "shards": args.shards,
            "checkpoint": str(folder / name / "checkpoint"),
            "local_directory": str(folder / name / "local"),
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    generate.fill(servers, f"{name}.rights", rows(range(count)))
    run = Running(servers, folder, name, path)
    sampler = watch.Sampler(run.watched, run.folders, run.url, 1.0, lambda told: told)
    told, one_s = "", -1.0
    try:
        run.drained(count, _DRAIN_S)
        # A single change meets all of them.
        generate.fill(servers, f"{name}.lefts", rows(range(1)))
        one_s = run.drained(count + 1, _DRAIN_S)
        # The other side as a whole: no pipeline can write the product.
        generate.fill(servers, f"{name}.lefts", rows(range(1, count)))
        deadline = time.monotonic() + args.minutes * 60
        while time.monotonic() < deadline and run.watched.process.poll() is None:
            time.sleep(1.0)
    except (Ended, TimeoutError) as error:
        told = str(error)
    finally:
        samples = sampler.stop()
        read, ended = run.records(), run.watched.process.poll()
        status = run.stop()
    refused = re.search(r"has more results in this batch[^\n]*", run.text() + told)
    found = {
        "job": name,
        "matches": count,
        "one_update_s": round(one_s, 1),
        "read_of_the_other_side": max(0, read - count),
        "peak_mib": round(max((each.values["PSS MiB"] for each in samples), default=0)),
        "status": status if ended is None else ended,
        "refused": refused and refused[0],
        "warned": [line for line in run.text().splitlines() if "warning:" in line],
        # It goes on in small batches, or says by name why it cannot.
        "good": one_s >= 0 and (ended is None or refused is not None),
    }
    _CONSOLE.print(found, soft_wrap=True)
    return found


def verified(servers: str, name: str, orders: Orders, args: argparse.Namespace) -> list[str]:
    """The outputs that are not what the input comes to."""
    truth = {key: order for key, order in orders.truth.items() if order is not None}
    wanted: dict[str, dict[tuple[Any, ...], int]] = {
        "current": {(key, *order): 1 for key, order in truth.items()}
    }
    if not args.plain:
        sums: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0])
        for customer, amount in truth.values():
            sums[customer][0] += 1
            sums[customer][1] += amount
        wanted["totals"] = {(customer, *of): 1 for customer, of in sums.items()}
        wanted["placed"] = {
            (key, amount, f"city {customer % 50}"): 1 for key, (customer, amount) in truth.items()
        }
    fields = {
        "current": ("customer", "amount"),
        "totals": ("orders", "amount"),
        "placed": ("amount", "city"),
    }
    return [
        output
        for output, of in wanted.items()
        if accumulated(servers, f"{name}.{output}", fields[output]) != of
    ]


def accumulated(servers: str, topic: str, fields: tuple[str, ...]) -> dict[tuple[Any, ...], int]:
    """What an output has come to: the key and some fields of each row, with its count."""
    found: collections.Counter[tuple[bytes, bytes]] = collections.Counter()
    for at, message in zip(itertools.count(1), upsert.records_of(servers, topic), strict=False):
        found[message.key(), message.value()] += int(dict(message.headers())["diff"])
        if at % 1_000_000 == 0:
            # What has cancelled takes no memory.
            found = collections.Counter({data: count for data, count in found.items() if count})
    rows: dict[tuple[Any, ...], int] = {}
    for (key, value), count in found.items():
        if count:
            row = json.loads(value)
            data = json.loads(key), *(row[name] for name in fields)
            rows[data] = rows.get(data, 0) + count
    return rows


if __name__ == "__main__":
    main()
