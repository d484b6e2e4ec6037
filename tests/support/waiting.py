"""Wait on conditions with deadlines, so that no test sleeps."""

import threading
import time
from collections.abc import Callable

# What the loop of `_slowness` takes on a machine of which deadlines are written.
_USUAL_S = 0.02
_MOST = 12.0


def _slowness() -> float:
    """How many times slower than usual this machine is; at least 1."""
    fastest = 1e9
    for _ in range(3):
        begun = time.perf_counter()
        total = 0
        for number in range(300_000):
            total += number
        fastest = min(fastest, time.perf_counter() - begun)
    return min(max(fastest / _USUAL_S, 1.0), _MOST)


# A deadline is there to end what hangs: a slow machine must not be taken for that.
PATIENCE = _slowness()


def patient(seconds: float) -> float:
    """A deadline that a usual machine keeps easily, for this machine."""
    return seconds * PATIENCE


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return once `condition` holds; fail, naming `what`, if that takes too long."""
    deadline = time.monotonic() + patient(timeout_s)
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {patient(timeout_s):.0f} s: {what}"
        pause.wait(0.02)
