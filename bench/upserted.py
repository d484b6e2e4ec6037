"""The batches of the main job over real shards, measured without brokers and Spark, by part.

    python bench/upserted.py                          bytes, ingest time: about half a minute
    python bench/upserted.py --format json --time offset
    python bench/upserted.py --records 500000 --profile
    python bench/upserted.py --loaded --keys 2000000 --records 200000 --batch 5000

The data are those of `bench/upsert.py`: upserts over 200,000 keys, values of 120 bytes.  The first
batch is not counted; with `--loaded` all keys are loaded before that, once each.  Shards are those
of `bench/joined.py`, which says what most parts are:

take: from the consumer's messages to those that are decoded.  The consumer is a stub that has the
messages ready, as objects of confluent_kafka.  read, unpack, catch up, compute, store: as there.
produce: hand all updates to a real producer that has no broker, so what is counted is the making
of records and their way into the queue of librdkafka, and neither compression nor sending.

`digest` is one of all updates in their order, by which two versions of the code are compared.
"""

import argparse
import cProfile
import functools
import hashlib
import pstats
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import generate
import msgspec
import upsert
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import Producer
from join_data import PARTITIONS
from joined import Costs, Shards, _send
from rich.console import Console
from rich.table import Table

import ikebana
from ikebana.codecs import canonical
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.engine.dataflow import Emitted
from ikebana.processor.engine.testing.run import Unfinished
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark.source_task import messages
from ikebana.processor.topics.slices import reading_of, slices

_CONSOLE = Console(width=120)
_PARTS = ("take", "read", "unpack", "catch up", "compute", "store", "produce")
_TOPIC = "bench-input"
_OUTPUT = "diffs"
# As many as a consumer gives at once.
_POLLED = 10_000
# No part of a batch waits for room in the queue: there is no broker that would make any.
_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_000_000}
# Records of a batch while all keys are loaded.
_LOADED = 250_000


class Upserted(Shards):
    """Shards whose messages come from a consumer, and whose updates go to a producer."""

    def __init__(self, plan: Plan, folder: Path, shards: int, costs: Costs) -> None:
        super().__init__(plan, folder, shards, costs)
        self._consumer = _Consumer()
        self._reader = object.__new__(RangeReader)
        self._reader._consumer = self._consumer
        self._reader._asked = {_TOPIC}
        self._queue = Producer({"bootstrap.servers": "localhost:1", "log_level": 0, **_QUEUE})
        self._producer = object.__new__(TransactionalProducer)
        self._producer._producer = self._queue
        self._digests = [hashlib.blake2b(digest_size=8) for _ in range(shards)]
        self.counts: Counter[tuple[bytes | None, bytes]] = Counter()
        self.records = self.emitted = self.changed = 0

    @property
    def digest(self) -> str:
        """One of all updates of all shards."""
        return hashlib.blake2b(
            b"".join(each.digest() for each in self._digests), digest_size=8
        ).hexdigest()

    def _packed(self, batch: Unfinished) -> list[list[bytes]]:
        rows: list[list[bytes]] = [[] for _ in self._manifests]
        for piece in slices(self._running, batch.before, batch.after):
            place = piece.place
            held = self.topics.messages[place.topic][place.partition][place.start : piece.end]
            self._consumer.holds(place.partition, held)
            given = self._taken(Range(place.topic, place.partition, place.start, piece.end))
            reading = reading_of(self._running, piece, self._intake, len(rows))
            while True:
                with self._costs.of("take"):
                    some = next(given, None)
                with self._costs.of("read"):
                    for shard, chunk in reading.finish() if some is None else reading.add(some):
                        rows[shard].append(chunk)
                if some is None:
                    break
            if self._costs.counts:
                self.records += len(held)
        return rows

    def _taken(self, wanted: Range) -> Iterator[Sequence[Any]]:
        for _, found in self._reader.read([wanted]):
            yield messages(found, headers=False, dated=False)

    def _publish(self, batch: Unfinished, emitted: list[Emitted]) -> None:
        for made, digest in zip(emitted, self._digests, strict=True):
            updates = made.updates[_OUTPUT]
            with self._costs.of("produce"):
                self._producer.produce(_OUTPUT, updates)
            self._queue.purge()
            self._queue.poll(0)
            for key, value, _, diff in updates:
                self.counts[key, value] += diff
            digest.update(msgspec.msgpack.encode(list(updates)))
            if self._costs.counts:
                self.emitted += len(updates)
                self.changed += sum(len(k or b"") + len(v) for k, v, _, d in updates if d > 0)


class _Consumer:
    """A consumer that has the messages of a partition ready."""

    def __init__(self) -> None:
        self._ready: deque[list[KafkaMessage]] = deque()

    def holds(self, partition: int, held: Sequence[Any]) -> None:
        """Have these messages ready, `_POLLED` at a time."""
        made = [
            KafkaMessage(topic=_TOPIC, partition=partition, offset=m.offset, key=m.key, value=m[2])
            for m in held
        ]
        self._ready = deque(_portions(made, _POLLED))

    def consume(self, most: int, timeout: float) -> list[KafkaMessage]:
        """Give the next ones."""
        return self._ready.popleft() if self._ready else []

    def poll(self, timeout: float) -> KafkaMessage | None:
        """Give the next one."""
        if not self._ready:
            return None
        first = self._ready[0]
        message = first.pop(0)
        if not first:
            self._ready.popleft()
        return message

    def assign(self, places: Any) -> None:
        """Take no note of what is assigned."""

    def unassign(self) -> None:
        """Take no note of it."""

    incremental_unassign = assign


def main() -> None:
    """Run the job, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--format", choices=["bytes", "json"], default="bytes")
    parser.add_argument("--time", choices=["ingest", "offset"], default="ingest")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=250_000, help="records of a batch")
    parser.add_argument("--loaded", action="store_true", help="load all keys first")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--json", action="store_true", help="one line for a comparison")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
    profiler = cProfile.Profile() if args.profile else None
    try:
        found = _measured(folder, args, Costs(profiler))
    finally:
        shutil.rmtree(folder)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        table = Table("us a record", *_PARTS, "updates", "written", "exact", "digest")
        parts = (f"{found[part]:.2f}" for part in _PARTS)
        table.add_row(
            f"{found['us']:.2f}",
            *parts,
            f"{found['updates']:,}",
            f"{found['written']:.2f}",
            str(found["exact"]),
            found["digest"],
        )
        _CONSOLE.print(table)
    if profiler is not None:
        pstats.Stats(profiler).sort_stats(args.sort).print_stats(45)


def _measured(folder: Path, args: argparse.Namespace, costs: Costs) -> dict[str, Any]:
    path = upsert.pipeline(folder, "bench", _TOPIC, args.format, args.time, args.shards)
    # Nothing goes to other shards.
    costs.spent = dict.fromkeys((*_PARTS, "send"), 0.0)
    run = Upserted(ikebana.load(path).plan(), folder, args.shards, costs)
    run.topics.create(_TOPIC, PARTITIONS)
    run._open()
    run._begins = {_TOPIC: dict.fromkeys(run.topics.ends(_TOPIC), 0)}
    data = functools.cache(canonical.canonical) if args.format == "json" else bytes
    truth: dict[bytes, bytes | None] = {}
    written = 0
    begin = generate.distinct(args.keys) if args.loaded else iter(())
    loads = [(some, _LOADED) for some in _portions(begin, _LOADED)]
    batches = _portions(generate.upserts(args.records, args.keys, 1 + args.loaded), args.batch)
    every = (*loads, *((some, args.batch) for some in batches))
    for at, (some, limit) in enumerate(every):
        if at == len(loads) + 1:
            written, costs.counts = _written(), True
        truth.update(some)
        _send(run, _TOPIC, some)
        exempt_objects()
        run.read(limit=limit)
    run.close()
    written = _written() - written
    expected = {(data(k), data(v)) for k, v in truth.items() if v is not None}
    counts = {each: count for each, count in run.counts.items() if count}
    found = {part: costs.spent[part] / max(1, run.records) * 1e6 for part in _PARTS}
    return {
        **found,
        "us": sum(found.values()),
        "updates": run.emitted,
        "written": written / max(1, run.changed),
        "exact": counts == dict.fromkeys(expected, 1),
        "digest": run.digest,
    }


def _written() -> int:
    """How many bytes this process has written to disk, or will have."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(told["write_bytes"]) - int(told["cancelled_write_bytes"])


def _portions(given: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(given)
    while some := list(islice(rest, size)):
        yield some


if __name__ == "__main__":
    main()
