"""Keys of an arrangement that compiled code changes: by their entries, without a `Cell` for each.

These have no history, and few data that are there once each, before a batch and after it.  Without
compiled code this cannot be imported, and all keys have cells.
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
        self._made: dict[bytes, tuple[bytes | None, bytes | None]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._made

    def __bool__(self) -> bool:
        return bool(self._made)

    def applied(
        self, by_key: ByKey, touched: Mapping[bytes, object], large: int
    ) -> tuple[ByKey, Entries]:
        """Apply the updates of keys that are simple, and are not among those `touched`.

        Return the updates of all others, and what entries those have that are not touched.  Who
        has been changed here before has to be taken before.
        """
        # Neighbours lie together: a store finds them much faster in order.
        keys = sorted(key for key in by_key if key not in touched) if touched else sorted(by_key)
        entries = self._store.get_many(prefixed(self._prefix, keys))
        left = {keys[at]: entries[at] for at in applied(by_key, keys, entries, self._made, large)}
        rest = {key: own for key, own in by_key.items() if key in left or key in touched}
        return rest, left

    def entries(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The entry of each key as of now."""
        made = self._made
        if not made:
            return self._store.get_many(prefixed(self._prefix, [*keys]))
        asked = [key for key in keys if key not in made]
        found = iter(self._store.get_many(prefixed(self._prefix, asked)))
        return [made[key][1] if key in made else next(found) for key in keys]

    def taken(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """Cells of those of the keys that have changed here, which then have not any more."""
        found = {}
        for key in keys:
            if key in self._made:
                old, new = self._made.pop(key)
                found[key] = cell = Cell.of(new)
                cell.stored = old
        return found

    def settle(self, changes: Changes) -> None:
        """Stage the entries that are other ones than before."""
        staged(self._made, self._prefix, changes)
        self._made = {}
