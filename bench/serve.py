"""Serving: reads, following, restart, size on disk, and subscribers; figures with CPU beside.

    python bench/serve.py [--keys 1000000] [--only reads,http,...]

`follow` reads a diff topic from an embedded broker.  The rest writes an arrangement from
memory.  Clients of HTTP run in this process, the server in another one.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import ikebana
from ikebana.arrangements.shared_rocks import SharedDatabase
from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import running
from ikebana.serving.arrangement import Closed, ServedArrangement, parsed_retention

BEGIN = 1_700_000_000_000
TOPIC = "bench"


def key(number: int) -> bytes:
    """A key as pipelines write it."""
    return b'{"id":%d}' % number


def value(number: int, version: int) -> bytes:
    """A row of some hundred bytes."""
    return b'{"amount":%d,"city":"somewhere","id":%d,"name":"someone %d","note":"%s"}' % (
        version,
        number,
        number % 1000,
        b"x" * 30,
    )


class Measured:
    """Seconds and CPU seconds of some work."""

    def __init__(self, work: Callable[[], object]) -> None:
        begun, cpu = time.perf_counter(), time.process_time()
        work()
        self.seconds = time.perf_counter() - begun
        self.cpu = time.process_time() - cpu

    def say(self, what: str, number: int) -> None:
        """Print the rate and the CPU of each."""
        print(
            f"{what:<48} {number / self.seconds:>12,.0f} /s "
            f"{self.cpu / number * 1e6:>8.1f} us CPU",
            flush=True,
        )


def batches(keys: int, number: int, changed: int) -> Iterator[Closed]:
    """First all keys, then batches that change some of them."""
    lower = BEGIN
    per = 50_000
    for first in range(0, keys, per):
        numbers = range(first, min(first + per, keys))
        updates = [KeyedUpdate(key(n), value(n, 0), lower, 1) for n in numbers]
        yield Closed(lower, lower + 1, updates, b"-")
        lower += 1
    versions: dict[int, int] = {}
    chosen = random.Random(1)
    for _ in range(number):
        updates = []
        for n in chosen.sample(range(keys), changed):
            before = versions.get(n, 0)
            versions[n] = before + 1
            updates.append(KeyedUpdate(key(n), value(n, before), lower, -1))
            updates.append(KeyedUpdate(key(n), value(n, before + 1), lower, 1))
        yield Closed(lower, lower + 1_000, updates, b"-")
        lower += 1_000


def written(folder: Path, keys: int) -> None:
    """Write an arrangement, and say how quickly."""
    made = ServedArrangement(SharedDatabase(folder / TOPIC), TOPIC, "diff", parsed_retention("1h"))
    ready = list(batches(keys, 20, min(10_000, keys)))
    first = ready[:-20]

    def apply(ready: list[Closed], later: int | None = None) -> None:
        for each in ready:
            made.apply(each) if later is None else made.apply(each, later)

    load = Measured(lambda: apply(first, BEGIN + 10**8))
    load.say(f"load {keys:,} keys, without history", keys)
    made.close()
    shutil.rmtree(folder / TOPIC)
    made = ServedArrangement(SharedDatabase(folder / TOPIC), TOPIC, "diff", parsed_retention("1h"))
    apply(first)
    then = ready[-20:]
    changes = sum(len(each.updates) for each in then)
    follow = Measured(lambda: apply(then))
    follow.say(f"apply batches of {len(then[0].updates):,} updates, with history", changes)
    made.close()
    begun = time.perf_counter()
    made = ServedArrangement(SharedDatabase(folder / TOPIC), TOPIC, "diff", parsed_retention("1h"))
    made.view().get(key(1), made.view().newest())
    print(f"{'open again and read':<48} {time.perf_counter() - begun:>12.2f} s")
    view = made.view()
    size = sum(path.stat().st_size for path in (folder / TOPIC).iterdir())
    print(
        f"{'size on disk':<48} {size / 1e6:>12.1f} MB for {view.meta.totals.bytes / 1e6:.1f} MB "
        f"of keys and values and {changes:,} updates of history"
    )
    made.close()


def reads(folder: Path, keys: int) -> None:
    """Point reads and scans of another process's folder."""
    asked = [key(random.randrange(keys)) for _ in range(100_000)]
    with ikebana.open(folder) as served:
        get = served.get
        get(TOPIC, asked[0])
        Measured(lambda: [get(TOPIC, each) for each in asked]).say("get, newest time", len(asked))
        many = [asked[n : n + 100] for n in range(0, len(asked), 100)]
        Measured(lambda: [served.get_many(TOPIC, each) for each in many]).say(
            "get_many of 100 keys, each key", len(asked)
        )
        then = served.newest(TOPIC) - 10_000
        some = asked[:10_000]
        Measured(lambda: [get(TOPIC, each, as_of=then) for each in some]).say(
            "get, as of 10 batches ago", len(some)
        )
        Measured(lambda: _scanned(served)).say("scan in pages of 1,000, each row", keys)


def _scanned(served: "ikebana.serving.reads.Reads") -> int:
    from ikebana.serving.reads import rows

    return sum(1 for _ in rows(served, TOPIC))


async def _asking(host: str, port: int, keys: int, number: int, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    path = (
        f"GET /v1/collections/{TOPIC}/get?key=%7B%22id%22:{{}}%7D HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )
    for _ in range(number):
        begun = time.perf_counter()
        writer.write(path.format(random.randrange(keys)).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        took.append(time.perf_counter() - begun)
        assert b'"values":[{' in body, body
    writer.close()


def http(host: str, port: int, keys: int) -> None:
    """Point reads over one connection, and over 32."""
    import uvloop

    for connections, number in ((1, 10_000), (32, 500)):
        took: list[float] = []

        async def ask() -> None:
            await asyncio.gather(
                *(_asking(host, port, keys, number, took) for _ in range(connections))  # noqa: B023
            )

        begun = time.perf_counter()
        uvloop.run(ask())
        seconds = time.perf_counter() - begun
        took.sort()
        print(
            f"{f'HTTP get, {connections} connections':<48} {len(took) / seconds:>12,.0f} /s "
            f"p50 {took[len(took) // 2] * 1e3:.2f} ms, "
            f"p99 {took[len(took) * 99 // 100] * 1e3:.2f} ms"
        )


def topic(servers: str, keys: int) -> None:
    """Write the batches as a pipeline does."""
    admin = client.admin({"bootstrap.servers": servers})
    topics.create(admin, TOPIC, 4, 1, {})
    topics.create(admin, TOPIC + ".progress", 1, 1, {})
    produce(servers, enumerate(batches(keys, 20, min(10_000, keys))))


def produce(servers: str, numbered: Iterable[tuple[int, Closed]]) -> None:
    """Write numbered batches, each with its progress."""
    settings = {"bootstrap.servers": servers}
    admin = client.admin(settings)
    producer = client.transactional_producer(settings, "bench", 60)
    for number, batch in numbered:
        producer.begin_transaction()
        for at, update in enumerate(batch.updates):
            headers = diff.headers(update.time, update.diff)
            producer.produce(
                TOPIC, update.value, update.key, hash(update.key) % 4, headers=headers
            )
            if at % 1_000 == 0:
                producer.poll(0)
        producer.commit_transaction(60)
        ends = topics.high_watermarks(admin, {TOPIC: 4})[TOPIC]
        told = (number, batch.lower, batch.upper, len(batch.updates))
        record = ProgressRecord("c", "p", TOPIC, *told, ends, "upserts")
        producer.begin_transaction()
        producer.produce(TOPIC + ".progress", record.encode(), record.key())
        producer.commit_transaction(60)


def served(folder: Path, keys: int, only: set[str]) -> None:
    """Start `ikebana serve` on a topic: follow, restart, HTTP, subscribers."""
    with running() as broker:
        topic(broker.bootstrap_servers, keys)
        updates = keys + 40 * min(10_000, keys)
        log = folder / "log"
        for name in ("follow from the beginning", "restart"):
            begun = time.perf_counter()
            with log.open("w") as err:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "ikebana", "serve", TOPIC, "--http=127.0.0.1:0"),
                        f"--bootstrap-servers={broker.bootstrap_servers}",
                        f"--data={folder / 'served'}",
                        *("--retain", "1h"),
                    ],
                    stderr=err,
                )
            try:
                url = _ready(process, log)
                seconds = time.perf_counter() - begun
                cpu = _cpu(process.pid)
                print(
                    f"{name:<48} {seconds:>12.2f} s, {updates / seconds:,.0f} updates/s, "
                    f"{cpu / updates * 1e6:.1f} us CPU each with the start, {_rss(process.pid)} MB"
                )
                if name == "restart":
                    host, port = url.removeprefix("http://").split(":")
                    if "http" in only:
                        http(host, int(port), keys)
                    if "subscribers" in only:
                        subscribers(broker.bootstrap_servers, process.pid, host, int(port), keys)
            finally:
                process.terminate()
                process.wait(60)
        if "own" in only:
            own(broker.bootstrap_servers, folder)


SUBSCRIBED_S = 20
PER_BATCH = 500


def subscribers(servers: str, server: int, host: str, port: int, keys: int) -> None:
    """The server's CPU and memory while some subscribers get each batch."""
    # What the topic has ends with these.
    uppers = [batch.upper for batch in batches(keys, 20, 0)]
    number, lower = len(uppers), max(uppers)
    for many in (0, 1, 32):
        listening = subprocess.Popen(
            [sys.executable, __file__, "--listen", f"{many},{host},{port}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert listening.stdout is not None
        assert listening.stdout.readline() == "listening\n"
        cpu, end = _cpu(server), time.monotonic() + SUBSCRIBED_S
        first = number

        def paced() -> Iterator[tuple[int, Closed]]:
            nonlocal lower, number
            while time.monotonic() < end:  # noqa: B023
                updates = []
                for n in range(PER_BATCH):
                    at = (number * PER_BATCH + n) % keys
                    updates.append(KeyedUpdate(key(at), value(at, number), lower, 1))
                yield number, Closed(lower, lower + 1, updates, b"-")
                lower, number = lower + 1, number + 1
                time.sleep(0.1)

        produce(servers, paced())
        listening.terminate()
        told = listening.stdout.read().strip()
        updates = (number - first) * PER_BATCH
        each = (_cpu(server) - cpu) / updates * 1e6
        print(
            f"{f'{many} subscribers':<48} {each:>12.1f} us CPU of the server for each of "
            f"{updates:,} updates, {_rss(server)} MB; {told}",
            flush=True,
        )


async def _listened(many: int, host: str, port: int) -> None:
    """Subscribe without a snapshot, and say how many bytes came when the process is ended."""
    size = 0
    path = f"GET /v1/subscribe?collection={TOPIC}&snapshot=false HTTP/1.1\r\nHost: {host}\r\n\r\n"

    async def one() -> None:
        nonlocal size
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(path.encode())
        await reader.readuntil(b"\r\n\r\n")
        joined.release()
        while found := await reader.read(1 << 16):
            size += len(found)

    joined = asyncio.Semaphore(0)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = [asyncio.create_task(one()) for _ in range(many)]
    for _ in range(many):
        await joined.acquire()
    print("listening", flush=True)
    await ended.wait()
    for task in tasks:
        task.cancel()
    print(f"{size / 1e6:.1f} MB came")


def own(servers: str, folder: Path) -> None:
    """What each reader costs that builds a state of its own from the topic."""
    for name in ("dict", "RocksDB"):
        code = _OWN.format(name=name, folder=str(folder / "own"), servers=servers, topic=TOPIC)
        subprocess.run([sys.executable, "-c", code], check=True)


_OWN = """
import resource, time
import ikebana
from ikebana.arrangements.shared_rocks import SharedDatabase
from pathlib import Path
begun = time.perf_counter()
state, number = {{}}, 0
database = SharedDatabase(Path("{folder}")) if "{name}" == "RocksDB" else None
with ikebana.follow(["{topic}"], wait=False, bootstrap_servers="{servers}") as batches:
    for batch in batches:
        changed = {{}}
        for _, key, value, _, diff in batch.updates:
            number += 1
            if diff > 0:
                changed[key] = value
            else:
                changed.setdefault(key, None)
        if database is None:
            state.update(changed)
        else:
            database.write(list(changed.items()))
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime
seconds = time.perf_counter() - begun
print(
    f"{{'a reader with its own {name}':<48}} {{seconds:>12.2f}} s, "
    f"{{number / seconds:,.0f}} updates/s, {{cpu / number * 1e6:.1f}} us CPU each with the start, "
    f"{{used.ru_maxrss // 1024}} MB"
)
"""


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    url = ""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("serving "):
                url = line.split()[1].removesuffix("/v1/collections")
        if url:
            try:
                with urllib.request.urlopen(url + "/ready") as answer:
                    json.load(answer)
                return url
            except urllib.error.HTTPError:
                pass
        time.sleep(0.02)
    raise SystemExit(log.read_text())


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def main() -> None:
    """Run what is asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=1_000_000)
    arguments.add_argument("--only", default="write,reads,serve,http,subscribers,own")
    arguments.add_argument("--listen", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.listen is not None:
        many, host, port = given.listen.split(",")
        asyncio.run(_listened(int(many), host, int(port)))
        return
    only = set(given.only.split(","))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        if "write" in only or "reads" in only:
            data = folder / "data"
            data.mkdir()
            written(data, given.keys)
            if "reads" in only:
                reads(data, given.keys)
        if only & {"serve", "http", "subscribers", "own"}:
            served(folder, given.keys, only)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
