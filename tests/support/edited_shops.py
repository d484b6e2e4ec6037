"""A pipeline of a shop, and an edit of it, for tests of edits."""

from ikebana import Plan
from ikebana.processor.authoring.pipeline import parse

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
    whole = f"""
pipeline: shop
kafka: {{bootstrap.servers: localhost:9092}}
run: {{checkpoint: ./c}}
{text}
"""
    return parse(whole, "shop.yaml", environ={}).plan
