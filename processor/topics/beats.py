"""Heartbeats of pipelines with ingest times: batches that move time on without records."""


class Beats:
    """Whether a heartbeat is due, `every_s` seconds after the last batch; never if that is 0.

    The time since the last batch is measured by the wall clock, also over restarts, and by a
    monotonic clock in case the wall clock is set back; the longer one counts.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._seen: tuple[int, float] | None = None

    def is_due(self, batch: int, upper_ms: int, now_ms: int, passed_s: float) -> bool:
        """Whether one is due after the last batch, which ended at the time `upper_ms`.

        `now_ms` is the wall clock, and `passed_s` a clock that is never set.
        """
        if self._seen is None or self._seen[0] != batch:
            self._seen = batch, passed_s
        silent_s = max((now_ms - upper_ms) / 1000, passed_s - self._seen[1])
        return 0 < self._every_s <= silent_s
