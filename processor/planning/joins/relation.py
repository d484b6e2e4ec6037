"""Relations: a collection's columns, keys and size, without its data."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, Scope, unknown


@dataclass(frozen=True, slots=True)
class Relation:
    """The properties of a collection that a plan knows.

    `scope` has the names and types of its data; if they come on several ways, `others` has the
    scopes that differ from the first.  No two data are equal in all columns of one entry of
    `unique`.  `size` is the declared number of data, None if none is declared.  With
    `keeps_state`, the operator of the relation stores it by its key, as an upsert does: lookups by
    that key read this state, and need no further arrangement.
    """

    scope: Scope
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None
    keeps_state: bool = False
    others: tuple[Scope, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scope of its data, for each way to it that differs."""
        return (self.scope, *self.others)

    def one_at_most(self, keys: Collection[str]) -> bool:
        """Whether at most one datum has given values in these, SQL over its data."""
        return self.unique_key(keys) is not None

    def unique_key(self, keys: Collection[str]) -> frozenset[str] | None:
        """Return the subset of these keys that is a unique key; None if there is none."""
        unique = [*([(KEY,)] if self.keeps_state else []), *self.unique]
        for columns in unique:
            matching = frozenset(key for key in keys for c in columns if key in (c, quoted(c)))
            if len(matching) == len(columns):
                return matching
        return None


def of_scopes(scopes: Iterable[Scope]) -> Relation:
    """A relation with data of these scopes; unknown if there are none."""
    different: list[Scope] = []
    for scope in scopes:
        if scope not in different:
            different.append(scope)
    first, *others = different or [unknown()]
    return Relation(first, others=tuple(others))
