"""The life of one checkpoint whose pipeline is edited eight times, and what its outputs must be.

The truth is computed in plain Python: which records a batch has read is in Spark's offset log,
and which definition counts from then on too.  It shares no code with the operators.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from ikebana.codecs import canonical
from support.output_judge import committed, progress_of
from support.pipeline_processes import Written, create, produce, written
from support.shops import Collection, counted

Row = dict[str, Any]
Table = Mapping[int, Row]
ORDERS = {"customer": "BIGINT", "amount": "BIGINT", "note": "VARCHAR"}
PARTITIONS = 2


@dataclass(frozen=True)
class Definition:
    """The pipeline between two edits: its parts, and what each output has of two tables."""

    what: str
    slim: tuple[str, ...] = ("amount",)
    least: int = -1
    has_big: bool = True
    totals: Mapping[str, str] | None = field(default_factory=lambda: {"n": "count(*)"})
    joined: bool = False
    above: bool = False
    shards: int = 2

    def sections(self, name: str) -> str:
        """The sections of the pipeline file."""
        inputs: dict[str, Any] = {"orders": {"topic": f"{name}.orders", "columns": ORDERS}}
        operators: dict[str, Any] = {
            "order": {"upsert": "orders"},
            "slim": {
                "linear": "order",
                "where": f"amount > {self.least}",
                "select": {column: column for column in self.slim},
            },
        }
        if self.has_big:
            big = {"where": "amount > 20", "select": {"amount": "amount"}}
            operators["big"] = {"linear": "order", **big}
        if self.totals is not None:
            operators["totals"] = {
                "reduce": "order",
                "by": "customer",
                "aggregates": dict(self.totals),
            }
        if self.joined:
            inputs["customers"] = {
                "topic": f"{name}.customers",
                "format": "debezium-json",
                "columns": {"id": "BIGINT", "level": "BIGINT"},
            }
            operators["customer"] = {"upsert": "customers"}
            operators["rated"] = {
                "delta_join": {"o": "order", "c": "customer"},
                "where": ["o.customer = c.id", *(["o.amount > c.level"] if self.above else [])],
                "select": {"amount": "o.amount", "level": "c.level"},
            }
        shown = [each for each in ("slim", "big", "totals", "rated") if each in operators]
        outputs = {each: {"from": each, "topic": f"{name}.{each}"} for each in shown}
        return json.dumps({"inputs": inputs, "operators": operators, "outputs": outputs})

    def outputs(self, orders: Table, customers: Table) -> dict[str, Collection]:
        """What each output has."""
        found = {
            "slim": counted(
                (key, {column: row[column] for column in self.slim})
                for key, row in orders.items()
                if row["amount"] > self.least
            )
        }
        if self.has_big:
            big = [(k, {"amount": r["amount"]}) for k, r in orders.items() if r["amount"] > 20]
            found["big"] = counted(big)
        if self.totals is not None:
            amounts: dict[int, list[int]] = {}
            for row in orders.values():
                amounts.setdefault(row["customer"], []).append(row["amount"])
            makes: dict[str, Callable[[list[int]], int]] = {"count(*)": len, "max(amount)": max}
            found["totals"] = counted(
                (customer, {name: makes[of](each) for name, of in self.totals.items()})
                for customer, each in amounts.items()
            )
        if self.joined:
            found["rated"] = counted(
                (key, {"amount": row["amount"], "level": customers[row["customer"]]["level"]})
                for key, row in orders.items()
                if row["customer"] in customers
                and not (self.above and row["amount"] <= customers[row["customer"]]["level"])
            )
        return found


def life() -> list[Definition]:
    """The definitions, one after the other."""
    found = [Definition("the first", has_big=False)]
    for what, changed in (
        ("an output is added", {"has_big": True}),
        ("a filter is added", {"least": 10}),
        ("a column is selected that was not kept", {"slim": ("amount", "note")}),
        ("an aggregate is changed", {"totals": {"n": "count(*)", "most": "max(amount)"}}),
        ("an input of changes is added, and joined", {"joined": True}),
        ("the join's condition is changed", {"above": True}),
        ("an operator is removed", {"totals": None}),
        ("there are more shards", {"shards": 3}),
    ):
        found.append(replace(found[-1], what=what, **changed))
    return found


def brief_life(edits: int = 2) -> list[Definition]:
    """All of this in two edits, or in one; there is another number of shards in the end, too."""
    first, *_ = life()
    totals = {"n": "count(*)", "most": "max(amount)"}
    several: dict[str, Any] = {"has_big": True, "least": 10, "totals": totals}
    several["slim"] = ("amount", "note")
    second = replace(first, what="what is shown of orders is another", **several)
    third = replace(second, what="an input is joined, over more shards", joined=True, shards=3)
    return [first, *[second, third][-edits:]]


class Batch:
    """A batch as Spark's log has it."""

    def __init__(self, path: Path) -> None:
        told = json.loads(path.read_text().splitlines()[2])
        self.number, self.edits = told["batch"], told["transition"].get("edits", 0)
        self.lower, self.upper = told["lower"], told["upper"]
        self.positions: dict[str, dict[str, int]] = told["positions"]


class Life:
    """A checkpoint, the records that were sent, and the batches that were logged."""

    def __init__(self, folder: Path, servers: str, name: str, choice: Random) -> None:
        self.choice, self.servers, self.name = choice, servers, name
        self.pipeline = written(folder, servers, name, {}, limit=40)
        self.batches: dict[int, Batch] = {}
        self.since: list[tuple[int, Definition]] = []
        """From which number of edits on a definition counts."""
        for relation in ("orders", "customers"):
            create(servers, f"{name}.{relation}", PARTITIONS)

    def send(self, count: int) -> None:
        """Send changes of orders and customers."""
        choice = self.choice
        orders: list[tuple[bytes, bytes | None]] = []
        customers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key = choice.randrange(60)
            row: Row = {"customer": choice.randrange(8), "amount": choice.randrange(40)}
            row |= {"note": choice.choice("abc")}
            gone = choice.random() < 0.2
            orders.append((b"%d" % key, None if gone else json.dumps(row).encode()))
        for _ in range(count // 8):
            number = choice.randrange(8)
            after = {"id": number, "level": choice.randrange(40)}
            change = {"op": "c", "before": None, "after": after}
            if choice.random() < 0.2:
                change = {"op": "d", "before": after, "after": None}
            name = json.dumps({"id": number}).encode()
            customers.append((name, json.dumps({**change, "source": {"ts_ms": 1}}).encode()))
        produce(self.servers, f"{self.name}.orders", orders)
        produce(self.servers, f"{self.name}.customers", customers)

    def file(self, definition: Definition) -> Written:
        """The pipeline of a definition."""
        sections = definition.sections(self.name)
        return replace(self.pipeline, sections=sections, shards=definition.shards)

    def log(self) -> None:
        """Take down the batches that are logged now."""
        for folder in (self.pipeline.place, *self.pipeline.place.glob("epoch-*")):
            for path in (folder / "offsets").glob("*"):
                if not path.name.isdigit():
                    continue
                # A run removes the layout of before meanwhile, whose batches are known.
                with suppress(FileNotFoundError):
                    batch = Batch(path)
                    self.batches[batch.number] = batch

    def logged_edits(self) -> int:
        """How many edits the batches in the log have."""
        self.log()
        return max((batch.edits for batch in self.batches.values()), default=0)

    def counts_from_now(self, definition: Definition) -> None:
        """Note that a definition counts since the last edit; call it when a run has ended well."""
        self.log()
        edits = json.loads((self.pipeline.place / "ikebana.json").read_text())["edits"]
        if not self.since or edits > self.since[-1][0]:
            self.since.append((edits, definition))

    def wrong(self) -> list[str]:
        """Compare every output with the truth at each closed time; what differs."""
        found: list[str] = []
        topics = {
            relation: [
                (m.partition(), m.offset(), m.key(), m.value())
                for m in committed(self.servers, f"{self.name}.{relation}")
            ]
            for relation in ("orders", "customers")
        }
        collections: dict[str, Updates] = {}
        for batch in sorted(self.batches.values(), key=lambda each: each.number):
            _, definition = max(
                (each for each in self.since if each[0] <= batch.edits), key=lambda each: each[0]
            )
            tables = [
                table(topics[relation], batch.positions.get(f"{self.name}.{relation}", {}))
                for relation in ("orders", "customers")
            ]
            for output, truth in definition.outputs(*tables).items():
                updates = collections.setdefault(output, Updates(self.servers, self.name, output))
                if batch.upper <= updates.frontier and batch.upper > batch.lower:
                    shown = updates.collection(batch.upper)
                    if shown != truth:
                        odd = (shown - truth) + (truth - shown)
                        found.append(f"{output} after batch {batch.number}: {list(odd)[:4]}")
        for output, updates in collections.items():
            found += [f"{output}: {problem}" for problem in updates.problems()]
        return found


class Updates:
    """What an output's topic has, in order of time."""

    def __init__(self, servers: str, name: str, output: str) -> None:
        self._topic, self._servers = f"{name}.{output}", servers
        updates = [
            (
                int(dict(message.headers())["time"]),
                (canonical.decode(message.key()), canonical.decode(message.value())),
                int(dict(message.headers())["diff"]),
            )
            for message in committed(servers, self._topic)
        ]
        self._updates = sorted(updates, key=lambda update: update[0])
        self.frontier = progress_of(servers, self._topic)[-1].upper
        self._counts: Collection = Counter()
        self._at = 0

    def collection(self, upper: int) -> Collection:
        """The collection before a time; times have to be asked for in their order."""
        while self._at < len(self._updates) and self._updates[self._at][0] < upper:
            _, datum, diff = self._updates[self._at]
            self._counts[datum] += diff
            self._at += 1
        return Counter({datum: count for datum, count in self._counts.items() if count})

    def problems(self) -> list[str]:
        """What is wrong of its progress."""
        records = progress_of(self._servers, self._topic)
        gaps = [
            f"progress has {before.upper} and then {after.lower}"
            for before, after in pairwise(records)
            if before.upper != after.lower
        ]
        total = sum(record.updates for record in records)
        if total != len(self._updates):
            gaps.append(f"progress counts {total} updates, the topic has {len(self._updates)}")
        return gaps


def table(records: list[tuple[int, int, bytes, bytes | None]], ends: Mapping[str, int]) -> Table:
    """The rows of a topic up to these offsets."""
    found: dict[int, Row] = {}
    for partition, offset, key, value in records:
        if offset >= ends.get(str(partition), 0):
            continue
        row = None if value is None else json.loads(value)
        number = json.loads(key)
        if isinstance(number, dict):
            # A change of a table: the key is its id.
            number, row = number["id"], None if row is None else row["after"]
        found.pop(number, None)
        if row is not None:
            found[number] = row
    return found
