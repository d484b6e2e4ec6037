"""Shared by kernels that keep all rows of a key: changes by key, and writing entries."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate


def changes_by_key(
    updates: Collection[KeyedUpdate], interval: Interval
) -> dict[bytes, dict[int, dict[bytes, int]]]:
    """Sum the diffs of updates by key, time and row, without those that cancel."""
    sums: defaultdict[tuple[bytes, int, bytes], int] = defaultdict(int)
    for key, row, time, diff in updates:
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        assert key is not None, "a row has no key"
        sums[key, time, row] += diff
    changes: dict[bytes, dict[int, dict[bytes, int]]] = {}
    for (key, time, row), diff in sums.items():
        if diff:
            changes.setdefault(key, {}).setdefault(time, {})[row] = diff
    return changes


def write(store: Store, entries: Mapping[bytes, bytes | None]) -> None:
    """Write entries by their places; None deletes.

    Call it when all keys are done, so that no scan reads a store that changed during the batch.
    """
    for place, entry in entries.items():
        if entry is None:
            store.delete(place)
        else:
            store.put(place, entry)
