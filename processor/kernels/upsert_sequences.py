"""Which upserts of a key count, where messages are numbered in the order of their source.

An upsert may have a sequence: bytes that sort in the order in which the source has made its
changes.  Of a key the upsert with the greatest sequence counts, whatever the order in which they
come.  One whose sequence is lower than that of an upsert before it, by time, input, partition and
offset, says what has been replaced: it is outdated, and left out.  Of equal ones the later counts.
The sequence of a tombstone stays when the key is gone, so that nothing from before it comes back.

An upsert without a sequence counts at its place and moves nothing: it is the error of a message
that cannot be used, or a truncate.
"""

from collections import deque
from collections.abc import Sequence

from ikebana.arrangements.store import Part
from ikebana.processor.base.noted import MOST
from ikebana.processor.kernels.upsert_values import Source, UpsertRow


class Sequences:
    """The greatest sequence of each key; `outdated` counts what was left out.

    The last ones that were left out lie at `places`.
    """

    def __init__(self, part: Part) -> None:
        self.outdated = 0
        self.places: deque[Source] = deque(maxlen=MOST)
        self._part = part

    def counting(self, rows: Sequence[UpsertRow]) -> list[UpsertRow]:
        """The rows that count, of rows in the order of their ranks."""
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
