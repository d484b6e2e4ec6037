"""A committed batch, for whoever watches a run."""

from collections import Counter
from typing import NamedTuple

from ikebana.processor.kafka.markers import Marker


class BatchReport(NamedTuple):
    """A committed batch, for whoever watches."""

    batch: int
    lower: int
    upper: int
    records: int
    behind: int
    counts: dict[str, int]
    counted: dict[str, int]
    state_bytes: int
    seconds: float
    markers: list[Marker]
    waiting: int = 0


def report(markers: list[Marker], seconds: float) -> BatchReport:
    """What the markers of a batch's shards say of it."""
    first = markers[0]
    counts = {name: sum(m.counts.get(name, 0) for m in markers) for name in first.counts}
    return BatchReport(
        batch=first.batch,
        lower=first.lower,
        upper=first.upper,
        records=sum(marker.records for marker in markers),
        behind=first.behind,
        counts=counts,
        counted=dict(sum((Counter(m.counted) for m in markers), Counter[str]())),
        state_bytes=sum(marker.manifest.size for marker in markers),
        seconds=seconds,
        markers=markers,
        waiting=sum(marker.waiting for marker in markers),
    )
