"""New joins of a running pipeline, while much else goes through the exchange topic."""

import json

from ikebana import Plan
from ikebana.processor.base.transition import Transition
from ikebana.processor.topics.source_offset import is_settled
from ikebana.testing import Run, Topics
from support import edited_shops


def plan_of(condition: str) -> Plan:
    """A pipeline whose rows meet how many have their value, which exchanges to other shards."""
    return edited_shops.plan_of(f"""
inputs:
  changes: {{topic: changes, columns: {{v: BIGINT}}}}
operators:
  current: {{upsert: changes}}
  totals: {{reduce: current, by: v, aggregates: {{n: count(*)}}}}
  joined:
    delta_join: {{c: current, t: totals}}
    where: [c.v = t.key::BIGINT, {condition}]
    select: {{v: c.v, n: t.n}}
outputs:
  out: {{from: joined, topic: out}}
""")


def change(topics: Topics, number: int) -> None:
    topics.send("changes", b"%d" % (number % 7), json.dumps({"v": number % 3}).encode())


def test_a_join_is_hydrated_though_each_batch_sends_more_than_the_next_one_reads() -> None:
    """A slow machine reads a message of the exchange topic a batch, and a record sends several."""
    topics = Topics()
    for number in range(20):
        change(topics, number)
    run = Run(plan_of("c.v >= 0"), topics, shards=2, exchange=1)
    run.read()
    run.restart(plan_of("c.v >= 1"))
    for number in range(20, 320):
        change(topics, number)
        run.batch(limit=1)
        if run.last.transition == Transition(1):
            break
    assert run.last.transition == Transition(1)
    run.read()

    assert is_settled(run.last)
    fresh = Run(plan_of("c.v >= 1"), topics)
    fresh.read()
    assert sorted(map(repr, run.collection("out"))) == sorted(map(repr, fresh.collection("out")))
