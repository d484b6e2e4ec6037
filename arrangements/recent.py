"""The entries of a shard that were read or written last, in memory.

Where the same keys change in batch after batch, neither their values nor their changes need to
go through RocksDB each time.  What is written waits here too, and one write of many batches takes
the place of one write for each.

Entries are in two generations: when the young one has half of the bytes that there may be, it
becomes the old one, and what the old one had is forgotten.
"""

from collections.abc import Callable

from ikebana.arrangements.transposed import Change

try:
    import ikebana.compiled._recent as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

Entries = dict[bytes, bytes | None]
Read = Callable[[list[bytes]], list[bytes | None]]

# What Python's objects of an entry take beside their bytes.
_OF_AN_ENTRY = 170
# An operator scans for one prefix or two in each batch, such as for what is due.
_MOST_PREFIXES = 8


class Recent:
    """Entries by key, None for absent ones, that take about `most` bytes at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._young: Entries = {}
        self._old: Entries = {}
        self._size = 0
        self.unwritten: Entries = {}
        """Changes that the database does not have; they are among the young entries."""
        # By prefix, whether no key of these begins with it.
        self._alone: dict[bytes, bool] = {}

    @property
    def is_full(self) -> bool:
        """Whether the young entries are as many as there may be."""
        return self._size * 2 > self.most

    def get_many(self, keys: list[bytes], read: Read) -> list[bytes | None]:
        """Return the values of keys; those of which nothing is known are read, and kept."""
        found, missing, moved = recalled(self._young, self._old, keys)
        self._size += moved
        if missing:
            asked = keys if len(missing) == len(keys) else [keys[at] for at in missing]
            self._size += filled(self._young, keys, found, missing, read(asked))
        return found

    def leaves_alone(self, prefix: bytes) -> bool:
        """Return whether no unwritten change has a key that begins so.

        To know costs a look at each.  So only the first prefixes after a change are looked for,
        and of others no is said.
        """
        if not self.unwritten:
            return True
        if (known := self._alone.get(prefix)) is not None:
            return known
        if len(self._alone) >= _MOST_PREFIXES:
            return False
        self._alone[prefix] = alone = not any_begins(self.unwritten, prefix)
        return alone

    def write(self, changes: list[Change]) -> None:
        """Keep changes that the database gets later."""
        self._alone.clear()
        self.unwritten.update(changes)
        self._size += put(self._young, changes)

    def age(self) -> None:
        """Make the young entries old, all of which have been written."""
        assert not self.unwritten
        self._old, self._young, self._size = self._young, {}, 0

    def clear(self) -> None:
        """Forget everything, since the database has changed beside it."""
        self._young, self._old, self._size, self.unwritten = {}, {}, 0, {}


def _recalled(
    young: Entries, old: Entries, keys: list[bytes]
) -> tuple[list[bytes | None], list[int], int]:
    """What is known of keys: their values, the places of the others, and how many bytes moved.

    What only the old entries have becomes young.
    """
    found, missing, moved = [], [], 0
    for at, key in enumerate(keys):
        if key in young:
            found.append(young[key])
        elif key in old:
            young[key] = old[key]
            moved += _size_of([(key, old[key])])
            found.append(old[key])
        else:
            missing.append(at)
            found.append(None)
    return found, missing, moved


def _filled(
    young: Entries,
    keys: list[bytes],
    found: list[bytes | None],
    missing: list[int],
    values: list[bytes | None],
) -> int:
    """Put values that were read into the places that miss them; say how many bytes became young.

    That a key is absent is seldom asked twice, and RocksDB knows it without a look at its files.
    """
    size = 0
    for at, value in zip(missing, values, strict=True):
        if value is not None:
            found[at] = young[keys[at]] = value
            size += _size_of([(keys[at], value)])
    return size


def _put(young: Entries, entries: list[Change]) -> int:
    """Put entries among the young; say by how many bytes these have grown."""
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
    """About the bytes that entries take in memory."""
    size = sum(len(key) + len(value) if value else len(key) for key, value in entries)
    return size + len(entries) * _OF_AN_ENTRY


recalled = _recalled if compiled is None else compiled.recalled
filled = _filled if compiled is None else compiled.filled
any_begins = _any_begins if compiled is None else compiled.any_begins
put = _put if compiled is None else compiled.put
size_of = _size_of if compiled is None else compiled.size_of
