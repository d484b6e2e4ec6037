"""Operators made of others, as a pipeline file says them, against DuckDB at every time."""

from pathlib import Path
from random import Random

import pytest

import ikebana as ik
from ikebana import evaluate
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.authoring import pipeline
from ikebana.processor.planning.plan import Plan
from support.random_queries import TABLES, history
from support.sql_oracle import answer, records_of, shown_at, tables_at

TIMES = 4
XY = "{x: t, y: u}"
JOINED = "select: {a: x.a, b: x.b, d: y.d}"
CASES = {
    "{distinct: t, select: [a, c]}": "SELECT DISTINCT a, c FROM t",
    "{distinct: u}": "SELECT DISTINCT a, d, e FROM u",
    "{union: [ta, ua]}": "SELECT a FROM t UNION SELECT a FROM u",
    "{union: [ta, ua], all: true}": "SELECT a FROM t UNION ALL SELECT a FROM u",
    "{minus: [ta, ua]}": "SELECT a FROM t EXCEPT SELECT a FROM u",
    "{minus: [ta, ua], all: true}": "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
    "{intersect: [ta, ua]}": "SELECT a FROM t INTERSECT SELECT a FROM u",
    "{intersect: [ta, ua], all: true}": "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
    "{semi_join: {x: t, y: u}, 'on': x.a = y.a AND y.d > 0}": (
        "SELECT * FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE x.a = y.a AND y.d > 0)"
    ),
    "{semi_join: {x: t, y: u}, 'on': [x.a = y.a, x.b < y.d]}": (
        "SELECT * FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE x.a = y.a AND x.b < y.d)"
    ),
    "{anti_join: {x: t, y: u}, 'on': x.a = y.a AND x.b > 0}": (
        "SELECT * FROM t x WHERE NOT EXISTS (SELECT 1 FROM u y WHERE x.a = y.a AND x.b > 0)"
    ),
    "{anti_join: {x: t, y: u}, 'on': x.b < y.d}": (
        "SELECT * FROM t x WHERE NOT EXISTS (SELECT 1 FROM u y WHERE x.b < y.d)"
    ),
    f"{{left_join: {{x: t, y: u}}, 'on': x.a = y.a AND y.d > 0, {JOINED}}}": (
        "SELECT x.a, x.b, y.d FROM t x LEFT JOIN u y ON x.a = y.a AND y.d > 0"
    ),
    f"{{right_join: {{x: t, y: u}}, 'on': x.a = y.a AND x.b < y.d, {JOINED}}}": (
        "SELECT x.a, x.b, y.d FROM t x RIGHT JOIN u y ON x.a = y.a AND x.b < y.d"
    ),
    f"{{full_join: {{x: t, y: u}}, 'on': x.a = y.a, {JOINED}}}": (
        "SELECT x.a, x.b, y.d FROM t x FULL JOIN u y ON x.a = y.a"
    ),
    "{delta_join: {x: t, y: u}, left: {y: x.a = y.a AND y.d > 0}, "
    "where: x.b > 0, select: {a: x.a, d: y.d}, key: y.d}": (
        "SELECT x.a, y.d FROM t x LEFT JOIN u y ON x.a = y.a AND y.d > 0 WHERE x.b > 0"
    ),
    "{delta_join: {x: t, y: u, z: t}, where: x.a = y.a, left: {z: [z.a = y.d, z.b < x.b]}, "
    "select: {a: x.a, d: y.d, b: z.b}, key: y.key}": (
        "SELECT x.a, y.d, z.b FROM t x JOIN u y ON x.a = y.a "
        "LEFT JOIN t z ON z.a = y.d AND z.b < x.b"
    ),
    "{delta_join: {x: t, y: u, z: t, v: u}, where: x.a = y.a, "
    "left: {z: z.a = y.d}, full: {v: v.a = z.a}, select: {a: x.a, d: y.d, b: z.b, e: v.e}}": (
        "SELECT x.a, y.d, z.b, v.e FROM t x JOIN u y ON x.a = y.a "
        "LEFT JOIN t z ON z.a = y.d FULL JOIN u v ON v.a = z.a"
    ),
    "{delta_join: {x: t, y: u, z: t}, full: {y: x.a = y.a, z: z.a = y.d}, "
    "select: {n: 'coalesce(y.d, z.a, x.a)'}}": (
        "SELECT coalesce(y.d, z.a, x.a) AS n FROM t x FULL JOIN u y ON x.a = y.a "
        "FULL JOIN t z ON z.a = y.d"
    ),
    "{delta_join: {x: t, y: u, z: t}, left: {y: x.a = y.a, z: x.a = z.a}, select: {n: 1}}": (
        "SELECT 1 AS n FROM t x LEFT JOIN u y ON x.a = y.a LEFT JOIN t z ON x.a = z.a"
    ),
    "{first: t, partition: c, order: [b DESC NULLS FIRST, a], count: 2}": (
        "SELECT * FROM t QUALIFY "
        "row_number() OVER (PARTITION BY c ORDER BY b DESC NULLS FIRST, a) <= 2"
    ),
    "{reduce: t, by: [a, c], aggregates: {n: count(*)}, having: n > 1}": (
        "SELECT count(*) AS n FROM t GROUP BY a, c HAVING count(*) > 1"
    ),
}


def read(operators: str, folder: Path) -> Plan:
    """The plan of a file with the operators t and u over the tables, ta and ua, and these."""
    inputs = "\n".join(
        f"  {name}_changes:\n    topic: {name}\n    columns:\n"
        + "\n".join(f'      {column}: "{kind}"' for column, kind in columns.items())
        for name, columns in TABLES.items()
    )
    path = folder / "made.yaml"
    path.write_text(
        f"pipeline: made\ninputs:\n{inputs}\noperators:\n  made: {operators}\n"
        "  t: {upsert: t_changes}\n  u: {upsert: u_changes}\n"
        "  ta: {linear: t, select: [a]}\n  ua: {linear: u, select: [a]}\n"
        "outputs:\n  out: {from: made, topic: out}\n"
        "kafka: {bootstrap.servers: localhost:9092}\nrun: {checkpoint: ./checkpoint}\n"
    )
    return pipeline.read(path, environ={}).plan


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("operator", CASES)
def test_an_operator_made_of_others_is_what_sql_means(
    operator: str, seed: int, tmp_path: Path
) -> None:
    changes = history(Random(seed), TIMES)

    found = evaluate(read(operator, tmp_path), records_of(changes))

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), CASES[operator])
        assert shown_at(found["out"], names, time) == expected, (time, changes)


@pytest.mark.parametrize(
    ("operator", "problem"),
    [
        ("{distinct: tt}", "made.distinct: there is no operator 'tt'; did you mean \"t\"?"),
        ("{union: [t]}", "made.union: at least two operators are needed"),
        ("{union: [t, u]}", 'made.union: "d" is BIGINT and "b" is DECIMAL(12,2); cast one'),
        ("{minus: [t, ua]}", "made.minus: 1 columns cannot stand beside 4: a and a, b, c, h"),
        ("{semi_join: {x: t}, 'on': x.a = 1}", "made.semi_join: must have two inputs"),
        ("{semi_join: {x: t, y: u}}", "made.on: is missing, such as o.customer = c.id"),
        ("{anti_join: {x: t, y: u}, 'on': a = y.a}", 'made.on: "a" is of no input; write x or y'),
        ("{left_join: {x: t, y: u}, 'on': x.a = y.a}", "made.select: at least one field"),
        ("{left_join: {x: t, y: u}, 'on': x.a = y.z, select: {a: x.a}}", 'no column "z"'),
        (
            f"{{delta_join: {XY}, left: {{z: x.a = y.a}}, {JOINED}}}",
            'left.z: there is no input "z"',
        ),
        (
            f"{{delta_join: {XY}, left: {{x: x.a = y.a, y: x.a = y.a}}, {JOINED}}}",
            "made.delta_join: one input at least must stand in neither left nor full",
        ),
        (
            f"{{delta_join: {XY}, left: {{y: x.a = y.a}}, full: {{y: x.a = y.a}}, {JOINED}}}",
            "made.full.y: is under left already",
        ),
        (
            f"{{delta_join: {XY}, left: {{y: x.a = y.a}}, where: y.d > 0, {JOINED}}}",
            'made.where: "y" is an input of left, whose conditions stand there; one over the '
            "results stands in a linear operator",
        ),
        (
            "{delta_join: {x: t, y: u, z: t}, left: {y: z.a = y.a}, full: {z: z.a = y.a}, "
            f"{JOINED}}}",
            'made.left.y: "z" is joined later; let it stand before "y" under delta_join',
        ),
        (
            f"{{delta_join: {XY}, left: {{y: x.a = y.a}}, orders: {{x: [y]}}, {JOINED}}}",
            "made.orders: cannot be told beside left and full; make a delta_join of the other",
        ),
        (
            f"{{delta_join: {XY}, left: {{y: x.a = y.a}}, strategy: lookup, {JOINED}}}",
            "made.strategy: cannot be told beside left and full",
        ),
        (
            "{delta_join: {x: t, y: u, z: t}, left: {y: x.a = y.a}, select: {a: x.a}}",
            'no equality connects "z" with "x"; write one, or say cartesian: true',
        ),
        (
            f"{{delta_join: {XY}, left: [y], {JOINED}}}",
            "left: must be a mapping of names to conditions, such as {p: o.product = p.key}",
        ),
        ("{first: t}", "made.order: is missing, such as amount DESC"),
        ("{first: t, order: z}", 'made.order: there is no column "z"'),
        ("{first: t, order: a + 1}", 'made.order: "a + 1" must be a column'),
        ("{first: t, order: a DESC LIMIT 1}", '"a DESC LIMIT 1" must be a column, with DESC'),
        ("{first: t, order: a OFFSET 2}", 'made.order: "a OFFSET 2" must be a column'),
        ("{first: t, order: ['a, b']}", 'made.order: "a, b" must be a column'),
        ("{first: t, order: a; SELECT 1}", "made.order: a; SELECT 1: it must be one query"),
        ("{first: t, order: a COLLATE NOCASE}", '"a COLLATE NOCASE" must be a column'),
        ("{tumble: t, over: 'x), (y', size: 1h}", "made.over: "),
        ("{tumble: t, over: 'x AS DATE) + (y', size: 1h}", "made.over: "),
        ("{session: t, over: 'a; SELECT 1', gap: 1h}", "made.over: it is not one expression"),
        ("{first: t, order: a, count: 0}", "made.count: must be at least 1"),
        ("{distinct: made}", "made.distinct: it reads itself"),
        ("{distinct: t, all: true}", "distinct takes no all"),
    ],
)
def test_what_cannot_be_made_is_refused(operator: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises((PlanError, ConfigError)) as told:
        read(operator, tmp_path)

    assert problem in str(told.value)


def test_python_makes_the_outer_inputs_of_a_file(tmp_path: Path) -> None:
    made = read(
        "{delta_join: {x: t, y: u, z: t}, left: {y: [x.a = y.a, y.d > 0]}, full: {z: z.a = y.d}, "
        "where: x.b > 0, select: {b: x.b, d: y.d}, key: x.a}",
        tmp_path,
    )
    shop = ik.Pipeline("made")
    t, u = (
        shop.topic(
            name, name=f"{name}_changes", columns=[ik.Column(*each) for each in columns.items()]
        ).upsert(name=name)
        for name, columns in TABLES.items()
    )

    shop.join(
        {"x": t, "y": u, "z": t},
        left={"y": ["x.a = y.a", "y.d > 0"]},
        full={"z": "z.a = y.d"},
        where="x.b > 0",
        select={"b": "x.b", "d": "y.d"},
        key="x.a",
        name="made",
    ).to("out", name="out")

    by_name = {each.name: each for each in made.operators if each.name not in ("ta", "ua")}
    assert {each.name: each for each in shop.plan().operators} == by_name


def test_python_makes_the_plan_of_a_file(tmp_path: Path) -> None:
    made = read("{first: t, partition: c, order: [b DESC, a DESC], count: 2}", tmp_path)
    shop = ik.Pipeline("made")
    columns = [ik.Column(*each) for each in TABLES["t"].items()]
    rows = shop.topic("t", name="t_changes", columns=columns).upsert(name="t")

    first = rows.first(2, order=["b DESC", "a DESC"], partition=["c"], name="made")

    by_name = {each.name: each for each in made.operators}
    first.to("out", name="out")
    own = shop.plan().operators
    assert own == tuple(by_name[each.name] for each in own)
    assert {each.name for each in own} == {"t", "made", "made.first"}
