"""The HTTP front of a run that a test watches."""

from collections.abc import Iterator
from contextlib import contextmanager

from ikebana.processor.base.listening import Address, Listening, Tls
from ikebana.processor.base.rows import Noted, NotedRecord, errors_noted
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching.answering import RecordLookup, serving
from ikebana.processor.watching.guard import AccessLimits
from ikebana.processor.watching.monitor import Monitor

PLAN = Plan(
    "shop",
    inputs=(Input("changes", ("orders",)),),
    operators=(Upsert("current", "changes"),),
    outputs=(Output("out", "current", "orders.diffs"),),
    time="ingest",
)
# What both consoles show of batches.
NOTED = (
    Noted("late", "orders", 12, (NotedRecord("orders", 1, 9, 5_000),)),
    errors_noted(3, [(("orders", 0, 8), "the value is no JSON")]),
)


@contextmanager
def monitored(
    monitor: Monitor,
    limits: AccessLimits = AccessLimits(),  # noqa: B008 - immutable
    looking: RecordLookup | None = None,
    tls: Tls | None = None,
    port: int = 0,
) -> Iterator[str]:
    """Answer requests about a run; gets the URL."""
    listening = Listening(Address("127.0.0.1", port), tls)
    with serving(monitor, listening, limits, looking) as front:
        yield front.url
