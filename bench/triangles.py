"""Triangles of a skewed graph: one input after another, beside one node after another.

In-process, without Kafka and Spark.  Both ends of an edge favour the same few nodes, so
hubs have many edges in and many out, and the paths of two edges through a hub are many more
than the triangles: `strategy: lookup` makes all of them, `intersect` does not.
"""

import random
import time
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.base.rows import Updates
from ikebana.processor.engine.evaluate import Evaluation

_BATCH = 5_000
_TRIANGLES = (
    "FROM e ab JOIN e bc ON ab.dst = bc.src JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst"
)

Edge = tuple[int, int]


def measured(nodes: int, edges: int) -> list[dict[str, Any]]:
    """Both strategies on the same graph."""
    graph = skewed(nodes, edges)
    wanted = _asked(graph, f"SELECT ab.src, ab.dst, bc.dst {_TRIANGLES}")
    wedges = _asked(graph, "SELECT count(*) FROM e ab JOIN e bc ON ab.dst = bc.src")[0][0]
    return [_run(strategy, graph, sorted(wanted), wedges) for strategy in ("lookup", "intersect")]


def skewed(nodes: int, edges: int) -> list[Edge]:
    """So many distinct edges; the n-th node is about as likely as n to the power of -2/3."""
    draw, found = random.Random(5), dict[Edge, None]()
    while len(found) < edges:
        found[int(nodes * draw.random() ** 3), int(nodes * draw.random() ** 3)] = None
    return list(found)


class _Counting(Evaluation):
    """Counts the rows that are sent from step to step of a join."""

    sent = 0

    def _step(self, rows: list[Any], frontiers: dict[str, int]) -> Any:
        sent = super()._step(rows, frontiers)
        rows_sent = (row for of_shard in sent for row in of_shard)
        self.sent += sum(len(row.keys) for row in rows_sent if isinstance(row, Updates))
        return sent


def _run(
    strategy: str, graph: Sequence[Edge], wanted: list[tuple[int, ...]], wedges: int
) -> dict[str, Any]:
    plan = parse(yaml.safe_dump(_document(strategy)), "triangles", environ={}).plan
    evaluation, counts = _Counting(plan), dict[tuple[int, ...], int]()
    begun = time.process_time()
    for at, start in enumerate(range(0, len(graph), _BATCH)):
        records = [
            ({"src": src, "dst": dst}, {"src": src, "dst": dst}, at)
            for src, dst in graph[start : start + _BATCH]
        ]
        for (key, _), _, diff in evaluation.advance({"edges": records}, at + 1)["found"]:
            found = (key["a"], key["b"], key["c"])
            counts[found] = counts.get(found, 0) + diff
    seconds = time.process_time() - begun
    return {
        "job": f"triangles, {strategy}",
        "edges": len(graph),
        "paths of two edges": wedges,
        "triangles": len(wanted),
        "CPU s": round(seconds, 1),
        "CPU us an edge": round(seconds / len(graph) * 1e6, 1),
        "rows sent on": evaluation.sent,
        "exact": sorted(counts) == wanted and set(counts.values()) <= {1},
    }


def _document(strategy: str) -> dict[str, Any]:
    return {
        "pipeline": "triangles",
        "inputs": {"edges": {"topic": "edges", "columns": {"src": "BIGINT", "dst": "BIGINT"}}},
        "operators": {
            "graph": {"upsert": "edges"},
            "triangles": {
                "delta_join": {"ab": "graph", "bc": "graph", "ac": "graph"},
                "where": ["ab.dst = bc.src", "bc.dst = ac.dst", "ab.src = ac.src"],
                "select": {"a": "ab.src", "b": "ab.dst", "c": "bc.dst"},
                "key": "{'a': ab.src, 'b': ab.dst, 'c': bc.dst}",
                "strategy": strategy,
            },
        },
        "outputs": {"found": {"from": "triangles", "topic": "triangles"}},
        "kafka": {"bootstrap.servers": "none:0"},
        "run": {"checkpoint": "none"},
    }


def _asked(graph: Sequence[Edge], query: str) -> list[tuple[Any, ...]]:
    sources, targets = zip(*graph, strict=True)
    database = duckdb.connect(config={"threads": 1})
    database.register("e", pa.table({"src": sources, "dst": targets}))
    answer: list[tuple[Any, ...]] = database.execute(query).fetchall()
    return answer
