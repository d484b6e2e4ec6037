"""CDCv2 both ways, as JSON and as Avro: what is written, cut, read and refused."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.codecs import cdcv2, cdcv2_avro
from ikebana.codecs.cdcv2 import END, Fact, Progress, UpdateFacts
from ikebana.codecs.errors import DecodeError

FORMS = [pytest.param(cdcv2, id="json"), pytest.param(cdcv2_avro, id="avro")]
LONGEST = (1 << 63) - 1


def test_updates_are_consolidated_triples() -> None:
    """One diff for each (data, time), and none that cancels."""
    updates = [
        (b'{"id":1}', b'{"n":1}', 7, -1),
        (b'{"id":1}', b'{"n":2}', 7, 1),
        (b'{"id":2}', b"null", 7, 1),
        (b'{"id":1}', b'{"n":2}', 7, 2),
        (b'{"id":2}', b"null", 7, -1),
        (b'{"id":1}', b'{"n":2}', 8, -3),
    ]

    assert [json.loads(message) for message in cdcv2.encode_updates(updates, 1_000)] == [
        {
            "updates": [
                [{"key": {"id": 1}, "value": {"n": 1}}, 7, -1],
                [{"key": {"id": 1}, "value": {"n": 2}}, 7, 3],
                [{"key": {"id": 1}, "value": {"n": 2}}, 8, -3],
            ]
        }
    ]


def test_no_key_is_not_a_null_key() -> None:
    """Data without a key has no such field; a key may be JSON's null."""
    updates = [(None, b"1", 0, 1), (b"null", b"1", 0, 1)]

    assert [*cdcv2.encode_updates(updates, 1_000)] == [
        b'{"updates":[[{"value":1},0,1],[{"key":null,"value":1},0,1]]}'
    ]


@pytest.mark.parametrize(
    ("upper", "counts", "message"),
    [
        pytest.param(
            9,
            {7: 2, 3: 1},
            b'{"progress":{"lower":[3],"upper":[9],"counts":[[3,1],[7,2]]}}',
            id="times in order",
        ),
        pytest.param(
            9, {5: 0}, b'{"progress":{"lower":[3],"upper":[9],"counts":[]}}', id="only counts"
        ),
        pytest.param(
            END, {}, b'{"progress":{"lower":[3],"upper":[],"counts":[]}}', id="no time follows"
        ),
    ],
)
def test_progress_is_an_interval_and_its_counts(
    upper: int, counts: dict[int, int], message: bytes
) -> None:
    """Times without updates are not named; an empty upper is the end of time."""
    assert [*cdcv2.encode_progress(3, upper, counts, 1_000)] == [message]


@pytest.mark.parametrize(
    ("lower", "upper", "counts"),
    [
        pytest.param(3, 2, {}, id="upper before lower"),
        pytest.param(3, 5, {2: 1}, id="count before lower"),
        pytest.param(3, 5, {5: 1}, id="count at upper"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_progress_that_cannot_be_is_our_own_fault(
    form: ModuleType, lower: int, upper: int, counts: dict[int, int]
) -> None:
    """It is never written."""
    with pytest.raises(AssertionError):
        [*form.encode_progress(lower, upper, counts, 1_000)]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_changed_is_no_message(form: ModuleType) -> None:
    """Only progress tells of times without updates."""
    assert [*form.encode_updates([(b"1", b"1", 1, 1), (b"1", b"1", 1, -1)], 10)] == []


keys = st.one_of(st.none(), st.sampled_from([b"null", b"1", b'{"id":1}']))
values = st.sampled_from([b"null", b'""', b'{"n":1}', b'"%b"' % (b"x" * 300)])
times = st.one_of(st.integers(0, 3), st.integers(-LONGEST - 1, LONGEST))
diffs = st.one_of(st.integers(-2, 2), st.integers(-(1 << 31), 1 << 31)).filter(bool)
facts = st.lists(st.tuples(keys, values, times, diffs), max_size=12)


@pytest.mark.parametrize("form", FORMS)
@given(updates=facts, max_bytes=st.integers(1, 1_500))
def test_updates_come_back_whatever_they_are_cut_into(
    form: ModuleType, updates: Sequence[Fact], max_bytes: int
) -> None:
    """A message is no longer than is allowed, unless one update is."""
    read = []
    for message in form.encode_updates(updates, max_bytes):
        found = form.decode(message)
        assert isinstance(found, UpdateFacts)
        assert len(message) <= max_bytes or len(found.updates) == 1
        read += found.updates

    assert read == cdcv2.consolidate(updates)


@pytest.mark.parametrize("form", FORMS)
def test_no_message_is_longer_than_is_allowed(form: ModuleType) -> None:
    """At no size, with all that stands around the updates and between them."""
    updates = [(b"%d" % number, b"1", 1 << number, 1) for number in range(40)]
    given_counts = {1 << number: 1 << number for number in range(40)}

    for size in range(120, 1_500):
        assert max(map(len, form.encode_updates(updates, size))) <= size
        assert max(map(len, form.encode_progress(0, END - 1, given_counts, size))) <= size


def test_json_updates_fill_their_messages() -> None:
    """What fits is not cut."""
    updates = [(b"%d" % number, b"1", 7, 1) for number in range(9)]
    (whole,) = cdcv2.encode_updates(updates, 1_000)

    assert len([*cdcv2.encode_updates(updates, len(whole))]) == 1
    assert len([*cdcv2.encode_updates(updates, len(whole) - 1)]) == 2


@pytest.mark.parametrize("form", FORMS)
@given(
    counts=st.dictionaries(st.integers(-5, LONGEST - 1), st.integers(0, 1 << 40), max_size=12),
    upper=st.sampled_from([LONGEST, END]),
    max_bytes=st.integers(1, 300),
)
def test_progress_comes_back_as_intervals_side_by_side(
    form: ModuleType, counts: dict[int, int], upper: int, max_bytes: int
) -> None:
    """A message is no longer than is allowed, unless one count is."""
    reached = -10
    read: dict[int, int] = {}
    for message in form.encode_progress(reached, upper, counts, max_bytes):
        found = form.decode(message)
        assert isinstance(found, Progress)
        assert len(message) <= max_bytes or len(found.counts) <= 1
        assert found.lower == reached
        assert all(found.lower <= time < found.upper for time in found.counts)
        reached = found.upper
        read.update(found.counts)

    assert reached == upper
    assert read == {time: count for time, count in counts.items() if count}


def test_many_counts_fit_into_many_messages() -> None:
    """As many times as a batch may have records."""
    counts = {1_800_000_000_000 + time: 2 for time in range(100_000)}
    messages = [*cdcv2.encode_progress(1_800_000_000_000, END - 1, counts, 900_000)]

    assert [len(message) for message in messages if len(message) > 900_000] == []
    assert len(messages) == 3


def test_json_of_others_becomes_canonical() -> None:
    """Equal data are equal bytes, however somebody has written them."""
    message = b'{"updates": [[{"value": {"b": 1.0, "a": [1e0]}, "key": "\\u0061"}, 3, -1]]}'

    assert cdcv2.decode(message) == UpdateFacts([(b'"a"', b'{"a":[1],"b":1}', 3, -1)])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(None, "it is empty, cut off, or has half a surrogate pair", id="null"),
        pytest.param(b"", "it is empty, cut off, or has half a surrogate pair", id="empty"),
        pytest.param(
            b'{"updates":[',
            "it is empty, cut off, or has half a surrogate pair",
            id="cut",
        ),
        pytest.param(b"\xff", "JSON is malformed: invalid character (byte 0)", id="no JSON"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="no object"),
        pytest.param(b"{}", 'it needs one of "updates" and "progress"', id="neither"),
        pytest.param(
            b'{"updates":[],"progress":{"lower":[0],"upper":[1],"counts":[]}}',
            'it needs one of "updates" and "progress"',
            id="both",
        ),
        pytest.param(
            b'{"updates":[[{"value":1},0]]}',
            "Expected `array` of length 3 - at `$.updates[0]`",
            id="no triple",
        ),
        pytest.param(
            b'{"updates":[[{"key":1},0,1]]}',
            "Object missing required field `value` - at `$.updates[0][0]`",
            id="no value",
        ),
        pytest.param(
            b'{"updates":[[{"value":1,"hidden`$":2},0,1]]}',
            "an object has a field that it must not have",
            id="more than a key and a value",
        ),
        pytest.param(b'{"updates":[[{"value":1},0,0]]}', "a diff is 0", id="diff 0"),
        pytest.param(
            b'{"updates":[[{"value":1},0,"hidden"]]}',
            "Expected `int`, got `str` - at `$.updates[0][2]`",
            id="diff as text",
        ),
        pytest.param(
            b'{"updates":[[{"value":1},9223372036854775808,1]]}',
            "Expected `int` <= 9223372036854775807 - at `$.updates[0][1]`",
            id="a time of more than 64 bits",
        ),
        pytest.param(
            b'{"progress":{"lower":[],"upper":[],"counts":[]}}',
            '"lower" needs one time, "upper" at most one',
            id="no lower",
        ),
        pytest.param(
            b'{"progress":{"lower":[0],"upper":[1,2],"counts":[]}}',
            '"lower" needs one time, "upper" at most one',
            id="times in no order",
        ),
        pytest.param(
            b'{"progress":{"lower":[2],"upper":[1],"counts":[]}}',
            '"lower" is beyond "upper"',
            id="backwards",
        ),
        pytest.param(
            b'{"progress":{"lower":[0],"upper":[1],"counts":[[1,1]]}}',
            '"counts" has a time that is not in the interval',
            id="count at upper",
        ),
        pytest.param(
            b'{"progress":{"lower":[0],"upper":[1],"counts":[[0,-1]]}}',
            '"counts" has a negative count',
            id="negative count",
        ),
        pytest.param(
            b'{"progress":{"lower":[0],"upper":[1],"counts":[[0,1],[0,1]]}}',
            '"counts" has two counts of one time',
            id="counted twice",
        ),
        pytest.param(
            b'{"updates":[[{"value":' + b"[" * 100_000, "it is nested too deeply", id="deep"
        ),
    ],
)
def test_json_that_cannot_be_read_is_named(message: bytes | None, reason: str) -> None:
    """The reason names the place, not what is in it."""
    with pytest.raises(DecodeError) as caught:
        cdcv2.decode(message)

    assert caught.value.reason == reason


def test_the_published_schema_reads_what_is_written() -> None:
    """Ten bytes of mark and fingerprint, then a body for any reader of Avro."""
    schema = json.loads(json.dumps(cdcv2_avro.SCHEMA))
    (updates,) = cdcv2_avro.encode_updates(
        [(b'{"id":1}', b'{"n":1}', 1_800_000_000_000, -2), (None, b"", -1, 1)], 1_000
    )
    (progress,) = cdcv2_avro.encode_progress(3, 900, {7: 2}, 1_000)

    assert fastavro.schemaless_reader(io.BytesIO(updates[10:]), schema, None) == [
        {"data": {"key": b'{"id":1}', "value": b'{"n":1}'}, "time": 1_800_000_000_000, "diff": -2},
        {"data": {"key": None, "value": b""}, "time": -1, "diff": 1},
    ]
    assert fastavro.schemaless_reader(io.BytesIO(progress[10:]), schema, None) == {
        "lower": [3],
        "upper": [900],
        "counts": [{"time": 7, "count": 2}],
    }


def test_the_documented_examples_are_what_is_written() -> None:
    """Updates, progress and schema of docs/formats-out.md."""
    page = (Path(__file__).parents[2] / "docs" / "formats-out.md").read_text()
    shown = re.findall(r"```json\n(.*?)\n```", page, re.DOTALL)
    updates, progress, schema = (
        next(text for text in shown if text.startswith(begin))
        for begin in ('{"updates"', '{"progress"', "[")
    )
    old, new = b'{"id":1,"n":"a"}', b'{"id":1,"n":"b"}'
    (avro,) = cdcv2_avro.encode_progress(3, 9, {7: 2}, 1_000)

    assert json.loads(schema) == cdcv2_avro.SCHEMA
    assert cdcv2.decode(progress.encode()) == Progress(3, 9, {7: 2})
    assert avro.hex(" ") in re.sub(" +", " ", page)
    assert [
        *cdcv2.encode_updates([(b'{"id":1}', old, 7, -1), (b'{"id":1}', new, 7, 1)], 1_000)
    ] == [updates.encode()]


@given(facts)
@example([(b"1", b"1", number, number) for bits in (6, 13) for number in (-1 << bits, 1 << bits)])
def test_avro_is_written_as_others_write_it(updates: Sequence[Fact]) -> None:
    """Byte by byte what a writer that knows the schema only makes of them."""
    body = io.BytesIO()
    data = [
        {"data": {"key": key, "value": value}, "time": time, "diff": diff}
        for key, value, time, diff in cdcv2.consolidate(updates)
    ]
    fastavro.schemaless_writer(body, fastavro.parse_schema(cdcv2_avro.SCHEMA), data)

    expected = [cdcv2_avro.HEAD + body.getvalue()] if data else []
    assert [*cdcv2_avro.encode_updates(updates, 1 << 20)] == expected


def test_the_fingerprint_never_changes() -> None:
    """It is what readers know the schema by; the specification's example tells its order."""
    assert bytes.fromhex(fingerprint('"null"', "CRC-64-AVRO")) == (0x63DD24E7CC258F8A).to_bytes(
        8, "little"
    )
    assert cdcv2_avro.HEAD.hex(" ") == "c3 01 d5 61 a0 fd e4 21 ef cc"
    assert to_parsing_canonical_form(cdcv2_avro.SCHEMA) == (
        '[{"type":"array","items":{"name":"com.materialize.cdc.update","type":"record","fields":'
        '[{"name":"data","type":{"name":"com.materialize.cdc.data","type":"record","fields":'
        '[{"name":"key","type":["null","bytes"]},{"name":"value","type":"bytes"}]}},'
        '{"name":"time","type":"long"},{"name":"diff","type":"long"}]}},'
        '{"name":"com.materialize.cdc.progress","type":"record","fields":'
        '[{"name":"lower","type":{"type":"array","items":"long"}},'
        '{"name":"upper","type":{"type":"array","items":"long"}},'
        '{"name":"counts","type":{"type":"array","items":{"name":"com.materialize.cdc.counts",'
        '"type":"record","fields":[{"name":"time","type":"long"},{"name":"count","type":"long"}]}}}'
        "]}]"
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(None, "it does not begin with the mark of this Avro schema", id="null"),
        pytest.param(b"", "it does not begin with the mark of this Avro schema", id="empty"),
        pytest.param(
            b"\0\0\0\0\1\0\0", "it does not begin with the mark of this Avro schema", id="other"
        ),
        pytest.param(cdcv2_avro.HEAD, "the Avro body cannot be read", id="no body"),
        pytest.param(cdcv2_avro.HEAD + b"\x04", "the Avro body cannot be read", id="no branch"),
        pytest.param(cdcv2_avro.HEAD + b"\x00\x02", "the Avro body cannot be read", id="cut"),
        pytest.param(
            cdcv2_avro.HEAD + b"\x00\x02\x00\x01", "the Avro body cannot be read", id="length -1"
        ),
        pytest.param(
            cdcv2_avro.HEAD + b"\x00\x02\x00" + b"\xfe" * 8 + b"\x7f",
            "the Avro body cannot be read",
            id="length beyond memory",
        ),
        pytest.param(
            cdcv2_avro.HEAD + b"\x00\x00x", "the Avro body is followed by something", id="more"
        ),
        pytest.param(
            cdcv2_avro.HEAD + b"\x00\x02\x00\x021\x00\x00\x00", "a diff is 0", id="diff 0"
        ),
        pytest.param(
            cdcv2_avro.HEAD + b"\x02\x00\x00\x00",
            '"lower" needs one time, "upper" at most one',
            id="no lower",
        ),
    ],
)
def test_avro_that_cannot_be_read_is_named(message: bytes | None, reason: str) -> None:
    """What is damaged is not guessed."""
    with pytest.raises(DecodeError) as caught:
        cdcv2_avro.decode(message)

    assert caught.value.reason == reason


@st.composite
def damaged(draw: st.DrawFn, messages: Sequence[bytes]) -> bytes:
    """A good message, some bytes of it changed, and cut off somewhere."""
    message = bytearray(draw(st.sampled_from(messages)))
    for _ in range(draw(st.integers(0, 4))):
        message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message[: draw(st.integers(0, len(message)))])


GOOD = [(b'{"id":1}', b'{"n":[1.5,"\xc3\xa9"]}', 7, 1), (None, b"null", 1 << 40, -3)]


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_no_bytes_are_worse_than_an_error(form: ModuleType, data: st.DataObject) -> None:
    """Whatever comes, only a DecodeError leaves the codec."""
    good = [*form.encode_updates(GOOD, 1_000), *form.encode_progress(3, 1 << 41, {7: 2}, 1_000)]
    head = cdcv2_avro.HEAD if form is cdcv2_avro else b""
    message = data.draw(st.one_of(damaged(good), st.binary().map(lambda body: head + body)))

    try:
        found = form.decode(message)
    except DecodeError:
        return
    assert isinstance(found, UpdateFacts | Progress)
