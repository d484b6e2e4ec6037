"""What kernels take and give: symbols in, updates out, as columns of bytes.

Symbols are kept in columns because a micro-batch holds hundreds of thousands of them
and most never need a Python object of their own.
"""

from typing import NamedTuple

import msgspec


class Rank(NamedTuple):
    """Where a record stands among those of its time: the later one wins."""

    input: int
    partition: int
    offset: int


class Symbols(msgspec.Struct, array_like=True, tag="symbols"):
    """Consecutive records of one partition, addressed to the operators of one input.

    `keys`, `values` and `offsets` are of one length.  `times` is one time for all, or
    a list with one for each.  A value is None for a tombstone.  `bad` holds, by index,
    the error record of each value that could not be decoded; its value is then None.
    """

    input: str
    input_order: int
    partition: int
    times: int | list[int]
    keys: list[bytes]
    values: list[bytes | None]
    offsets: list[int]
    bad: dict[int, bytes] = {}


class Errors(msgspec.Struct, array_like=True, tag="errors"):
    """Error records that no key leads to: each stands for ever, at its time."""

    records: list[bytes]
    times: int | list[int]


class KeyedUpdate(NamedTuple):
    """The multiplicity of (key, value) changes by `diff` at `time`."""

    key: bytes | None
    value: bytes
    time: int
    diff: int


def times_of(times: int | list[int], count: int) -> list[int]:
    """One time for each of `count` records."""
    return [times] * count if isinstance(times, int) else times
