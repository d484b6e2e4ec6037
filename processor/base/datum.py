"""A datum as one byte string, key and value together, as arrangements store it.

It is the length of the key in 4 bytes, big-endian, or -1 if there is no key; then the key;
then the value.
"""

import struct
from collections.abc import Iterable, Sequence

try:
    from ikebana.compiled import _data as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

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


def data_of(keys: Sequence[bytes | None], values: Sequence[bytes]) -> list[bytes]:
    """Join each key and its value into a datum.

    >>> data_of([b"1", None], [b"{}", b"[]"]) == [datum_of(b"1", b"{}"), datum_of(None, b"[]")]
    True
    """
    if compiled is not None:
        return compiled.data_of([*keys], [*values])
    return [
        _NO_KEY + value if key is None else _pack(len(key)) + key + value
        for key, value in zip(keys, values, strict=True)
    ]


def values_of(data: Iterable[bytes | None], nothing: bytes) -> list[bytes]:
    """The values of data, and `nothing` for each that is None.

    >>> values_of([datum_of(b"1", b"{}"), datum_of(None, b"[]"), None], b"0")
    [b'{}', b'[]', b'0']
    """
    if compiled is not None:
        return compiled.values_of([*data], nothing)
    return [
        nothing if datum is None else datum[_START + max(_unpack(datum)[0], 0) :] for datum in data
    ]


def keys_of(data: Iterable[bytes | None]) -> list[bytes | None]:
    """The keys of data, and None for each that is None.

    >>> keys_of([datum_of(b"1", b"{}"), datum_of(None, b"[]"), None])
    [b'1', None, None]
    """
    if compiled is not None:
        return compiled.keys_of([*data])
    return [None if datum is None else parts_of(datum)[0] for datum in data]


def parts_of(datum: bytes) -> tuple[bytes | None, bytes]:
    """Split a datum into its key and its value."""
    (length,) = _unpack(datum)
    if length < 0:
        return None, datum[_START:]
    return datum[_START : _START + length], datum[_START + length :]
