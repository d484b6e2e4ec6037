"""Canonical bytes of literal messages, and the reasons why some have none."""

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.canonical import ExactFloat, canonical, decode, encode
from ikebana.codecs.errors import DecodeError


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"1", b"1", id="an integer"),
        pytest.param(b"1.0", b"1", id="a point"),
        pytest.param(b"1e0", b"1", id="an exponent"),
        pytest.param(b"1E+0", b"1", id="an upper case exponent"),
        pytest.param(b"10e-1", b"1", id="a negative exponent"),
        pytest.param(b"100000000000000000e-17", b"1", id="many digits and an exponent"),
        pytest.param(b"-0", b"0", id="minus zero"),
        pytest.param(b"-0.0", b"0", id="minus zero with a point"),
        pytest.param(b"-0.0000000000000000000e10", b"0", id="a long zero"),
        pytest.param(b"0.1", b"0.1", id="a fraction"),
        pytest.param(b"0.10", b"0.1", id="a trailing zero"),
        pytest.param(b"1e-1", b"0.1", id="a fraction as an exponent"),
        pytest.param(b"0.0000001", b"1e-7", id="a small fraction"),
        pytest.param(b"123456789.123456", b"123456789.123456", id="fifteen digits"),
        pytest.param(b"0.12345678901234567890", b"0.1234567890123456789", id="many digits"),
        pytest.param(b"12345678901234567.5", b"12345678901234567.5", id="digits before it"),
        pytest.param(b"9007199254740993", b"9007199254740993", id="beyond 2^53"),
        pytest.param(b"9007199254740993.0", b"9007199254740993", id="beyond 2^53 with a point"),
        pytest.param(b"18446744073709551616", b"18446744073709551616", id="beyond 64 bits"),
        pytest.param(b"-9223372036854775809", b"-9223372036854775809", id="below 64 bits"),
        pytest.param(b"1e20", b"1" + b"0" * 20, id="an integer as an exponent"),
        pytest.param(b"1.5e300", b"15" + b"0" * 299, id="a large double"),
        pytest.param(b"1e308", b"1" + b"0" * 308, id="the largest power of ten of a double"),
        pytest.param(b"1" + b"0" * 400, b"1" + b"0" * 400, id="an integer beyond all doubles"),
        pytest.param(b"1e-310", b"1E-310", id="a double with fewer digits stays a decimal"),
        pytest.param(b"4.90e-324", b"4.9E-324", id="so does the smallest one"),
        pytest.param(b"1e-1000", b"1E-1000", id="and what is smaller than all doubles"),
    ],
)
def test_numbers_have_one_form_and_keep_their_value(message: bytes, expected: bytes) -> None:
    """Integers are digits, up to 15 digits a double, else a decimal with every digit."""
    assert canonical(message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            b' { "b" : 1 ,\n"a":[ true, null ] } ', b'{"a":[true,null],"b":1}', id="space"
        ),
        pytest.param(b'{"a":{"d":1,"c":2}}', b'{"a":{"c":2,"d":1}}', id="nested fields"),
        pytest.param(b'{"a":1,"a":2}', b'{"a":2}', id="of a repeated field the last counts"),
        pytest.param(b'{"a":null}', b'{"a":null}', id="null is not absent"),
        pytest.param(b'{"":0}', b'{"":0}', id="an empty name"),
        pytest.param(b'"\\u0041\\/\\n"', b'"A/\\n"', id="escapes"),
        pytest.param(b'"\\u0000"', b'"\\u0000"', id="NUL"),
        pytest.param(b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', id="a surrogate pair"),
        pytest.param(b'"\xc3\xa9"', b'"\xc3\xa9"', id="composed"),
        pytest.param(b'"e\xcc\x81"', b'"e\xcc\x81"', id="decomposed"),
        pytest.param(b'{"\xc3\xa9":1,"z":2}', b'{"z":2,"\xc3\xa9":1}', id="names as UTF-8"),
        pytest.param(b'"1"', b'"1"', id="digits in a string"),
        pytest.param(b"true", b"true", id="true"),
    ],
)
def test_other_data_have_one_form(message: bytes, expected: bytes) -> None:
    """Fields are in order, spaces gone, strings the same characters."""
    assert canonical(message) == expected


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(b"", "it is empty, cut off, or has half a surrogate pair", id="nothing"),
        pytest.param(b"[1,", "it is empty, cut off, or has half a surrogate pair", id="truncated"),
        pytest.param(b"NaN", "JSON is malformed: invalid character (byte 0)", id="NaN"),
        pytest.param(b"Infinity", "JSON is malformed: invalid character (byte 0)", id="Infinity"),
        pytest.param(b"-Infinity", "JSON is malformed: invalid character (byte 1)", id="minus it"),
        pytest.param(b"01", "JSON is malformed: invalid number (byte 1)", id="a leading zero"),
        pytest.param(b"1 2", "JSON is malformed: trailing characters (byte 3)", id="two of them"),
        pytest.param(
            b"\xef\xbb\xbf1", "JSON is malformed: invalid character (byte 0)", id="byte order mark"
        ),
        pytest.param(b'"\xff"', "byte 0 of a string is not UTF-8", id="no UTF-8"),
        pytest.param(b'{"a\xff":1}', "byte 1 of a string is not UTF-8", id="no UTF-8 in a name"),
        pytest.param(b'"\xed\xa0\x80"', "byte 0 of a string is not UTF-8", id="raw surrogate"),
        pytest.param(
            b'"\\ud800"',
            "it is empty, cut off, or has half a surrogate pair",
            id="lone surrogate",
        ),
        pytest.param(b"[" * 100_000, "it is nested too deeply", id="nested lists"),
        pytest.param(b'{"a":' * 100_000, "it is nested too deeply", id="nested objects"),
        pytest.param(b"1" * 5_000, "Integer value out of range", id="a huge integer"),
        pytest.param(b"1e309", "a number has too many digits", id="beyond all doubles"),
        pytest.param(b"-1e1000000", "a number has too many digits", id="far beyond them"),
        pytest.param(
            b"1e99999999999999999999", "a number has too many digits", id="a huge exponent"
        ),
        pytest.param(
            b"1e-99999999999999999999", "a number has too many digits", id="a huge negative one"
        ),
    ],
)
def test_what_cannot_be_decoded_has_a_reason(message: bytes, reason: str) -> None:
    """The reason says what and where, as far as the decoder knows."""
    with pytest.raises(DecodeError) as caught:
        canonical(message)

    assert caught.value.codec == "JSON"
    assert caught.value.reason == reason


def test_what_is_nested_deeply_within_reason_is_decoded() -> None:
    """Some hundreds of levels are no problem."""
    message = b"[" * 300 + b'{"a":' * 100 + b"1.0" + b"}" * 100 + b"]" * 300

    assert canonical(message) == message.replace(b"1.0", b"1")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            {"b": 1.0, "a": [True, None]}, b'{"a":[true,null],"b":1}', id="as documented"
        ),
        pytest.param(1e20, b"1" + b"0" * 20, id="a large double"),
        pytest.param(2**70, b"1180591620717411303424", id="a large integer"),
        pytest.param(Decimal("1.50"), b"1.5", id="a decimal"),
        pytest.param(Decimal("0.12345678901234567890"), b"0.1234567890123456789", id="a long one"),
        pytest.param(-0.0, b"0", id="minus zero"),
    ],
)
def test_data_are_encoded_as_their_message_would_be(data: Any, expected: bytes) -> None:
    """What a caller gives and what a message says are equal when they mean the same."""
    assert encode(data) == expected


@pytest.mark.parametrize(
    "message", [b"1", b"0.5", b"0.1234567890123456789", b"1E-400", b'{"a":[true,null,"x"]}']
)
def test_decoded_data_are_encoded_back(message: bytes) -> None:
    """Nothing is lost on the way to Python data and back."""
    assert encode(decode(message)) == message


def nested(depth: int) -> Any:
    """So many lists in each other."""
    data: Any = 0
    for _ in range(depth):
        data = [data]
    return data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(Decimal("NaN"), id="a decimal that is none"),
        pytest.param(nested(201), id="nested too deeply"),
    ],
)
def test_what_has_no_json_form_is_not_written(data: object) -> None:
    """It would be null, or could not be read again: it is refused instead."""
    with pytest.raises(ValueError, match=r"not finite|too deeply"):
        encode(data)


def test_what_is_not_finite_is_written_by_its_name() -> None:
    """And null where null is meant."""
    inf, nan = float("inf"), float("nan")

    assert encode(nan) == b'"NaN"'
    assert encode({"a": [None, 1.5, inf]}) == b'{"a":[null,1.5,"Infinity"]}'
    assert encode((nan, {"a": -inf, "b": None})) == b'["NaN",{"a":"-Infinity","b":null}]'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_an_ordinary_double_is_read_as_python_reads_it(value: float) -> None:
    """However many digits its text has, it is an int or a float, and the same one."""
    found = decode(encode(value))
    assert type(found) is (int if value.is_integer() else float)
    assert float(found) == value


def test_a_number_of_more_digits_is_a_float_that_keeps_them() -> None:
    """It can be computed with like any other; handed on it is what it was."""
    (found,) = decode(b"[0.12345678901234567890]")

    assert isinstance(found, float)
    assert type(found + 0.5) is float
    assert Decimal(str(found)) == Decimal("0.1234567890123456789")
    assert encode([copy.deepcopy(found)]) == b"[0.1234567890123456789]"
    assert decode(b"1E-400") == 0
    assert encode(ExactFloat(Decimal("1E-400"))) == b"1E-400"
