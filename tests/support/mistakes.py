"""A pipeline file that is right, and mistakes that may be made in it."""

from typing import get_args

from ikebana.codecs.formats import OutputFormat
from ikebana.processor.kernels.aggregate_kinds import KINDS

WELL = """\
pipeline: shop
inputs:
  orders:
    topic: orders
    columns:
      id: BIGINT
      product: VARCHAR
      amount: DECIMAL(18, 2)
      placed: TIMESTAMP
  prices:
    topic: prices
    columns:
      product: VARCHAR
      price: BIGINT
  events:
    topic: events
    columns:
      code: BIGINT
    event_time:
      clock: kafka
      lateness: 5s
operators:
  order:
    upsert: orders
  price:
    upsert: prices
  event:
    upsert: events
  large:
    linear: order
    where:
      - amount > 10
      - id > 0
    select:
      id: id
      name: upper(product)
      placed: placed
    key: id
  named:
    linear: large
    where: name <> 'x'
  recent:
    linear: named
    steps:
      - where: id > 5
      - select:
          id: id
          name: name
  totals:
    reduce: order
    by: product
    aggregates:
      sold: sum(amount)
      most: max(amount)
  busy:
    linear: totals
    where: most > 7
  priced:
    delta_join:
      o: order
      p: price
    where:
      - o.product = p.product
      - o.id > 3
    select:
      id: o.id
      price: p.price
  dear:
    linear: priced
    where: price > 100
  codes:
    linear: event
    select:
      code: code
outputs:
  large:
    from: recent
    topic: large
  sold:
    from: busy
    topic: sold
    format: upsert
  dear:
    from: dear
    topic: dear
  codes:
    from: codes
    topic: codes
kafka:
  bootstrap.servers: broker:9092
run:
  checkpoint: c
  trigger_interval: 1s
"""

# What is written in the place of what, and the one problem that this is.
MISTAKES = {
    "missing type": (
        "      price: BIGINT",
        "      price:",
        "inputs.prices.columns.price: must be a SQL type, such as BIGINT; is empty",
    ),
    "unknown type": (
        "      code: BIGINT",
        "      code: BIGNIT",
        'inputs.events.columns.code: "BIGNIT" is not a SQL type; did you mean BIGINT?',
    ),
    "bad duration": (
        "lateness: 5s",
        "lateness: 5sec",
        "inputs.events.event_time.lateness: must be a number of seconds, or a duration such as "
        '500ms, 10s, 5m or 7d; is "5sec"',
    ),
    "unknown input": (
        "    upsert: events",
        "    upsert: evnts",
        "operators.event.upsert: there is no input 'evnts'; did you mean \"events\"?",
    ),
    "type mismatch": (
        "      - amount > 10",
        "      - amount > true",
        "operators.large.where.0: amount > true: cannot compare DECIMAL(18,2) and BOOLEAN; "
        "cast one of them, as in x::DECIMAL(18,2)",
    ),
    "subquery": (
        "      - id > 0",
        "      - id IN (SELECT 1)",
        "operators.large.where.1: id IN (SELECT 1): a subquery has no meaning over one datum; "
        "what another collection has is for a delta_join",
    ),
    "misspelt function": (
        "      name: upper(product)",
        "      name: uper(product)",
        "operators.large.select.name: uper(product): there is no function uper(); did you mean "
        "upper()?",
    ),
    "clock": (
        "      placed: placed",
        "      placed: now()",
        "operators.large.select.placed: now() depends on more than the datum; until when a "
        "row counts is its valid_until, and when it happened its input's event_time",
    ),
    "unknown column": (
        "    key: id",
        "    key: idd",
        'operators.large.key: idd: there is no column "idd"; did you mean "id"?',
    ),
    "column that a select has not made": (
        "    where: name <> 'x'",
        "    where: product <> 'x'",
        "operators.named.where: product <> 'x': there is no column \"product\"; there are id, "
        "key, name, placed, value",
    ),
    "having": (
        "      - where: id > 5",
        "      - where: 1 HAVING id > 5",
        "operators.recent.steps.0.where: 1 HAVING id > 5: it is not one expression; HAVING is a "
        "where in a linear operator behind the reduce",
    ),
    "setting of a step": (
        "      - select:\n          id: id\n          name: name",
        "      - selct:\n          id: id\n          name: name",
        'operators.recent.steps.1.selct: there is no such setting here; did you mean "select"?',
    ),
    "unknown operator": (
        "    reduce: order",
        "    reduce: oder",
        "operators.totals.reduce: there is no operator 'oder'; did you mean \"order\"?",
    ),
    "unknown aggregate": (
        "      sold: sum(amount)",
        "      sold: summ(amount)",
        'operators.totals.aggregates.sold: "summ(amount)" is none of '
        f"{', '.join(f'{kind}(…)' for kind in KINDS)}; did you mean sum(…)?",
    ),
    "column of an aggregate": (
        "      most: max(amount)",
        "      most: max(amuont)",
        'operators.totals.aggregates.most: amuont: there is no column "amuont"; did you mean '
        '"amount"?',
    ),
    "column of a join": (
        "      - o.product = p.product",
        "      - o.product = p.prodct",
        'operators.priced.where.0: input "p": there is no column "prodct"; did you mean '
        '"product"?',
    ),
    "types of a join": (
        "      - o.id > 3",
        "      - o.id = p.product",
        "operators.priced.where.1: o.id = p.product compares BIGINT with VARCHAR, which are not "
        "equal as data; cast one side, as in CAST(o.id AS VARCHAR)",
    ),
    "input of a join": (
        "      price: p.price",
        "      price: q.price",
        'operators.priced.select.price: there is no input "q"; there are o, p',
    ),
    "text where a condition is": (
        "    where: price > 100",
        "    where: price || 'x'",
        "operators.dear.where: price || 'x': is of type VARCHAR; must be true or false",
    ),
    "format": (
        "    format: upsert",
        "    format: upsrt",
        f"outputs.sold.format: must be one of {', '.join(get_args(OutputFormat))}; "
        'is "upsrt"; did you mean "upsert"?',
    ),
    "unknown setting": (
        "    from: codes\n",
        "    frm: codes\n",
        'outputs.codes.frm: there is no such setting here; did you mean "from"?',
    ),
    "section": (
        "  trigger_interval: 1s",
        "  triger_interval: 1s",
        'run.triger_interval: there is no such setting here; did you mean "trigger_interval"?',
    ),
}
