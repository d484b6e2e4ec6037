"""Measure the durations of the phases of a task."""

import time


class Stopwatch:
    """Durations in seconds by phase; laps of the same phase are added."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to `phase`."""
        now = time.monotonic()
        self.laps[phase] = self.laps.get(phase, 0.0) + now - self._last
        self._last = now
