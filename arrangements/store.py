"""The ordered map of bytes to bytes that kernels read and write.

A kernel uses a `Store`, which is in memory in `evaluate`, and over RocksDB in a shard.  A batch
never changes the committed data: it works on an `Overlay`, and its changes become one delta when
the batch is committed.  `PrefixStore` gives each operator a separate key space in one store.

The observable behaviour of every store is that of `MemoryStore`; one contract suite
tests them all.
"""

import bisect
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

try:
    from ikebana.compiled._arranged import prefixed, prefixed_changes
except ImportError:
    prefixed = prefixed_changes = None  # type: ignore[assignment]

# Entries by key; None is one to be removed.
EntryChanges = Mapping[bytes, bytes | None]
EntryDict = dict[bytes, bytes | None]


class Readable(Protocol):
    """A map that can be read by keys, or in key order."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Look up keys; return the values in the order of the keys, None for absent ones."""
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with keys that start with `prefix`, in key order.

        With a `start`, yield those from `prefix + start` on.  Deleted keys before the start then
        cost nothing, while a scan over them may pay for each.

        Writes after the call may show or not, so the scanned keys should not be written
        during a scan.
        """
        ...


class Store(Readable, Protocol):
    """A readable map that can be written."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set one entry."""
        ...

    def delete(self, key: bytes, size: int = 0) -> None:
        """Remove one entry; it is no error if the key is absent.

        A caller that has just read it passes the size of its value: deleted bytes decide when
        files are merged.
        """
        ...

    def change(self, changes: EntryChanges) -> None:
        """Set the entries that have a value, and remove the others."""
        ...


class MemoryStore:
    """A store in memory: a dict with keys that are sorted for scans."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._sorted: list[bytes] | None = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        entry = self._entries.get
        return [entry(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        keys = self._sorted
        for at in range(bisect.bisect_left(keys, prefix + start), len(keys)):
            key = keys[at]
            if not key.startswith(prefix):
                return
            if key in self._entries:
                yield key, self._entries[key]

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._entries:
            self._sorted = None
        self._entries[key] = value

    def delete(self, key: bytes, size: int = 0) -> None:
        if self._entries.pop(key, None) is not None:
            self._sorted = None

    def change(self, changes: EntryChanges) -> None:
        for key, value in changes.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)


class Overlay:
    """A store over a readable base: reads see the writes, and the base does not change."""

    def __init__(self, base: Readable) -> None:
        self._base = base
        self.changes: dict[bytes, bytes | None] = {}
        self.gone = 0
        """Of deleted values, so many bytes at least."""
        # The changed keys in order, or None: cached because a kernel may scan for every key.
        self._sorted: list[bytes] | None = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        changes = self.changes
        if changes.keys().isdisjoint(keys):
            return self._base.get_many(keys)
        missing = [key for key in keys if key not in changes]
        base_values = dict(zip(missing, self._base.get_many(missing), strict=True))
        return [changes[key] if key in changes else base_values[key] for key in keys]

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        changed = self._changed(prefix, start)
        # For equal keys merge yields the entry of the first iterable first, so the change wins.
        merged = heapq.merge(
            ((key, self.changes.get(key)) for key in changed),
            self._base.scan(prefix, start),
            key=lambda entry: entry[0],
        )
        last: bytes | None = None
        for key, value in merged:
            if key != last and value is not None:
                yield key, value
            last = key

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.changes:
            self._sorted = None
        self.changes[key] = value

    def delete(self, key: bytes, size: int = 0) -> None:
        if key not in self.changes:
            self._sorted = None
        self.changes[key] = None
        self.gone += size

    def change(self, changes: EntryChanges) -> None:
        self._sorted = None
        self.changes.update(changes)

    def _changed(self, prefix: bytes, start: bytes) -> list[bytes]:
        """List the changed keys that begin with `prefix`, in order, from `prefix + start` on."""
        if self._sorted is None:
            self._sorted = sorted(self.changes)
        keys = self._sorted
        begin = end = bisect.bisect_left(keys, prefix + start)
        while end < len(keys) and keys[end].startswith(prefix):
            end += 1
        return keys[begin:end]


class PrefixStore:
    """The entries of a store under one prefix, as a separate store.

    No prefix of a part may begin with the prefix of another.  Callers use prefixes of one
    length, or with a separator at the end that occurs nowhere else in them.
    """

    def __init__(self, store: Store, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix = self._prefix
        if prefixed is not None:
            return self._store.get_many(prefixed(prefix, [*keys]))
        return self._store.get_many([prefix + key for key in keys])

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        cut = len(self._prefix)
        for key, value in self._store.scan(self._prefix + prefix, start):
            yield key[cut:], value

    def put(self, key: bytes, value: bytes) -> None:
        self._store.put(self._prefix + key, value)

    def delete(self, key: bytes, size: int = 0) -> None:
        self._store.delete(self._prefix + key, size)

    def change(self, changes: EntryChanges) -> None:
        prefix = self._prefix
        if prefixed_changes is not None and type(changes) is dict:
            self._store.change(prefixed_changes(prefix, changes))
            return
        self._store.change({prefix + key: value for key, value in changes.items()})
