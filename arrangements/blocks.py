"""The content of a block of a run: changes in key order, as msgpack or in columns.

Which of the two is smaller depends on the data: numbers between repeated texts take half as much
in columns, random data take more.  So both are tried on a sample of the block.  Trying takes as
long as everything else for few changes, so changes that will soon be merged with others, and
written again, are stored as msgpack.
"""

import msgspec
import pyarrow as pa

from ikebana.arrangements.transposed import Change, put_together, taken_apart

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
