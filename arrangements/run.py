"""Runs: sorted changes of a shard between two versions, in one immutable file.

A delta is a run of one version.  Runs are merged into longer ones as their number grows.  A base
is a run from the beginning, so it has no deletions.  A run has the last value of every key that
has changed, so applying it to any state between its versions gives the state at its end.

A file is 8 bytes of magic and format, then blocks.  A block is two 4-byte lengths (stored,
plain), the CRC-32 of these and of the stored bytes, and the content, compressed with zstd.  The
first block is the `Head` as msgpack, each further one has changes in key order.
"""

# Decision (runs, not RocksDB's checkpoints): A shard's durable form is a list of checksummed
# runs. They are verified, read and rescaled without RocksDB, and damage in a local copy cannot
# reach them.

import re
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter

import msgspec
import pyarrow as pa

from ikebana.arrangements.files import FileStore, damaged

try:
    import ikebana.compiled._merging as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]
try:
    from ikebana.compiled._arranged import size_of
except ImportError:
    size_of = None  # type: ignore[assignment]
try:
    from ikebana.compiled._putting_together import put_together as _put_together
except ImportError:
    _put_together = None  # type: ignore[assignment]
try:
    from ikebana.compiled._taking_apart import taken_apart as _divided
except ImportError:
    _divided = None  # type: ignore[assignment]

EntryChange = tuple[bytes, bytes | None]
"""A key with its value, or None if it is deleted."""

_MAGIC = b"ikebana\x01"
_SUFFIX = ".run"
# Runs of this kind are merged after a few batches: small ones are stored without trying columns.
_PASSING = "delta"
_PASSING_BYTES = 1 << 19
_BLOCK_ENTRIES = 20_000
_BLOCK_BYTES = 4 << 20
# Sizes are summed up for this many entries at once.
_AT_ONCE = 100
# A merge takes this many changes from all runs together at a time, within milliseconds.
_PORTION = 16_000
_key_of = itemgetter(0)
_LENGTHS = 8
_CHECK = 4
_NAME = re.compile(
    r"\.?([0-9]{12,})-([0-9]{12,})-(?:delta|run|base)-[0-9a-f]+" + re.escape(_SUFFIX)
)


class Head(msgspec.Struct, frozen=True):
    """The first block of a run's file, which describes the run.

    `states` has the id of the state after each of its versions, oldest first; the last id is that
    of the state at its end.
    """

    checkpoint: str
    shard: int
    lower: int
    upper: int
    states: list[str]


class RunEntry(msgspec.Struct, frozen=True):
    """The entry of a run in a manifest; the run has the versions `lower < v <= upper`."""

    name: str
    lower: int
    upper: int
    state: str
    entries: int
    size: int
    plain: int
    """The bytes of its keys and values."""
    gone: int
    """The bytes of older values that it deletes, at least."""


class _Count:
    """The numbers of entries and bytes that were written."""

    entries = plain = 0


def write(
    files: FileStore, head: Head, changes: Iterable[EntryChange], kind: str, gone: int = 0
) -> RunEntry:
    """Write changes, which must be in key order, as one file; return its manifest entry.

    They delete values of at least `gone` bytes.
    """
    count = _Count()
    stem = f"{head.upper:012d}-{head.lower:012d}-{kind}"
    pieces = _encode(head, changes, count, is_passing=kind == _PASSING)
    name, size = files.write(stem, _SUFFIX, pieces)
    counted = count.entries, size, count.plain, gone
    return RunEntry(name, head.lower, head.upper, head.states[-1], *counted)


def read(files: FileStore, name: str) -> tuple[Head, Iterator[list[EntryChange]]]:
    """Read the head of a run and its changes, block by block, in key order.

    The file is verified only after the last block: results from the blocks must not be used
    before.

    Raises:
        StateFileError: the file is missing or damaged.
    """
    blocks = _blocks(files, name)
    try:
        head = msgspec.msgpack.decode(next(blocks), type=Head)
    except (StopIteration, msgspec.MsgspecError):
        raise damaged(name, "it has no head") from None
    return head, _changes(blocks, name)


def merge(files: FileStore, names: Iterable[str]) -> Iterator[EntryChange]:
    """Merge the changes of adjoining runs, oldest first, into the changes of one run."""
    opened = [_Opened(read(files, name)[1]) for name in names]
    while left := [run for run in opened if run.has_more()]:
        portion = max(1, _PORTION // len(left))
        # Every run has been read up to this key, so the merged changes are in order.
        bound = min(run.next_bound(portion) for run in left)
        yield from merged([run.take(bound) for run in left])


def bounds(name: str) -> tuple[int, int] | None:
    """Read the versions (lower, upper) from the name of a run's file; None for other files.

    An incomplete file that a killed writer has left counts as a run.
    """
    match = _NAME.fullmatch(name)
    return (int(match[2]), int(match[1])) if match else None


class _Opened:
    """The changes of a run that is being merged, with one block at a time in memory."""

    def __init__(self, blocks: Iterator[list[EntryChange]]) -> None:
        self._blocks = blocks
        self._block: list[EntryChange] = []
        self._at = 0

    def has_more(self) -> bool:
        """Whether there are changes that have not been taken."""
        while self._at >= len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block, self._at = block, 0
        return True

    def next_bound(self, portion: int) -> bytes:
        """The key up to which changes can be taken from this block, a portion at the most."""
        return self._block[min(self._at + portion, len(self._block)) - 1][0]

    def take(self, bound: bytes) -> list[EntryChange]:
        """Take the changes of the keys up to `bound`, which is no greater than `next_bound`."""
        start = self._at
        self._at = bisect_right(self._block, bound, start, key=_key_of)
        return self._block[start : self._at]


def _encode(
    head: Head, changes: Iterable[EntryChange], count: _Count, *, is_passing: bool
) -> Iterator[bytes]:
    yield _MAGIC
    yield _block(msgspec.msgpack.encode(head))
    blocks = _gathered(iter(changes))
    first = list(islice(blocks, 2))
    is_passing = is_passing and len(first) == 1 and first[0][1] < _PASSING_BYTES
    for gathered, size in chain(first, blocks):
        count.entries += len(gathered)
        count.plain += size
        yield _block(encode(gathered, is_passing=is_passing))


def _gathered(changes: Iterator[EntryChange]) -> Iterator[tuple[list[EntryChange], int]]:
    """Gather changes for blocks; yield them with the number of their bytes."""
    gathered: list[EntryChange] = []
    size = 0
    while some := list(islice(changes, _AT_ONCE)):
        more = (_size_of if size_of is None else size_of)(some)
        if len(gathered) + len(some) < _BLOCK_ENTRIES and size + more < _BLOCK_BYTES:
            gathered += some
            size += more
            continue
        for change in some:
            gathered.append(change)
            size += _size_of([change])
            if len(gathered) >= _BLOCK_ENTRIES or size >= _BLOCK_BYTES:
                yield gathered, size
                gathered, size = [], 0
    if gathered:
        yield gathered, size


def _size_of(changes: list[EntryChange]) -> int:
    return sum(len(key) + len(value or b"") for key, value in changes)


def _block(plain: bytes) -> bytes:
    stored = compressed(plain)
    lengths = len(stored).to_bytes(4, "big") + len(plain).to_bytes(4, "big")
    return lengths + _check(lengths, stored) + stored


def _check(lengths: bytes, stored: bytes) -> bytes:
    return zlib.crc32(stored, zlib.crc32(lengths)).to_bytes(_CHECK, "big")


def _blocks(files: FileStore, name: str) -> Iterator[bytes]:
    content = _Content(files.read(name))
    if content.take(len(_MAGIC)) != _MAGIC:
        content.drain()
        raise damaged(name, "it does not begin as a run of this format")
    while lengths := content.take(_LENGTHS):
        check = content.take(_CHECK)
        stored = content.take(int.from_bytes(lengths[:4], "big"))
        # The hash of the whole file is checked only at the end.  The head is used before, and a
        # decoder must not get damaged bytes.
        if check != _check(lengths, stored):
            content.drain()
            raise damaged(name, "a block does not have its checksum")
        yield decompressed(stored, int.from_bytes(lengths[4:], "big"))


def _changes(blocks: Iterator[bytes], name: str) -> Iterator[list[EntryChange]]:
    for block in blocks:
        try:
            yield decode(block)
        except ValueError:
            raise damaged(name, "a block does not hold changes") from None


class _Content:
    """Regroups the pieces of a file into the lengths that the format needs."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()

    def take(self, count: int) -> bytes:
        while len(self._held) < count:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held += piece
        content = bytes(self._held[:count])
        del self._held[:count]
        return content

    def drain(self) -> None:
        """Read to the end, where the file store checks the hash."""
        for _ in self._pieces:
            pass


# A block has changes in key order, as msgpack or in columns.  Which of the two is smaller depends
# on the data: numbers between repeated texts take half as much in columns, random data take more.
# So both are tried on a sample of the block.  Trying takes as long as everything else for few
# changes, so changes that will soon be merged with others, and written again, are stored as
# msgpack.

# Marks changes in columns.  In msgpack it would be a number, while other blocks begin with a
# list.
_IN_COLUMNS = b"\x01"
# A sample: neighbours at this many places, their number, and the most bytes of all.
_PLACES = 4
_SAMPLED = 512
_SAMPLED_BYTES = 1 << 16
# With fewer changes, trying is not worth it.
_FEWEST = 8


def encode(changes: list[EntryChange], *, is_passing: bool = False) -> bytes:
    """Make the content of a block, not yet compressed.

    A block that `is_passing` will soon be written again, and is stored without trying columns.
    """
    if is_passing or len(changes) < _FEWEST:
        return _as_they_are(changes)
    sample = _sample(changes)
    packed = divide_changes(sample)
    if packed is None:
        return _as_they_are(changes)
    plain = _as_they_are(sample)
    if len(compressed(packed)) >= len(compressed(plain)):
        return plain if sample is changes else _as_they_are(changes)
    if sample is not changes:
        packed = divide_changes(changes)
    return _as_they_are(changes) if packed is None else _IN_COLUMNS + packed


def decode(plain: bytes) -> list[EntryChange]:
    """Read the content of a block.

    Raises:
        ValueError: it does not hold changes.
    """
    if plain.startswith(_IN_COLUMNS):
        return restore_changes(plain[len(_IN_COLUMNS) :])
    return msgspec.msgpack.decode(plain, type=list[EntryChange])


def compressed(plain: bytes) -> bytes:
    """Compress a block with zstd."""
    stored: bytes = pa.compress(plain, codec="zstd", asbytes=True)
    return stored


def decompressed(stored: bytes, size: int) -> bytes:
    """Restore a block of `size` bytes."""
    plain: bytes = pa.decompress(stored, size, codec="zstd", asbytes=True)
    return plain


def _as_they_are(changes: list[EntryChange]) -> bytes:
    return msgspec.msgpack.encode(changes)


def _sample(changes: list[EntryChange]) -> list[EntryChange]:
    """Changes from all places, with long values cut; all of them, if they are few."""
    each = _SAMPLED // _PLACES
    sample = changes
    if len(changes) > _SAMPLED:
        apart = (len(changes) - each) // (_PLACES - 1)
        sample = [
            change
            for place in range(_PLACES)
            for change in changes[place * apart : place * apart + each]
        ]
    most = _SAMPLED_BYTES // len(sample)
    if all(len(value or b"") <= most for _, value in sample):
        return sample
    return [(key, value and value[:most]) for key, value in sample]


# Changes in columns: numbers that follow the same text are stored together.
#
# Keys and values of a shard are mostly JSON and msgpack of a few shapes, so they differ mostly in
# numbers.  Each key and each value is divided into texts, with a number behind each text
# but the last: `v{"ok":17,"price":5}` into `v{"ok":`, 17, `,"price":`, 5, `}`.  The stored form
# has the texts, once each; the order in which they follow each other; and the numbers, in a column
# for each end of a text (`"price":`), as their lowest bytes, then the next ones, and so on, or as
# differences if these have less entropy.  Compressed this takes half as much as plain changes.
#
# Keys and values may be any bytes: others are restored exactly, too, but may take more.  Only
# compiled code divides changes; without it they are stored as msgpack.

# Decision (blocks in columns): zstd spent most of its output on how far back the same text lies,
# between the digits of numbers. Taken apart, a text is a byte, and numbers of one place lie
# together. Small deltas stay as they are.

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


def divide_changes(changes: list[EntryChange]) -> bytes | None:
    """Divide changes; None if they have too many texts, or there is no compiled code."""
    if _divided is None:
        return None
    streams = _divided(changes)
    return None if streams is None else msgspec.msgpack.encode(streams)


def restore_changes(packed: bytes) -> list[EntryChange]:
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


def changes_of(streams: Streams) -> Iterator[EntryChange]:
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


# Sort the changes of a batch by key, and merge the changes of several runs.
#
# The forms in Python are the reference of the compiled ones.

# Decision (merges by portions): Runs are merged as lists, 16,000 changes of all runs at a time,
# up to the key that all have been read to. A merge beside batches yields between portions.


def _in_order(changes: dict[bytes, bytes | None]) -> list[EntryChange]:
    """List changes in the order of their keys."""
    # Keys differ, and are compared faster alone.
    return sorted(changes.items(), key=_key_of)


def _merged(portions: list[list[EntryChange]]) -> list[EntryChange]:
    """Merge changes in key order, the oldest first; of equal keys the youngest counts."""
    latest: dict[bytes, bytes | None] = {}
    for changes in portions:
        latest.update(changes)
    # A few sorted lists, one behind the other, are sorted in nearly linear time.
    return _in_order(latest)


in_order = _in_order if compiled is None else compiled.in_order
merged = _merged if compiled is None else compiled.merged


# Merges of runs beside the batches of a shard.
#
# A merge rewrites up to the whole state of a shard, which takes seconds for millions of entries.
# Its inputs do not change: files of runs, or the local database as of one version.  So a process
# that keeps the database open merges in a thread, and a later batch names the result.  The threads
# run between batches only: while a batch of the process runs, they wait.

# Decision (merges between batches): A thread of the shard's process merges what no batch changes;
# the batch that finds it done names its result. An owner is idle between batches, so no further
# process is needed.

# After this many entries, which take some milliseconds, a thread checks whether a batch has begun.
_CHUNK = 2_000

Paced = Callable[[Iterable[EntryChange]], Iterator[EntryChange]]
"""Yields changes, the first one at once, and waits while batches run."""

_changed = threading.Condition()
_batches = 0


@contextmanager
def merges_waiting() -> Iterator[None]:
    """Let the merges of this process wait while a batch runs."""
    global _batches
    with _changed:
        _batches += 1
    try:
        yield
    finally:
        with _changed:
            _batches -= 1
            _changed.notify_all()


class StoppedError(Exception):
    """The merge was stopped."""


class Merge:
    """One merge of adjoining runs in a thread; `write` reads and writes at a pace.

    When the constructor returns, `write` has begun to read.
    """

    def __init__(self, replaced: Sequence[RunEntry], write: Callable[[Paced], RunEntry]) -> None:
        self._replaced = [run.name for run in replaced]
        self._write = write
        self._begun, self._done = threading.Event(), threading.Event()
        self._hurries = self._stops = False
        self._merged: RunEntry | None = None
        self._thread = threading.Thread(target=self._run, name="ikebana-merge", daemon=True)
        self._thread.start()
        self._begun.wait()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._done.is_set()

    def finish(self, line: Sequence[RunEntry]) -> list[RunEntry] | None:
        """Wait for the end, and return a line of runs with the merged one in its place.

        None if the merge has failed, or merged other runs.
        """
        with _changed:
            self._hurries = True
            _changed.notify_all()
        self._thread.join()
        names = [run.name for run in line]
        count, first = len(self._replaced), self._replaced[0]
        at = names.index(first) if first in names else 0
        if self._merged is None or names[at : at + count] != self._replaced:
            return None
        return [*line[:at], self._merged, *line[at + count :]]

    def stop(self) -> None:
        """Stop the merge; nothing that was opened for it stays open."""
        with _changed:
            self._stops = True
            _changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._merged = self._write(self._paced)
        except Exception:  # noqa: BLE001 - whoever needs it merges again, and raises what is wrong
            self._merged = None
        finally:
            # It refers to its inputs: while an iterator lives, RocksDB locks its folder.
            del self._write
            self._begun.set()
            self._done.set()

    def _paced(self, changes: Iterable[EntryChange]) -> Iterator[EntryChange]:
        rest = iter(changes)
        while chunk := list(islice(rest, _CHUNK)):
            self._begun.set()
            with _changed:
                _changed.wait_for(lambda: self._stops or self._hurries or not _batches)
            if self._stops:
                raise StoppedError
            yield from chunk
