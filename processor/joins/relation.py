"""A relation as the planning of joins sees it: its types and keys, never its data."""

from collections.abc import Collection
from dataclasses import dataclass

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, Scope


@dataclass(frozen=True, slots=True)
class Relation:
    """A collection that joins may read.

    `scope` is what may be named of its data.  No two data are equal in all columns of one
    of `unique`.  `size` is how many data are declared to be there, None if nobody has said.
    `keeps_state` tells that whatever makes the relation keeps it by its key already, as an
    upsert does: lookups by that key ask there, and need no arrangement of their own.
    """

    scope: Scope
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None
    keeps_state: bool = False

    def one_at_most(self, keys: Collection[str]) -> bool:
        """Whether at most one datum has given values in these, SQL over its data."""
        return self.unique_key(keys) is not None

    def unique_key(self, keys: Collection[str]) -> frozenset[str] | None:
        """Return those of some keys of which at most one datum has given values; None without."""
        known = [*([(KEY,)] if self.keeps_state else []), *self.unique]
        for columns in known:
            found = frozenset(key for key in keys for c in columns if key in (c, quoted(c)))
            if len(found) == len(columns):
                return found
        return None
