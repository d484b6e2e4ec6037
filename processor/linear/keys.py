"""Keys of several parts: their SQL, and nulls in them, which match nothing."""

from collections.abc import Collection

from ikebana.codecs import canonical

_NULL = b"null"


def key_sql(keys: tuple[str, ...]) -> str:
    """SQL for a key of several expressions: the value of a single one, or an object.

    >>> key_sql(("a", "b + 1"))
    "{'k0': (a), 'k1': (b + 1)}"
    """
    if len(keys) == 1:
        return keys[0]
    parts = ", ".join(f"'k{at}': ({key})" for at, key in enumerate(keys))
    return f"{{{parts}}}" if keys else "NULL"


def is_null(key: bytes, parts: int) -> bool:
    """Whether a part of a key of so many parts is null, which is equal to nothing.

    >>> is_null(b"null", 1), is_null(b'{"k0":1,"k1":null}', 2), is_null(b"null", 0)
    (True, True, False)
    """
    if parts < 2 or _NULL not in key:
        return parts == 1 and key == _NULL
    return None in canonical.decode(key).values()


def any_null(keys: Collection[bytes], parts: int) -> bool:
    """Whether any of many keys may have a part that is null; False is certain.

    >>> any_null([b"1", b"null"], 1), any_null([b'{"k0":1,"k1":2}'], 2)
    (True, False)
    """
    if parts < 2:
        return parts == 1 and _NULL in keys
    return any(_NULL in key for key in keys)
