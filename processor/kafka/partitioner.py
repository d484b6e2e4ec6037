"""Kafka's hash of keys, by which producers choose the partition of a record."""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Compute the murmur2 hash that Kafka's clients use, an unsigned number of 32 bits.

    >>> hex(murmur2(b"kafka"))
    '0xd067cf64'
    """
    size = len(data)
    hashed = (0x9747B28C ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        part ^= part >> 24
        hashed = (hashed * _M & _MASK) ^ (part * _M & _MASK)
    if size > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _M & _MASK
    return hashed ^ (hashed >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Choose the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
