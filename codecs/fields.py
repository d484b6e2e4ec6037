"""Decode some fields of JSON objects, while the parser skips the others.

msgspec finds the fields of a TypedDict only if their names are ASCII, and those of a struct
only if JSON need not escape them.  Objects with other names are decoded as a whole.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.unread import require_readable

try:
    from ikebana.compiled._row_images import Rows
except ImportError:
    Rows = None  # type: ignore[assignment,misc]

LONGEST_NAME = 1_000
"""No database has longer names of tables, with their schemas and catalogs."""
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
    row = Rows(columns, ()).row if Rows is not None else _left_to_python

    def project(message: bytes) -> bytes:
        if (picked := row(message)) is not None:
            return picked
        try:
            require_readable(message)
            return pick(message)
        except canonical.REFUSALS as error:
            # This raises if the message is no JSON.
            canonical.canonical(message)
            if isinstance(error, msgspec.ValidationError):
                return b"{}"
            raise canonical.refused("JSON", error) from None

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
    decode, write = canonical.decoder(fields), canonical.write
    return lambda message: write(decode(message))


def _by_name(columns: Sequence[str]) -> Callable[[bytes], bytes]:
    decode = canonical.decoder(dict[str, Any])

    def pick(message: bytes) -> bytes:
        row = decode(message)
        return canonical.write({name: row[name] for name in columns if name in row})

    return pick


def require_bounded(codec: str, name: str) -> str:
    """Return a table's name if it is not too long to match patterns.  Raises: DecodeError."""
    if len(name) > LONGEST_NAME:
        raise DecodeError(codec, "the table's name is too long")
    return name
