"""The compiled loops of upserts, of placing and of Kafka's records give what Python's give."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Input, Output, Plan, Upsert
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import diff
from ikebana.processor.base.rows import KeyedUpdate, Partial, Truncate, Upserts
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.kafka import reader, transactions
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.kernels import upsert
from ikebana.processor.planning import planner
from ikebana.processor.spark import source_task
from ikebana.processor.topics import slices
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding
from support.stores import entries
from support.strategies import unhurried

pytest.importorskip(
    "ikebana.compiled._upserts",
    reason="the modules of compiled/ are not built here, or are switched off",
    exc_type=ImportError,
)

from ikebana.compiled._kafka_records import decimal, runs, taken
from ikebana.compiled._placing import checksum

_COMPILED = {
    upsert: ("changed", "move", "move_each", "take_states"),
    slices: ("place_messages", "place_upserts"),
    transactions: ("compiled_produced",),
    source_task: ("compiled_messages",),
}
keys = st.sampled_from([b"", b"a", b"b", b"ab", b"\x00", b'{"id": 123456789}'])
values = st.none() | st.sampled_from([b"", b"v", b"w", b"e", b"x" * 200])


@contextmanager
def in_python() -> Iterator[None]:
    """Let no compiled function of these modules be used."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in _COMPILED.items():
            for name in names:
                patch.setattr(module, name, None)
        yield


def both(run: Callable[[], Any]) -> tuple[Any, Any]:
    """What a function gives with compiled functions, and without them."""
    made = run()
    with in_python():
        return made, run()


@st.composite
def batches(draw: st.DrawFn) -> list[list[Upserts | Truncate]]:
    """Batches of upserts, bad and partial ones among them, at one time or at a time for each."""
    found: list[list[Upserts | Truncate]] = []
    for batch in range(draw(st.integers(1, 3))):
        chunks: list[Upserts | Truncate] = []
        each, time = draw(st.booleans()), 100 * batch
        for partition in range(draw(st.integers(1, 2))):
            rows = draw(st.lists(st.tuples(keys, values), max_size=8))
            begin = time + 10 * partition
            times = [*range(begin, begin + len(rows))] if each else time
            chunk = Upserts("in", 1, partition, times, [], [], [*range(len(rows))])
            for at, (key, value) in enumerate(rows):
                what = draw(st.integers(0, 15))
                chunk.keys.append(key)
                chunk.values.append(value if what > 3 else None)
                if what == 1:
                    chunk.bad[at] = b"record %d" % at
                elif what == 2:
                    chunk.failed[at] = b"record %d" % at
                elif what == 3:
                    chunk.partial[at] = Partial(b'{"a":1}', ("b",), b"no row")
                elif what == 4:
                    chunk.before[at] = crc32(value or b"")
            chunks.append(chunk)
            if draw(st.integers(0, 9)) == 0:
                chunks.append(Truncate("in", 1, partition, time, len(rows)))
        found.append(chunks)
    return found


@unhurried
@given(batches())
def test_the_kernel_gives_the_same_updates_and_the_same_state(
    given_batches: list[list[Upserts | Truncate]],
) -> None:
    def run() -> Any:
        store = MemoryStore()
        found: list[upsert.UpsertChanges | str] = []
        for at, chunks in enumerate(given_batches):
            try:
                found.append(upsert.step(store, chunks, Interval(100 * at, 100 * at + 100)))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is to be the same
                found.append(str(error))
        return found, entries(store)

    made, plain = both(run)
    assert made == plain


@unhurried
@given(st.binary(max_size=40) | st.binary(min_size=1000, max_size=1020))
def test_a_checksum_is_that_of_zlib(key: bytes) -> None:
    assert checksum(key) == crc32(key)


@unhurried
@given(
    st.sampled_from(["bytes", "json"]),
    st.lists(st.tuples(st.none() | st.binary(max_size=20) | keys, values), max_size=20),
    st.integers(1, 5),
    st.sampled_from([PartitionRange("t", 3, 1, 0, 5, each=each) for each in (False, True)]),
    st.none() | st.integers(0, 19),
)
def test_records_come_to_the_same_shards_in_the_same_order(
    form: str,
    rows: Sequence[tuple[bytes | None, bytes | None]],
    shards: int,
    place: PartitionRange,
    other: int | None,
) -> None:
    source = Input("in", ("t",), form, form)  # type: ignore[arg-type]
    plan = Plan("p", (source,), (Upsert("current", "in"),), (Output("out", "current", "out"),))
    physical = planner.physical(plan)
    codec = codec_of(source, physical.readings["in"], None)
    given_rows = [Message(at, *row) for at, row in enumerate(rows)]
    if other is not None and form == "bytes" and other < len(rows) and (key := rows[other][0]):
        # What is of another type is left to Python.
        given_rows[other] = given_rows[other]._replace(key=bytearray(key))  # type: ignore[arg-type]

    def run() -> Any:
        read = Decoding(source, Intake(source, codec, physical), place, shards)
        return [*read.add(given_rows), read._size, *read.finish()]

    made, plain = both(run)
    assert made == plain


class Queue:
    """A producer with room for three records."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.polled = 0
        self._room = 3

    def produce(self, *given: Any) -> None:
        """Take a record, if there is room for it."""
        if not self._room:
            raise BufferError
        self._room -= 1
        self.sent.append(given)

    def poll(self, timeout: float) -> None:
        """Make room."""
        self.polled += 1
        self._room = 3


diffs = st.sampled_from([1, -1, 2]) | st.integers()
updates = st.builds(KeyedUpdate, st.none() | keys, keys, st.integers(0, 3) | st.integers(), diffs)


@unhurried
@given(st.lists(updates, max_size=10))
def test_updates_are_produced_with_the_same_headers(given_updates: list[KeyedUpdate]) -> None:
    def run() -> Any:
        queue, producer = Queue(), object.__new__(TransactionalProducer)
        producer._producer = queue
        return producer.produce("out", iter(given_updates)), queue.sent, queue.polled

    made, plain = both(run)
    assert made == plain
    assert [sent[-1] for sent in made[1]] == [diff.headers(*u[2:]) for u in given_updates]


@unhurried
@given(st.integers() | st.sampled_from([2**63, -(2**63), 2**63 - 1, 10**18, 10**19]))
def test_a_number_has_the_digits_that_python_gives_it(number: int) -> None:
    assert decimal(number) == b"%d" % number


@unhurried
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.booleans(), keys, values)
    )
)
def test_messages_are_divided_and_taken_in_the_same_way(rows: Sequence[tuple[Any, ...]]) -> None:
    held = [
        KafkaMessage(
            # Another object for each, though the names are equal.
            topic=f"{topic}-topic",
            partition=partition,
            offset=at,
            key=key,
            value=value,
            error=KafkaError(KafkaError._PARTITION_EOF) if is_event else None,
            timestamp=(at % 3, 1_000 + at),
        )
        for at, (topic, partition, is_event, key, value) in enumerate(rows)
    ]

    assert runs(held) == reader.runs_of(held)
    for dated in (False, True):
        found = taken(held, Message, dated)
        assert found == [
            Message(
                m.offset(), m.key(), m.value(), None, reader.timestamp_of(m) if dated else None
            )
            for m in held
        ]
        assert all(type(message) is Message for message in found)


def test_what_is_no_named_tuple_is_refused() -> None:
    class Large(tuple[Any, ...]):
        extra: int

    for kind in (list, dict, Large):
        with pytest.raises(TypeError):
            taken([], kind, dated=False)
