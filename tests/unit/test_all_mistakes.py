"""One reading of a pipeline file tells all its mistakes, and each of them once."""

import pytest

from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.planning.identity import is_same
from ikebana.processor.planning.plan import Operator
from support.mistakes import MISTAKES, WELL


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


@pytest.mark.parametrize(
    ("operator", "problem"),
    [
        pytest.param(
            "{reduce: o, by: b, aggregates: {n: count(*)}, limit: 3}",
            "limit: there is no such setting here; the first rows by an order are a first "
            "operator, with order, count and partition",
            id="limit",
        ),
        pytest.param(
            "{join: {x: o, y: o}, on: x.a = y.a}",
            "join: there is no such setting here; a join is a delta_join, or an as_of_join",
            id="join",
        ),
        pytest.param(
            "{reduce: o, by: {x: a, y: b}, aggregates: {n: count(*)}}",
            "by: must be a SQL expression; is a mapping; several columns are one object, in "
            "quotes: \"{'x': a, 'y': b}\"",
            id="by several columns",
        ),
        pytest.param(
            "{linear: o, select: [a], key: {x: a, y: b}}",
            "key: must be a SQL expression; is a mapping; several columns are one object, in "
            "quotes: \"{'x': a, 'y': b}\"",
            id="key of several columns",
        ),
        pytest.param(
            "{linear: o, select: '*'}",
            "select: must be a list of columns, or a mapping of names to SQL expressions; "
            'is "*"; leave select out to keep the value as it is',
            id="all columns",
        ),
        pytest.param(
            "{linear: first, where: 'a = \"x 1\"'}",
            'where: a = "x 1": there is no column "x 1"; there are a, key, value; '
            "a text stands in single quotes: 'x 1'",
            id="text in double quotes",
        ),
        pytest.param(
            "{linear: o, valid_until: t + 1 hour}",
            'valid_until: t + 1 hour: syntax error at or near "hour"; '
            "a length of time is an interval, as in INTERVAL 1 HOUR",
            id="length of time",
        ),
        pytest.param(
            "{linear: o, where: a > 10 and}",
            'where: a > 10 and: syntax error at or near "and"',
            id="a condition is missing",
        ),
        pytest.param(
            "{linear: o, map: 'lambda x: x'}",
            'map: "lambda x: x" is not of the form module:function; write the function in a '
            "module, and name both here",
            id="a function itself",
        ),
        pytest.param(
            "{delta_join: {left: o, p: o}, where: left.a = p.a AND left, select: {a: p.a}}",
            'where: syntax error at or near "left"; names that SQL reserves stand in double '
            'quotes, as in "left"',
            id="an alias that SQL reserves, with no column behind it",
        ),
    ],
)
def test_a_common_mistake_is_told_with_its_remedy(operator: str, problem: str) -> None:
    """What other systems call otherwise, and what SQL writes otherwise."""
    text = BEHIND.replace("FIRST", "select: [a]").replace("SECOND", "where: a > 1")
    text = text.replace("outputs:", f"  wrong: {operator}\noutputs:")

    assert [problem for problem, _ in told(text)] == [f"operators.wrong.{problem}"]


def test_an_alias_that_sql_reserves_needs_no_quotes() -> None:
    """Also where a join's key is the default, that of its first input; quotes mean the same."""
    text = BEHIND.replace("FIRST", "select: [a]").replace("SECOND", "where: a > 1")

    def joined(on: str, select: str) -> Operator:
        join = f"  j: {{as_of_join: {{left: o, right: o}}, on: '{on}', select: {{a: '{select}'}}}}"
        return parse(
            text.replace("outputs:", f"{join}\noutputs:"), "p.yaml", environ={}
        ).plan.operators[-1]

    plain = joined("left.a = right.a", "left.a + right . a")
    in_quotes = joined('"left".a = "right".a', '"left".a + "right".a')

    assert is_same(plain, in_quotes)


BEHIND = """\
pipeline: p
inputs: {i: {topic: in, columns: {a: BIGINT, b: VARCHAR, l: "BIGINT[]", t: TIMESTAMP}}}
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
