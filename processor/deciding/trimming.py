"""Which records of the loopback topic no batch will read again."""

from collections import deque
from collections.abc import Iterable, Mapping

from ikebana.processor.deciding.commits import Marker


class Unread:
    """Where the batches began to read that can still be run again, and what is before them."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._begins: deque[Mapping[int, int]] = deque()
        self._trimmed: Mapping[int, int] = {}

    def after(self, batch: Iterable[Marker]) -> Mapping[int, int]:
        """Note a committed batch; say up to where partitions are to be trimmed, if any are."""
        self._begins.append({marker.shard: marker.hops_from for marker in batch})
        if len(self._begins) <= self._retained:
            return {}
        oldest = self._begins.popleft()
        return {p: at for p, at in oldest.items() if at > self._trimmed.get(p, 0)}

    def trimmed(self, due: Mapping[int, int]) -> None:
        """Note that this has been done."""
        self._trimmed = {**self._trimmed, **due}
