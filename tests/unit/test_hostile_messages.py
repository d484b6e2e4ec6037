"""Messages that were made to do harm: what they cost is bounded, and they are told."""

import base64
import hashlib
from typing import Any, NoReturn

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert, steps
from ikebana.arrangements.update import LARGEST, accumulate
from ikebana.codecs import canonical
from ikebana.codecs.errors import LONGEST_KEY, LONGEST_VALUE, error_record
from ikebana.codecs.maxwell import Maxwell
from ikebana.errors import StuckError
from ikebana.processor.base import calls
from ikebana.processor.base.rows import Updates, size_of, unpack
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import EventTime
from ikebana.processor.topics.intake import intake_of
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding
from ikebana.testing import Run, Topics

# What a topic takes by default.
KAFKA_DEFAULT = 1_048_588
PLAN = Plan(
    "p",
    inputs=(Input("n", ("n",)),),
    operators=(Upsert("u", "n"),),
    outputs=(Output("o", "u", "o"),),
)
HOSTILE = {
    "a megabyte of no JSON": (b"1", b"x" * 1_000_000),
    "a megabyte of quotes": (b"1", b'"' * 1_000_000),
    "a key of a megabyte that is none": (b"x" * 1_000_000, b"x" * 1_000_000),
    "an integer of a million digits": (b"1", b"9" * 1_000_000),
    "such an integer within": (b"1", b'{"a":-%s}' % (b"9" * 1_000_000)),
    "such an integer as a key": (b"9" * 1_000_000, b"1"),
    "an exponent of a million digits": (b"1", b"1e" + b"9" * 1_000_000),
    "nesting 100,000 deep": (b"1", b"[" * 100_000 + b"]" * 100_000),
    "objects 100,000 deep": (b"1", b'{"a":' * 100_000),
    "a key nested 100,000 deep": (b"[" * 100_000 + b"]" * 100_000, b"1"),
    "half a character": (b"1", b'"\\ud800"'),
    "bytes that are no text": (b"1", b'"\xff\xfe"'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_one_error_record_that_its_topic_takes(name: str) -> None:
    """R14. Others of the batch go on, and the record names the place."""
    key, value = HOSTILE[name]
    evaluation = Evaluation(PLAN)
    found = evaluation.advance({"n": [(key, value, 1), (b"2", b"2", 1)]}, 2)

    assert [update.data for update in found["o"]] == [(2, 2)]
    (update,) = found["errors"]
    record = canonical.encode(update.data)
    assert len(record) < KAFKA_DEFAULT
    assert canonical.decode(record)["topic"] == "n"


def test_a_long_number_keeps_its_digits() -> None:
    """A fraction of a million digits is data like any other."""
    text = b"0." + b"12" * 500_000 + b"1"
    (update,) = Evaluation(PLAN).advance({"n": [(b"1", text, 1)]}, 2)["o"]

    assert canonical.encode(update.data[1]) == text


def test_a_key_of_a_megabyte_is_a_key() -> None:
    """It has a value, and loses it."""
    evaluation, key = Evaluation(PLAN), b'"' + b"k" * 1_000_000 + b'"'

    assert len(evaluation.advance({"n": [(key, b"1", 1)]}, 2)["o"]) == 1
    assert [u.diff for u in evaluation.advance({"n": [(key, None, 2)]}, 3)["o"]] == [-1]


def test_what_is_cut_says_how_long_it_was() -> None:
    """Its place has the whole of it; two long keys differ by their digests."""
    key, value = b"k" * (LONGEST_KEY + 1), b"v" * (LONGEST_VALUE + 1)
    record = canonical.decode(error_record("r" * 10_000, ("t", 0, 1), key, value))

    assert base64.b64decode(record["key"]) == key[:-1]
    assert base64.b64decode(record["value"]) == value[:-1]
    assert (record["key_bytes"], record["value_bytes"]) == (len(key), len(value))
    assert record["key_sha256"] == hashlib.sha256(key).hexdigest()
    assert len(record["reason"]) == 4_000


def test_what_is_short_is_whole() -> None:
    """And has no lengths beside it."""
    record = canonical.decode(error_record("r", None, b"k", b"v"))

    assert set(record) == {"reason", "topic", "partition", "offset", "key", "value"}


def expanding(place: PartitionRange) -> Decoding:
    source = Input(
        "n", ("n",), mode="append", columns=(Column("n", "BIGINT"), Column("s", "VARCHAR"))
    )
    step = steps.Sql(flat_map=("e", "range(n)"), select=(("e", "e"), ("s", "s")), key="e")
    plan = Plan(
        "p",
        inputs=(source,),
        operators=(Linear("l", "n", (step,)),),
        outputs=(Output("o", "l", "o"),),
    )
    intake = intake_of(source, planner.physical(plan), None)
    return Decoding(source, intake, place, 2)


def test_a_record_that_expands_is_packed_into_rows_of_bounded_size() -> None:
    """It may come to more than a row of Spark can hold; nothing of it is lost."""
    decoding = expanding(PartitionRange("n", 0, 0, 0, 5, each=False))
    count, text = 50_000, b"x" * 100
    message = Message(0, None, b'{"n":%d,"s":"%s"}' % (count, text))

    rows = [chunk for _, chunk in decoding.add([message])]

    assert max(map(len, rows)) < 3 << 20
    made = [chunk for chunk in map(unpack, rows) if isinstance(chunk, Updates)]
    assert len(made) > 4
    assert {key for chunk in made for key in chunk.keys} == {b"%d" % at for at in range(count)}
    assert sum(map(size_of, made)) == count


def test_records_that_expand_are_taken_few_at_a_time() -> None:
    """What one portion comes to is on its way before the next one is looked at."""
    decoding = expanding(PartitionRange("n", 0, 0, 0, 5, each=False))
    messages = [Message(at, None, b'{"n":3,"s":"a"}') for at in range(100)]
    messages += [Message(at, None, b'{"n":3000,"s":"%d"}' % at) for at in range(100, 120)]

    chunks = [unpack(chunk) for _, chunk in decoding.add(messages)]

    sizes = [sum(chunk.diffs) for chunk in chunks if isinstance(chunk, Updates)]
    assert sum(sizes) == 100 * 3 + 20 * 3_000
    assert decoding._growing.most <= 64


def test_event_times_at_the_ends_stop_nothing() -> None:
    """They count or wait; what comes behind the greatest of them is late."""
    plan = Plan(
        "p",
        inputs=(
            Input(
                "n",
                ("n",),
                columns=(Column("n", "BIGINT"),),
                event_time=EventTime("n", ahead_ms=None),
            ),
        ),
        operators=(Upsert("u", "n"), Linear("l", "u", (steps.valid_between("n", "n + 1"),))),
        outputs=(Output("o", "u", "o"), Output("v", "l", "v")),
    )
    topics = Topics()
    run = Run(plan, topics, 2)
    for key, number in enumerate([5, -5, LARGEST - 1, LARGEST, 7, -LARGEST - 1]):
        topics.send("n", b"%d" % key, b'{"n":%d}' % number)
        run.read()
        for clock in (1_000, 2_000):
            run.batch(clock, heartbeat=True)

    assert run.last.upper == LARGEST
    assert [(u.time, u.diff) for u in run.written.updates["o"]] == [
        (5, 1),
        (5, 1),
        (LARGEST - 1, 1),
    ]
    assert all(0 <= u.time <= LARGEST for u in run.written.updates["v"])


NAMED = {
    "debezium-json": b'{"op":"c","before":null,"after":{"id":1},"source":{"db":"d","table":"%s"}}',
    "maxwell": b'{"database":"d","table":"%s","type":"insert","data":{"id":1},"ts":1}',
}


@pytest.mark.parametrize("value_format", NAMED)
def test_a_table_of_an_endless_name_is_an_error_record(value_format: Any) -> None:
    """Patterns of pipeline files meet names that messages have, and may take long for them."""
    source = Input("n", ("n",), value_format, tables="(.*a)*b", key=("id",))
    plan = Plan("p", (source,), (Upsert("u", "n"),), (Output("o", "u", "o"),))
    value = NAMED[value_format] % (b"a" * 100_000)

    found = Evaluation(plan).advance({"n": [(b'{"id":1}', value, 1)]}, 2)

    assert found["o"] == []
    (error,) = found["errors"]
    assert "the table's name is too long" in error.data["reason"]


def test_decoding_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its input: a pattern that explodes for a short name ends the run, too."""
    monkeypatch.setenv(calls.LIMIT_VARIABLE, "0.15")
    calls.arm()

    def endless(*_: object) -> NoReturn:
        while True:
            pass

    monkeypatch.setattr(Maxwell, "changes", endless)
    source = Input("n", ("n",), "maxwell", tables="(a+)+", key=("id",))
    plan = Plan("p", (source,), (Upsert("u", "n"),), (Output("o", "u", "o"),))

    with pytest.raises(StuckError, match="input n: decoding messages has not returned"):
        Evaluation(plan).advance({"n": [(b"{", b"{}", 1)]}, 2)


@pytest.mark.parametrize("count", [1_000, 5_000])
def test_bad_messages_keep_one_slot_for_a_key_and_none_without(count: int) -> None:
    """R14. However many there are, and each of those without a key is one record."""
    evaluation = Evaluation(PLAN)
    values = [(b"%d" % (at % 10), b"{%d" % at, at) for at in range(count)]
    keys = [(b"{%d" % at, b"1", at) for at in range(count)]

    found = evaluation.advance({"n": values}, count)
    entries = dict(evaluation.stores[0].scan(b""))
    more = evaluation.advance({"n": [(key, value, count) for key, value, _ in keys]}, count + 1)

    standing = accumulate(found["errors"], count)
    assert len(standing) == 10
    assert len(entries) == 10
    assert sum(map(len, entries.values())) < 5_000
    assert len(more["errors"]) == count
    assert dict(evaluation.stores[0].scan(b"")) == entries
