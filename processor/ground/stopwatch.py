"""How long the phases of some work took."""

import time


class Stopwatch:
    """Laps by name, in seconds; a name that comes again is added to."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, phase: str) -> None:
        """The time since the last lap was spent on `phase`."""
        now = time.monotonic()
        self.laps[phase] = self.laps.get(phase, 0.0) + now - self._last
        self._last = now
