"""The last read or written entries of a shard, in memory.

If the same keys change in batch after batch, neither their values nor their changes need to
go through RocksDB each time.  Written entries wait here too, and one write of many batches
replaces one write for each.

Entries are in two generations: when the young one has half of the allowed bytes, it becomes the
old one, and the entries of the former old one are forgotten.
"""

# Decision (recent entries in memory): The process that wrote a delta applies it from memory, and
# RocksDB gets the changes of many batches in one write. A scan looks at each waiting change, so
# beyond eight prefixes all is written first.

from collections.abc import Callable

from ikebana.arrangements.transposed import Change

try:
    import ikebana.compiled._recent as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

Entries = dict[bytes, bytes | None]
Read = Callable[[list[bytes]], list[bytes | None]]

# The memory of Python's objects of an entry beside their bytes.
_OF_AN_ENTRY = 170
# An operator scans for one prefix or two in each batch, such as for due entries.
_MOST_PREFIXES = 8


class RecentEntries:
    """Entries by key, None for absent ones, that take about `most` bytes at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._young: Entries = {}
        self._old: Entries = {}
        self._size = 0
        self.unwritten: Entries = {}
        """Changes that the database does not have; they are among the young entries."""
        # By prefix, whether no unwritten key begins with it.
        self._alone: dict[bytes, bool] = {}

    @property
    def is_full(self) -> bool:
        """Whether the young entries have reached their limit."""
        return self._size * 2 > self.most

    def get_many(self, keys: list[bytes], read: Read) -> list[bytes | None]:
        """Return the values of keys; missing ones are read, and kept."""
        values, missing, moved = recalled(self._young, self._old, keys)
        self._size += moved
        if missing:
            asked = keys if len(missing) == len(keys) else [keys[at] for at in missing]
            self._size += filled(self._young, keys, values, missing, read(asked))
        return values

    def leaves_alone(self, prefix: bytes) -> bool:
        """Return whether certainly no unwritten change has a key with this prefix.

        The answer costs a look at each change.  So only the first prefixes after a change are
        examined; for others it is False.
        """
        if not self.unwritten:
            return True
        if (answer := self._alone.get(prefix)) is not None:
            return answer
        if len(self._alone) >= _MOST_PREFIXES:
            return False
        self._alone[prefix] = alone = not any_begins(self.unwritten, prefix)
        return alone

    def write(self, changes: list[Change]) -> None:
        """Keep changes that are written to the database later."""
        self._alone.clear()
        self.unwritten.update(changes)
        self._size += put(self._young, changes)

    def age(self) -> None:
        """Make the young entries old; all of them have been written."""
        assert not self.unwritten
        self._old, self._young, self._size = self._young, {}, 0

    def clear(self) -> None:
        """Forget everything, since the database has changed otherwise."""
        self._young, self._old, self._size, self.unwritten = {}, {}, 0, {}


def _recalled(
    young: Entries, old: Entries, keys: list[bytes]
) -> tuple[list[bytes | None], list[int], int]:
    """Look up keys: their values, the positions of missing keys, and how many bytes moved.

    Entries that only the old generation has become young.
    """
    values, missing, moved = [], [], 0
    for at, key in enumerate(keys):
        if key in young:
            values.append(young[key])
        elif key in old:
            young[key] = old[key]
            moved += _size_of([(key, old[key])])
            values.append(old[key])
        else:
            missing.append(at)
            values.append(None)
    return values, missing, moved


def _filled(
    young: Entries,
    keys: list[bytes],
    results: list[bytes | None],
    missing: list[int],
    values: list[bytes | None],
) -> int:
    """Fill in values that were read for missing keys; return how many bytes became young.

    An absent key is seldom asked twice, and RocksDB knows that it is absent without reading files.
    """
    size = 0
    for at, value in zip(missing, values, strict=True):
        if value is not None:
            results[at] = young[keys[at]] = value
            size += _size_of([(keys[at], value)])
    return size


def _put(young: Entries, entries: list[Change]) -> int:
    """Put entries among the young; return how many bytes these have grown."""
    size = 0
    for key, value in entries:
        size += _size_of([(key, value)])
        if key in young:
            size -= _size_of([(key, young[key])])
        young[key] = value
    return size


def _any_begins(entries: Entries, prefix: bytes) -> bool:
    """Return whether the key of an entry begins with `prefix`."""
    return any(key.startswith(prefix) for key in entries)


def _size_of(entries: list[Change]) -> int:
    """The approximate memory of entries, in bytes."""
    size = sum(len(key) + len(value) if value else len(key) for key, value in entries)
    return size + len(entries) * _OF_AN_ENTRY


recalled = _recalled if compiled is None else compiled.recalled
filled = _filled if compiled is None else compiled.filled
any_begins = _any_begins if compiled is None else compiled.any_begins
put = _put if compiled is None else compiled.put
size_of = _size_of if compiled is None else compiled.size_of
