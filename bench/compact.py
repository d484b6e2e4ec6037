"""Compaction: size of a diff topic and start of its readers, before and after.

    python bench/compact.py [--updates 10000000] [--keys 200000]

The topic is on an embedded broker.  It is compacted for the first time, then written and read
while it is compacted again with deletion; each reader is compared with what was written.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import ikebana
from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord, topic_of
from ikebana.processor.base.verify import CollectionDigest
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import running
from ikebana.processor.kafka.client import enqueue
from ikebana.processor.kafka.compacting import Compaction

TOPIC = "bench"
PARTITIONS = 4
BEGIN = 1_700_000_000_000
# Small, because the last segment of a partition stays whatever is deleted of it.
SEGMENT = {"retention.ms": "-1", "segment.bytes": str(1 << 20), "file.delete.delay.ms": "1000"}


class Written:
    """The topic, written in batches; `versions` is its collection."""

    def __init__(self, servers: str, keys: int) -> None:
        self.settings = {"bootstrap.servers": servers}
        self.admin = client.admin(self.settings)
        for name, partitions in ((TOPIC, PARTITIONS), (TOPIC + ".progress", 1)):
            topics.create(self.admin, name, partitions, 1, SEGMENT)
        self.producer = client.transactional_producer(self.settings, TOPIC, 300)
        self.keys = keys
        self.versions: dict[int, int] = {}
        self.batches = 0
        self.updates = 0
        self.upper = BEGIN
        self._random = random.Random(1)

    def batch(self, size: int) -> None:
        """Change keys until there are `size` updates, and close the batch."""
        self.producer.begin_transaction()
        count = 0
        minus, plus = diff.headers(self.upper, -1), diff.headers(self.upper, 1)
        for number in self._random.sample(range(self.keys), min(size // 2, self.keys)):
            version = self.versions.get(number, 0)
            partition = number % PARTITIONS
            if version:
                self._send(number, version, minus, partition)
            self._send(number, version + 1, plus, partition)
            self.versions[number] = version + 1
            count += 1 + bool(version)
        self.producer.commit_transaction(300)
        ends = topics.high_watermarks(self.admin, {TOPIC: PARTITIONS})[TOPIC]
        lower, self.upper = self.upper if self.batches else 0, self.upper + 1_000
        record = ProgressRecord(
            "c", "p", TOPIC, self.batches, lower, self.upper, count, ends, "upserts"
        )
        self.producer.begin_transaction()
        enqueue(self.producer, TOPIC + ".progress", value=record.encode(), key=record.key())
        self.producer.commit_transaction(300)
        self.batches += 1
        self.updates += count

    def digest(self) -> str:
        """The digest of the collection."""
        found = CollectionDigest()
        for number, version in self.versions.items():
            found.add(_key(number), _value(number, version), 1)
        return found.hexdigest()

    def _send(
        self, number: int, version: int, headers: diff.UpdateHeaders, partition: int
    ) -> None:
        enqueue(
            self.producer,
            TOPIC,
            key=_key(number),
            value=_value(number, version),
            headers=headers,
            partition=partition,
        )


def _key(number: int) -> bytes:
    return b'{"id":%d}' % number


def _value(number: int, version: int) -> bytes:
    return b'{"amount":%d,"city":"somewhere","name":"someone %d"}' % (version, number % 1000)


def read(servers: str) -> tuple[str, int, int]:
    """Follow the topic from where it begins; the digest of the collection, updates, frontier."""
    counts: dict[tuple[bytes | None, bytes], int] = {}
    updates = upper = 0
    with ikebana.follow(TOPIC, bootstrap_servers=servers, wait=False) as batches:
        for batch in batches:
            upper = batch.upper
            updates += len(batch.updates)
            for _, key, value, _, change in batch.updates:
                datum = key, value
                if count := counts.get(datum, 0) + change:
                    counts[datum] = count
                else:
                    del counts[datum]
    found = CollectionDigest()
    for (key, value), count in counts.items():
        found.add(key, value, count)
    return found.hexdigest(), updates, upper


def _bytes(data: Path, topic: str) -> int:
    return sum(
        file.stat().st_size
        for folder in data.rglob(f"{topic}-*")
        if folder.name.rpartition("-")[0] == topic
        for file in folder.glob("*.log")
    )


def _told(what: str, figure: str) -> None:
    print(f"{what:<62} {figure:>20}", flush=True)


def _sizes(data: Path) -> None:
    for topic in (TOPIC, topic_of(TOPIC)):
        _told(f"topic {topic} on disk", f"{_bytes(data, topic) / 1e6:,.0f} MB")


def _start(servers: str, expected: str) -> None:
    begun, cpu = time.perf_counter(), time.process_time()
    found, updates, _ = read(servers)
    assert found == expected, "a reader is not exact"
    seconds, took = time.perf_counter() - begun, time.process_time() - cpu
    _told(f"ikebana.follow to the frontier, {updates:,} updates", f"{seconds:.1f} s")
    _told("the same, CPU", f"{took:.1f} s")


def _check(servers: str) -> None:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "ikebana", "check", TOPIC]
    environ: Mapping[str, str] = {**os.environ, "IKEBANA_BOOTSTRAP_SERVERS": servers}
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "ok", done.stdout
    _told("ikebana check, the command", f"{time.perf_counter() - begun:.1f} s")


def _compacted(servers: str, keep: int) -> Iterator[str]:
    compaction = Compaction({"bootstrap.servers": servers}, TOPIC)
    try:
        done = compaction.compact()
        assert done is not None
        if done.written is not None:
            yield f"{done.written.seconds:.1f} s"
        compaction.delete(keep)
        compaction.trim(keep)
    finally:
        compaction.close()


def _under_way(written: Written, servers: str, seconds: float) -> None:
    """Write, compact and read at once; each reader has to be exact."""
    done = threading.Event()
    exact: dict[int, str] = {written.upper: written.digest()}

    def write() -> None:
        while not done.is_set():
            written.batch(20_000)
            exact[written.upper] = written.digest()

    writer = threading.Thread(target=write)
    command = [sys.executable, "-m", "ikebana", "compact", TOPIC, "--delete"]
    environ: Mapping[str, str] = {**os.environ, "IKEBANA_BOOTSTRAP_SERVERS": servers}
    writer.start()
    readers = compactions = 0
    end = time.monotonic() + seconds
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    while time.monotonic() < end:
        if process.poll() is not None:
            assert process.returncode == 0
            compactions += 1
            process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
        digest, _, upper = read(servers)
        while upper not in exact:
            time.sleep(0.01)
        assert digest == exact[upper], f"a reader at {upper} is not exact"
        readers += 1
    done.set()
    writer.join()
    assert process.wait() == 0
    _told(f"readers that were exact, of {readers}, in {seconds:.0f} s", f"{readers}")
    _told("compactions with deletion meanwhile", f"{compactions + 1}")


def main() -> None:
    """Write, compact, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ikebana-bench-") as folder:
        data = Path(folder)
        # By default a broker takes deleted records off the disk every five minutes.
        with running(data, settings={"log.retention.check.interval.ms": "1000"}) as broker:
            servers = broker.bootstrap_servers
            written = Written(servers, given.keys)
            begun = time.perf_counter()
            while written.updates < given.updates:
                written.batch(100_000)
            seconds = time.perf_counter() - begun
            _told(f"written: {written.updates:,} updates, {given.keys:,} keys", f"{seconds:.0f} s")
            _sizes(data)
            _start(servers, written.digest())
            _check(servers)
            for told in _compacted(servers, 1):
                _told("ikebana compact", told)
            time.sleep(5)
            _sizes(data)
            _start(servers, written.digest())
            _check(servers)
            _under_way(written, servers, given.seconds)
            _start(servers, written.digest())
            _sizes(data)


if __name__ == "__main__":
    main()
