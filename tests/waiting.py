"""Wait on conditions with deadlines, so that no test sleeps."""

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return once `condition` holds; fail, naming `what`, if that takes too long."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        pause.wait(0.02)
