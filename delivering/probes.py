"""Probes of a delivery: whether it is live and ready, and its metrics for Prometheus."""

import json
import time
from collections.abc import Callable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ikebana.delivering.delivery import Standing
from ikebana.processor.base.texts import EPOCH_MS
from ikebana.processor.watching.monitor import scraped

# Name, whether it is a counter, description; all with the label `sink`.
METRICS = (
    ("ikebana_delivered_updates", True, "Updates applied since the start."),
    ("ikebana_delivered_batches", True, "Closed batches applied since the start."),
    ("ikebana_delivered_frontier", False, "The frontier: all updates before it were applied."),
    ("ikebana_delivered_lag_seconds", False, "Age of the frontier, if times are milliseconds."),
    ("ikebana_delivered_behind_offsets", False, "Offsets of the topics that were not read yet."),
    ("ikebana_delivered_caught_up_seconds", False, "Time since everything closed was applied."),
    ("ikebana_delivered_waits", False, "1 while the target or the brokers are away."),
)


class Probes(Collector):
    """Answers probes of one delivery; ready if everything that is closed was applied lately."""

    def __init__(self, name: str, standing: Callable[[], Standing], ready_within: float) -> None:
        self._name = name
        self._standing = standing
        self._ready_within = ready_within

    def live(self) -> tuple[bool, str]:
        """Return true: a delivery that fails ends its process, and a waiting one retries."""
        return True, "delivering"

    def ready(self) -> tuple[bool, bytes]:
        """Return whether it is ready, and more about that as JSON."""
        standing = self._standing()
        age = standing.caught_up_s
        good = not standing.waits and age is not None and age <= self._ready_within
        reason = standing.waits or ("delivering" if good else "catching up")
        body = {
            "ready": good,
            "reason": reason,
            "sink": self._name,
            "upper": standing.upper,
            "lag_seconds": _lag_s(standing.upper),
            "caught_up_seconds": None if age is None else round(age, 1),
            "behind_offsets": standing.behind,
            "updates": standing.updates,
        }
        return good, json.dumps(body, indent=2).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render the metrics in an accepted format; return its content type and the text."""
        return scraped(self, accept)

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        """Make all samples of this moment."""
        standing = self._standing()
        values: dict[str, float | None] = {
            "updates": standing.updates,
            "batches": standing.batches,
            "frontier": standing.upper,
            "lag_seconds": _lag_s(standing.upper),
            "behind_offsets": standing.behind,
            "caught_up_seconds": standing.caught_up_s,
            "waits": bool(standing.waits),
        }
        families = []
        for name, counts, text in METRICS:
            family = (CounterMetricFamily if counts else GaugeMetricFamily)(
                name, text, labels=["sink"]
            )
            value = values[name.removeprefix("ikebana_delivered_")]
            if value is not None:
                family.add_metric([self._name], value)
            families.append(family)
        return families


def _lag_s(upper: int | None) -> float | None:
    """The age of a frontier in seconds, if times are milliseconds."""
    if upper is None or upper not in EPOCH_MS:
        return None
    return round(max(0.0, time.time() - upper / 1000), 3)
