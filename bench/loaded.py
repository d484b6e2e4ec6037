"""A pipeline that is run as a user runs it, what is sent to it, and what has to come out."""

import argparse
import collections
import itertools
import json
import multiprocessing
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import generate
import upsert
import watch
import yaml
from confluent_kafka import Producer
from measure import Watched

START_S = 300.0
DRAIN_S = 1800.0
BATCH_S = 360.0
CUSTOMERS = 1_000

Key = Callable[[random.Random], int]


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
    """A producer of records that come all the time."""
    settings: dict[str, object] = {"linger.ms": 20, "enable.idempotence": True}
    return generate.producer(servers, **settings)


def send(to: Producer, topic: str, records: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Send records, as fast as the broker takes them."""
    for key, value in records:
        generate.produce(to, topic, key, value)


def pipeline(folder: Path, name: str, args: argparse.Namespace) -> Path:
    """Write the pipeline file."""
    columns = {"customer": "BIGINT", "amount": "BIGINT", "note": "VARCHAR"}
    document: dict[str, Any] = {
        "inputs": {"orders": {"topic": f"{name}.orders", "columns": columns}},
        "operators": {"order": {"upsert": "orders"}},
        "outputs": {"current": {"from": "order", "topic": f"{name}.current"}},
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
    return pipeline_file(folder, name, args, document)


def pipeline_file(
    folder: Path, name: str, args: argparse.Namespace, document: Mapping[str, Any]
) -> Path:
    """Write a pipeline file of these sections; its state is in the folder."""
    run = {
        "shards": args.shards,
        "checkpoint": str(folder / name / "checkpoint"),
        "local_directory": str(folder / name / "local"),
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"pipeline": name, **document, "run": run}))
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
        self.url = wait_until(self._served, START_S, "the run to serve its metrics")

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
        return self.watched.wait(BATCH_S).returncode

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
    # Threads of the clients of Kafka do not survive a fork.
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=spawning) as pool:
        found = {
            output: pool.submit(accumulated, servers, f"{name}.{output}", fields[output])
            for output in wanted
        }
        return [output for output, of in wanted.items() if found[output].result() != of]


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
