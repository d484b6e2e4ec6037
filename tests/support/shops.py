"""A shop's pipeline whose file is edited, and what its topics come to."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ikebana.codecs import canonical
from support.output_judge import committed
from support.pipeline_processes import produce

Collection = Counter[tuple[Any, Any]]
ORDERS = {"customer": "BIGINT", "amount": "BIGINT"}


def sections(name: str, least: int, totals: dict[str, str], *, joined: bool) -> str:
    """A file with a filter, a reduction and perhaps a second input that is joined."""
    inputs = {"orders": {"topic": f"{name}.orders", "columns": ORDERS}}
    operators: dict[str, Any] = {
        "order": {"upsert": "orders"},
        "large": {"linear": "order", "where": f"amount > {least}"},
        "totals": {"reduce": "large", "by": "customer", "aggregates": totals},
    }
    if joined:
        inputs["customers"] = {"topic": f"{name}.customers", "columns": {"level": "BIGINT"}}
        operators["customer"] = {"upsert": "customers"}
        operators["rated"] = {
            "delta_join": {"o": "large", "c": "customer"},
            "where": ["o.customer = c.key::BIGINT"],
            "select": {"amount": "o.amount", "level": "c.level"},
        }
    shown = [each for each in ("large", "totals", "rated") if each in operators]
    outputs = {each: {"from": each, "topic": f"{name}.{each}"} for each in shown}
    return json.dumps({"inputs": inputs, "operators": operators, "outputs": outputs})


def narrow(name: str, select: dict[str, str], **times: Any) -> str:
    """A file whose state has only the columns of a select."""
    return json.dumps(
        {
            "inputs": {"orders": {"topic": f"{name}.orders", "columns": ORDERS, **times}},
            "operators": {
                "order": {"upsert": "orders"},
                "slim": {"linear": "order", "select": select},
            },
            "outputs": {"slim": {"from": "slim", "topic": f"{name}.slim"}},
        }
    )


def send_orders(servers: str, name: str, orders: Mapping[int, Mapping[str, int]]) -> None:
    """Write rows to the topic of orders, in the order in which they are given."""
    rows = [(b"%d" % key, json.dumps(row).encode()) for key, row in orders.items()]
    produce(servers, f"{name}.orders", rows)


def counted(rows: list[tuple[int, dict[str, int]]]) -> Collection:
    return Counter((key, json.dumps(row, sort_keys=True)) for key, row in rows)


def shown(servers: str, topic: str) -> Collection:
    """What the updates of a topic come to; nothing is ever there less than no times."""
    by_time: dict[int, list[tuple[tuple[Any, Any], int]]] = {}
    for message in committed(servers, topic):
        headers = dict(message.headers())
        datum = (
            canonical.decode(message.key()),
            json.dumps(json.loads(message.value()), sort_keys=True),
        )
        by_time.setdefault(int(headers["time"]), []).append((datum, int(headers["diff"])))
    found: Collection = Counter()
    for time in sorted(by_time):
        for datum, diff in by_time[time]:
            found[datum] += diff
        assert min(found.values(), default=0) >= 0, (time, found)
    return +found
