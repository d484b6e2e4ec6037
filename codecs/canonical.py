"""Canonical bytes of JSON data, so that equal data are equal bytes.

Equal means: objects regardless of field order, 1 = 1.0 = 1e0, 1 is neither true nor
"1", strings exactly, null is not absent.  Numbers keep their exact value: a fraction
that a double cannot carry in 15 digits stays a decimal.  A number of 1e309 or more,
which no double reaches, is refused unless it is written as an integer.  Of a field
that an object repeats the last one counts.
"""

import math
import re
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import msgspec

from ikebana.codecs.errors import DecodeError
from ikebana.codecs.nesting import too_deep

# Every decimal of up to 15 significant digits survives a double and its shortest repr.
_EXACT_DIGITS = 15
# Nearer to zero, doubles lose digits.
_SMALLEST_EXPONENT = -300
# That of the largest double.  Beyond it, digits written out would be far longer than the
# message that they stood in; and not written out, 1e400 would differ from its own digits.
_LARGEST_EXPONENT = 308


def number(text: str) -> int | float | Decimal:
    """The one form of a number: an integer, else a short double, else a decimal."""
    if len(text) <= _EXACT_DIGITS and "e" not in text and "E" not in text:
        value = float(text)
        return int(value) if value.is_integer() else value
    exact = Decimal(text)
    if not exact:
        return 0
    if exact.adjusted() > _LARGEST_EXPONENT:
        raise OverflowError
    if exact.adjusted() < _SMALLEST_EXPONENT:
        return _WIDE.normalize(exact)
    if exact == (whole := exact.to_integral_value()):
        return int(whole)
    exact = _WIDE.normalize(exact)
    return float(exact) if len(exact.as_tuple().digits) <= _EXACT_DIGITS else exact


# No rounding: a number keeps every digit that it came with.
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class ExactFloat(float):
    """A JSON number with more digits than a double carries, as the nearest double.

    It computes and compares like any float, and what is computed from it is an ordinary one.
    Handed on as it is it keeps its digits, and so does `Decimal(str(number))`.

    >>> decode(b"0.12345678901234567890")
    0.1234567890123456789
    """

    __slots__ = ("exact",)
    exact: Decimal

    def __new__(cls, exact: Decimal) -> "ExactFloat":
        made = super().__new__(cls, exact)
        made.exact = exact
        return made

    def __repr__(self) -> str:
        return str(self.exact)

    def __getnewargs__(self) -> tuple[Decimal]:  # type: ignore[override]
        return (self.exact,)


def _as_python(text: str) -> int | float:
    """A number as Python's own `json` has it, but for digits that a double does not carry."""
    found = number(text)
    if not isinstance(found, Decimal):
        return found
    nearest = float(found)
    return nearest if Decimal(repr(nearest)) == found else ExactFloat(found)


def _as_decimal(data: Any) -> Decimal:
    """What the encoder is to write of a type that it does not know."""
    if isinstance(data, ExactFloat):
        return data.exact
    raise TypeError(f"data of type {type(data).__name__} have no JSON form")


_decode = msgspec.json.Decoder(float_hook=number).decode
_decode_as_python = msgspec.json.Decoder(float_hook=_as_python).decode
_encode = msgspec.json.Encoder(
    order="sorted", decimal_format="number", enc_hook=_as_decimal
).encode


def encode(data: Any) -> bytes:
    """Write data as its canonical bytes, which can be read again anywhere.

    >>> encode({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'

    Raises:
        TypeError: there is data that JSON has no form of.
        ValueError: a number is not finite, or it is nested too deeply.
    """
    encoded = _encode(data)
    # The encoder writes null for what is not finite.
    if b"null" in encoded and not _finite(data):
        raise ValueError("a number is not finite")
    if too_deep(encoded):
        raise ValueError("it is nested too deeply")
    try:
        # Through the decoder, so that 1.0 given by a caller is 1 as well.
        return _encode(_decode(encoded))
    except msgspec.DecodeError:
        # A decimal's NaN is written as such.
        raise ValueError("a number is not finite") from None


def _finite(data: Any) -> bool:
    if isinstance(data, dict):
        return all(map(_finite, data.values()))
    if isinstance(data, list | tuple | set | frozenset):
        return all(map(_finite, data))
    return not isinstance(data, float | Decimal) or math.isfinite(data)


def canonical(message: bytes) -> bytes:
    """Rewrite a JSON message as its canonical bytes.

    Raises:
        DecodeError: the message is not JSON, not UTF-8, nested too deeply, or has a
            number with too many digits.
    """
    try:
        return _encode(_decode(message))
    except REFUSALS as error:
        raise refused("JSON", error) from None


def canonical_many(messages: Sequence[bytes | str]) -> list[bytes]:
    """`canonical` of each message.  Raises: DecodeError, for the first that is not JSON."""
    encode, decode = _encode, _decode
    try:
        return [encode(decode(message)) for message in messages]
    except REFUSALS as error:
        raise refused("JSON", error) from None


def completed(partial: bytes, whole: bytes, columns: Sequence[str]) -> bytes:
    """An object's canonical bytes, with `columns` as they are in another object.

    >>> completed(b'{"a":1}', b'{"a":0,"b":2,"c":3}', ["b"])
    b'{"a":1,"b":2}'
    """
    made, old = _decode(partial), _decode(whole)
    if isinstance(old, dict):
        made |= {name: old[name] for name in columns if name in old}
    return _encode(made)


def write(data: Any) -> bytes:
    """Write data whose numbers are canonical already, as `decoder` and `exact` give them.

    Structs are objects; their UNSET fields are absent.
    """
    return _encode(data)


def exact(value: Decimal) -> int | float | Decimal:
    """The canonical form of a decimal: the integer, else the short double, else itself.

    Raises:
        DecodeError: it is not finite, or beyond any double.
    """
    if not value.is_finite():
        raise DecodeError("decimal", "it is not finite")
    try:
        return number(str(value))
    except ArithmeticError:
        raise DecodeError("decimal", "a number has too many digits") from None


def decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    """A decoder of JSON messages into a msgspec type, whose numbers are canonical.

    Of a struct only the fields that it has are decoded; the others are skipped.  What
    it raises is for `refusing` to name.
    """
    return msgspec.json.Decoder(kind, float_hook=number).decode


# All that a decoder raises when its message is at fault.
REFUSALS = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)


def refused(codec: str, error: Exception) -> DecodeError:
    """Name what a decoder has raised, without the payload."""
    match error:
        case DecodeError():
            return error
        case msgspec.MsgspecError():
            # It quotes positions and kinds, and payload only where a value is none of an
            # enumeration's or a key is one.
            return DecodeError(codec, _QUOTED.sub("…", str(error)))
        case UnicodeDecodeError():
            return DecodeError(codec, f"byte {error.start} of a string is not UTF-8")
        case RecursionError():
            return DecodeError(codec, "it is nested too deeply")
        case _:
            return DecodeError(codec, "a number has too many digits")


_QUOTED = re.compile(r"'.*'", re.DOTALL)


class JsonObject(dict[str, Any]):
    """A JSON object as a dict that can be hashed, and so accumulated; not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class JsonArray(list[Any]):
    """A JSON array as a list that can be hashed, and so accumulated; not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def decode(canonical_bytes: bytes) -> Any:
    """Read canonical bytes back as Python data, all of which can be hashed.

    A number is an `int`, or else a `float`, however many digits it has (`ExactFloat`).

    >>> {decode(b'{"a":[1]}'): 2}
    {{'a': [1]}: 2}
    """
    return _hashable(_decode_as_python(canonical_bytes))


def _hashable(data: Any) -> Any:
    if isinstance(data, dict):
        return JsonObject((name, _hashable(value)) for name, value in data.items())
    if isinstance(data, list):
        return JsonArray(_hashable(value) for value in data)
    return data
