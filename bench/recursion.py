"""Work of a recursion when one edge changes, beside computing it again.

In-process, without Kafka and Spark.  Entries of the state are counted, which does not depend on
the machine, for the nodes that are reached from one, over a random graph of twice as many edges as
nodes.

    python bench/recursion.py 1000 10000 100000
"""

import random
import sys
from collections.abc import Iterator, Sequence

import msgspec

from ikebana import Input
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.change import Column
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import loop
from ikebana.processor.planning.catalog import Catalog
from ikebana.processor.planning.plan import Loop
from ikebana.processor.relational.making import KnownRelations
from ikebana.processor.relational.sql import sql_operators

_CHANGES = 50
_QUERY = (
    "WITH RECURSIVE r AS (SELECT n FROM roots UNION "
    "SELECT e.b FROM r JOIN edges e ON r.n = e.a) SELECT n FROM r"
)
Edge = tuple[int, int]


class _Counting(MemoryStore):
    """Counts entries that are read and written."""

    touched = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.touched += len(keys)
        return super().get_many(keys)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(prefix, start):
            self.touched += 1
            yield entry

    def put(self, key: bytes, value: bytes) -> None:
        self.touched += 1
        super().put(key, value)

    def delete(self, key: bytes, size: int = 0) -> None:
        self.touched += 1
        super().delete(key, size)


def measured(edges: int) -> str:
    """A line for a graph of so many edges."""
    program, sources = _program()
    draw = random.Random(3)
    graph = _graph(draw, edges)
    store = _Counting()
    begun = [_row(sources["roots"], {"n": 0}, 0, 1)]
    begun += [_row(sources["edges"], {"a": a, "b": b}, 0, 1) for a, b in graph]
    reached = len(loop.step(store, begun, Interval(0, 1), program).updates)
    whole, costs, changed = store.touched, [], 0
    for time in range(1, _CHANGES + 1):
        at = draw.randrange(len(graph))
        old, new = graph[at], (draw.randrange(edges // 2), draw.randrange(edges // 2))
        graph[at] = new
        store.touched = 0
        updates = [
            _row(sources["edges"], {"a": a, "b": b}, time, diff)
            for (a, b), diff in ((old, -1), (new, 1))
        ]
        changed += len(loop.step(store, updates, Interval(time, time + 1), program).updates)
        costs.append(store.touched)
    mean, median = sum(costs) / len(costs), sorted(costs)[len(costs) // 2]
    return (
        f"| {edges:,} | {reached:,} | {whole:,} | {median:,} | {mean:,.0f} | {max(costs):,} | "
        f"{changed / _CHANGES:.1f} |"
    )


def _graph(draw: random.Random, edges: int) -> list[Edge]:
    return [(draw.randrange(edges // 2), draw.randrange(edges // 2)) for _ in range(edges)]


def _program() -> tuple[loop.Program, dict[str, int]]:
    """The program of the query, and the numbers of its sources."""
    inputs = tuple(
        Input(name, (name,), "diff", mode="diffs", columns=tuple(Column(c, "BIGINT") for c in of))
        for name, of in (("edges", "ab"), ("roots", "n"))
    )
    operators = sql_operators("view", _QUERY, KnownRelations(inputs, ()))
    (found,) = (each for each in operators if isinstance(each, Loop))
    named = {columns: at for at, columns in enumerate(found.columns)}
    sources = {
        name: named[tuple((column, "BIGINT") for column in of)]
        for name, of in (("edges", "ab"), ("roots", "n"))
    }
    return Catalog(inputs, operators).program(found), sources


def _row(of: int, row: dict[str, int], time: int, diff: int) -> KeyedUpdate:
    value = msgspec.json.encode({"key": None, "of": of, "row": row})
    return KeyedUpdate(b"0", value, time, diff)


if __name__ == "__main__":
    print("| edges | reached | entries, all again | a change: median | mean | most | results |")
    print("|---|---|---|---|---|---|---|")
    for text in sys.argv[1:] or ("1000", "10000"):
        print(measured(int(text)), flush=True)
