"""The laws of canonical bytes: equal data and equal bytes are the same thing."""

import json
from collections.abc import Hashable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ikebana.codecs.canonical import canonical
from ikebana.codecs.errors import DecodeError
from support.strategies import Number, json_data, numbers, unhurried, written


def meaning(message: bytes) -> Hashable:
    """What a message says, by the standard library and exact decimals."""
    return _typed(json.loads(message, parse_float=Decimal, parse_int=Decimal))


def _typed(data: Any) -> Hashable:
    # To Python True == 1; here each kind is marked.
    if isinstance(data, list):
        return ("list", *map(_typed, data))
    if isinstance(data, dict):
        return ("object", frozenset((name, _typed(value)) for name, value in data.items()))
    return (type(data).__name__, data)


@st.composite
def respelled(draw: st.DrawFn, data: Any) -> Any:
    """The same data with fields in another order and numbers written otherwise."""
    if isinstance(data, Number):
        exact = Decimal(data.text)
        form = draw(st.sampled_from(["{:f}", "{:e}", "{}", "{:f}.0", "{:f}00"]))
        text = form.format(exact)
        if form == "{:f}.0":
            text = text.removesuffix(".0") if "." in text.removesuffix(".0") else text
        elif form == "{:f}00":
            text = text if "." in text else text.removesuffix("00")
        return Number(text)
    if isinstance(data, list):
        return [draw(respelled(item)) for item in data]
    if isinstance(data, dict):
        names = draw(st.permutations(list(data)))
        return {name: draw(respelled(data[name])) for name in names}
    return data


def result(message: bytes) -> bytes | DecodeError:
    """Canonical bytes, or the reason why there are none."""
    try:
        return canonical(message)
    except DecodeError as error:
        return error


def canonical_if_any(message: bytes) -> bytes:
    """Canonical bytes of a message whose numbers are not too large."""
    found = result(message)
    if isinstance(found, DecodeError):
        assume(found.reason != "a number has too many digits")
        raise found
    return found


@unhurried
@given(json_data())
def test_canonical_bytes_mean_what_the_message_meant(data: Any) -> None:
    """No number is rounded, no string folded, no field lost."""
    message = written(data)
    assert meaning(canonical_if_any(message)) == meaning(message)


@unhurried
@given(json_data())
def test_canonical_bytes_are_their_own_canonical_bytes(data: Any) -> None:
    """Canonical done twice is canonical done once."""
    once = canonical_if_any(written(data))
    assert canonical(once) == once


@unhurried
@given(st.data(), json_data())
def test_equal_data_are_equal_bytes(data: st.DataObject, given_data: Any) -> None:
    """Another order of fields and another spelling of numbers change nothing."""
    one, other = written(given_data), written(data.draw(respelled(given_data)))

    assert meaning(one) == meaning(other)
    assert canonical_if_any(one) == canonical_if_any(other)


@unhurried
@given(json_data(), json_data())
def test_equal_bytes_are_equal_data(one: Any, other: Any) -> None:
    """Any two messages have equal bytes exactly when they mean the same."""
    first, second = written(one), written(other)
    same = meaning(first) == meaning(second)

    assert (canonical_if_any(first) == canonical_if_any(second)) == same


@unhurried
@given(numbers(), numbers())
def test_numbers_are_equal_bytes_when_their_values_are_equal(one: Number, other: Number) -> None:
    """The value of a number decides, whatever its digits and exponent."""
    same = Decimal(one.text) == Decimal(other.text)
    first, second = (canonical_if_any(number.text.encode()) for number in (one, other))

    assert (first == second) == same


@unhurried
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_has_canonical_bytes_of_its_value(value: float) -> None:
    """What a double's shortest spelling says is kept, up to the largest double."""
    message = json.dumps(value).encode()
    assert meaning(canonical(message)) == meaning(message)


@st.composite
def mutated(draw: st.DrawFn, messages: st.SearchStrategy[bytes]) -> bytes:
    """A message with some of its bytes replaced, taken out or put in, or its end cut off."""
    message = bytearray(draw(messages))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(message)))
        match draw(st.sampled_from(["replace", "remove", "insert", "cut"])):
            case "replace":
                message[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "remove":
                del message[at : at + draw(st.integers(1, 4))]
            case "insert":
                inserted = st.sampled_from([b'"', b"\\", b"\\u", b"{", b"9" * 20, b"e", b"\xff"])
                message[at:at] = draw(inserted)
            case "cut":
                del message[at:]
    return bytes(message)


@unhurried
@given(st.one_of(st.binary(), mutated(json_data().map(written))))
def test_nothing_but_a_decode_error_escapes(message: bytes) -> None:
    """Any bytes at all either have canonical bytes or a reason why not."""
    found = result(message)

    assert found.reason if isinstance(found, DecodeError) else canonical(found) == found


SECRETS = ("hunter", "314159", "swordfish")
SECRET_MESSAGES = (
    b'{"swordfish": "hunter2", "n": [314159.26, 314159], "o": {"swordfish": null}}',
    b'["hunter2", {"a": "hunter2\\u00e9 swordfish"}, 314159e314159]',
    b'"hunter2 \xc3\xa9 swordfish"',
    b"31415926535897932384.6264338327950288419716939937510e31",
)


@unhurried
@given(mutated(st.sampled_from(SECRET_MESSAGES)))
def test_the_reason_never_holds_the_payload(message: bytes) -> None:
    """A reason has positions and kinds of characters, nothing of what was sent."""
    found = result(message)

    if isinstance(found, DecodeError):
        assert not [secret for secret in SECRETS if secret in str(found)]


@pytest.mark.parametrize("digits", [308, 309, 4_000])
def test_integers_are_equal_in_digits_and_with_an_exponent_if_both_are_read(digits: int) -> None:
    """Up to the largest double both spellings are one; beyond it only digits are read."""
    spelt_out, short = b"1" + b"0" * digits, b"1e%d" % digits

    assert canonical(spelt_out) == spelt_out
    if digits <= 308:
        assert canonical(short) == spelt_out
    else:
        with pytest.raises(DecodeError, match="too many digits"):
            canonical(short)
