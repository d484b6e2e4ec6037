"""A hash of a collection that does not depend on the order of its data."""

from hashlib import blake2b

from ikebana.arrangements.update import pieces

SIZE = 16
_MODULUS = 1 << 8 * SIZE


class CollectionDigest:
    """The sum of the hashes of (key, value, count); a count beyond 64 bits is hashed in pieces.

    Equal collections have equal digests.  Different ones have different digests, unless somebody
    constructs data with equal sums: it finds lost or repeated data, and is no signature.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, key: bytes | None, value: bytes, count: int) -> None:
        """Add a datum and its count; a datum comes once, or with each piece of its count."""
        self.add_digests(key_digest(key), digest(value), count)

    def add_digests(self, key: bytes, value: bytes, count: int) -> None:
        """Add a datum whose key and value are digests already."""
        for piece in pieces(count):
            hashed = digest(b"%b%b%d" % (key, value, piece))
            self._sum = (self._sum + int.from_bytes(hashed)) % _MODULUS

    def hexdigest(self) -> str:
        """Return the digest as text."""
        return f"{self._sum:0{2 * SIZE}x}"


def digest(data: bytes) -> bytes:
    """Hash a value."""
    return blake2b(data, digest_size=SIZE).digest()


def key_digest(key: bytes | None) -> bytes:
    """Hash a key."""
    # The missing key differs from the empty key: its digest is shorter than any other.
    return b"" if key is None else digest(key)
