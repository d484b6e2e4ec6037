"""What we publish, both ways: the headers of an update, and the progress record."""

import json
from typing import Any

import pytest

from ikebana.codecs import diff
from ikebana.codecs.change import Change, Needs
from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.codecs.plain import Plain, PlainFormat


@pytest.mark.parametrize(
    ("time", "change", "headers"),
    [
        pytest.param(7, -1, [("time", b"7"), ("diff", b"-1")], id="a retraction"),
        pytest.param(0, 1, [("time", b"0"), ("diff", b"1")], id="time 0"),
        pytest.param(
            1_800_000_000_000,
            12,
            [("time", b"1800000000000"), ("diff", b"12")],
            id="milliseconds",
        ),
    ],
)
def test_headers_are_written_and_read(time: int, change: int, headers: diff.UpdateHeaders) -> None:
    """Time and diff are ASCII integers."""
    assert diff.headers(time, change) == headers
    assert diff.read_headers(headers) == (time, change)


def test_headers_are_read_among_others_in_any_order_and_as_text() -> None:
    """What somebody adds is no matter; some clients give text."""
    given: list[tuple[str, bytes | str | None]] = [
        ("trace", b"\xff"),
        ("diff", "-2"),
        ("other", None),
        ("time", b"3"),
    ]

    assert diff.read_headers(given) == (3, -2)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        pytest.param(None, 'header "time" is missing', id="no headers"),
        pytest.param([], 'header "time" is missing', id="none of them"),
        pytest.param([("time", b"1")], 'header "diff" is missing', id="no diff"),
        pytest.param([("diff", b"1")], 'header "time" is missing', id="no time"),
        pytest.param([("time", b"1"), ("diff", b"0")], 'header "diff" is 0', id="diff 0"),
        pytest.param([("time", None), ("diff", b"1")], 'header "time" is no integer', id="null"),
        *(
            pytest.param(
                [("time", b"1"), ("diff", given)], 'header "diff" is no integer', id=repr(given)
            )
            for given in (
                b"",
                b"x",
                b"1.0",
                b" 1",
                b"1\n",
                b"+1",
                b"1_0",
                b"0x1",
                b"\xff",
                "\u0661",
            )
        ),
        pytest.param(
            [("time", b"1" * 5_000), ("diff", b"1")], 'header "time" is no integer', id="digits"
        ),
    ],
)
def test_headers_that_cannot_be_read_are_named(
    headers: list[tuple[str, bytes | str | None]] | None, reason: str
) -> None:
    """The reason names the header, not what is in it."""
    with pytest.raises(DecodeError) as caught:
        diff.read_headers(headers)

    assert (caught.value.codec, caught.value.reason) == ("diff record", reason)


RECORD = ProgressRecord(
    "c",
    "p",
    "t",
    7,
    10,
    20,
    3,
    {0: 5, 12: 9},
    "upserts",
    times="clock",
    columns={"n": "DECIMAL(9,2)"},
)
MESSAGE = {
    "checkpoint": "c",
    "pipeline": "p",
    "topic": "t",
    "batch": 7,
    "lower": 10,
    "upper": 20,
    "count": 3,
    "ends": {"0": 5, "12": 9},
    "promise": "upserts",
    "version": 1,
    "times": "clock",
    "columns": {"n": "DECIMAL(9,2)"},
    "given_up": 0,
}


def test_a_progress_record_is_written_and_read() -> None:
    """Its key is the batch's number, its value a JSON object."""
    assert RECORD.key() == b"7"
    assert json.loads(RECORD.encode()) == MESSAGE
    assert diff.decode_progress(RECORD.encode()) == RECORD


def test_a_progress_record_may_have_fields_that_we_do_not_know() -> None:
    """What a later writer of this version adds is no matter."""
    assert diff.decode_progress(json.dumps({**MESSAGE, "new": [1]}).encode()) == RECORD


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(None, "Input data was truncated", id="a tombstone"),
        pytest.param(b"", "Input data was truncated", id="nothing"),
        pytest.param(b"null", "Expected `object`, got `null`", id="null"),
        pytest.param(b"x", "JSON is malformed: invalid character (byte 0)", id="no JSON"),
        pytest.param(b'{"checkpoint":"\xff"}', "byte 0 of a string is not UTF-8", id="no UTF-8"),
        pytest.param(b'{"x":' + b"[" * 100_000, "it is nested too deeply", id="nested"),
        pytest.param(b"{}", "Object missing required field `checkpoint`", id="no fields"),
    ],
)
def test_what_is_no_progress_record_has_a_reason(message: bytes | None, reason: str) -> None:
    """Whatever lies in the topic is told for what it is."""
    with pytest.raises(DecodeError) as caught:
        diff.decode_progress(message)

    assert (caught.value.codec, caught.value.reason) == ("progress record", reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"version": 2}, "version 2 is not 1", id="a later version"),
        pytest.param(
            {"version": 2, "promise": 5, "ends": []}, "version 2 is not 1", id="of another shape"
        ),
        pytest.param({"promise": "hunter2"}, "Invalid enum value - at `$.promise`", id="promise"),
        pytest.param({"batch": "hunter2"}, "Expected `int`, got `str` - at `$.batch`", id="type"),
        pytest.param(
            {"ends": {"0": None}}, "Expected `int`, got `null` - at `$.ends[...]`", id="ends"
        ),
    ],
)
def test_a_progress_record_that_cannot_be_used_is_refused_without_its_payload(
    fields: dict[str, Any], reason: str
) -> None:
    """The reason names the field; a record of another version is told by its version alone."""
    with pytest.raises(DecodeError) as caught:
        diff.decode_progress(json.dumps({**MESSAGE, **fields}).encode())

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("data_format", "value", "expected"),
    [
        pytest.param("json", b'{"b": 1.0, "a": 2}', b'{"a":2,"b":1}', id="JSON"),
        pytest.param("json", None, None, id="a tombstone"),
        pytest.param("bytes", b"{", b"{", id="bytes"),
        pytest.param("bytes", b"", b"", id="no bytes"),
        pytest.param("bytes", None, None, id="a tombstone of bytes"),
    ],
)
def test_a_plain_message_is_one_upsert_or_one_delete(
    data_format: PlainFormat, value: bytes | None, expected: bytes | None
) -> None:
    """JSON is compared as data, bytes as they are; all at once is one by one."""
    codec = Plain("json", data_format, Needs())
    (change,) = codec.changes(b"1.0", value, None)

    assert change == Change("delete" if expected is None else "upsert", b"1", expected)
    assert (codec.key(b"1.0"), codec.keys([b"1.0"]), codec.values([value])) == (
        b"1",
        [b"1"],
        [expected],
    )


@pytest.mark.parametrize(
    ("key", "value", "reason", "readable"),
    [
        pytest.param(
            b"{",
            b"1",
            "could not decode key as JSON: it is empty, cut off, or has half a surrogate pair",
            None,
            id="key",
        ),
        pytest.param(None, b"1", "could not decode key: it is null", None, id="no key"),
        pytest.param(
            b"1.0",
            b"{",
            "could not decode value as JSON: it is empty, cut off, or has half a surrogate pair",
            b"1",
            id="value",
        ),
        pytest.param(
            b"{",
            b"{",
            "could not decode key as JSON: it is empty, cut off, or has half a surrogate pair",
            None,
            id="both",
        ),
    ],
)
def test_a_part_that_cannot_be_read_is_named(
    key: bytes | None, value: bytes, reason: str, readable: bytes | None
) -> None:
    """The reason says which part, as what, and why not; the key is told if it can be read."""
    with pytest.raises(DecodeError) as caught:
        Plain("json", "json", Needs()).changes(key, value, None)

    assert (str(caught.value), caught.value.key) == (reason, readable)


def test_an_error_record_is_canonical_and_keeps_the_raw_bytes() -> None:
    """Fields are in order, null is null, bytes are base64."""
    assert error_record("why", ("t", 1, 2), None, b"\xff") == (
        b'{"key":null,"offset":2,"partition":1,"reason":"why","topic":"t","value":"/w=="}'
    )


def test_an_error_record_that_has_no_place_says_so() -> None:
    """What an operator fails on comes from no message: the place is null."""
    assert error_record("why", None, b"k", None) == (
        b'{"key":"aw==","offset":null,"partition":null,"reason":"why","topic":null,"value":null}'
    )
