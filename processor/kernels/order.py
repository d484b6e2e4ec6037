"""JSON values as bytes that sort in the order of the values, ascending or descending.

The order is: false, true, numbers by value, texts by their UTF-8, arrays and objects by
their canonical bytes.  Numbers are exact, however large and however many digits they
have.  No value's bytes begin another's.

If a SQL type sorts otherwise than its JSON, a value is a pair: bytes in the order of the type
(`typed_order`), and the canonical bytes of the value, which `value_of` returns.
"""

import struct
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.base import typed_order
from ikebana.processor.base.typed_order import Order

# Beyond this exponent canonical JSON has integers only.
_LARGEST_EXPONENT = 308

_FALSE, _TRUE, _BELOW_ZERO, _IS_ZERO, _ABOVE_ZERO, _TEXT, _OTHER, _TYPED = (
    b"%d" % n for n in range(8)
)
# Each byte of data is raised by one, so that data can end in a zero: then none is the prefix of
# another, and inverting all bits reverses the order.  UTF-8 has no byte 255.
_UP = bytes((byte + 1) % 256 for byte in range(256))
_DOWN = bytes((byte - 1) % 256 for byte in range(256))
_TURNED = bytes(255 - byte for byte in range(256))
_SPELLED = {written: text for text, written in typed_order.NOT_FINITE.items()}
_EXPONENT = struct.Struct(">Q")
_EXPONENT_BIAS = 1 << 63
_LENGTH = struct.Struct(">I")


def ordered(value: Any, *, descending: bool, order: Order = "") -> bytes:
    """A value, as `canonical.decoder` gives it, as bytes that are in the order of values.

    `order` is the order of the values' type, if that is not the one of JSON.

    >>> ordered(9, descending=False) < ordered(10, descending=False)
    True
    """
    if order == "double":
        ascending = typed_order.ascending(value, order, _ascending)
    else:
        ascending = _pair(value, order) if order else _ascending(value)
    return b"-" + ascending.translate(_TURNED) if descending else b"+" + ascending


def value_of(place: bytes) -> Any:
    """The value that `ordered` encoded.

    Arrays, objects and values with the order of a type come as canonical bytes.
    """
    ascending = place[1:].translate(_TURNED) if place[:1] == b"-" else place[1:]
    if ascending in _SPELLED:
        return _SPELLED[ascending]
    kind, body = ascending[:1], ascending[1:]
    if kind in (_FALSE, _TRUE):
        return kind == _TRUE
    if kind == _TEXT:
        return body[:-1].translate(_DOWN).decode()
    if kind == _TYPED:
        (length,) = _LENGTH.unpack(body[-_LENGTH.size :])
        written = body[: -_LENGTH.size - 1]
        return msgspec.Raw(written[len(written) - length :].translate(_DOWN))
    if kind == _OTHER:
        return msgspec.Raw(body[:-1].translate(_DOWN))
    if kind == _IS_ZERO:
        return 0
    body = body.translate(_TURNED) if kind == _BELOW_ZERO else body
    (biased,) = _EXPONENT.unpack_from(body)
    digits = tuple(body[_EXPONENT.size : -1].translate(_DOWN))
    exponent = biased - _EXPONENT_BIAS - len(digits) + 1
    return canonical_of(Decimal((int(kind == _BELOW_ZERO), digits, exponent)))


def _pair(value: Any, order: Order) -> bytes:
    # A double within an array is written in its canonical form, not as Python spells it.
    written = canonical.encode(value).translate(_UP)
    by_type = typed_order.ascending(value, order, _ascending)
    return _TYPED + by_type + written + b"\0" + _LENGTH.pack(len(written))


def _ascending(value: Any) -> bytes:
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case int() | float() | Decimal():
            return _ascending_number(decimal_of(value))
        case str():
            return _TEXT + value.encode().translate(_UP) + b"\0"
        case _:
            return _OTHER + canonical.encode(value).translate(_UP) + b"\0"


def _ascending_number(number: Decimal) -> bytes:
    if not number:
        return _IS_ZERO
    # The exponent of the first digit, then the digits without trailing zeros.
    exponent = _EXPONENT.pack(number.adjusted() + _EXPONENT_BIAS)
    digits = bytes(number.as_tuple().digits).rstrip(b"\0").translate(_UP)
    body = exponent + digits + b"\0"
    return _BELOW_ZERO + body.translate(_TURNED) if number < 0 else _ABOVE_ZERO + body


def decimal_of(number: float | Decimal) -> Decimal:
    """A canonical number as the decimal that it is."""
    # A canonical double is the decimal that it is written as.
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def canonical_of(number: Decimal) -> int | float | Decimal:
    """The canonical form; a sum beyond all doubles that has a fraction is rounded."""
    if number.adjusted() > _LARGEST_EXPONENT:
        return int(number.to_integral_value(ROUND_HALF_EVEN))
    return canonical.exact(number)
