"""How often a client may ask: a bucket of tokens for each."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

_MOST_CLIENTS = 10_000


class RateLimit:
    """Lets each client make `rate` requests a second, and as many at once as fit into a second.

    It remembers only the last clients; a forgotten one begins with a full bucket.  It is
    thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str, rate: float | None) -> float:
        """Count a request; return the seconds until it may be made, 0 if it may now."""
        if rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            burst = max(1.0, rate)
            left, then = self._buckets.pop(client, (burst, now))
            left = min(burst, left + (now - then) * rate)
            wait = 0.0 if left >= 1 else (1 - left) / rate
            self._buckets[client] = (left if wait else left - 1, now)
            if len(self._buckets) > _MOST_CLIENTS:
                self._buckets.popitem(last=False)
        return wait
