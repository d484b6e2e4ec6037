"""A checkpoint as it was written: what is read of it goes on as it would have.

`tests/golden/checkpoint` is written anew by `IKEBANA_GOLDEN=write pytest` with this file.
"""

import os
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from msgspec.structs import replace

from ikebana.arrangements import run as runs
from ikebana.arrangements.store import MemoryStore
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.checkpoint.checkpoint import Checkpoint, newest_line
from ikebana.processor.checkpoint.recorded_plan import metadata_after, with_checkpoint_names
from ikebana.processor.planning.plan import Plan
from ikebana.testing import Run
from support.checkpoints import left
from support.doc_blocks import ROOT

GOLDEN = ROOT / "tests" / "golden" / "checkpoint"
SHARDS = 2
PIPELINE = """
pipeline: kept
inputs:
  orders:
    topic: orders
    columns: {customer: BIGINT, amount: "DECIMAL(9,2)", note: VARCHAR, moment: BIGINT}
    event_time: {of: moment, lateness: 5ms, ahead: never}
  customers:
    topic: customers
    columns: {level: BIGINT, since: BIGINT}
    event_time: {of: since, ahead: never}
  steps: {topic: steps, event_time: {clock: kafka, ahead: never}}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  count: {state_machine: steps, step: "machines:one_more"}
  soon: {linear: order, valid_until: "moment + 40"}
  totals:
    reduce: order
    by: customer
    aggregates: {n: count(*), sum: sum(amount), least: min(amount), most: max(note)}
  sized: {linear: order, select: {customer: customer, quantity: "amount::INTEGER"}}
  largest: {reduce: sized, by: customer, function: "edited_functions:most"}
  rated:
    delta_join: {o: order, c: customer}
    where: ["o.customer = c.key::BIGINT"]
    select: {amount: o.amount, level: c.level}
  priced:
    as_of_join: {o: order, c: customer}
    on: ["o.customer = c.key::BIGINT"]
    select: {amount: o.amount, level: c.level}
    retract: locked
outputs:
  order: {from: order, topic: kept.order}
  count: {from: count, topic: kept.count}
  soon: {from: soon, topic: kept.soon}
  totals: {from: totals, topic: kept.totals}
  sums: {from: totals, topic: kept.sums, format: upsert}
  largest: {from: largest, topic: kept.largest}
  rated: {from: rated, topic: kept.rated}
  priced: {from: priced, topic: kept.priced}
kafka: {bootstrap.servers: "localhost:9092"}
run: {checkpoint: ./c, shards: 2}
"""


def plan() -> Plan:
    return parse(PIPELINE, "kept.yaml", environ={}).plan.portable()


def send(run: Run, numbers: range) -> None:
    """Rows of all inputs, some of which are wrong, gone, late, or wait for their time."""
    for number in numbers:
        row: dict[str, Any] | None = {
            "customer": number % 4,
            "amount": "many" if number % 11 == 5 else f"{number * 7 % 50}.25",
            "note": "abc"[number % 3],
            "moment": number * 10 - (number % 5) * 3,
        }
        if number % 9 == 4:
            row = None
        run.topics.send("orders", number % 13, row, timestamp=number * 10)
        customer = {"level": number % 6, "since": number * 10}
        run.topics.send("customers", number % 4, customer, timestamp=number * 10)
        run.topics.send("steps", number % 3, "x", timestamp=number * 10)


def begun() -> Run:
    """A run that has read the first records; some of them wait for their times."""
    run = Run(plan(), shards=SHARDS)
    send(run, range(60))
    run.read()
    return run


def contents(run: Run) -> dict[str, list[str]]:
    """The updates of each output, in an order that does not depend on batches."""
    return {name: sorted(map(repr, found)) for name, found in run.written.updates.items()}


def test_a_stored_checkpoint_goes_on_as_it_would_have(tmp_path: Path) -> None:
    """The same updates come of the same records, from its state and its offsets."""
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        rmtree(GOLDEN, ignore_errors=True)
        # It is relocated when it is read.
        written = replace(left(begun(), GOLDEN), location="local:/var/lib/kept")
        Checkpoint(str(GOLDEN)).write(written)
    place = copytree(GOLDEN, tmp_path / "checkpoint")
    checkpoint = Checkpoint(str(place))
    metadata = checkpoint.relocate()
    logged = checkpoint.layout(metadata).logged()
    assert logged.offset is not None
    whole = begun()
    before = {name: len(found) for name, found in whole.written.updates.items()}

    assert metadata_after(metadata, plan()) == metadata
    assert logged.offset.plan == with_checkpoint_names(metadata, plan()).fingerprint()
    again = begun()
    again.last = logged.offset
    for shard in range(SHARDS):
        files = checkpoint.layout(metadata).shard(shard)
        line = newest_line(files.names())
        assert line is not None
        again.stores[shard] = store = MemoryStore()
        for entry_key, entry in runs.merge(files, line):
            if entry is not None:
                store.put(entry_key, entry)
    again.restart()
    for run in (whole, again):
        send(run, range(60, 120))
        run.read()

    assert contents(again) == contents(whole)
    assert all(len(whole.written.updates[name]) > count for name, count in before.items())
