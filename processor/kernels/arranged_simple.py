"""Keys of an arrangement that compiled code changes: by their entries, without a `Cell` for each.

These keys have no history, and few data, each with a count of 1, before a batch and after it.
Without compiled code this module cannot be imported, and all keys have cells.
"""

from collections.abc import Iterable, Mapping, Sequence

from ikebana.arrangements.store import Store
from ikebana.compiled._arranged import applied, prefixed, staged
from ikebana.processor.kernels.arranged_cell import Cell
from ikebana.processor.kernels.history import Changes
from ikebana.processor.kernels.recent import ByKey

Entries = dict[bytes, bytes | None]


class Simple:
    """The entries of keys that have changed in a batch."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        """Entries lie in a store, under a prefix and their keys."""
        self._store = store
        self._prefix = prefix
        # The entry before, and the one now.
        self._pairs: dict[bytes, tuple[bytes | None, bytes | None]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._pairs

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def applied(
        self, by_key: ByKey, touched: Mapping[bytes, object], large: int
    ) -> tuple[ByKey, Entries]:
        """Apply the updates of keys that are simple, and are not in `touched`.

        Return the updates of all other keys, and the stored entries of those that are not in
        `touched`.  If such a key was changed here before, `take_cells` must be called first.
        """
        # Neighbours lie together: a store finds them much faster in order.
        keys = sorted(key for key in by_key if key not in touched) if touched else sorted(by_key)
        entries = self._store.get_many(prefixed(self._prefix, keys))
        left = {keys[at]: entries[at] for at in applied(by_key, keys, entries, self._pairs, large)}
        rest = {
            key: key_updates
            for key, key_updates in by_key.items()
            if key in left or key in touched
        }
        return rest, left

    def entries(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The entry of each key as of now."""
        pairs = self._pairs
        if not pairs:
            return self._store.get_many(prefixed(self._prefix, [*keys]))
        asked = [key for key in keys if key not in pairs]
        stored = iter(self._store.get_many(prefixed(self._prefix, asked)))
        return [pairs[key][1] if key in pairs else next(stored) for key in keys]

    def take_cells(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """Remove those of the keys that have changed here; return them as cells."""
        cells = {}
        for key in keys:
            if key in self._pairs:
                old, new = self._pairs.pop(key)
                cells[key] = cell = Cell.of(new)
                cell.stored = old
        return cells

    def settle(self, changes: Changes) -> None:
        """Stage the entries that have changed."""
        staged(self._pairs, self._prefix, changes)
        self._pairs = {}
