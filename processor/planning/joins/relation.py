"""Relations: what plans know of a collection, its columns and keys, but never its data."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, Scope, unknown


@dataclass(frozen=True, slots=True)
class Relation:
    """A collection as far as plans know it.

    `scope` is what may be named of its data; if these come on several ways, `others` are the
    scopes that differ from the first.  No two data are equal in all columns of one of
    `unique`.  `size` is how many data are declared to be there, None if nobody has said.
    `keeps_state` tells that whatever makes the relation keeps it by its key already, as an
    upsert does: lookups by that key ask there, and need no arrangement of their own.
    """

    scope: Scope
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None
    keeps_state: bool = False
    others: tuple[Scope, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What may be named of its data, on each way to it that differs."""
        return (self.scope, *self.others)

    def one_at_most(self, keys: Collection[str]) -> bool:
        """Whether at most one datum has given values in these, SQL over its data."""
        return self.unique_key(keys) is not None

    def unique_key(self, keys: Collection[str]) -> frozenset[str] | None:
        """Return those of these keys that are unique together; None if none are."""
        known = [*([(KEY,)] if self.keeps_state else []), *self.unique]
        for columns in known:
            found = frozenset(key for key in keys for c in columns if key in (c, quoted(c)))
            if len(found) == len(columns):
                return found
        return None


def of_scopes(scopes: Iterable[Scope]) -> Relation:
    """A relation whose data have one of these scopes; unknown if there are none."""
    different: list[Scope] = []
    for scope in scopes:
        if scope not in different:
            different.append(scope)
    first, *others = different or [unknown()]
    return Relation(first, others=tuple(others))
