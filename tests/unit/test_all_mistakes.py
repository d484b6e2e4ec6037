"""One reading of a pipeline file tells all its mistakes, and each of them once."""

import pytest

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.configuring.pipeline import parse

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
        "operators.large.where.0: amount > true: Binder Error: Cannot compare values of type "
        "DECIMAL(18,2) and type BOOLEAN - an explicit cast is required",
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
        "operators.large.select.placed: now(): now() depends on more than the datum; until when a "
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
        'operators.totals.aggregates.sold: "summ(amount)" is none of count(…), sum(…), avg(…), '
        "min(…), max(…), top(…), distinct(…); did you mean sum(…)?",
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
        "outputs.sold.format: must be one of diff, cdcv2-json, cdcv2-avro, debezium-json, upsert; "
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


def told(text: str) -> list[tuple[str, int]]:
    """The problems of a file, each with its line."""
    with pytest.raises(ConfigError) as refused:
        parse(text, "p.yaml", environ={})
    found = (line.rpartition(" (line ") for line in str(refused.value).splitlines()[1:])
    return [(problem.strip(), int(line.removesuffix(")"))) for problem, _, line in found]


def with_mistake(text: str, name: str) -> str:
    well, wrong, _ = MISTAKES[name]
    assert text.count(well) == 1, name
    return text.replace(well, wrong)


def line_of(name: str) -> int:
    return WELL[: WELL.index(MISTAKES[name][0])].count("\n") + 1


def test_the_file_without_mistakes_is_one() -> None:
    """Or nothing else here would say anything."""
    assert parse(WELL, "p.yaml", environ={}).plan.name == "shop"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_alone_is_one_problem(name: str) -> None:
    """With its line and what to write instead; nothing that only follows from it is told."""
    assert told(with_mistake(WELL, name)) == [(MISTAKES[name][2], line_of(name))]


def test_all_mistakes_are_told_at_once() -> None:
    """In the order of their lines, whatever kinds they are of, also several of one operator.

    What reads a column that another mistake leaves unknown is silent until that is mended:
    of an aggregate whose operator is not there, and of a price that a join cannot give.
    """
    text = WELL
    for name in MISTAKES:
        text = with_mistake(text, name)
    silent = {"column of an aggregate", "text where a condition is"}
    expected = [(MISTAKES[name][2], line_of(name)) for name in MISTAKES if name not in silent]
    assert told(text) == expected


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("columns: {rate: DECIMAL(18,6), at: TIMESTAMP}", '"DECIMAL(18,6)"'),
        ("columns: {at: TIMESTAMP, rate: DECIMAL(18,\n 6)}", '"DECIMAL(18, 6)"'),
    ],
)
def test_a_comma_in_flow_style_is_told_with_quotes(written: str, quoted: str) -> None:
    """YAML ends the text there; the rest is neither a key that is wrong nor a column."""
    text = WELL.replace("columns:\n      product: VARCHAR\n      price: BIGINT", written)

    problem = f"a comma ends it within {{}} and []; put it in quotes: {quoted}"
    assert f"inputs.prices.columns.rate: {problem}" in [problem for problem, _ in told(text)]
    assert not any("18" in problem for problem, _ in told(text) if quoted not in problem)


@pytest.mark.parametrize(
    ("written", "place", "quoted"),
    [
        ("where: [amount > round(id, 2), id > 0]", "where.0", '"amount > round(id, 2)"'),
        ("select: {id: id, x: coalesce(id, 1, 2)}", "select.x", '"coalesce(id, 1, 2)"'),
        ("select: {x: f(g(id, 1), 2), y: id}", "select.x", '"f(g(id, 1), 2)"'),
    ],
)
def test_commas_of_calls_in_flow_style_are_told(written: str, place: str, quoted: str) -> None:
    """Of lists as of mappings; parentheses that close where they open are no matter."""
    text = f"operators: {{o: {{linear: x, {written}}}}}"
    with pytest.raises(ConfigError) as refused:
        parse(text, "p.yaml", environ={})

    expected = (
        f"operators.o.{place}: a comma ends it within {{}} and []; put it in quotes: {quoted}"
    )
    assert f"  {expected} (line 1)" in str(refused.value).splitlines()


BEHIND = """\
pipeline: p
inputs: {i: {topic: in, columns: {a: BIGINT, b: VARCHAR, l: "BIGINT[]"}}}
operators:
  o: {upsert: i}
  first:
    linear: o
    FIRST
  second:
    linear: first
    SECOND
outputs: {d: {from: second, topic: out}}
kafka: {bootstrap.servers: "b:1"}
run: {checkpoint: c}
"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(
            "select: {x: a + no, y: a}",
            "where: [x > 1, now() > y]",
            ["operators.first.select.x", "operators.second.where.1"],
            id="of a select only the column that cannot be is unknown",
        ),
        pytest.param(
            "select: {x: a}",
            "where: [x > 1, z > 1, w > 1]",
            ["operators.second.where.1", "operators.second.where.2"],
            id="several conditions",
        ),
        pytest.param(
            "{flat_map: {e: no}, where: [e > 1, b > now()]}",
            "where: a > 0",
            ["operators.first.flat_map", "operators.first.where.1"],
            id="what a flat_map that cannot be would make",
        ),
        pytest.param(
            "{flat_map: {e: l}, where: [e > now(), a > 1], select: {e: e}}",
            "where: e > 1",
            ["operators.first.where.0"],
            id="what a flat_map makes is known",
        ),
        pytest.param(
            "map: no:such",
            "where: [c::BIGINT > 1, d > 1]",
            ["operators.first.map", "operators.second.where.1"],
            id="a function that is not there gives JSON all the same",
        ),
        pytest.param(
            "{selct: {x: a}, where: no > 1}",
            "where: [x > 1, now() > x]",
            ["operators.first.selct", "operators.first.where", "operators.second.where.1"],
            id="a misspelt select",
        ),
        pytest.param(
            "{flatmap: {e: l}, where: e > 1}",
            "where: e > 1",
            ["operators.first.flatmap"],
            id="a misspelt flat_map",
        ),
        pytest.param("select: 7", "where: x > 1", ["operators.first.select"], id="no select"),
        pytest.param(
            'select: {"A": a, a: a}',
            "where: a > 1",
            ["operators.first.select.a"],
            id="names that differ in case",
        ),
        pytest.param(
            "steps: [{where: nix}, {select: {x: a}}, 7]",
            "where: x > 1",
            ["operators.first.steps.2", "operators.first.steps.0.where"],
            id="a step that is none",
        ),
    ],
)
def test_what_depends_on_a_mistake_is_silent(first: str, second: str, expected: list[str]) -> None:
    """And what does not is told with it."""
    flow = first if not first.startswith("{") else first[1:-1]
    text = BEHIND.replace("linear: o\n    FIRST", f"{{linear: o, {flow}}}".strip())
    text = text.replace("first:\n    {", "first: {").replace("linear: first\n    SECOND", second)
    text = text.replace("  second:\n    ", "  second:\n    linear: first\n    ")

    assert [problem.partition(": ")[0] for problem, _ in told(text)] == expected


def test_sections_that_are_missing_are_no_more_than_that() -> None:
    """Whether operators are needed is told by inputs."""
    with pytest.raises(ConfigError) as refused:
        parse("kafka: {bootstrap.servers: b}\nrun: {checkpoint: c}\n", "p.yaml", environ={})

    assert [line.strip() for line in str(refused.value).splitlines()[1:]] == [
        "pipeline: is missing",
        "inputs: is missing",
        "outputs: is missing",
    ]
