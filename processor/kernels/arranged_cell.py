"""The entries of an arrangement: the data of a key, or one datum of a large group, with counts.

The first byte of an entry says which of these it is:

* `v`: a datum that is there once.
* `p`: several data that are there once each.
* `m`: (time by which it is queued, counts by datum), for all others; the counts are those of
  `kernels.history`.  Where one has more than 64 bits, `n` has them as their digits.
* `l`: how many data a large group has, and of how many bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ikebana.processor.kernels import history
from ikebana.processor.kernels.history import Changes, Counts, move, requeued

_ONE, _EACH_ONCE, _MANY, _LARGE = b"v", b"p", b"m", b"n"
_GROUP = b"l"
_ONE_TAG, _EACH_ONCE_TAG, _LARGE_TAG, _GROUP_TAG = (
    tag[0] for tag in (_ONE, _EACH_ONCE, _LARGE, _GROUP)
)

_encode = msgspec.msgpack.encode
_decode_data = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_many = msgspec.msgpack.Decoder(tuple[int | None, dict[bytes, Counts]]).decode
_decode_large = msgspec.msgpack.Decoder(tuple[int | None, dict[bytes, list[str]]]).decode
_decode_group = msgspec.msgpack.Decoder(tuple[int, int]).decode
# The counts of a datum that is there once; nobody changes this list.
_ONCE: Counts = [1]


@dataclass(slots=True)
class Cell:
    """The counts in one entry, which may change: current counts, and counts at times.

    `past` has the times and diffs of data with a history in the entry; these are not in `data`.
    `stored` is the entry as it was, `queued` the time by which it is queued.  Data with a count
    of 0 stay until the entry is compacted.
    """

    data: dict[bytes, int]
    stored: bytes | None = None
    queued: int | None = None
    past: dict[bytes, Counts] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: bytes | None) -> "Cell":
        """Decode an entry of the store."""
        if entry is None:
            return cls({})
        if entry[0] == _ONE_TAG:
            return cls({entry[1:]: 1}, entry)
        if entry[0] == _EACH_ONCE_TAG:
            return cls(dict.fromkeys(_decode_data(memoryview(entry)[1:]), 1), entry)
        queued, many = _many_of(entry)
        past = {datum: counts[1:] for datum, counts in many.items() if len(counts) > 1}
        return cls({datum: counts[0] for datum, counts in many.items()}, entry, queued, past)

    def counted(self) -> list[tuple[bytes, Counts]]:
        """Each datum with its counts, in order, also if only its history is left."""
        data, past = self.data, self.past
        if not past:
            return [(datum, [data[datum]]) for datum in sorted(data) if data[datum]]
        return [
            (datum, [data[datum], *past.get(datum, ())])
            for datum in sorted(data)
            if data[datum] or datum in past
        ]

    def keep(self, datum: bytes, time: int, diff: int) -> None:
        """Add the time of a diff that is counted already to the history of its datum."""
        counts = [self.data.get(datum, 0) - diff, *self.past.get(datum, ())]
        history.add(counts, time, diff)
        self._set(datum, counts)

    def fold(self, since: int) -> None:
        """Compact to `since`."""
        if not self.past:
            # Most cells end here, so nothing is built for them.
            if 0 in self.data.values():
                self.data = {datum: count for datum, count in self.data.items() if count}
            return
        for datum, times in list(self.past.items()):
            counts = [self.data[datum], *times]
            history.fold(counts, since)
            self._set(datum, counts)
        data, past = self.data, self.past
        if 0 in data.values():
            self.data = {d: count for d, count in data.items() if count or d in past}

    def write(self, changes: Changes, place: bytes, since: int) -> None:
        """Stage the writes that store this cell under a key."""
        queued = None
        if self.past:
            queued = requeued(self.queued, max(times[-2] for times in self.past.values()), since)
        changed(changes, place, self.stored, self._entry(queued))
        move(changes, place, self.queued, queued)

    def _entry(self, queued: int | None) -> bytes | None:
        data = self.data
        if not self.past:
            if not data:
                return None
            if len(data) == list(data.values()).count(1):
                if len(data) == 1:
                    (datum,) = data
                    return _ONE + datum
                return _EACH_ONCE + _encode(sorted(data))
        return _many(queued, dict(self.counted()))

    def _set(self, datum: bytes, counts: Counts) -> None:
        self.data[datum] = counts[0]
        if len(counts) > 1:
            self.past[datum] = counts[1:]
        else:
            self.past.pop(datum, None)


def data_of(entry: bytes) -> Iterable[tuple[bytes, Counts]]:
    """Each datum of an entry that is no group, with its counts, which must not be changed."""
    if entry[0] == _ONE_TAG:
        return ((entry[1:], _ONCE),)
    if entry[0] == _EACH_ONCE_TAG:
        return [(datum, _ONCE) for datum in _decode_data(memoryview(entry)[1:])]
    return _many_of(entry)[1].items()


def is_group(entry: bytes | None) -> bool:
    """Whether an entry belongs to a large group."""
    return entry is not None and entry[0] == _GROUP_TAG


def group_of(entry: bytes) -> tuple[int, int]:
    """How many data a large group has, and of how many bytes."""
    return _decode_group(memoryview(entry)[1:])


def group_entry(count: int, size: int) -> bytes:
    """The entry of a large group."""
    return _GROUP + _encode((count, size))


def changed(changes: Changes, place: bytes, old: bytes | None, new: bytes | None) -> None:
    """Stage an entry if it is another one than before."""
    if old != new:
        changes[place] = new


def _many(queued: int | None, data: dict[bytes, Counts]) -> bytes:
    try:
        return _MANY + _encode((queued, data))
    except OverflowError:
        digits = {datum: list(map(str, counts)) for datum, counts in data.items()}
        return _LARGE + _encode((queued, digits))


def _many_of(entry: bytes) -> tuple[int | None, dict[bytes, Counts]]:
    body = memoryview(entry)[1:]
    if entry[0] != _LARGE_TAG:
        return _decode_many(body)
    queued, digits = _decode_large(body)
    return queued, {datum: list(map(int, counts)) for datum, counts in digits.items()}
