"""Which upserts of a key count, if messages are numbered in the order of their source.

An upsert may have a sequence: bytes that sort in the order in which the source has made its
changes.  The upsert of a key with the greatest sequence counts, in whatever order they arrive.  An
upsert with a lower sequence than an upsert before it, by time, input, partition and offset, is
outdated, and left out.  Of equal sequences the later upsert counts.

The sequence of a tombstone stays when the key is gone, so that no earlier value comes back.
An upsert without a sequence counts at its place and changes no sequence: it is the error of a
message that cannot be used, or a truncate.
"""

from collections import deque
from collections.abc import Sequence

from ikebana.arrangements.store import Part
from ikebana.processor.base.noted import MOST
from ikebana.processor.kernels.upsert_values import Source, UpsertRow


class Sequences:
    """The greatest sequence of each key; `outdated` counts upserts that were left out.

    `places` has the places of the last of them.
    """

    def __init__(self, part: Part) -> None:
        self.outdated = 0
        self.places: deque[Source] = deque(maxlen=MOST)
        self._part = part

    def counting(self, rows: Sequence[UpsertRow]) -> list[UpsertRow]:
        """The rows that count, among rows in the order of their ranks."""
        keys = sorted({row.key for row in rows if row.key is not None and row.sequence})
        before = dict(zip(keys, self._part.get_many(keys), strict=True))
        greatest = dict(before)
        counting: list[UpsertRow] = []
        for row in rows:
            if row.key is not None and row.sequence:
                last = greatest[row.key]
                if last is not None and row.sequence < last:
                    self.outdated += 1
                    self.places.append((row.order, row.partition, row.offset))
                    continue
                greatest[row.key] = row.sequence
            counting.append(row)
        moved = {key: last for key, last in greatest.items() if last != before[key]}
        self._part.change(moved)
        return counting
