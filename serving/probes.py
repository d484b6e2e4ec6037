"""Probes of a service: whether it is live and ready, and its metrics for Prometheus."""

import json
import time
from collections.abc import Callable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ikebana.processor.base.texts import EPOCH_MS
from ikebana.processor.watching.monitor import scraped
from ikebana.serving.permitted import Permitted
from ikebana.serving.service import Service

# Name, whether it is a counter, description; all with the label `collection`.
METRICS = (
    ("ikebana_served_updates", True, "Updates followed since the start."),
    ("ikebana_served_batches", True, "Closed batches followed since the start."),
    ("ikebana_served_since", False, "The earliest time that can be read."),
    ("ikebana_served_frontier", False, "The frontier: times before it can be read."),
    ("ikebana_served_keys", False, "Keys that have a value."),
    ("ikebana_served_bytes", False, "The length of all keys and values."),
    ("ikebana_served_disk_bytes", False, "Bytes on disk."),
    ("ikebana_served_caught_up_seconds", False, "Time since all of the topic was read."),
    ("ikebana_served_lag_seconds", False, "Age of the frontier, if times are milliseconds."),
)


class Probes(Collector):
    """Answers probes of one service to one reader; ready if all topics were read lately."""

    def __init__(
        self,
        service: Service,
        views: Permitted,
        ready_within: float,
        subscribers: Callable[[], int],
    ) -> None:
        self._service = service
        self._views = views
        self._ready_within = ready_within
        self._subscribers = subscribers

    def live(self) -> tuple[bool, str]:
        """Return whether all topics are followed, and a reason."""
        if (failure := self._service.failure) is not None:
            return False, f"ended: {str(failure).splitlines()[0]}"
        return True, "following"

    def ready(self) -> tuple[bool, bytes]:
        """Return whether all collections can be read and are fresh, and JSON on each of them.

        Only the names of collections that the reader may see are included.
        """
        live, reason = self.live()
        collections: dict[str, Any] = {}
        good = live
        seen = self._views.names()
        for name in self._service.names():
            meta, standing = self._service.view(name).meta, self._service.standing(name)
            age = standing.caught_up_s
            fresh = age is not None and age <= self._ready_within
            readable = meta.since < meta.upper
            if good and not (fresh and readable):
                good = False
                reason = f"{name if name in seen else 'a collection'} is catching up"
            if name not in seen:
                continue
            since, upper = meta.bounds
            collections[name] = {
                "since": since,
                "upper": upper,
                "caught_up_seconds": None if age is None else round(age, 1),
            }
        body = {"ready": good, "reason": reason, "collections": collections}
        return good, json.dumps(body, indent=2).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render the metrics of visible collections; return the content type and the text."""
        return scraped(self, accept)

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        """Make all samples of this moment."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            name: (CounterMetricFamily if counts else GaugeMetricFamily)(
                name, text, labels=["collection"]
            )
            for name, counts, text in METRICS
        }
        for name in self._views.names():
            view, standing = self._views.view(name), self._views.standing(name)
            meta = view.meta
            since, upper = meta.bounds
            values: dict[str, float | None] = {
                "updates": standing.updates,
                "batches": standing.batches,
                "since": since,
                "frontier": upper,
                "keys": meta.totals.keys,
                "bytes": meta.totals.bytes,
                "disk_bytes": standing.size,
                "caught_up_seconds": standing.caught_up_s,
                "lag_seconds": time.time() - meta.upper / 1000 if meta.upper in EPOCH_MS else None,
            }
            if view.columns is not None:
                # Sizes would reveal hidden columns.
                values |= {"bytes": None, "disk_bytes": None}
            for each, value in values.items():
                if value is not None:
                    families[f"ikebana_served_{each}"].add_metric([name], value)
        subscribers = GaugeMetricFamily(
            "ikebana_served_subscribers", "Subscriptions that are open.", self._subscribers()
        )
        return [*families.values(), subscribers]
