"""One value of each format that is stored or sent, with all of its fields, and how it is written.

`tests/golden/formats` has the bytes of each.
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyarrow import fs

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Dropped, Manifest
from ikebana.arrangements.run import EntryChange, Head, RunEntry
from ikebana.codecs import cdcv2, cdcv2_avro, diff
from ikebana.codecs.diff import ProgressRecord, SnapshotRecord
from ikebana.codecs.errors import error_record
from ikebana.processor.base import rows
from ikebana.processor.base.rows import Judged, Noted, NotedRecord, TimesReport, Updates
from ikebana.processor.base.sharding import Hot
from ikebana.processor.base.transition import Phase, ReadBackSpan, Rebuilding, Replayed, Transition
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata
from ikebana.processor.checkpoint.commits import CommitRecord, FillProgress, Lease
from ikebana.processor.topics.input_times import Base, InputTimes, Reached, ReadingLog, RowFile
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.serving import layout
from ikebana.serving.layout import Meta, Shape, SideShape, StoredTotals, TimePart

Value = TypeVar("Value")


@dataclass(frozen=True)
class Kept:
    """A format: `sample`, as `write` writes it and `read` reads it."""

    name: str
    sample: Any
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def json_of(kind: type[Value]) -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]]:
    """As the brokers' records and Spark's state row have it."""
    return msgspec.json.encode, lambda raw: msgspec.json.decode(raw, type=kind)


def packed_of(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    return msgspec.msgpack.encode, lambda raw: msgspec.msgpack.decode(raw, type=kind)


MANIFEST = Manifest(
    "c0ffee",
    1,
    version=7,
    runs=[RunEntry("000000000006-000000000000-base-5c02.run", 0, 6, "s6", 12, 345, 400, 30)],
    dropped=[Dropped(5, "b.run")],
)
TRANSITION = Transition(
    edits=2,
    at=900,
    phase=Phase.JOIN,
    was=Phase.FILL,
    takes=True,
    joins=["joined"],
    began=["other"],
    read_back={"out": {0: ReadBackSpan(0, 4, 8)}},
    writing=["out"],
    wrote=["out"],
    rebuilding=Rebuilding({"orders": {0: 3}}, {"out": 800}, {"out": 2}),
)
OFFSET = SourceOffset(
    batch=41,
    lower=1_000,
    upper=2_000,
    positions={"orders": {0: 12, 1: 9}},
    plan="f00d",
    frontiers={"current": 2_000},
    begins={"orders": {1: 0}},
    topic_ids={"orders": "AAAA"},
    behind=3,
    exchanges={0: 5},
    input_times={
        "orders": InputTimes(
            frontier=900,
            greatest={"orders": {0: 1_500}},
            reads={0: 4},
            progress_at=2,
            checkpoint="d00d",
            snapshot={"orders": {0: 1}},
            idle=True,
            base=Base(
                "orders.snapshot",
                {1: 0},
                {1: 6},
                [RowFile("a.parquet", 6, 400, 7, {"day": "2024-02-29"})],
            ),
            log=ReadingLog({"orders": {0: [Judged(3, 4, 800, 1_900)]}}, [Reached(900, {})]),
            again=800,
        )
    },
    now=1_790_000_000_000,
    firsts={"orders": {0: 1}},
    transition=TRANSITION,
)
METADATA = CheckpointMetadata(
    id="c0ffee",
    location="local:/var/lib/kept",
    shards=2,
    plan={"name": "kept", "inputs": []},
    start=OFFSET,
    epoch=1,
    first_batch=40,
    seeds={1: MANIFEST},
    released=("old",),
    edits=2,
    before={"name": "kept", "inputs": []},
    generations={"current": 2},
    generations_before={"current": 1},
    layout="epoch-1",
    begins={"orders": {0: 1}},
    last_edit={"name": "kept"},
    tasks=1,
)
COMMIT_RECORD = CommitRecord(
    checkpoint="c0ffee",
    epoch=1,
    incarnation=3,
    shard=1,
    batch=41,
    lower=1_000,
    upper=2_000,
    offset="0ff5e7",
    plan="f00d",
    records=12,
    behind=3,
    counts={"out": 5},
    manifest=MANIFEST,
    counted={"late": 1},
    times={"out": [1_000, 5]},
    intervals={"out": (1_000, 2_000)},
    exchanges_from=5,
    seen=[TimesReport("orders", "orders", 0, 1_500, [(0, 10, [3, 1])])],
    facts={"orders": [3, 1]},
    took={"compute": 0.25},
    retired=True,
    transition=TRANSITION.for_shards(),
    replayed=Replayed(["joined"], ["out"], is_filled=True),
    waiting=2,
    filling=FillProgress(1, 3, "current", 20),
    noted=[Noted("late", "orders", 1, (NotedRecord("orders", 0, 8, 5, "why"),))],
    size=4_096,
    hot=[Hot("records", "orders", 12, 9, "5e4f")],
)
LEASE = Lease("c0ffee", 1, 3, "driver", {"out": "AAAA"})
PROGRESS = ProgressRecord(
    "c0ffee",
    "kept",
    "out",
    41,
    1_000,
    2_000,
    5,
    {0: 6, 1: 7},
    "collection",
    1,
    "clock",
    {"d": "DATE"},
    1_500,
)
SNAPSHOT = SnapshotRecord(PROGRESS, 40, "AAAA", {1: 0}, {1: 6}, 6, "d16e57", 1)
EXCHANGED = Updates(
    keys=[b"1", b"2"],
    values=[b"{}", b'{"a":1}'],
    times=[1_000, 1_001],
    diffs=[1, -1],
    outputs=["out"],
    inlets=["totals"],
    root="current",
    counted=True,
)
META = Meta(
    "out",
    "diff",
    since=900,
    upper=2_000,
    last=1_999,
    expired=899,
    totals=StoredTotals(1, 2, 3, 4),
    position=b"place",
    shape=Shape(
        SideShape({"id": "BIGINT"}, objects=True, other="VARCHAR", uniform=False, canonical=False)
    ),
    times="clock",
    columns={"d": "DATE"},
)
FACTS: list[cdcv2.Fact] = [(b'{"id":1}', b'{"n":2}', 7, 1), (None, b'{"n":3}', 8, -2)]


def _sealed(metadata: CheckpointMetadata) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Checkpoint(folder).write(metadata)
        return (Path(folder) / "ikebana.json").read_bytes()


def _metadata(raw: bytes) -> CheckpointMetadata:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ikebana.json").write_bytes(raw)
        found = Checkpoint(folder)
        return msgspec.structs.replace(found.relocate(), location=METADATA.location)


CHANGES: list[EntryChange] = [
    (b"a", b"1"),
    (b"b", None),
    (b"c", b""),
    # Where there is compiled code, so many are stored in columns.
    *(
        (b'k{"id":%d}' % at, b'v{"id":%d,"of":"a name","price":%d}' % (at, 7 * at))
        for at in range(40)
    ),
]
HEAD = Head("c0ffee", 1, 0, 2, ["r", "s"])


def _run(sample: tuple[Head, list[EntryChange]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        found = runs.write(Folder(fs.LocalFileSystem(), folder), *sample, "delta")
        return (Path(folder) / found.name).read_bytes()


def _run_read(raw: bytes) -> tuple[Head, list[EntryChange]]:
    with tempfile.TemporaryDirectory() as folder:
        files = Folder(fs.LocalFileSystem(), folder)
        # Its name has the hash of its content.
        name, _ = files.write("kept", ".run", [raw])
        head, blocks = runs.read(files, name)
        return head, [change for block in blocks for change in block]


def _headers(sample: tuple[int, int]) -> bytes:
    return msgspec.json.encode([[name, raw.decode()] for name, raw in diff.headers(*sample)])


def _headers_read(raw: bytes) -> tuple[int, int]:
    return diff.read_headers([(name, text) for name, text in msgspec.json.decode(raw)])


def _states(sample: dict[str, Any]) -> bytes:
    """States, an undo, and keys of a served arrangement, in hexadecimal digits."""
    found = {
        "none": layout.encode_state({}),
        "one": layout.encode_state(sample["one"]),
        "several": layout.encode_state(sample["several"]),
        "undo": layout.encode_diffs(sample["undo"]),
        "history": layout.history_of(layout.subject(sample["key"])) + layout.pack_time(-7),
        "keyless": layout.subject(None, sample["key"]),
        "time": layout.at_time(7, 3),
        "part": msgspec.msgpack.encode(sample["part"]),
    }
    return msgspec.json.encode({name: raw.hex() for name, raw in found.items()})


def _states_read(raw: bytes) -> dict[str, Any]:
    found = {name: bytes.fromhex(text) for name, text in msgspec.json.decode(raw).items()}
    assert layout.decode_state(found["none"]) == {}
    assert layout.key_of(found["keyless"]) is None
    assert layout.time_and_part(found["time"]) == (7, 3)
    subject, time = layout.subject_of_history(found["history"])
    assert time == -7
    undo, is_state = layout.decode_undo(found["undo"])
    assert not is_state
    return {
        "one": layout.decode_state(found["one"]),
        "several": layout.decode_state(found["several"]),
        "undo": undo,
        "key": layout.key_of(subject),
        "part": msgspec.msgpack.decode(found["part"], type=TimePart),
    }


def _lines(messages: Iterable[bytes]) -> bytes:
    return b"".join(message.hex().encode() + b"\n" for message in messages)


def _cdcv2(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Updates and progress as messages, in lines of hexadecimal digits."""

    def write(_: Any) -> bytes:
        found = [*kind.encode_updates(FACTS, 1_000), *kind.encode_progress(3, 9, {7: 2}, 1_000)]
        return _lines(found)

    def read(raw: bytes) -> Any:
        return [kind.decode(bytes.fromhex(line)) for line in raw.decode().split()]

    return write, read


def _error(sample: tuple[Any, ...]) -> bytes:
    return error_record(*sample)


def _offset_read(raw: bytes) -> SourceOffset:
    return SourceOffset.from_json(msgspec.json.decode(raw))


ERROR = ("the value is no JSON", ("orders", 0, 7), b"N1", b"{")
CDCV2 = [cdcv2.UpdateFacts(FACTS), cdcv2.Progress(3, 9, {7: 2})]
SERVED = {
    "one": {b"v": 1},
    "several": {b"v": 2, b"w": -1},
    "undo": {b"v": -1},
    "key": b"k\x00ey",
    "part": TimePart(StoredTotals(1, 1, 1, 5), [layout.StoredUpdate(b"k", b"v", 1)]),
}

KEPT = (
    Kept("metadata", METADATA, _sealed, _metadata),
    Kept("manifest", MANIFEST, *json_of(Manifest)),
    Kept("run", (HEAD, CHANGES), _run, _run_read),
    Kept("commit-record", COMMIT_RECORD, *json_of(CommitRecord)),
    Kept("lease", LEASE, *json_of(Lease)),
    Kept("progress-record", PROGRESS, ProgressRecord.encode, diff.decode_progress),
    Kept("snapshot-record", SNAPSHOT, SnapshotRecord.encode, diff.decode_snapshot),
    Kept("source-offset", OFFSET, lambda o: msgspec.json.encode(o.to_json()), _offset_read),
    Kept("exchange-row", EXCHANGED, rows.pack, rows.unpack),
    Kept("diff-headers", (7, -1), _headers, _headers_read),
    Kept("error-record", ERROR, _error, msgspec.json.decode),
    Kept("cdcv2-json", CDCV2, *_cdcv2(cdcv2)),
    Kept("cdcv2-avro", CDCV2, *_cdcv2(cdcv2_avro)),
    Kept("served-meta", META, *packed_of(Meta)),
    Kept("served-entries", SERVED, _states, _states_read),
)
