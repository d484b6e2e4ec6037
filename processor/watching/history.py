"""Lag and throughput over the last hour, for charts that begin before they are opened."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

# A sample every few seconds makes an hour.
EVERY_MS = 5_000
CAPACITY = 720


class HistorySample(NamedTuple):
    """The lag in seconds and the count of updates at a moment; None if they are not known."""

    lag: float | None
    updates: int | None


NOTHING = HistorySample(None, None)


class Samples(msgspec.Struct):
    """The lag in seconds and the count of a series at each moment; null if it was not known."""

    lag: list[float | None]
    updates: list[int | None]


class Past(msgspec.Struct):
    """The moments of all samples in milliseconds, and the samples of each series by its name."""

    at: list[int]
    series: dict[str, Samples]


class SampleHistory:
    """The samples of several series, the last `CAPACITY` of them; every method is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[int, Mapping[str, HistorySample]]] = deque(maxlen=CAPACITY)

    def take(self, now_ms: int, figures: Callable[[], Mapping[str, HistorySample]]) -> None:
        """Take a sample of each series, if the last one is old enough."""
        with self._lock:
            if self._samples and now_ms - self._samples[-1][0] < EVERY_MS:
                return
            self._samples.append((now_ms, figures()))

    def past(self) -> Past:
        """Return all samples."""
        with self._lock:
            samples = list(self._samples)
        names = dict.fromkeys(name for _, each in samples for name in each)
        return Past([at for at, _ in samples], {name: _of(name, samples) for name in names})


def _of(name: str, samples: list[tuple[int, Mapping[str, HistorySample]]]) -> Samples:
    series = [each.get(name, NOTHING) for _, each in samples]
    return Samples([each.lag for each in series], [each.updates for each in series])
