"""A shop's pipeline whose file is edited, and what its topics come to."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ikebana.codecs import canonical
from support.output_judge import committed, progress_of
from support.pipeline_processes import Upserts, Written

Collection = Counter[tuple[Any, Any]]
Sections = dict[str, Any]
ORDERS = {"customer": "BIGINT", "amount": "BIGINT"}


def sections(name: str, least: int, totals: dict[str, str] | None = None) -> Sections:
    """A file with a filter and a reduction behind it, which counts unless it has `totals`."""
    aggregates = totals or {"n": "count(*)"}
    return {
        "inputs": {"orders": {"topic": f"{name}.orders", "columns": ORDERS}},
        "operators": {
            "order": {"upsert": "orders"},
            "large": {"linear": "order", "where": f"amount > {least}"},
            "totals": {"reduce": "large", "by": "customer", "aggregates": aggregates},
        },
        "outputs": {e: {"from": e, "topic": f"{name}.{e}"} for e in ("large", "totals")},
    }


def narrow(name: str, select: dict[str, str], **times: Any) -> Sections:
    """A file whose state has only the columns of a select."""
    return {
        "inputs": {"orders": {"topic": f"{name}.orders", "columns": ORDERS, **times}},
        "operators": {
            "order": {"upsert": "orders"},
            "slim": {"linear": "order", "select": select},
        },
        "outputs": {"slim": {"from": "slim", "topic": f"{name}.slim"}},
    }


def messages(rows: Mapping[int, Mapping[str, int]]) -> Upserts:
    """Rows by their keys as messages, in the order in which they are given."""
    return [(b"%d" % key, json.dumps(row).encode()) for key, row in rows.items()]


def counted(rows: Iterable[tuple[Any, Any]]) -> Collection:
    """Keys with their rows, each as often as it is there."""
    return Counter((key, canonical.decode(canonical.encode(row))) for key, row in rows)


def shown(pipeline: Written, topic: str) -> Collection:
    """What the updates of a topic of a pipeline come to; see `collection`."""
    return collection(pipeline.servers, f"{pipeline.name}.{topic}")


def collection(servers: str, topic: str) -> Collection:
    """What the updates of a topic come to; nothing is ever there less than no times."""
    by_time: dict[int, list[tuple[tuple[Any, Any], int]]] = {}
    for message in committed(servers, topic):
        headers = dict(message.headers())
        key = message.key()
        # An error has no key if its message's key cannot be decoded.
        datum = None if key is None else canonical.decode(key), canonical.decode(message.value())
        by_time.setdefault(int(headers["time"]), []).append((datum, int(headers["diff"])))
    found: Collection = Counter()
    for time in sorted(by_time):
        for datum, diff in by_time[time]:
            found[datum] += diff
        assert min(found.values(), default=0) >= 0, (time, found)
    return +found


def assert_without_gaps(pipeline: Written, *topics: str) -> None:
    """The progress of each topic goes on where it was."""
    for topic in topics:
        records = progress_of(pipeline.servers, f"{pipeline.name}.{topic}")
        assert all(one.upper == other.lower for one, other in pairwise(records)), topic
