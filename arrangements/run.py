"""Runs: sorted changes of a shard between two versions, in one immutable file.

A delta is a run of one version.  Runs are merged into longer ones as their number grows.  A base
is a run from the beginning, so it has no deletions.  A run has the last value of every key that
has changed, so applying it to any state between its versions gives the state at its end.

A file is 8 bytes of magic and format, then blocks.  A block is two 4-byte lengths (stored,
plain), the CRC-32 of these and of the stored bytes, and the content, compressed with zstd.  The
first
block is the `Head` as msgpack, each further one has changes in key order (`blocks`).
"""

# Decision (runs, not RocksDB's checkpoints): A shard's durable form is a list of checksummed
# runs. They are verified, read and rescaled without RocksDB, and damage in a local copy cannot
# reach them.

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter

import msgspec
import pyarrow as pa

from ikebana.arrangements.files import FileStore, damaged
from ikebana.arrangements.transposed import Change, put_together, taken_apart

try:
    from ikebana.compiled._arranged import size_of
except ImportError:
    size_of = None  # type: ignore[assignment]

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


class Run(msgspec.Struct, frozen=True):
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
    files: FileStore, head: Head, changes: Iterable[Change], kind: str, gone: int = 0
) -> Run:
    """Write changes, which must be in key order, as one file; return its manifest entry.

    They delete values of at least `gone` bytes.
    """
    count = _Count()
    stem = f"{head.upper:012d}-{head.lower:012d}-{kind}"
    pieces = _encode(head, changes, count, is_passing=kind == _PASSING)
    name, size = files.write(stem, _SUFFIX, pieces)
    counted = count.entries, size, count.plain, gone
    return Run(name, head.lower, head.upper, head.states[-1], *counted)


def read(files: FileStore, name: str) -> tuple[Head, Iterator[list[Change]]]:
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


def merge(files: FileStore, names: Iterable[str]) -> Iterator[Change]:
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

    def __init__(self, blocks: Iterator[list[Change]]) -> None:
        self._blocks = blocks
        self._block: list[Change] = []
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

    def take(self, bound: bytes) -> list[Change]:
        """Take the changes of the keys up to `bound`, which is no greater than `next_bound`."""
        start = self._at
        self._at = bisect_right(self._block, bound, start, key=_key_of)
        return self._block[start : self._at]


def _encode(
    head: Head, changes: Iterable[Change], count: _Count, *, is_passing: bool
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


def _gathered(changes: Iterator[Change]) -> Iterator[tuple[list[Change], int]]:
    """Gather changes for blocks; yield them with the number of their bytes."""
    gathered: list[Change] = []
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


def _size_of(changes: list[Change]) -> int:
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


def _changes(blocks: Iterator[bytes], name: str) -> Iterator[list[Change]]:
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


def encode(changes: list[Change], *, is_passing: bool = False) -> bytes:
    """Make the content of a block, not yet compressed.

    A block that `is_passing` will soon be written again, and is stored without trying columns.
    """
    if is_passing or len(changes) < _FEWEST:
        return _as_they_are(changes)
    sample = _sample(changes)
    packed = taken_apart(sample)
    if packed is None:
        return _as_they_are(changes)
    plain = _as_they_are(sample)
    if len(compressed(packed)) >= len(compressed(plain)):
        return plain if sample is changes else _as_they_are(changes)
    if sample is not changes:
        packed = taken_apart(changes)
    return _as_they_are(changes) if packed is None else _IN_COLUMNS + packed


def decode(plain: bytes) -> list[Change]:
    """Read the content of a block.

    Raises:
        ValueError: it does not hold changes.
    """
    if plain.startswith(_IN_COLUMNS):
        return put_together(plain[len(_IN_COLUMNS) :])
    return msgspec.msgpack.decode(plain, type=list[Change])


def compressed(plain: bytes) -> bytes:
    """Compress a block with zstd."""
    stored: bytes = pa.compress(plain, codec="zstd", asbytes=True)
    return stored


def decompressed(stored: bytes, size: int) -> bytes:
    """Restore a block of `size` bytes."""
    plain: bytes = pa.decompress(stored, size, codec="zstd", asbytes=True)
    return plain


def _as_they_are(changes: list[Change]) -> bytes:
    return msgspec.msgpack.encode(changes)


def _sample(changes: list[Change]) -> list[Change]:
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


# Sort the changes of a batch by key, and merge the changes of several runs.
#
# The forms in Python are the reference of the compiled ones.

# Decision (merges by portions): Runs are merged as lists, 16,000 changes of all runs at a time,
# up to the key that all have been read to. A merge beside batches yields between portions.

try:
    import ikebana.compiled._merging as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

_sort_key = itemgetter(0)


def _in_order(changes: dict[bytes, bytes | None]) -> list[Change]:
    """List changes in the order of their keys."""
    # Keys differ, and are compared faster alone.
    return sorted(changes.items(), key=_sort_key)


def _merged(portions: list[list[Change]]) -> list[Change]:
    """Merge changes in key order, the oldest first; of equal keys the youngest counts."""
    latest: dict[bytes, bytes | None] = {}
    for changes in portions:
        latest.update(changes)
    # A few sorted lists, one behind the other, are sorted in nearly linear time.
    return _in_order(latest)


in_order = _in_order if compiled is None else compiled.in_order
merged = _merged if compiled is None else compiled.merged
