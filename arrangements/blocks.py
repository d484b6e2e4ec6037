"""What a block of a run holds: changes in key order, as msgpack or in columns.

Which of both is smaller depends on the data: numbers between texts that repeat take half as much
in columns, what is like random takes more.  So both are tried on a sample of the block.  To try
takes as long as all else that is done with few changes.  So those that are soon to be merged with
others, and written again, are stored as they are.
"""

import msgspec
import pyarrow as pa

from ikebana.arrangements.transposed import Change, put_together, taken_apart

# In front of changes in columns.  As msgpack it would be a number, and not the list that the
# others begin with.
_IN_COLUMNS = b"\x01"
# A sample has neighbours at so many places, in all so many, and so many bytes of each at the most.
_PLACES = 4
_SAMPLED = 512
_SAMPLED_BYTES = 1 << 16
# Fewer changes are not worth trying.
_FEWEST = 8


def encode(changes: list[Change], *, is_passing: bool = False) -> bytes:
    """Make the content of a block, not yet compressed.

    What `is_passing` will soon be written again, and is stored as it is.
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
    """Restore a block of so many bytes."""
    plain: bytes = pa.decompress(stored, size, codec="zstd", asbytes=True)
    return plain


def _as_they_are(changes: list[Change]) -> bytes:
    return msgspec.msgpack.encode(changes)


def _sample(changes: list[Change]) -> list[Change]:
    """Changes of all places, with the beginnings of long values; all of them, if they are few."""
    each = _SAMPLED // _PLACES
    found = changes
    if len(changes) > _SAMPLED:
        apart = (len(changes) - each) // (_PLACES - 1)
        found = [
            change
            for place in range(_PLACES)
            for change in changes[place * apart : place * apart + each]
        ]
    most = _SAMPLED_BYTES // len(found)
    if all(len(value or b"") <= most for _, value in found):
        return found
    return [(key, value and value[:most]) for key, value in found]
