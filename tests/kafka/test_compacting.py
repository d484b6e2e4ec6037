"""`ikebana compact`: topics on a broker, compacted while they are written, read, and killed."""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ikebana
from ikebana.codecs.diff import topic_of
from ikebana.errors import FencedError, SourceError
from ikebana.processor.base.rows import Updates, unpack, updates_of
from ikebana.processor.base.transition import Phase, Transition
from ikebana.processor.kafka import compacting, own_topics, topics
from ikebana.processor.kafka.compacting import Compaction
from ikebana.processor.kafka.diff_topic import DiffTopic, PassedError
from ikebana.processor.kafka.following import Since, follow
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.snapshots import Snapshots
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.replays import offsets_left, positions_after, ranges, retractions_of
from ikebana.serving.aligned import AlignedBatch
from support.sums import summed
from support.written_topics import Command, Row, Written

pytestmark = pytest.mark.kafka

READING = Path(__file__).resolve().parents[2] / "docs" / "reading.md"
Collection = dict[tuple[bytes | None, bytes], int]


class Life:
    """A topic that is written at random, and what its collection was at each time."""

    def __init__(self, written: Written, seed: int = 0) -> None:
        self.written = written
        self._random = random.Random(seed)
        self.now: Collection = {}
        self.at: dict[int, Collection] = {}

    def batch(self, size: int = 30) -> None:
        """Write and close a batch of several times."""
        lower = self.written.upper
        rows: list[Row] = []
        for time in range(lower, lower + 3):
            for _ in range(size):
                key = b"%d" % self._random.randrange(20)
                datum = key, b"%d" % self._random.randrange(3)
                held = self.now.get(datum, 0)
                diff = self._random.choice([1, 2, -held]) or 1
                rows.append((self._random.randrange(2), *datum, time, diff))
                self.now[datum] = held + diff
                if not self.now[datum]:
                    del self.now[datum]
            self.at[time] = dict(self.now)
        self.written.aborted([(0, b"nobody", b"1", lower, 1)])
        self.written.batch(rows, lower + 3)

    def batches(self, number: int) -> None:
        for _ in range(number):
            self.batch()


@pytest.fixture
def life(written: Written) -> Life:
    """Its promise is any collection."""
    written.promise = "collection"
    return Life(written)


def _compacted(life: Life, *, keep: int = 1, upto: int | None = None) -> int:
    """Compact and delete; return the time of the snapshot."""
    compaction = Compaction(life.written.settings, life.written.name)
    try:
        done = compaction.compact(upto)
        assert done is not None
        compaction.delete(keep)
        compaction.trim(keep)
    finally:
        compaction.close()
    return done.record.time


def _snapshot(command: Command, topic: str, *given: object) -> Collection:
    status, out, err = command("snapshot", topic, *map(str, given))
    assert status == 0, err
    rows = map(json.loads, out.splitlines())
    return {(str(row["key"]).encode(), str(row["value"]).encode()): row["count"] for row in rows}


def _followed(
    topic: Written, resume: str | None = None, since: int | None = None
) -> list[AlignedBatch]:
    with ikebana.follow(
        topic.name, bootstrap_servers=topic.servers, resume=resume, since=since, wait=False
    ) as found:
        return list(found)


def _followed_anew(topic: Written) -> list[AlignedBatch]:
    """Follow from the newest snapshot, and begin anew as a reader is told that has been passed."""
    for _ in range(5):
        with contextlib.suppress(PassedError):
            return _followed(topic)
    raise AssertionError("it is compacted twice in the time of each of five readings")


def _added(batches: list[AlignedBatch], known: Collection | None = None) -> Iterator[Collection]:
    """Yield the collection after each batch."""
    counts = dict(known or {})
    for batch in batches:
        for _, key, value, _, diff in batch.updates:
            datum = key, value
            counts[datum] = counts.get(datum, 0) + diff
            if not counts[datum]:
                del counts[datum]
        yield dict(counts)


def test_every_reader_begins_at_the_snapshot(life: Life, command: Command) -> None:
    """And has the collection at its time and at all later ones, after what was before is gone."""
    life.batches(5)
    time = _compacted(life)
    life.batches(2)
    topic = life.written.name

    assert time == 14
    # The time of the snapshot, one within a batch, and the end of one.
    for as_of in (None, time, 16, 17):
        given = () if as_of is None else ("--as-of", as_of)
        expected = life.at[life.written.upper - 1 if as_of is None else as_of]
        assert _snapshot(command, topic, *given) == expected
    batches = _followed(life.written)
    assert [(batch.lower, batch.upper) for batch in batches] == [(14, 15), (15, 18), (18, 21)]
    assert list(_added(batches)) == [life.at[14], life.at[17], life.at[20]]
    status, out, _ = command("check", topic)
    assert status == 0, out
    assert f"verified from a snapshot as of 14, which has {len(life.at[14])} updates" in out
    status, out, _ = command("follow", topic, "--until", "21")
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("frontier")] == [
        "frontier 15",
        "frontier 18",
        "frontier 21",
    ]


def test_a_time_before_the_snapshot_is_refused_by_name(life: Life, command: Command) -> None:
    """With the first time that can be read, by each reader."""
    life.batches(3)
    token = _followed(life.written)[0].token
    _compacted(life)
    topic, servers = life.written.name, {"bootstrap.servers": life.written.servers}

    status, _, err = command("snapshot", topic, "--as-of", "7")
    assert status == 1
    assert f'cannot read "{topic}" as of 7: it was compacted, and can be read as of 8' in err
    with pytest.raises(SourceError, match="can be read as of 8 and later times"):
        _followed(life.written, since=7)
    with pytest.raises(SourceError, match="updates that follow were deleted; it can be read as"):
        _followed(life.written, resume=token)
    lenient = follow(servers, topic, "diff", since=Since(lambda *_: 7, strict=False))
    try:
        assert next(lenient.closed()).lower == 8
    finally:
        lenient.close()
    status, out, _ = command("check", topic, "--from", "beginning")
    assert status == 2
    assert "not verifiable: the beginning of" in out


def test_without_deletion_all_times_are_read(life: Life, command: Command) -> None:
    """A time before the snapshots is read from the beginning, and `check` compares both."""
    life.batches(3)
    assert _compacted(life, keep=9, upto=5) == 5
    assert _compacted(life, keep=9) == 8
    topic = life.written.name

    # Before both snapshots, at each of them, and between them.
    for as_of in (0, 5, 7, 8):
        assert _snapshot(command, topic, "--as-of", as_of) == life.at[as_of]
    assert [batch.lower for batch in _followed(life.written, since=0)] == [0, 3, 6]
    assert [batch.lower for batch in _followed(life.written, since=7)] == [5, 6]
    assert command("check", topic, "--from", "beginning")[0] == 0


def test_a_snapshot_with_something_else_is_found(life: Life, command: Command) -> None:
    """By readers that begin there; and one that was never right, by `check` of the whole."""
    life.batches(2)
    _compacted(life, keep=9)
    reading = DiffTopic(life.written.settings, life.written.name)
    try:
        assert reading.snapshots is not None
        [record] = reading.snapshots.records()
    finally:
        reading.close()
    partition = next(p for p, start in record.starts.items() if record.ends[p] > start)
    name = topic_of(life.written.name)
    life.written.delete_before(name, partition, record.starts[partition] + 1)
    # Its beginning is gone, so it is not used, and the topic is whole.
    assert _snapshot(command, life.written.name) == life.at[5]

    wrong = msgspec.structs.replace(record, digest="0" * 32, starts={}, ends={}, count=0)
    life.written.producer.begin_transaction()
    life.written.producer.produce(name, wrong.encode(), partition=0)
    life.written.producer.commit_transaction(30)
    status, _, err = command("snapshot", life.written.name)
    assert status == 0, err
    status, out, _ = command("check", life.written.name, "--from", "beginning")
    assert status == 1
    assert "the snapshot after batch 1 has another collection than the topic" in out


def test_nothing_is_deleted_for_a_snapshot_that_is_not_what_was_written(life: Life) -> None:
    """What it stands for could not be had again."""
    life.batches(2)
    compaction = Compaction(life.written.settings, life.written.name)
    done = compaction.compact()
    assert done is not None
    partition = next(p for p, at in done.record.starts.items() if done.record.ends[p] > at)
    start = done.record.starts[partition]
    life.written.delete_before(topic_of(life.written.name), partition, start + 1)
    try:
        with pytest.raises(SourceError, match="no longer has this offset"):
            compaction.delete(1)
    finally:
        compaction.close()
    assert list(_added(_followed(life.written)))[-1] == life.at[5]


def _retractions(life: Life) -> Collection:
    """What an edit at the frontier takes back out of the topic, in several batches."""
    name, found = life.written.name, own_topics.begun(life.written.settings, [life.written.name])
    transition = Transition(1, life.written.upper, Phase.FILL)
    plan = Plan("p", (), (), (Output("shown", "o", name),))
    reader, counts = RangeReader(life.written.settings), Counter[tuple[bytes | None, bytes]]()
    while offsets_left(found):
        found = positions_after(found, 50)
        transition = msgspec.structs.replace(transition, read_back=found)
        for piece in ranges({name: "shown"}, transition):
            wanted = Range(piece.topic, piece.partition, piece.start, piece.end)
            for _, messages in reader.read([wanted]):
                given = [Message(m.offset(), m.key(), m.value(), m.headers()) for m in messages]
                for _, chunk in retractions_of(plan, piece, given, 2):
                    row = unpack(chunk)
                    assert isinstance(row, Updates)
                    assert row.outputs == ["shown"]
                    for update in updates_of(row):
                        assert update.time == life.written.upper - 1
                        counts[update.key, update.value] -= update.diff
    reader.close()
    return {datum: count for datum, count in counts.items() if count}


def test_an_edit_takes_back_what_a_topic_has_from_its_snapshot_on(life: Life) -> None:
    """Or from the beginning; where neither is left, the edit is refused before it begins."""
    life.batches(2)
    assert _retractions(life) == life.now

    _compacted(life)
    life.batch()
    assert _retractions(life) == life.now
    (check,) = own_topics.contents_checks(life.written.settings, [life.written.name])
    assert check.status == "ok"
    assert "read from a snapshot of its own topic" in check.fact

    last = life.written.progress(life.written.upper, 0)
    for partition, end in last.ends.items():
        life.written.delete_before(life.written.name, partition, end)
    with pytest.raises(SourceError, match="what an output has had cannot be taken back"):
        _retractions(life)
    (check,) = own_topics.contents_checks(life.written.settings, [life.written.name])
    assert check.status == "failed"
    assert "in a new topic by another output" in check.remedy


def test_what_was_written_counts_before_it_can_be_read(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers let others read what was committed some milliseconds later."""
    life.batches(2)
    _compacted(life)
    life.batches(2)
    records = Snapshots.records
    compaction = Compaction(life.written.settings, life.written.name)
    try:
        snapshots = compaction._reading.snapshots
        assert snapshots is not None
        before = records(snapshots)
        monkeypatch.setattr(Snapshots, "records", lambda _: before)
        done = compaction.compact()
        assert done is not None
        deleted = compaction.delete(1)
        assert deleted[life.written.name].items() <= done.record.last.ends.items()
        assert deleted[life.written.name]
    finally:
        compaction.close()


class _Dead(BaseException):
    """A process that ends there."""


@pytest.mark.parametrize(
    "portion", [3, 6, *(pytest.param(at, marks=pytest.mark.full) for at in (0, 1, 2, 4, 5, 7))]
)
def test_a_process_that_dies_leaves_the_topic_readable(
    life: Life, command: Command, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    """At any transaction, before and after it is committed; and the next process goes on."""
    life.batches(2)
    _compacted(life)
    life.batches(2)
    monkeypatch.setattr(compacting, "_PORTION", 20)
    transactions = 0
    transaction = TransactionalProducer.transaction

    def dying(self: TransactionalProducer) -> Iterator[object]:
        nonlocal transactions
        with transaction(self) as producer:
            yield producer
            if transactions == portion // 2 and not portion % 2:
                # What dies aborts nothing.
                raise _Dead
        if transactions == portion // 2:
            raise _Dead
        transactions += 1

    monkeypatch.setattr(TransactionalProducer, "transaction", contextlib.contextmanager(dying))
    compaction = Compaction(life.written.settings, life.written.name)
    with contextlib.suppress(_Dead):
        compaction.compact()
    compaction.close()
    monkeypatch.undo()
    monkeypatch.setenv("IKEBANA_BOOTSTRAP_SERVERS", life.written.servers)
    assert list(_added(_followed(life.written)))[-1] == life.at[11]
    assert _compacted(life) == 11
    assert _snapshot(command, life.written.name) == life.at[11]
    assert [batch.lower for batch in _followed(life.written)] == [11]


def test_a_newer_process_stops_an_older_one(life: Life, settings: dict[str, str]) -> None:
    """So that a snapshot never has the updates of two."""
    life.batches(1)
    older = Compaction(settings, life.written.name)
    newer = Compaction(settings, life.written.name)
    try:
        with pytest.raises(FencedError):
            older.compact()
        done = newer.compact()
        assert done is not None
        assert done.written is not None
    finally:
        older.close()
        newer.close()
    assert list(_added(_followed(life.written))) == [life.at[2]]


def test_a_reader_goes_on_while_the_topic_is_compacted(life: Life) -> None:
    """With two snapshots kept, one that began at the snapshot before is not stopped."""
    life.batches(2)
    _compacted(life, keep=2)
    life.batch()
    with ikebana.follow(life.written.name, bootstrap_servers=life.written.servers) as follower:
        batches = iter(follower)
        found = [next(batches)]
        life.batch()
        _compacted(life, keep=2)
        life.batch()
        while found[-1].upper < life.written.upper:
            found.append(next(batches))
    assert [batch.upper for batch in found] == [6, 9, 12, 15]
    assert list(_added(found))[-1] == life.at[14]
    resumed = _followed(life.written, resume=found[1].token)
    assert [batch.lower for batch in resumed] == [9, 12]


def test_compacted_while_it_is_written_and_read(life: Life) -> None:
    """By other threads: whoever begins anew finds the collection at each frontier."""
    done = threading.Event()
    failures: list[BaseException] = []

    def compact() -> None:
        try:
            while not done.is_set():
                _compacted(life, keep=2)
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            failures.append(error)

    life.batch()
    compactor = threading.Thread(target=compact)
    compactor.start()
    try:
        seen = set[int]()
        # On a busy machine the other thread may need more batches to be noticed.
        for number in range(200):
            if number >= 6 and len(seen) > 1:
                break
            life.batch()
            batches = _followed_anew(life.written)
            for batch, collection in zip(batches, _added(batches), strict=True):
                assert collection == life.at[batch.upper - 1]
            seen.add(batches[0].lower)
    finally:
        done.set()
        compactor.join()
    assert not failures
    assert len(seen) > 1
    begins = topics.beginnings(life.written.admin, {life.written.name: 2})[life.written.name]
    assert all(begins.values())


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_reader_that_compaction_passes(
    life: Life, settings: dict[str, str], *, has_begun: bool
) -> None:
    """Begins again at a newer snapshot if it has given nothing yet, and else is told."""
    life.batches(3)
    _compacted(life)
    life.batches(2)
    reading = follow(settings, life.written.name, "diff")
    try:
        if has_begun:
            assert [closed.upper for closed in reading.closed()] == [9, 12, 15]
        life.batches(2)
        _compacted(life)
        life.batches(1)
        if has_begun:
            with pytest.raises(PassedError, match="can be read as of 20 and later"):
                list(reading.closed())
        else:
            first, *later = reading.closed()
            found: Collection = {}
            for key, value, _, diff in first.updates:
                found[key, value] = found.get((key, value), 0) + diff
            assert (first.lower, first.upper, found) == (20, 21, life.at[20])
            assert [closed.upper for closed in later] == [24]
    finally:
        reading.close()


def test_two_topics_begin_where_both_can_be_read(
    life: Life, servers: str, topic_name: Callable[[str], str]
) -> None:
    """No batch is given out at which one of them would be empty that was not."""
    other = Life(Written(servers, topic_name("others"), "collection"), 1)
    life.batches(4)
    _compacted(life)
    other.batches(3)
    names = [life.written.name, other.written.name]
    with ikebana.follow(names, bootstrap_servers=servers, wait=False) as follower:
        assert list(follower) == []
    other.batches(2)
    with ikebana.follow(names, bootstrap_servers=servers, wait=False) as follower:
        [first] = list(follower)
    assert (first.lower, first.upper) == (11, 12)
    for each in (life, other):
        own = [update for update in first.updates if update.topic == each.written.name]
        assert summed(((u.key, u.value), u.diff) for u in own) == each.at[11]


def test_the_command_compacts_deletes_and_says_so(life: Life, command: Command) -> None:
    """What it wrote, and up to where it deleted; a second time there is nothing to do."""
    life.batches(4)
    topic = life.written.name
    status, out, _ = command("compact", topic, "--delete", "--keep", "1")
    assert status == 0
    lines = out.splitlines()
    size = len(life.at[11])
    assert lines[0].startswith(f"{topic}: snapshot as of 11, {size} updates of 360 updates read")
    assert lines[1].startswith(f"{topic}: deleted before [0]@")
    assert lines[2].startswith(f"{topic}.progress: deleted before [0]@")
    status, out, _ = command("compact", topic)
    assert (status, out.splitlines()) == (
        0,
        [f"{topic}: snapshot as of 11, {size} updates, is there already"],
    )
    status, _, err = command("compact", topic, "--upto", "12")
    assert status == 1
    assert f'cannot compact "{topic}" up to 12: its frontier is 12' in err


def test_the_consumer_of_the_docs_begins_at_the_snapshot(life: Life) -> None:
    """With the collections of that time and of each later frontier."""
    life.batches(3)
    _compacted(life)
    life.batches(2)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", READING.read_text(), re.DOTALL):
        exec(code, names)

    servers, topic = life.written.servers, life.written.name
    found = list(itertools.islice(names["collections_from_snapshot"](servers, topic), 3))
    assert found == [(upper, life.at[upper - 1]) for upper in (9, 12, 15)]


def test_a_killed_command_leaves_the_topic_readable(
    life: Life, tmp_path: Path, command: Command
) -> None:
    """Killed at random, the next one still makes a snapshot that is exact."""
    rng = random.Random(5)
    compact = [sys.executable, "-m", "ikebana", "compact", life.written.name, "--delete"]
    environ = {**os.environ, "IKEBANA_BOOTSTRAP_SERVERS": life.written.servers}
    for _ in range(2):
        life.batches(2)
        process = subprocess.Popen(compact, env=environ, stdout=subprocess.DEVNULL)
        try:
            process.wait(0.5 + rng.random())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        assert _snapshot(command, life.written.name) == life.now
    assert command("compact", life.written.name, "--delete", "--keep", "1")[0] == 0
    assert _snapshot(command, life.written.name) == life.now
