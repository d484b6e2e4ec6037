"""What a life's pipeline computes, and what has to be in its output then."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Plan:
    """Sections of a pipeline file in place of the usual ones, and the truth of them.

    `truth` gets the last value of each key of the input.  It shares no code with ikebana.
    `may_stand` is that of `output_judge.judge`.
    """

    name: str
    truth: Callable[[Rows], dict[bytes, bytes]]
    sections: Mapping[str, Any] = field(default_factory=dict)
    may_stand: bool = False


def _joined(name: str, least: int) -> Plan:
    """Each row with the number of rows of its value, of values from `least` on."""
    inputs = {"topic": "upserts", "format": {"key": "bytes"}, "columns": {"v": "BIGINT"}}
    matches = ["c.v = CAST(t.key AS BIGINT)", f"c.v >= {least}"]

    def truth(rows: Rows) -> dict[bytes, bytes]:
        values = {key: json.loads(value)["v"] for key, value in rows.items()}
        counts = Counter(values.values())
        return {
            b'"%s"' % b64encode(key): b'{"n":%d,"v":%d}' % (counts[value], value)
            for key, value in values.items()
            if value >= least
        }

    sections = {
        "inputs": {"changes": inputs},
        "operators": {
            "current": {"upsert": "changes"},
            # Its keys lie in other shards: an exchange.
            "totals": {"reduce": "current", "by": "v", "aggregates": {"n": "count(*)"}},
            "joined": {
                "delta_join": {"c": "current", "t": "totals"},
                "where": matches,
                "select": {"v": "c.v", "n": "t.n"},
            },
        },
        "outputs": {"out": {"from": "joined", "topic": "chaos.out"}},
    }
    return Plan(name, truth, sections, may_stand=True)


UPSERT = Plan("upsert", dict)
JOINED = _joined("joined", 0)
# What the plan becomes by an edit, and becomes again.
EDITED = {"joined": _joined("joined-edited", 1), "joined-edited": JOINED}
PLANS = {"upsert": UPSERT, "joined": JOINED}
