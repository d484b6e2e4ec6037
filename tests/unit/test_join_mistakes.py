"""Mistakes in a pipeline file's joins: each message names the place, and what to write."""

import pytest

from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import parse

FILE = """\
pipeline: p
inputs:
  orders: {{topic: orders, columns: {{id: BIGINT, product: VARCHAR, amount: BIGINT}}}}
  prices: {{topic: prices, columns: {{product: VARCHAR, price: BIGINT}}}}
  untyped: {{topic: untyped}}
  raw: {{topic: raw, format: bytes}}
operators:
  order: {{upsert: orders}}
  price: {{upsert: prices}}
  loose: {{upsert: untyped}}
  bare: {{upsert: raw}}
  j: {{{join}}}
outputs:
  out: {{from: j, topic: out}}
kafka: {{bootstrap.servers: broker:9092}}
run: {{checkpoint: c}}
"""
OF_A_KIND = (
    "must be one of upsert, linear, concat, state_machine, reduce, delta_join, as_of_join, sql, "
    "distinct, union, minus, intersect, semi_join, anti_join, left_join, right_join, full_join, "
    "first, window, iterate, tumble, hop, session"
)
DELTA = "delta_join: {o: order, p: price}, select: {price: p.price}, "
AS_OF = "as_of_join: {o: order, p: price}, select: {price: p.price}, "
EQUAL = "where: o.product = p.product, "
ON = "on: o.product = p.product, "
LOCKED = "retract: locked, "


def problems(join: str) -> list[str]:
    """What is told of a join, without the lines."""
    with pytest.raises(ConfigError) as told:
        parse(FILE.format(join=join), "p.yaml", environ={})
    return [line.strip().rpartition(" (line")[0] for line in str(told.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (
            DELTA + "where: o.product = q.product",
            'operators.j.where: there is no input "q"; there are o, p',
        ),
        (
            DELTA + "where: o.product = p.prodct",
            'operators.j.where: input "p": there is no column "prodct"; did you mean "product"?',
        ),
        (
            DELTA + "where: o.product = product",
            'operators.j.where: "product" is of no input; write it with one of o, p, as in '
            "o.product",
        ),
        (
            DELTA + "where: o = p.product",
            'operators.j.where: "o" is an input; o.value is the whole value of its data',
        ),
        (
            DELTA + "where: o.amount > p.price",
            'operators.j.where: no equality connects "p" with "o"; write one, or say '
            "cartesian: true",
        ),
        (AS_OF, 'operators.j.on: no equality connects "p" with "o"; write one'),
        (
            DELTA + "where: o.id = p.product",
            "operators.j.where: o.id = p.product compares BIGINT with VARCHAR, which are not "
            "equal as data; cast one side, as in CAST(o.id AS VARCHAR)",
        ),
        (
            "delta_join: {o: order, l: loose}, select: {id: o.id}, where: o.id = l.id",
            "operators.j.where: o.id = l.id compares BIGINT with JSON, which are not equal as "
            "data; cast one side, as in CAST(l.id AS BIGINT)",
        ),
        (
            "delta_join: {o: order, b: bare}, select: {id: o.id}, where: o.product = b.value",
            'operators.j.where: o.product = b."value" compares VARCHAR with BLOB, which are not '
            'equal as data; make text of one side, as in decode(b."value")',
        ),
        (
            "delta_join: {o: order, b: bare}, select: {id: o.id}, where: b.key = o.key",
            'operators.j.where: b."key" = o."key" compares BLOB with JSON, which are not equal as '
            'data; make text of both, as in decode(b."key") = CAST(o."key" AS VARCHAR)',
        ),
        (
            DELTA + "where: o.product = p.product AND 1 = 1",
            'operators.j.where: "(1 = 1)" reads no input; leave it out',
        ),
        (
            DELTA + "where: [o.product = p.product, random() > 0.5]",
            "operators.j.where.1: random() depends on more than the datum",
        ),
        (
            DELTA + "wheer: o.product = p.product",
            'operators.j.wheer: there is no such setting here; did you mean "where"?',
        ),
        (
            DELTA + ON,
            'operators.j: delta_join takes no on; its conditions are "where"',
        ),
        (
            AS_OF + EQUAL,
            'operators.j: as_of_join takes no where; its conditions are "on"',
        ),
        (
            DELTA + "where: 'o.product = p.product, o.id > 1'",
            "operators.j.where: it is not one expression; several are several columns of a "
            "select, or a list of conditions",
        ),
        (
            DELTA + "where: o.product = p.product UNION SELECT 1",
            "operators.j.where: it is not one expression; the updates of several operators "
            "together are a concat operator",
        ),
        (
            DELTA + "where: o.product = p.product AS same",
            "operators.j.where: an alias has no meaning here; names stand under select, as in "
            '{"same": …}',
        ),
        (
            AS_OF + "on: o.product = p.product AND o.id > 1 AS same",
            "operators.j.on: an alias has no meaning here; names stand under select, as in "
            '{"same": …}',
        ),
        (DELTA + EQUAL + "at: neu", "operators.j: delta_join takes no at"),
        (AS_OF + ON + "cartesian: true", "operators.j: as_of_join takes no cartesian"),
        (
            DELTA + EQUAL + "diff: '2'",
            "operators.j: delta_join takes no diff; add a linear operator",
        ),
        (
            "as_of_join: {o: order, p: price, l: loose}, select: {price: p.price}, " + ON,
            "operators.j.as_of_join: must have two inputs: the left, and the right that it meets",
        ),
        (
            "delta_join: {o: order}, select: {id: o.id}",
            "operators.j.delta_join: at least two are needed",
        ),
        (
            "delta_join: {o: order, j: j}, select: {id: o.id}, where: o.id = j.id",
            "operators.j: it reads its own results",
        ),
        (
            "delta_join: {o: order, p: price}, " + EQUAL,
            "operators.j.select: at least one field is needed",
        ),
        (
            "delta_join: {o: order, p: price}, select: [o.product, p.price], " + EQUAL,
            "operators.j.select: must be a mapping of names to SQL in a join, such as "
            "{price: p.price}",
        ),
        (
            "delta_join: {o: order, p: price}, select: {ikebana_key: o.id}, " + EQUAL,
            'operators.j.select.ikebana_key: no column can be named "ikebana_key": names with '
            "ikebana_ are ikebana's own",
        ),
        (
            DELTA + EQUAL + "key: id",
            'operators.j.key: "id" is of no input; write it with one of o, p, as in o.id',
        ),
        (
            "delta_join: {o: orders, p: price}, select: {id: o.id}, " + EQUAL,
            "operators.j.delta_join.o: 'orders' is an input of upserts, which are no collection: "
            "make an operator with upsert: orders, and read that",
        ),
        (
            "delta_join: {o: ordr, p: price}, select: {id: o.id}, " + EQUAL,
            "operators.j.delta_join.o: there is no operator 'ordr'; did you mean \"order\"?",
        ),
        (
            "delta_join: [order, price], select: {id: o.id}, " + EQUAL,
            "operators.j.delta_join: must be a mapping of names to operators, such as "
            "{o: orders, p: prices}; is a list",
        ),
        (
            "delta_join: {o: order, p: }, select: {id: o.id}, " + EQUAL,
            'operators.j.delta_join: must be the name of an operator for "p"; is empty',
        ),
        (
            "delta_join: {o-1: order, p: price}, select: {id: p.price}, " + EQUAL,
            'operators.j.delta_join.o-1: "o-1" is no name for columns (letters, digits, "_")',
        ),
        ("sql: ''", "operators.j.sql: must not be empty"),
        ("sql: ", f"operators.j: {OF_A_KIND}; a key without a value counts as absent"),
        ("sql: [SELECT 1]", "operators.j.sql: must be a SQL expression; is a list"),
        (
            "filter: order",
            f"operators.j: {OF_A_KIND}; has only filter; a step is of a linear operator",
        ),
        ("on: o.id", f"operators.j: {OF_A_KIND}; has only on"),
        (
            "upsert: raw, " + DELTA + EQUAL,
            f"operators.j: {OF_A_KIND}; is upsert and delta_join",
        ),
        (
            AS_OF + ON + "at: old",
            'operators.j.at: must be "alt" or "neu"; is "old"',
        ),
        (
            AS_OF + ON + "retract: lokced",
            'operators.j.retract: must be "current" or "locked"; is "lokced"; did you mean '
            '"locked"?',
        ),
        (
            AS_OF + ON + "locked_by: product",
            "operators.j.locked_by: needs retract: locked, by which what a row has met is "
            "remembered",
        ),
        (
            AS_OF + ON + LOCKED + "locked_by: [product, amuont]",
            'operators.j.locked_by: input "o": there is no column "amuont"; did you mean '
            '"amount"?',
        ),
        (
            AS_OF + ON + LOCKED + "locked_by: [product, product]",
            'operators.j.locked_by: names "product" 2 times',
        ),
        (
            AS_OF + ON + LOCKED + "locked_by: [product, value]",
            'operators.j.locked_by: names columns; "value" is all of them, as without locked_by',
        ),
        (
            AS_OF + 'on: ["o.product = p.product", "o.amount < p.price"], '
            "retract: locked, locked_by: key",
            'operators.j.locked_by: must name "amount" and "product" too, by which on tells what '
            "a row meets",
        ),
        (
            AS_OF + "on: o.value->>'product' = p.product, retract: locked, locked_by: product",
            "operators.j.locked_by: cannot be where on reads o.value; let it read columns of o",
        ),
        (
            DELTA + EQUAL + "orders: {x: [o]}",
            'operators.j.orders.x: there is no input "x"; there are o, p',
        ),
        (DELTA + EQUAL + "orders: {o: []}", "operators.j.orders.o: must name each of p once"),
        (
            DELTA + EQUAL + "orders: {o: p}",
            'operators.j.orders: must be a list of the other inputs for "o"; is "p"',
        ),
        (
            DELTA + EQUAL + "strategy: worst",
            'operators.j.strategy: must be one of auto, lookup, intersect; is "worst"',
        ),
    ],
)
def test_a_mistake_is_told_once_and_where_it_is(join: str, expected: str) -> None:
    """Nothing else is blamed for it."""
    assert problems(join) == [expected]


@pytest.mark.parametrize(
    "join",
    [
        DELTA + EQUAL,
        AS_OF + ON,
        AS_OF + ON + LOCKED + "locked_by: [product, amount]",
        AS_OF + 'on: [o.key = p.key, "o.amount > 5"], retract: locked, locked_by: key',
        "delta_join: {o: order, l: loose}, select: {id: o.id}, where: o.id = CAST(l.id AS BIGINT)",
        "delta_join: {o: order, b: bare}, select: {id: o.id}, where: o.product = decode(b.value)",
        "delta_join: {o: order, b: bare}, select: {id: o.id}, "
        "where: decode(b.key) = CAST(o.key AS VARCHAR)",
        "delta_join: {o: order, p: price}, select: {price: p.price}, cartesian: true",
    ],
)
def test_what_the_messages_propose_can_be_written(join: str) -> None:
    """The file has no problem then."""
    assert parse(FILE.format(join=join), "p.yaml", environ={}).plan.name == "p"
