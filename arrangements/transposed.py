"""Changes in columns: numbers that follow the same text are stored together.

Keys and values of a shard are mostly JSON and msgpack of a few shapes, so they differ mostly in
numbers.  Each key and each value is divided into texts, with a number behind each text
but the last: `v{"ok":17,"price":5}` into `v{"ok":`, 17, `,"price":`, 5, `}`.  The stored form has
the texts, once each; the order in which they follow each other; and the numbers, in a column for
each end of a text (`"price":`), as their lowest bytes, then the next ones, and so on, or as
differences if these have less entropy.  Compressed this takes half as much as plain changes.

Keys and values may be any bytes: others are restored exactly, too, but may take more.  Only
compiled code divides changes; without it they are stored as msgpack.
"""

# Decision (blocks in columns): zstd spent most of its output on how far back the same text lies,
# between the digits of numbers. Taken apart, a text is a byte, and numbers of one place lie
# together. Small deltas stay as they are.

from collections.abc import Callable, Iterator

import msgspec

try:
    from ikebana.compiled._putting_together import put_together as _put_together
except ImportError:
    _put_together = None  # type: ignore[assignment]
try:
    from ikebana.compiled._taking_apart import taken_apart as _taken_apart
except ImportError:
    _taken_apart = None  # type: ignore[assignment]

Change = tuple[bytes, bytes | None]

_END, _NOTHING, _COLUMN = range(3)


class NumberColumn(msgspec.Struct, array_like=True, frozen=True):
    """The numbers behind texts that end alike.

    `planes` has the lowest bytes of all `count` numbers, then their next ones, and so on.
    """

    kind: int
    """How a number is written: 0 by its decimal digits, 1 as one byte, 2 as eight bytes."""
    differ: bool
    """Whether each is the difference d from the one before, as 2d, or as -2d - 1 below zero."""
    count: int
    planes: bytes


class Streams(msgspec.Struct, array_like=True, frozen=True):
    """The divided form of changes.

    The byte of a text in `ends` says what follows the text: 0 the end of the key or value, 1
    nothing, for the value of a deletion, and 2 + n a number of column n.  `ids` has the
    texts of all keys and values, from 1 on, as planes of bytes; 0 is the first text that has
    not been used yet.
    """

    entries: int
    texts: bytes
    lengths: list[int]
    ends: bytes
    width: int
    ids: bytes
    columns: list[NumberColumn]


def taken_apart(changes: list[Change]) -> bytes | None:
    """Divide changes; None if they have too many texts, or there is no compiled code."""
    if _taken_apart is None:
        return None
    streams = _taken_apart(changes)
    return None if streams is None else msgspec.msgpack.encode(streams)


def put_together(packed: bytes) -> list[Change]:
    """Restore the changes.

    Raises:
        ValueError: the bytes are no divided changes.
    """
    if _put_together is not None:
        try:
            return _put_together(*msgspec.msgpack.decode(packed, type=_FIELDS))
        except OverflowError as error:
            raise ValueError(str(error)) from None
    return list(changes_of(msgspec.msgpack.decode(packed, type=Streams)))


def changes_of(streams: Streams) -> Iterator[Change]:
    """Yield the changes of streams; this is the reference of the compiled code.

    Raises:
        ValueError: the streams do not fit together.
    """
    texts, ends = _texts(streams), streams.ends
    if streams.width not in (1, 2) or len(streams.ids) % streams.width:
        raise ValueError("texts and their numbers differ")
    ids = _numbers(len(streams.ids) // streams.width, streams.ids)
    columns = [_column(column) for column in streams.columns]
    used = 0
    key: bytes | None = None
    for _ in range(2 * streams.entries):
        part: list[bytes] = []
        while True:
            try:
                number = next(ids)
                if number == 0:
                    number = used = used + 1
                if number > used:
                    raise ValueError("there is no such text")
                part.append(texts[number - 1])
                end = ends[number - 1]
                if end < _COLUMN:
                    break
                part.append(next(columns[end - _COLUMN]))
            except (IndexError, StopIteration):
                raise ValueError("texts, their numbers and columns differ") from None
        if key is None:
            if end == _NOTHING:
                raise ValueError("a change has no key")
            key = b"".join(part)
        else:
            yield key, None if end == _NOTHING else b"".join(part)
            key = None
    if next(ids, None) is not None:
        raise ValueError("there are more texts")


def _texts(streams: Streams) -> list[bytes]:
    texts, offset = [], 0
    for length in streams.lengths:
        if not 0 <= length <= len(streams.texts) - offset:
            raise ValueError("a text is too long")
        texts.append(streams.texts[offset : offset + length])
        offset += length
    if len(streams.ends) != len(texts):
        raise ValueError("texts and what follows them differ")
    return texts


def _column(column: NumberColumn) -> Iterator[bytes]:
    if column.kind not in _WRITTEN:
        raise ValueError("there is no such kind of column")
    count, size = column.count, len(column.planes)
    if count > 0 and (not count <= size <= 8 * count or size % count):
        raise ValueError("a column does not have its numbers")
    return _written(column)


def _written(column: NumberColumn) -> Iterator[bytes]:
    written, last = _WRITTEN[column.kind], 0
    for number in _numbers(column.count, column.planes):
        last = number if not column.differ else last + _difference(number)
        if not 0 <= last < 1 << 64:
            raise ValueError("a number of a column is none")
        yield written(last)


def _difference(number: int) -> int:
    return -(number >> 1) - 1 if number & 1 else number >> 1


def _numbers(count: int, planes: bytes) -> Iterator[int]:
    for at in range(count):
        yield int.from_bytes(planes[at::count], "little")


_WRITTEN: dict[int, Callable[[int], bytes]] = {
    0: lambda number: b"%d" % number,
    1: lambda number: bytes([number]),
    2: lambda number: number.to_bytes(8, "big"),
}
# The fields of `Streams` and `NumberColumn`, as the compiled code takes them.
_FIELDS = tuple[int, bytes, list[int], bytes, int, bytes, list[tuple[int, bool, int, bytes]]]
