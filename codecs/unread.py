"""Find faults of a JSON message in fields that are not read.

Whether a message is an error must not depend on which fields are read, or adding a reader of one
column would change what others see.  A parser that skips a field detects all faults of its
syntax, but neither bytes that are no UTF-8 nor numbers out of range.  These are found here,
in whole messages.
"""

from typing import Any

from ikebana.codecs import canonical

try:
    from ikebana.compiled._nesting import doubtful
except ImportError:
    doubtful = None  # type: ignore[assignment]

_KINDS = bytes(
    ord("0") if byte in b"0123456789" else ord("e") if byte in b"eE" else ord("x")
    for byte in range(256)
)
# A number of fewer digits, with an exponent of two digits at most, is no greater than 1e308.
_MANY_DIGITS = b"0" * 200


def require_readable(message: bytes) -> None:
    """Refuse a message that could not be decoded if all of its fields were read.

    It has to be decoded nevertheless to know whether its syntax is right.

    Raises: `canonical.REFUSALS`.
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
_decode = canonical.decoder(Any)
