"""A datum as one byte string, key and value together, as arrangements store it.

It is the length of the key in 4 bytes, big-endian, or -1 if there is no key; then the key;
then the value.
"""

import struct

_LENGTH = struct.Struct(">i")
_START = _LENGTH.size
_NO_KEY = _LENGTH.pack(-1)
_pack, _unpack = _LENGTH.pack, _LENGTH.unpack_from


def datum_of(key: bytes | None, value: bytes) -> bytes:
    """Join a key and a value into a datum.

    >>> parts_of(datum_of(b"1", b"{}")), parts_of(datum_of(None, b"{}"))
    ((b'1', b'{}'), (None, b'{}'))
    """
    return _NO_KEY + value if key is None else _pack(len(key)) + key + value


def parts_of(datum: bytes) -> tuple[bytes | None, bytes]:
    """Split a datum into its key and its value."""
    (length,) = _unpack(datum)
    if length < 0:
        return None, datum[_START:]
    return datum[_START : _START + length], datum[_START + length :]
