"""Kill `ikebana serve` again and again while it follows, and judge what readers see.

    python bench/serve_soak.py [--seconds 600] [--every 60] [--keys 300]

Amounts move between the accounts of two topics, so at every time both together have the same
sum, and each account one amount.  Four processes read both at one time, two from the folder and
two over HTTP: a time that is not whole, or a newest time that goes back, ends the soak.  The
server gets SIGKILL each `--every` seconds.  After each start, and at the end, what is served as
of random times is compared with `ikebana snapshot --as-of`.
"""

import argparse
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import ikebana
from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.errors import AwayError
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import running
from ikebana.serving.reads import Reads, rows
from ikebana.serving.view import UnreadableTimeError

TOPICS = ("here", "there")
EACH = 1_000
MOVES = 20
PARTITIONS = 3
STARTS_S = 120.0
COMMAND = (sys.executable, "-m", "ikebana")
Account = tuple[str, int]


class Bank:
    """Moves amounts between accounts of both topics, and closes each time in both."""

    def __init__(self, servers: str, keys: int) -> None:
        self._settings = {"bootstrap.servers": servers}
        self._admin = client.admin(self._settings)
        for topic in TOPICS:
            topics.create(self._admin, topic, PARTITIONS, 1, {})
            topics.create(self._admin, topic + ".progress", 1, 1, {})
        self._producer = client.transactional_producer(self._settings, "soak", 60)
        self._accounts = {(topic, n): EACH for topic in TOPICS for n in range(keys)}
        self._random = random.Random(7)
        self._batches = 0
        self.upper = 1
        self._write([(account, EACH, 1) for account in self._accounts], 0)

    def move(self) -> None:
        """Close some more times, with moves at one of them."""
        time_ = self.upper + self._random.randrange(3)
        before: dict[Account, int] = {}
        for _ in range(MOVES):
            one, other = self._random.sample(list(self._accounts), 2)
            amount = self._random.randrange(1, 100)
            for account, by in ((one, -amount), (other, amount)):
                before.setdefault(account, self._accounts[account])
                self._accounts[account] += by
        updates = []
        for account, amount in before.items():
            if amount != self._accounts[account]:
                updates += [(account, amount, -1), (account, self._accounts[account], 1)]
        self._write(updates, time_)

    def _write(self, updates: list[tuple[Account, int, int]], at: int) -> None:
        lower, self.upper = (0 if not self._batches else self.upper), at + 1
        self._producer.begin_transaction()
        for (topic, number), amount, by in updates:
            self._producer.produce(
                topic,
                b'{"amount":%d}' % amount,
                b"%d" % number,
                number % PARTITIONS,
                headers=diff.headers(at, by),
            )
        self._producer.commit_transaction(60)
        counts = Counter(topic for (topic, _), _, _ in updates)
        ends = topics.high_watermarks(self._admin, dict.fromkeys(TOPICS, PARTITIONS))
        self._producer.begin_transaction()
        for topic in TOPICS:
            told = (self._batches, lower, self.upper, counts[topic])
            record = ProgressRecord("c", "p", topic, *told, ends[topic], "upserts")
            self._producer.produce(topic + ".progress", record.encode(), record.key())
        self._producer.commit_transaction(60)
        self._batches += 1


def read_forever(
    what: str, where: str, keys: int, stopping: Event, said: "multiprocessing.Queue[Any]"
) -> None:
    """Read both topics at their newest times until told to stop; say what is wrong, or counts."""
    times: set[int] = set()
    reads = newest = away = 0
    total = EACH * keys * len(TOPICS)
    opened = None
    while not stopping.is_set():
        try:
            opened = opened or _opened(what, where)
            at = opened.newest(*TOPICS)
            found = {topic: _amounts(opened, topic, at) for topic in TOPICS}
        except (AwayError, UnreadableTimeError):
            # The server is not there, or has not come as far again.
            away += 1
            stopping.wait(0.05)
            continue
        if at < newest:
            said.put(f"{what}: the newest time went back from {newest} to {at}")
            return
        if any(len(each) != keys for each in found.values()):
            said.put(f"{what}: at {at} there are { {t: len(e) for t, e in found.items()} } keys")
            return
        sums = sum(sum(each.values()) for each in found.values())
        if sums != total:
            said.put(f"{what}: at {at} the sum is {sums}, not {total}")
            return
        newest = at
        times.add(at)
        reads += 1
    said.put((what, reads, len(times), away))


def _opened(what: str, where: str) -> Reads:
    return ikebana.open(where) if what == "folder" else ikebana.connect(where)


def _amounts(served: Reads, topic: str, at: int) -> dict[bytes | None, int]:
    found: dict[bytes | None, int] = {}
    for key, values in rows(served, topic, as_of=at, limit=100):
        [(value, count)] = values.items()
        if count != 1:
            raise AssertionError(f"{topic} has {value!r} {count} times at {at}")
        found[key] = json.loads(value)["amount"]
    return found


class Server:
    """`ikebana serve`, whichever process runs it now."""

    def __init__(self, servers: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._servers = servers
        self._log = folder / "log"
        self.folder = folder / "served"
        self.url = f"http://127.0.0.1:{self._port}"
        self.starts: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it can be read."""
        begun = time.monotonic()
        arguments = [
            *(*COMMAND, "serve", *TOPICS, "--data", str(self.folder)),
            *("--bootstrap-servers", self._servers, "--http", f"127.0.0.1:{self._port}"),
            *("--retain", "1000000"),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(arguments, stderr=log)
        while time.monotonic() - begun < STARTS_S:
            if self._process.poll() is not None:
                break
            try:
                with ikebana.connect(self.url) as served:
                    served.newest(*TOPICS)
                self.starts.append(time.monotonic() - begun)
                return
            except (AwayError, UnreadableTimeError):
                time.sleep(0.05)
        raise SystemExit(f"it cannot be read:\n{self._log.read_text()}")

    def kill(self) -> None:
        """End it as a failure of the machine would, but for the operating system."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def compare(server: Server, servers: str, number: int, chosen: random.Random) -> int:
    """Compare what is served with snapshots as of some times; return how many rows agree."""
    agreed = 0
    with ikebana.connect(server.url) as served:
        infos = {each.name: each for each in served.collections()}
        for _ in range(number):
            topic = chosen.choice(TOPICS)
            at = chosen.randrange(max(0, infos[topic].since or 0), infos[topic].upper or 1)
            here = Counter(
                {
                    (json.loads(key or b"null"), json.loads(value)["amount"]): count
                    for key, values in rows(served, topic, as_of=at)
                    for value, count in values.items()
                }
            )
            done = subprocess.run(
                [*COMMAND, "snapshot", topic, f"--as-of={at}", f"--bootstrap-servers={servers}"],
                capture_output=True,
                text=True,
                check=True,
            )
            told = [json.loads(line) for line in done.stdout.splitlines()]
            there = Counter({(row["key"], row["value"]["amount"]): row["count"] for row in told})
            if here != there:
                raise SystemExit(f"{topic} as of {at} is not what its snapshot is: {here - there}")
            agreed += sum(here.values())
    return agreed


def soak(seconds: float, every: float, keys: int, say: Callable[[str], None]) -> None:
    """Run it all; raises SystemExit with what is wrong."""
    spawn = multiprocessing.get_context("spawn")
    chosen = random.Random(3)
    with tempfile.TemporaryDirectory() as path, running() as broker:
        servers = broker.bootstrap_servers
        bank, server = Bank(servers, keys), Server(servers, Path(path))
        server.start()
        stopping, said = spawn.Event(), spawn.Queue()
        readers = [
            spawn.Process(
                target=read_forever,
                args=(what, str(server.folder if what == "folder" else server.url)),
                kwargs={"keys": keys, "stopping": stopping, "said": said},
            )
            for what in ("folder", "folder", "http", "http")
        ]
        for reader in readers:
            reader.start()
        try:
            end, kill_at, kills, agreed = (
                time.monotonic() + seconds,
                time.monotonic() + every,
                0,
                0,
            )
            while time.monotonic() < end:
                bank.move()
                if not said.empty():
                    raise SystemExit(said.get())
                if time.monotonic() > kill_at:
                    server.kill()
                    kills += 1
                    bank.move()
                    server.start()
                    agreed += compare(server, servers, 1, chosen)
                    say(f"kill {kills}: read again after {server.starts[-1]:.2f} s")
                    kill_at = time.monotonic() + every
            agreed += compare(server, servers, 3, chosen)
            stopping.set()
            for _ in readers:
                match said.get(timeout=STARTS_S):
                    case str(wrong):
                        raise SystemExit(wrong)
                    case what, reads, times, away:
                        if not reads:
                            raise SystemExit(f"a reader by {what} has read nothing")
                        say(f"{what}: {reads} whole reads at {times} times, {away} refused")
            say(f"{kills} kills, {bank.upper} times, {agreed} rows as in snapshots")
        finally:
            stopping.set()
            server.kill()
            for reader in readers:
                reader.join(STARTS_S)


def main() -> None:
    """Read the arguments."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--every", type=float, default=60)
    arguments.add_argument("--keys", type=int, default=300)
    given = arguments.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    soak(given.seconds, given.every, given.keys, lambda told: print(told, flush=True))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
