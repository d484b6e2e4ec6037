"""List the settings with which a plan runs, without secrets."""

import re
from collections.abc import Iterator, Mapping

from ikebana.processor.authoring.settings import Settings, redacted
from ikebana.processor.base.printable import printable
from ikebana.processor.planning.plan import Plan

_USER_OF_URI = re.compile(r"(?<=://)[^/@]*(?=@)")
# "user:password", of a schema registry's client.
_USER_INFO = re.compile(r"user\.info", re.IGNORECASE)


def setting_lines(plan: Plan, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield pairs of a setting and its value."""
    yield "shards", f"{settings.shards}, one task and one transaction each in every micro-batch"
    yield "commit records", f"topic {plan.markers_topic}"
    yield "checkpoint", _shown(settings.checkpoint)
    heartbeat = f"{settings.heartbeat_s:g} s" if settings.heartbeat_s else "none"
    if plan.time == "offset":
        heartbeat = "none in offset time"
    yield (
        "micro-batch",
        f"at most {settings.max_records_per_batch:,} records, heartbeat {heartbeat}",
    )
    for name, mapping in (
        ("kafka", settings.kafka),
        ("source.kafka", settings.source_kafka),
        ("sink.kafka", settings.sink_kafka),
        ("registry", settings.registry),
    ):
        if mapping:
            yield name, _pairs(mapping)


def _pairs(mapping: Mapping[str, str]) -> str:
    return ", ".join(
        f"{printable(key)}={'***' if _USER_INFO.search(key) else _shown(value)}"
        for key, value in redacted(mapping).items()
    )


def _shown(value: str) -> str:
    return printable(_USER_OF_URI.sub("***", value))
