"""Load that is uneven: hot keys, uneven shards, records that come to a million rows, errors.

Each case is a function that runs a pipeline of its own, and returns what it has found.
"""

import argparse
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import generate
import upsert
import watch
from loaded import (
    CUSTOMERS,
    DRAIN_S,
    Ended,
    Orders,
    Running,
    pipeline_file,
    prepared,
    producer,
    send,
    verified,
    wait_until,
)

from ikebana.processor.base.sharding import shard_of

Record = tuple[bytes, bytes | None]
Case = Callable[[str, Path, argparse.Namespace], dict[str, Any]]
# Changes of the other side of a hot join key, one after the other.
_SINGLE = 10


def hot_key(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One key has half of all updates."""

    def pick(choice: random.Random) -> int:
        return 0 if choice.random() < 0.5 else choice.randrange(args.keys)

    found = _skewed(servers, folder, args, "hot-key", Orders(args.keys, pick))
    found["good"] = found["good"] and found["hot_key_share"] > 0 and bool(found["warned"])
    return found


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
    """A backlog of such records, and how the shards share it."""
    path = prepared(servers, folder, name, args)
    to = producer(servers)
    send(to, f"{name}.orders", orders.some(10 * args.keys))
    assert to.flush(120) == 0
    with Watching(servers, folder, name, path) as run:
        took_s = run.drained(orders.sent + (0 if args.plain else CUSTOMERS))
    shares = run.by_shard
    return {
        "job": name,
        "records": orders.sent,
        "took_s": round(took_s, 1),
        **run.told(),
        "most_of_a_shard": round(max(shares) / sum(shares), 2) if shares else None,
        "hot_key_share": run.most("ikebana_hot_key_share"),
        "wrong": (wrong := verified(servers, name, orders, args)),
        "good": not wrong and run.status == 0,
    }


class Watching:
    """A pipeline that runs and is sampled until the end of a block."""

    def __init__(self, servers: str, folder: Path, name: str, path: Path) -> None:
        self.run = Running(servers, folder, name, path)
        self.sampler = watch.Sampler(
            self.run.watched, self.run.folders, self.run.url, 1.0, lambda told: told
        )
        self.samples: list[watch.Sample] = []
        self.by_shard: list[float] = []
        self.status: int | None = None
        """Of the run, once the block has ended."""

    def __enter__(self) -> "Watching":
        return self

    def __exit__(self, *_: object) -> None:
        self.samples = self.sampler.stop()
        self.by_shard = watch.by_label(self.run.url, "ikebana_shard_records_total")
        self.status = self.run.stop()

    def drained(self, records: int) -> float:
        """See `Running.drained`."""
        return self.run.drained(records, DRAIN_S)

    def written(self, output: str, updates: int) -> float:
        """Wait until an output has had so many updates; the seconds it took."""
        begun = time.monotonic()

        def done() -> bool:
            if self.run.watched.process.poll() is not None:
                raise Ended(self.run.text()[-3000:])
            name = "ikebana_updates_total"
            return watch.by_name(self.run.url, name, output=output) >= updates

        wait_until(done, DRAIN_S, f"{updates:,} updates of {output}")
        return time.monotonic() - begun

    def most(self, name: str) -> float:
        """The most that a series has had."""
        return round(max((each.values.get(name, 0.0) for each in self.samples), default=0.0), 3)

    def told(self) -> dict[str, Any]:
        """The peak of memory, warnings, and how long the longest batch took."""
        text = self.run.text()
        batches = [float(found) for found in re.findall(r"records? in ([\d.]+) s,", text)]
        return {
            "start_mib": round(self.samples[0].values["PSS MiB"]) if self.samples else None,
            "peak_mib": round(self.most("PSS MiB")),
            "owners_peak_mib": round(self.most("owners PSS MiB")),
            "longest_batch_s": max(batches, default=0.0),
            "warned": [line for line in text.splitlines() if "warning:" in line],
        }

    def memory(self) -> dict[str, int]:
        """The memory of all, and of the processes that own shards, in the last samples."""
        last = self.sampler.since(self.sampler.now_s - 20.0) or self.sampler.samples[-1:]
        return {
            name: round(statistics.median(each.values[f"{kind}PSS MiB"] for each in last))
            for name, kind in (("mib", ""), ("owners_mib", "owners "))
        }

    def peak(self, since_s: float) -> dict[str, int]:
        """The most of both since a time."""
        found = self.sampler.since(since_s) or self.sampler.samples[-1:]
        return {
            name: round(max(each.values[f"{kind}PSS MiB"] for each in found))
            for name, kind in (("peak_mib", ""), ("owners_peak_mib", "owners "))
        }


def hot_join_key(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A join key with as many rows on both sides: one side is there, and the other one comes."""
    name, count = "hot-join", args.matches
    for side in ("lefts", "rights"):
        generate.make_topic(servers, f"{name}.{side}")
    columns = {"at": "BIGINT", "n": "BIGINT"}
    sides = {side: {"topic": f"{name}.{side}s", "columns": columns} for side in ("left", "right")}
    pairs = {
        "delta_join": {"l": "left", "r": "right"},
        "where": ["l.at = r.at"],
        "select": {"l": "l.n", "r": "r.n"},
    }
    document = {
        "inputs": {f"{side}s": each for side, each in sides.items()},
        "operators": {**{side: {"upsert": f"{side}s"} for side in sides}, "pairs": pairs},
        "outputs": {"pairs": {"from": "pairs", "topic": f"{name}.pairs"}},
    }
    path = pipeline_file(folder, name, args, document)
    generate.fill(servers, f"{name}.rights", _pairs(range(count)))
    told, took, before, peak = "", list[float](), {}, {}
    with Watching(servers, folder, name, path) as run:
        try:
            run.drained(count)
            before, since_s = run.memory(), run.sampler.now_s
            # A single change meets all of them.
            for at in range(_SINGLE):
                generate.fill(servers, f"{name}.lefts", _pairs(range(at, at + 1)))
                took.append(run.written("pairs", count * (at + 1)))
            peak = run.peak(since_s)
            # The other side as a whole: no pipeline can write the product.
            generate.fill(servers, f"{name}.lefts", _pairs(range(_SINGLE, count)))
            wait_until(lambda: run.run.watched.process.poll() is not None, DRAIN_S, "it to refuse")
        except (Ended, TimeoutError) as error:
            told = str(error)
        read = run.run.records()
    refused = re.search(r"has more results in this batch[^\n]*", run.run.text() + told)
    came = Counter[bytes]()
    for message in upsert.records_of(servers, f"{name}.pairs"):
        came[json.loads(message.value())["l"]] += int(dict(message.headers())["diff"])
    exact = came == dict.fromkeys(range(_SINGLE), count)
    return {
        "job": name,
        "matches": count,
        "single_changes": len(took),
        "one_change_s": round(statistics.median(took), 1) if took else None,
        "before": before,
        "single": peak,
        **run.told(),
        "join_key_matches": run.most("ikebana_join_key_matches"),
        "read_of_the_other_side": max(0, read - count),
        "refused": refused and refused[0],
        "wrong": [] if exact else ["pairs"],
        "good": len(took) == _SINGLE and exact and refused is not None,
    }


def _pairs(some: range) -> Iterator[Record]:
    return ((b"%d" % at, b'{"at":1,"n":%d}' % at) for at in some)


def expand(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One record comes to a million rows, which its tombstone takes back."""
    name, count = "expand", args.expand
    generate.make_topic(servers, f"{name}.rows")
    many = {"linear": "row", "steps": [{"flat_map": {"e": "range(n)"}}, {"select": {"e": "e"}}]}
    path = pipeline_file(
        folder,
        name,
        args,
        {
            "inputs": {"rows": {"topic": f"{name}.rows", "columns": {"n": "BIGINT"}}},
            "operators": {"row": {"upsert": "rows"}, "many": many},
            "outputs": {"many": {"from": "many", "topic": f"{name}.many"}},
        },
    )
    found: dict[str, Any] = {}
    generate.fill(servers, f"{name}.rows", iter([(b"0", b'{"n":1}')]))
    with Watching(servers, folder, name, path) as run:
        run.drained(1)
        found["before"] = run.memory()
        steps: dict[str, list[Record]] = {
            "one record": [(b"1", b'{"n":%d}' % count)],
            "three records": [(b"%d" % at, b'{"n":%d}' % count) for at in (2, 3, 4)],
            "their tombstones": [(b"%d" % at, None) for at in (1, 2, 3, 4)],
        }
        sent = 1
        for step, records in steps.items():
            since_s = run.sampler.now_s
            sent += len(records)
            generate.fill(servers, f"{name}.rows", iter(records))
            took_s = run.drained(sent)
            found[step] = {"took_s": round(took_s, 1), **run.peak(since_s)}
    written: Counter[int] = Counter()
    for message in upsert.records_of(servers, f"{name}.many"):
        diff = int(dict(message.headers())["diff"])
        written[1 if diff > 0 else -1] += abs(diff)
    exact = written == {1: 4 * count + 1, -1: 4 * count}
    return {
        "job": name,
        "rows": count,
        **found,
        **run.told(),
        "wrong": [] if exact else ["many"],
        "good": exact and run.status == 0,
    }


def errors(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Errors by the million: of messages with and without a key, and of users' expressions."""
    name, count = "errors", args.errors
    generate.make_topic(servers, f"{name}.rows")
    path = pipeline_file(
        folder,
        name,
        args,
        {
            "inputs": {"rows": {"topic": f"{name}.rows", "columns": {"text": "VARCHAR"}}},
            "operators": {
                "row": {"upsert": "rows"},
                "number": {"linear": "row", "select": {"n": "text::INTEGER"}},
            },
            "outputs": {"number": {"from": "number", "topic": f"{name}.number"}},
        },
    )

    def each(value: bytes | None) -> Iterator[Record]:
        return ((b"%d" % key, value) for key in range(count))

    steps: dict[str, Callable[[], Iterator[Any]]] = {
        "undecodable": lambda: each(b'{"text": "half of a mess'),
        "undecodable again": lambda: each(b'{"text": "other half of'),
        "without a key": lambda: ((None, b"neither") for _ in range(count)),
        "an expression fails": lambda: each(b'{"text":"none"}'),
        "good values": lambda: each(b'{"text":"7"}'),
        "tombstones": lambda: each(None),
    }
    found: dict[str, Any] = {}
    generate.fill(servers, f"{name}.rows", iter([(b"0", b'{"text":"1"}')]))
    sent = 1
    with Watching(servers, folder, name, path) as run:
        run.drained(sent)
        found["before"] = run.memory()
        for step, records in steps.items():
            since_s = run.sampler.now_s
            sent += count
            generate.fill(servers, f"{name}.rows", records())
            took_s = run.drained(sent)
            metrics = watch.metrics(run.run.url)
            found[step] = {
                "took_s": round(took_s, 1),
                **run.peak(since_s),
                "state_mib": round(metrics["ikebana_state_bytes"] / 2**20, 1),
                "error_updates": int(
                    watch.by_name(run.run.url, "ikebana_updates_total", output="errors")
                ),
            }
    stand: Counter[str] = Counter()
    for message in upsert.records_of(servers, f"{name}.errors"):
        record = json.loads(message.value())
        kind = "operator" if record["topic"] is None else "keyed" if record["key"] else "keyless"
        stand[kind] += int(dict(message.headers())["diff"])
    # The last one that has no key stands, and nothing else does.
    exact = +stand == {"keyless": 1}
    return {
        "job": name,
        "errors": count,
        **found,
        **run.told(),
        "stand": dict(stand),
        "wrong": [] if exact else ["errors"],
        "good": exact and run.status == 0,
    }
