"""Stores in memory: their entries, what a restart has of them, how much is read and written."""

from collections.abc import Iterator, Sequence

from ikebana.arrangements.store import MemoryStore


class CountingStore(MemoryStore):
    """Counts the keys that are asked for, the entries that scans yield, and those written."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.scanned = self.written = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.asked += len(keys)
        return super().get_many(keys)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(prefix, start):
            self.scanned += 1
            yield entry

    def put(self, key: bytes, value: bytes) -> None:
        self.written += 1
        super().put(key, value)

    def delete(self, key: bytes, size: int = 0) -> None:
        self.written += 1
        super().delete(key, size)

    def counted(self) -> tuple[int, int]:
        """The entries read and written since this was called last."""
        found = self.asked + self.scanned, self.written
        self.asked = self.scanned = self.written = 0
        return found


def entries(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """Everything in a store."""
    return list(store.scan(b""))


def reopened(store: MemoryStore) -> MemoryStore:
    """What a restart has: the entries, and nothing else."""
    copy = MemoryStore()
    for place, entry in entries(store):
        copy.put(bytes(place), bytes(entry))
    return copy
