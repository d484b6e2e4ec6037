"""Data whole, key and value in one: what arrangements keep, and lookups find.

A datum begins with the length of its key, -1 if it has none; then come key and value.
"""

import struct

from ikebana.codecs import canonical

_LENGTH = struct.Struct(">i")
_START = _LENGTH.size
_NO_KEY = _LENGTH.pack(-1)
_NULL = b"null"
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


def key_sql(keys: tuple[str, ...]) -> str:
    """SQL for what expressions come to together: of one its value, of several an object.

    >>> key_sql(("a", "b + 1"))
    "{'k0': (a), 'k1': (b + 1)}"
    """
    if len(keys) == 1:
        return keys[0]
    parts = ", ".join(f"'k{at}': ({key})" for at, key in enumerate(keys))
    return f"{{{parts}}}" if keys else "NULL"


def is_null(key: bytes, parts: int) -> bool:
    """Whether a key of so many parts has one that is null, which is equal to nothing.

    >>> is_null(b"null", 1), is_null(b'{"k0":1,"k1":null}', 2), is_null(b"null", 0)
    (True, True, False)
    """
    if parts < 2 or _NULL not in key:
        return parts == 1 and key == _NULL
    return None in canonical.decode(key).values()
