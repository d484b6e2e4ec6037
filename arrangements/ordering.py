"""Sort the changes of a batch by key, and merge the changes of several runs.

The forms in Python are the reference of the compiled ones.
"""

# Decision (merges by portions): Runs are merged as lists, 16,000 changes of all runs at a time,
# up to the key that all have been read to. A merge beside batches yields between portions.

from operator import itemgetter

from ikebana.arrangements.transposed import Change

try:
    import ikebana.compiled._merging as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

_key_of = itemgetter(0)


def _in_order(changes: dict[bytes, bytes | None]) -> list[Change]:
    """List changes in the order of their keys."""
    # Keys differ, and are compared faster alone.
    return sorted(changes.items(), key=_key_of)


def _merged(portions: list[list[Change]]) -> list[Change]:
    """Merge changes in key order, the oldest first; of equal keys the youngest counts."""
    latest: dict[bytes, bytes | None] = {}
    for changes in portions:
        latest.update(changes)
    # A few sorted lists, one behind the other, are sorted in nearly linear time.
    return _in_order(latest)


in_order = _in_order if compiled is None else compiled.in_order
merged = _merged if compiled is None else compiled.merged
