"""From messages to packed chunks: where each record goes, and what becomes of bad ones."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert, steps
from ikebana.processor.base.rows import (
    NULL_KEY,
    Chunk,
    Errors,
    IgnoredMessages,
    Partial,
    Records,
    Tick,
    Truncate,
    Updates,
    Upserts,
    pack,
    unpack,
)
from ikebana.processor.base.sharding import PartitionRange, shard_of
from ikebana.processor.planning import planner
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding

JSON = Input("in", ("t",))
BYTES = Input("in", ("t",), "bytes", "bytes")
INGEST = PartitionRange("t", 3, 1, 10, 99, each=False)
OFFSET = PartitionRange("t", 3, 1, 10, 50, each=True)

Chunks = list[tuple[int, Records]]


def decoding_of(source: Input, place: PartitionRange, shards: int) -> Decoding:
    """What decodes an input that one operator reads."""
    upserts = (Upsert("current", "in"),) if source.mode == "upsert" else ()
    output = Output("out", "current" if upserts else "in", "out")
    physical = planner.physical(Plan("p", (source,), upserts, (output,)))
    codec = codec_of(source, physical.readings["in"], None)
    return Decoding(source, Intake(source, codec, physical), place, shards)


def decoded(
    source: Input, place: PartitionRange, shards: int, parts: Iterable[Sequence[Message]]
) -> Chunks:
    """Everything that is yielded for messages given in parts, unpacked."""
    decoding = decoding_of(source, place, shards)
    packed = [row for messages in parts for row in decoding.add(messages)]
    found: Chunks = []
    for shard, row in [*packed, *decoding.flush()]:
        chunk = unpack(row)
        assert not isinstance(chunk, Tick)
        found.append((shard, chunk))
    return found


def rows(*messages: tuple[int, bytes | None, bytes | None]) -> list[Message]:
    """Messages of (offset, key, value)."""
    return [Message(*message) for message in messages]


def upserts(chunks: Chunks) -> list[tuple[int, bytes, bytes | None, int, int]]:
    """(shard, key, value, offset, time) of every record, by offset."""
    found = []
    for shard, chunk in chunks:
        if isinstance(chunk, Upserts):
            times = (
                [chunk.times] * len(chunk.keys) if isinstance(chunk.times, int) else chunk.times
            )
            columns = zip(chunk.keys, chunk.values, chunk.offsets, times, strict=True)
            found += [(shard, *record) for record in columns]
    return sorted(found, key=lambda record: record[3])


def errors(chunks: Chunks) -> list[tuple[int, dict[str, Any], int]]:
    """(shard, error record, time) of every record without a key."""
    return [
        (shard, json.loads(record), time)
        for shard, chunk in chunks
        if isinstance(chunk, Errors) and isinstance(chunk.times, list)
        for record, time in zip(chunk.records, chunk.times, strict=True)
    ]


def test_the_shard_of_a_key_is_its_crc_modulo_the_number_of_shards() -> None:
    """Rescaling and every later version rely on these very numbers."""
    assert [shard_of(b"123456789", shards) for shards in (1, 7, 1 << 32)] == [
        0,
        0xCBF43926 % 7,
        0xCBF43926,
    ]


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_records_go_to_the_shard_of_their_canonical_key(shards: int) -> None:
    """Spellings of one key meet in one shard, and all records arrive once."""
    keys = [b'"a"', b'"\\u0061"', b"1", b"1.0", b'{"b":1,"a":2}', b'{"a": 2.0, "b": 1}']
    messages = [Message(at, key, b"%d" % at) for at, key in enumerate(keys, start=10)]
    found = upserts(decoded(JSON, INGEST, shards, [messages]))

    assert [key for _, key, _, _, _ in found] == [
        *[b'"a"'] * 2,
        *[b"1"] * 2,
        *[b'{"a":2,"b":1}'] * 2,
    ]
    assert all(shard == crc32(key) % shards for shard, key, _, _, _ in found)


def test_in_the_ingest_domain_all_records_have_the_time_of_the_batch() -> None:
    """A chunk says it once."""
    chunks = decoded(JSON, INGEST, 2, [rows((10, b"1", b"1"), (11, b"2", None), (14, b"3", b""))])

    assert {chunk.times for _, chunk in chunks if isinstance(chunk, Upserts)} == {99}


@pytest.mark.parametrize("source", [JSON, BYTES], ids=["json", "bytes"])
def test_in_the_offset_domain_a_time_follows_from_the_offset(source: Input) -> None:
    """Offsets that are missing from the log leave a hole in time, so a time never moves."""
    messages = rows((10, b"1", b"1"), (11, b"2", None), (14, b"1", b"4"))
    found = upserts(decoded(source, OFFSET, 2, [messages]))

    assert [(key, value, offset, time) for _, key, value, offset, time in found] == [
        (b"1", b"1", 10, 50),
        (b"2", None, 11, 51),
        (b"1", b"4", 14, 54),
    ]


def test_a_chunk_says_where_it_is_from() -> None:
    """Input, order of the topic and partition are those of the place."""
    ((_, chunk),) = decoded(BYTES, OFFSET, 1, [rows((12, b"k", b"v"))])

    assert chunk == Upserts("in", 1, 3, [52], [b"k"], [b"v"], [12])


@pytest.mark.parametrize("place", [INGEST, OFFSET], ids=["ingest", "offset"])
def test_a_bad_value_goes_to_its_key_with_an_error_record(place: PartitionRange) -> None:
    """Its index in the chunk has the record, its value is null."""
    messages = rows((10, b"1", b"1"), (11, b"1.0", b"{"), (12, b"1", b"2"))
    ((shard, chunk),) = decoded(JSON, place, 1, [messages])

    assert isinstance(chunk, Upserts)
    assert (shard, chunk.keys, chunk.values) == (0, [b"1"] * 3, [b"1", None, b"2"])
    assert {at: json.loads(record) for at, record in chunk.bad.items()} == {
        1: {
            "topic": "t",
            "partition": 3,
            "offset": 11,
            "reason": "could not decode value as JSON: it is empty, cut off, or has half a "
            "surrogate pair",
            "key": base64.b64encode(b"1.0").decode(),
            "value": base64.b64encode(b"{").decode(),
        }
    }


@pytest.mark.parametrize(("place", "time"), [(INGEST, 99), (OFFSET, 52)], ids=["ingest", "offset"])
def test_a_record_whose_key_is_unreadable_goes_to_the_errors_of_shard_0(
    place: PartitionRange, time: int
) -> None:
    """It has its own time, and its raw bytes are kept."""
    chunks = decoded(JSON, place, 4, [rows((12, b"\xff", b"\xfe"))])
    record = {
        "topic": "t",
        "partition": 3,
        "offset": 12,
        "reason": "could not decode key as JSON: JSON is malformed: invalid character (byte 0)",
        "key": base64.b64encode(b"\xff").decode(),
        "value": base64.b64encode(b"\xfe").decode(),
    }

    assert errors(chunks) == [(0, record, time)]
    assert upserts(chunks) == []


def test_bytes_are_taken_as_they_are_but_for_a_null_key() -> None:
    """No bytes are unreadable; what has a null key is an error of a key of its own."""
    messages = rows((10, None, b"x"), (11, b"\xff", b"{"), (12, b"", b""), (13, None, None))
    chunks = decoded(BYTES, INGEST, 1, [messages])

    assert sorted(upserts(chunks), key=lambda row: row[3]) == [
        (0, NULL_KEY, None, 10, 99),
        (0, b"\xff", b"{", 11, 99),
        (0, b"", b"", 12, 99),
        (0, NULL_KEY, None, 13, 99),
    ]
    ((_, chunk),) = chunks
    assert isinstance(chunk, Upserts)
    assert [chunk.offsets[at] for at in chunk.bad] == [10]


def test_nothing_is_yielded_for_nothing() -> None:
    """A shard without records gets no chunk."""
    assert decoded(JSON, INGEST, 4, [[], []]) == []
    assert len(decoded(BYTES, INGEST, 4, [rows((10, b"k", b"v"))])) == 1


@pytest.mark.parametrize("place", [INGEST, OFFSET], ids=["ingest", "offset"])
def test_many_records_become_several_chunks_with_nothing_lost(place: PartitionRange) -> None:
    """Chunks go out as they fill up; each partition's offsets ascend within a shard."""
    messages = [Message(at, b"%d" % (at % 50), b"v") for at in range(10, 20_010)]
    parts = [messages[at : at + 700] for at in range(0, len(messages), 700)]
    chunks = decoded(BYTES, place, 2, parts)
    found = upserts(chunks)

    assert len(chunks) > 2
    assert [offset for _, _, _, offset, _ in found] == [message.offset for message in messages]
    for shard in (0, 1):
        own = [
            offset
            for at, chunk in chunks
            if at == shard and isinstance(chunk, Upserts)
            for offset in chunk.offsets
        ]
        assert own == sorted(own)


def test_what_one_record_comes_to_is_packed_in_many_chunks() -> None:
    """A `flat_map` that runs in decoding may make a million rows of a message."""
    source = Input("in", ("t",), mode="append", columns=(Column("n", "BIGINT"),))
    unnest = steps.Sql(flat_map=("each", "range(n)"), select=(("e", "each"),))
    plan = Plan("p", (source,), (Linear("many", "in", (unnest,)),), (Output("out", "many", "o"),))
    physical = planner.physical(plan)
    intake = Intake(source, codec_of(source, physical.readings["in"], None), physical)
    decoding = Decoding(source, intake, INGEST, 1)
    messages = [Message(at, b"1", b'{"n":%d}' % n) for at, n in enumerate([30_000, 1, 0, 7] * 3)]

    packed = [unpack(row) for _, row in decoding.add(messages)]

    chunks = [chunk for chunk in packed if isinstance(chunk, Updates)]
    assert len(chunks) == len(packed)
    assert sum(diff for chunk in chunks for diff in chunk.diffs) == 90_024
    assert max(len(chunk.keys) for chunk in chunks) <= 5_000


@pytest.mark.parametrize(
    "message",
    [
        pytest.param((b"1", b'"' + b"v" * 100_000 + b'"'), id="good"),
        pytest.param((b"1", b"v" * 100_000), id="bad value"),
        pytest.param((b"k" * 100_000, b"1"), id="bad key"),
        pytest.param((None, b"v" * 100_000), id="null key"),
    ],
)
def test_large_records_are_not_gathered_without_bound(
    message: tuple[bytes | None, bytes],
) -> None:
    """About a megabyte a shard is held, be it of records or of error records."""
    decoding = decoding_of(JSON, INGEST, 1)
    sizes = [
        len(row) for offset in range(100) for _, row in decoding.add([Message(offset, *message)])
    ]

    assert len(sizes) >= 5
    assert max(sizes) < 2 << 20


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(
            Upserts("in", 1, 2, 5, [b"k", b""], [None, b"\xff"], [7, 9], {1: b"record"}),
            id="upserts at one time",
        ),
        pytest.param(Upserts("in", 0, 0, [5, 6], [b"k", b"l"], [b"", b"v"], [7, 9]), id="times"),
        pytest.param(Upserts("in", 0, 0, [], [], [], []), id="no upserts"),
        pytest.param(
            Upserts(
                "in",
                1,
                2,
                5,
                [b"k", b"l", b"m"],
                [None, None, b"v"],
                [7, 9, 9],
                failed={0: b"record"},
                partial={1: Partial(b"{}", ("a", "b"), b"record")},
                before={2: 0xFFFFFFFF},
            ),
            id="upserts of all kinds",
        ),
        pytest.param(Truncate("in", 1, 2, 5, 7), id="a truncate"),
        pytest.param(Updates(["out"], [None, b""], [b"", b"v"], [5, 6], [-1, 2]), id="updates"),
        pytest.param(IgnoredMessages({"ddl": 2}), id="ignored"),
        pytest.param(Errors([b"a"], [1], [-1]), id="errors with diffs"),
        pytest.param(Errors([b"a", b""], [1, 2]), id="errors"),
        pytest.param(Errors([b"a"], 1), id="errors at one time"),
        pytest.param(
            Tick(4, 5, 6, "digest", "plan", {"op": (3, 6)}, 7, adopted=True), id="a tick"
        ),
    ],
)
def test_a_packed_chunk_is_unpacked_as_it_was(chunk: Chunk) -> None:
    """Null and empty stay apart, a list of times stays a list."""
    assert unpack(pack(chunk)) == chunk


def test_chunks_share_no_bad_values() -> None:
    """The default of one chunk is not that of another."""
    one, other = (Upserts("in", 0, 0, 0, [], [], []) for _ in range(2))
    one.bad[0] = b"record"

    assert other.bad == {}


DEBEZIUM = Input("in", ("t",), "debezium-json")
TRUNCATE = Message(12, None, b'{"op":"t"}')


def upsert_of(offset: int, key: int, value: int) -> Message:
    """An update of a row as Debezium writes it, from a value that is one less."""
    event = {"op": "u", "before": {"v": value - 1}, "after": {"v": value}}
    return Message(offset, b'{"id":%d}' % key, json.dumps(event).encode())


@pytest.mark.parametrize(("place", "times"), [(INGEST, 99), (OFFSET, [51, 53])])
def test_a_truncate_goes_to_every_shard_between_what_was_before_and_after(
    place: PartitionRange, times: int | list[int]
) -> None:
    """No chunk reaches over it, whatever shard an upsert is of."""
    messages = [upsert_of(11, 1, 1), TRUNCATE, upsert_of(13, 1, 2)]
    found = decoded(DEBEZIUM, replace(place, partition=0), 2, [messages])
    shard = shard_of(b'{"id":1}', 2)
    before, after = ([times[0]], [times[1]]) if isinstance(times, list) else (times, times)
    at = 52 if place.each else 99

    assert found == [
        (
            shard,
            Upserts(
                "in",
                1,
                0,
                before,
                [b'{"id":1}'],
                [b'{"v":1}'],
                [11],
                before={0: crc32(b'{"v":0}')},
            ),
        ),
        (0, Truncate("in", 1, 0, at, 12)),
        (1, Truncate("in", 1, 0, at, 12)),
        (
            shard,
            Upserts(
                "in", 1, 0, after, [b'{"id":1}'], [b'{"v":2}'], [13], before={0: crc32(b'{"v":1}')}
            ),
        ),
    ]


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_known_of_a_symbol_goes_with_it_to_its_shard(shards: int) -> None:
    """Indexes are those of the chunk, not those of the messages."""
    unavailable = json.dumps({"op": "c", "after": {"v": "__debezium_unavailable_value"}}).encode()
    messages = [
        message
        for at in range(0, 40, 4)
        for message in (
            Message(at, b'{"id":%d}' % at, b'{"op":"c","after":{"v":1}}'),
            Message(at + 1, b'{"id":%d}' % (at + 1), b"{"),
            Message(at + 2, b'{"id":%d}' % (at + 2), unavailable),
            upsert_of(at + 3, at + 3, 7),
        )
    ]
    kinds: dict[int, str] = {}
    for _, chunk in decoded(DEBEZIUM, INGEST, shards, [messages[:15], messages[15:]]):
        assert isinstance(chunk, Upserts)
        for index, (offset, value) in enumerate(zip(chunk.offsets, chunk.values, strict=True)):
            if record := chunk.bad.get(index):
                kinds[offset] = "bad"
                assert json.loads(record)["offset"] == offset
            elif partial := chunk.partial.get(index):
                kinds[offset] = "partial"
                assert json.loads(partial.record)["offset"] == offset
            elif index in chunk.before:
                kinds[offset] = "before"
                assert chunk.before[index] == crc32(b'{"v":6}')
            else:
                kinds[offset] = "plain"
                assert value == b'{"v":1}'

    assert kinds == {
        at + step: kind
        for at in range(0, 40, 4)
        for step, kind in enumerate(("plain", "bad", "partial", "before"))
    }


def test_what_says_nothing_is_counted_once_for_all() -> None:
    """The counts go to shard 0, and no upsert does."""
    heartbeat = Message(10, b"{}", b'{"ts_ms":1}')

    assert decoded(DEBEZIUM, INGEST, 3, [[heartbeat], [heartbeat]]) == [
        (0, IgnoredMessages({"heartbeat": 2}))
    ]


@pytest.mark.parametrize(("place", "time"), [(INGEST, 99), (OFFSET, 52)], ids=["ingest", "offset"])
def test_updates_of_diffs_go_by_their_key_at_the_time_of_their_message(
    place: PartitionRange, time: int
) -> None:
    """They name their outputs; what has no old image is an error at the same time."""
    source = replace(DEBEZIUM, mode="diffs")
    lacking = Message(12, b'{"id":2}', b'{"op":"u","after":{"v":1}}')
    chunks = decoded(source, place, 4, [[upsert_of(12, 1, 7), lacking]])
    updates = [(shard, chunk) for shard, chunk in chunks if isinstance(chunk, Updates)]

    assert updates == [
        (
            shard_of(b'{"id":1}', 4),
            Updates(["out"], [b'{"id":1}'] * 2, [b'{"v":6}', b'{"v":7}'], [time] * 2, [-1, 1]),
        )
    ]
    assert [(shard, record["offset"], at) for shard, record, at in errors(chunks)] == [
        (0, 12, time)
    ]
