"""Canonical bytes of JSON data, so that equal data are equal bytes.

Equality is defined so: the order of an object's fields does not matter; 1 = 1.0 = 1e0; 1 equals
neither true nor "1"; strings are compared exactly; a null field is not an absent one.  A number
that is not finite, which JSON does not have, is one of the texts "NaN", "Infinity" and
"-Infinity", so it equals itself, as in SQL.  Numbers
keep their exact value: a fraction that a double cannot carry in 15 digits stays a decimal.  A
number of 1e309 or more, which exceeds every double, is refused unless it is written as an
integer.  If an object repeats a field, the last one counts.

A message is read as a whole, or some fields of its object, while the parser skips the others
(`projection`, `object_of`).  What is no JSON is refused either way (`require_readable`), and so is
what nests more than `DEEPEST` arrays and objects.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from itertools import accumulate
from typing import Any, TypedDict, cast

import msgspec

from ikebana.codecs.errors import DecodeError

try:
    from ikebana.compiled._nesting import any_opens_more, doubtful
except ImportError:
    any_opens_more = doubtful = None  # type: ignore[assignment]
try:
    from ikebana.compiled._row_images import Rows as CompiledRows
except ImportError:
    CompiledRows = None  # type: ignore[assignment,misc]

# Every decimal of up to 15 significant digits survives a double and its shortest repr.
_EXACT_DIGITS = 15
# Nearer to zero, doubles lose digits.
_SMALLEST_EXPONENT = -300
# The exponent of the largest double.  A greater number written in full digits could be far
# longer than its message; written otherwise, 1e400 would differ from its digits.
_LARGEST_EXPONENT = 308


def number(text: str) -> int | float | Decimal:
    """Read a number in its canonical form: an integer, else a short double, else a decimal.

    >>> number("1e0"), number("1.50"), number("0.12345678901234567890")
    (1, 1.5, Decimal('0.1234567890123456789'))
    """
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


# Nothing is rounded in this context: a number keeps every digit.
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class ExactFloat(float):
    """A JSON number with more digits than a double carries, as the nearest double.

    It computes and compares like any float, and the results are ordinary floats.  It keeps all
    of its digits when it is passed on unchanged, and in `Decimal(str(number))`.

    >>> decode(b"0.12345678901234567890")
    0.1234567890123456789
    """

    __slots__ = ("exact",)
    exact: Decimal

    def __new__(cls, exact: Decimal) -> "ExactFloat":
        near = super().__new__(cls, exact)
        near.exact = exact
        return near

    def __repr__(self) -> str:
        return str(self.exact)

    def __getnewargs__(self) -> tuple[Decimal]:  # type: ignore[override]
        return (self.exact,)


def _as_python(text: str) -> int | float:
    """Read a number like Python's `json`, but keep digits that a double does not carry."""
    precise = number(text)
    if not isinstance(precise, Decimal):
        return precise
    nearest = float(precise)
    return nearest if Decimal(repr(nearest)) == precise else ExactFloat(precise)


def _as_decimal(data: Any) -> Decimal:
    """Convert a number of a type that the encoder does not know."""
    if isinstance(data, ExactFloat):
        return data.exact
    raise TypeError(f"data of type {type(data).__name__} have no JSON form")


_decode = msgspec.json.Decoder(float_hook=number).decode
_decode_as_python = msgspec.json.Decoder(float_hook=_as_python).decode
_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number", enc_hook=_as_decimal)
_encode = _encoder.encode


def encode(data: Any) -> bytes:
    """Write data as its canonical bytes, which can be read again anywhere.

    >>> encode({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'

    Raises:
        TypeError: JSON has no form of the data.
        ValueError: a decimal is not finite, or the data are nested too deeply.
    """
    encoded = _encode(data)
    # The encoder writes null for a float that is not finite.
    if b"null" in encoded and not _finite(data):
        encoded = _encode(finite(data))
    if too_deep(encoded):
        raise ValueError("it is nested too deeply")
    try:
        # The decoder makes numbers canonical, such as a caller's 1.0.
        return _encode(_decode(encoded))
    except msgspec.DecodeError:
        # A Decimal's NaN is written as NaN, which the decoder refuses.
        raise ValueError("a decimal is not finite") from None


NAN, INFINITY = "NaN", "Infinity"
"""The texts of numbers that are not finite; below zero with a sign."""


def spelling(number: float) -> str:
    """The text of a float that is not finite."""
    return NAN if math.isnan(number) else INFINITY if number > 0 else f"-{INFINITY}"


def _finite(data: Any) -> bool:
    if isinstance(data, dict):
        return all(map(_finite, data.values()))
    if isinstance(data, list | tuple | set | frozenset):
        return all(map(_finite, data))
    return not isinstance(data, float) or math.isfinite(data)


def finite(data: Any) -> Any:
    """Data with texts in place of floats that are not finite.

    >>> finite({"a": [1.5, float("-inf")]})
    {'a': [1.5, '-Infinity']}
    """
    if _finite(data):
        return data
    if isinstance(data, dict):
        return {name: finite(value) for name, value in data.items()}
    if isinstance(data, float):
        return spelling(data)
    return [finite(each) for each in data]


def canonical(message: bytes) -> bytes:
    """Rewrite a JSON message as its canonical bytes.

    >>> canonical(b'{"b": 1.0, "a": 1e0}')
    b'{"a":1,"b":1}'

    Raises:
        DecodeError: the message is not JSON, not UTF-8, nested too deeply, or has a
            number with too many digits.
    """
    try:
        return _encode(_decode(message))
    except REFUSALS as error:
        raise decode_error("JSON", error) from None


def canonical_many(messages: Sequence[bytes | str]) -> list[bytes]:
    """Apply `canonical` to messages.  Raises: DecodeError, for the first that is not JSON."""
    encode, decode = _encode, _decode
    try:
        return [encode(decode(message)) for message in messages]
    except REFUSALS as error:
        raise decode_error("JSON", error) from None


def complete_object(partial: bytes, whole: bytes, columns: Sequence[str]) -> bytes:
    """Complete an object's canonical bytes by the `columns` of another object.

    >>> complete_object(b'{"a":1}', b'{"a":0,"b":2,"c":3}', ["b"])
    b'{"a":1,"b":2}'
    """
    row, old = _decode(partial), _decode(whole)
    if isinstance(old, dict):
        row |= {name: old[name] for name in columns if name in old}
    return _encode(row)


def widened(row: bytes, like: bytes) -> bytes:
    """Add a null for each field that another object has and the row lacks.

    >>> widened(b'{"a":1}', b'{"a":2,"b":3}')
    b'{"a":1,"b":null}'
    """
    if row[:1] != b"{" or like[:1] != b"{":
        return row
    return _encode({**dict.fromkeys(_decode(like)), **_decode(row)})


def without_nulls(row: bytes) -> bytes:
    """Leave out the fields of an object that are null.

    >>> without_nulls(b'{"a":1,"b":null}')
    b'{"a":1}'
    """
    if row[:1] != b"{":
        return row
    return _encode({name: value for name, value in _decode(row).items() if value is not None})


def write(data: Any) -> bytes:
    """Write data with canonical numbers, as `decoder` and `canonical_number` return them.

    Structs become objects, without their UNSET fields.
    """
    return _encode(data)


def key(row: Mapping[str, Any], columns: Sequence[str]) -> bytes:
    """Write the key of a row from these columns; their order does not matter.

    Raises:
        KeyError: the row lacks one of them; its argument is the name.
    """
    return _encode({name: row[name] for name in columns})


def canonical_number(value: Decimal) -> int | float | Decimal:
    """Convert a decimal to its canonical form: an integer, else a short double, else itself.

    Raises:
        DecodeError: it is not finite, or greater than every double.
    """
    if not value.is_finite():
        raise DecodeError("decimal", "it is not finite")
    try:
        return number(str(value))
    except ArithmeticError:
        raise DecodeError("decimal", "a number has too many digits") from None


def decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    """Make a decoder of JSON messages into a msgspec type, with canonical numbers.

    Only the fields that a struct defines are decoded.  The decoder raises `REFUSALS`, which
    `decode_error` turns into a DecodeError.
    """
    return msgspec.json.Decoder(kind, float_hook=number).decode


# The exceptions that a decoder raises at a message that it cannot decode.
REFUSALS = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)
# Those, and the error of a codec.
FAULTS = (DecodeError, *REFUSALS)


def decode_error(codec: str, error: Exception) -> DecodeError:
    """Make a DecodeError of an exception of a decoder, without the payload."""
    match error:
        case DecodeError():
            return error
        case msgspec.MsgspecError():
            # The message quotes payload only in unknown enumeration values, and keys.
            reason = _QUOTED.sub("…", str(error))
            # Said of half of a surrogate pair at the end of a text, too.
            cut_off = "it is empty, cut off, or has half a surrogate pair"
            return DecodeError(codec, cut_off if reason == _TRUNCATED else reason)
        case UnicodeDecodeError():
            return DecodeError(codec, f"byte {error.start} of a string is not UTF-8")
        case RecursionError():
            return DecodeError(codec, "it is nested too deeply")
        case _:
            return DecodeError(codec, "a number has too many digits")


_QUOTED = re.compile(r"'.*'", re.DOTALL)
_TRUNCATED = "Input data was truncated"


class JsonObject(dict[str, Any]):
    """A JSON object as a hashable dict, for `accumulate`; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class JsonArray(list[Any]):
    """A JSON array as a hashable list, for `accumulate`; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def decode(canonical_bytes: bytes) -> Any:
    """Read canonical bytes back as hashable Python data.

    A number is an `int`, or a `float`, which keeps all of its digits (`ExactFloat`).

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


# The limit of nesting is the same wherever the program reads JSON.  Without a limit, Python's
# stack would be one, and a message could be decoded in one place but not in another that is a few
# calls deeper.

DEEPEST = 200
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


def any_too_deep(messages: Iterable[bytes | None]) -> bool:
    """Whether any of many JSON texts is `too_deep`; None is no text."""
    messages = [*messages]
    if any_opens_more is not None and not any_opens_more(messages, DEEPEST):
        return False
    # A text needs a character for each bracket.
    long = [each for each in messages if each is not None and len(each) > DEEPEST]
    return any(map(too_deep, long))


def too_deep(message: bytes) -> bool:
    """Whether a JSON text nests more than `DEEPEST` arrays and objects.

    >>> too_deep(b"[" * 200 + b"]" * 200), too_deep(b"[" * 201 + b"]" * 201)
    (False, True)
    >>> too_deep(b'["' + b"[" * 500 + b'"]')
    False
    """
    # Nearly all messages have fewer bytes, or fewer brackets altogether.
    if len(message) <= DEEPEST or _openings(message) <= DEEPEST:
        return False
    steps = map(_STEPS.__getitem__, _BRACKETS.findall(_TEXTS.sub(b"", message)))
    return max(accumulate(steps), default=0) > DEEPEST


def _openings(message: bytes) -> int:
    # Far quicker than count(): replace() jumps from one bracket to the next.
    return 2 * len(message) - len(message.replace(b"{", b"")) - len(message.replace(b"[", b""))


# Some fields of objects.  msgspec finds the fields of a TypedDict only if their names are ASCII,
# and those of a struct only if JSON need not escape them.  Objects with other names are decoded as
# a whole.

_ESCAPED = re.compile(r'["\\\x00-\x1f]').search


def fit_a_struct(names: Sequence[str]) -> bool:
    """Whether msgspec can decode fields of these names with a struct."""
    return not any(map(_ESCAPED, names))


def object_of(fields: Mapping[str, Any] | None) -> Any:
    """Make the type of an object with these fields; None for all fields.

    A decoded object may have more fields than these: see `is_exact`.
    """
    if fields is None or not is_exact(fields):
        return dict[str, _any_of(fields or {})]  # type: ignore[misc]
    return cast(Any, TypedDict)("Fields", dict(fields), total=False)


def is_exact(fields: Mapping[str, Any] | None) -> bool:
    """Whether objects of the type `object_of(fields)` have no other fields."""
    return fields is None or all(map(str.isascii, fields))


def _any_of(fields: Mapping[str, Any]) -> Any:
    kinds = set(fields.values())
    return kinds.pop() if len(kinds) == 1 else Any


def projection(columns: Sequence[str]) -> Callable[[bytes], bytes]:
    """Make a function from a JSON message to the canonical bytes of some of its fields.

    The result for a message that is no object is an object without fields.

    >>> projection(["b", "c"])(b'{"a": 1, "b": 2}')
    b'{"b":2}'

    Raises:
        DecodeError: from the function, for a message that is not JSON.
    """
    pick = _by_struct(columns) if fit_a_struct(columns) else _by_name(columns)
    row = _left_to_python if CompiledRows is None else CompiledRows(columns, ()).row

    def project(message: bytes) -> bytes:
        if (picked := row(message)) is not None:
            return picked
        try:
            require_readable(message)
            return pick(message)
        except REFUSALS as error:
            # This raises if the message is no JSON.
            canonical(message)
            if isinstance(error, msgspec.ValidationError):
                return b"{}"
            raise decode_error("JSON", error) from None

    return project


def _left_to_python(message: bytes) -> bytes | None:
    return None


def _by_struct(columns: Sequence[str]) -> Callable[[bytes], bytes]:
    names = [f"f{at}" for at in range(len(columns))]
    fields = msgspec.defstruct(
        "Fields",
        [(name, object, msgspec.UNSET) for name in names],
        rename=dict(zip(names, columns, strict=True)),
    )
    decode = decoder(fields)
    return lambda message: _encode(decode(message))


def _by_name(columns: Sequence[str]) -> Callable[[bytes], bytes]:
    decode = decoder(dict[str, Any])

    def pick(message: bytes) -> bytes:
        row = decode(message)
        return _encode({name: row[name] for name in columns if name in row})

    return pick


# Faults in fields that are not read.  Whether a message is an error must not depend on which
# fields are read, or adding a reader of one column would change what others see.  A parser that
# skips a field detects all faults of its syntax, but neither bytes that are no UTF-8 nor numbers
# out of range.  These are found here, in whole messages.

_KINDS = bytes(
    ord("0") if byte in b"0123456789" else ord("e") if byte in b"eE" else ord("x")
    for byte in range(256)
)
# A number of fewer digits, with an exponent of two digits at most, is no greater than 1e308.
_MANY_DIGITS = b"0" * 200


def require_readable(message: bytes) -> None:
    """Refuse a message that could not be decoded if all of its fields were read.

    It has to be decoded nevertheless to know whether its syntax is right.

    Raises: `REFUSALS`.
    """
    if _doubtful(message):
        _decode(message)


def doubtful_in_python(message: bytes) -> bool:
    """Whether a text is no UTF-8, or may have a number out of range.

    The compiled form looks closer at exponents, because it takes less than decoding the text.

    >>> doubtful_in_python(b'{"a": 1.5}'), doubtful_in_python(b"[1e400]")
    (False, True)
    """
    if not message.isascii():
        try:
            message.decode()
        except UnicodeDecodeError:
            return True
    kinds = message.translate(_KINDS)
    return b"0e" in kinds or _MANY_DIGITS in kinds


_doubtful = doubtful_in_python if doubtful is None else doubtful
