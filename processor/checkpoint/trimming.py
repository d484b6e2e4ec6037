"""Find the records of the exchange topic that no batch will read again."""

from collections import deque
from collections.abc import Iterable, Mapping

from ikebana.processor.checkpoint.commits import Marker


class UnreadHops:
    """Remembers where replayable batches began to read, so that earlier records can be trimmed."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._begins: deque[Mapping[int, int]] = deque()
        self._trimmed: Mapping[int, int] = {}

    def after(self, batch: Iterable[Marker]) -> Mapping[int, int]:
        """Note a committed batch; return the offsets up to which partitions can be trimmed."""
        self._begins.append({marker.shard: marker.hops_from for marker in batch})
        if len(self._begins) <= self._retained:
            return {}
        oldest = self._begins.popleft()
        return {p: at for p, at in oldest.items() if at > self._trimmed.get(p, 0)}

    def trimmed(self, due: Mapping[int, int]) -> None:
        """Note that partitions have been trimmed up to these offsets."""
        self._trimmed = {**self._trimmed, **due}
