"""A pipeline of a shop, and an edit of it, for tests of edits."""

from ikebana import Plan
from support import edited_runs

FIRST = """
inputs:
  orders:
    topic: orders
    columns: {product: VARCHAR, customer: BIGINT, quantity: BIGINT}
operators:
  order: {upsert: orders}
  large: {linear: order, where: quantity > 3}
  totals: {reduce: large, by: product, aggregates: {n: count(*)}}
outputs:
  large: {from: large, topic: large}
  totals: {from: totals, topic: totals}
"""
JOINED = (
    FIRST.replace(
        "operators:\n",
        """\
  customers: {topic: customers, columns: {name: VARCHAR}}
operators:
  customer: {upsert: customers}
  named:
    delta_join: {o: order, c: customer}
    where: [o.customer = c.key::BIGINT]
    select: {product: o.product, name: c.name}
""",
    )
    + "  named: {from: named, topic: named}\n"
)


def plan_of(text: str) -> Plan:
    """The plan of a pipeline file with these sections; its times are those of the clock."""
    return edited_runs.plan_of(text, "ingest")
