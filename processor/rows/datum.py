"""Data whole, key and value in one: what arrangements keep, and lookups find.

A datum begins with the length of its key, -1 if it has none; then come key and value.
"""

import struct

_LENGTH = struct.Struct(">i")
_START = _LENGTH.size
_NO_KEY = _LENGTH.pack(-1)
_pack, _unpack = _LENGTH.pack, _LENGTH.unpack_from


def datum_of(key: bytes | None, value: bytes) -> bytes:
    """A key and a value as one.

    >>> parts_of(datum_of(b"1", b"{}")), parts_of(datum_of(None, b"{}"))
    ((b'1', b'{}'), (None, b'{}'))
    """
    return _NO_KEY + value if key is None else _pack(len(key)) + key + value


def parts_of(datum: bytes) -> tuple[bytes | None, bytes]:
    """The key and the value of a datum."""
    (length,) = _unpack(datum)
    if length < 0:
        return None, datum[_START:]
    return datum[_START : _START + length], datum[_START + length :]
