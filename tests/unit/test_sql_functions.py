"""Functions of one's own in SQL: declared in a file or in Python, called wherever SQL stands."""

import datetime
import os
import sys
from decimal import Decimal
from typing import Any

import pytest

import ikebana as ik
from ikebana.errors import ConfigError, StuckError
from ikebana.processor.authoring import pipeline
from ikebana.processor.base import calls
from ikebana.processor.linear.sql_functions import (
    SqlFunction,
    as_written,
    function_of,
    place_as_written,
)
from ikebana.processor.linear.syntax import with_long_names
from ikebana.testing import Run
from support.sql_oracle import rows_at


def doubled(number: int) -> int:
    if number == 13:
        raise ValueError("no doubles of 13")
    return 2 * number


def as_text(number: int) -> Any:
    """Not what it is declared to give."""
    return str(number)


def known(text: str | None) -> bool:
    return text is not None


def total(numbers: list[int]) -> int:
    return sum(numbers)


def later(when: datetime.datetime, by: Decimal) -> datetime.datetime:
    return when + datetime.timedelta(days=int(by))


def endless(number: int) -> int:
    while number >= 0:
        number += 1
    return number


HERE = __name__
YAML = f"""
pipeline: functions
functions:
  doubled: {{python: "{HERE}:doubled", parameters: {{n: BIGINT}}, returns: BIGINT}}
  known: {{python: "{HERE}:known", parameters: {{text: VARCHAR}}, returns: BOOLEAN, on_null: call}}
  total: {{python: "{HERE}:total", parameters: {{numbers: "BIGINT[]"}}, returns: HUGEINT}}
inputs:
  orders: {{topic: orders, columns: {{g: VARCHAR, n: BIGINT}}}}
operators:
  rows: {{upsert: orders}}
  linear: {{linear: rows, where: Doubled(n) > 2, select: {{twice: doubled(doubled(n))}}}}
  reduced: {{reduce: rows, by: known(g), aggregates: {{s: sum(doubled(n))}}}}
  view:
    sql: |
      SELECT g, total(list(doubled(n))) AS s FROM orders
      WHERE doubled(n) > 2 GROUP BY g HAVING doubled(count(*)) > 2
outputs:
  linear: {{from: linear, topic: linear}}
  reduced: {{from: reduced, topic: reduced}}
  view: {{from: view, topic: view}}
kafka: {{bootstrap.servers: localhost:9092}}
run: {{checkpoint: ./checkpoint}}
"""
SQL = f"""
CREATE PIPELINE functions WITH (
    kafka = (bootstrap.servers = 'localhost:9092'), run = (checkpoint = './checkpoint'));
CREATE FUNCTION doubled(n BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS '{HERE}:doubled';
CREATE FUNCTION known(text VARCHAR) RETURNS BOOLEAN LANGUAGE PYTHON
    CALLED ON NULL INPUT AS '{HERE}:known';
CREATE FUNCTION total(numbers BIGINT[]) RETURNS HUGEINT LANGUAGE PYTHON AS '{HERE}:total';
CREATE SOURCE orders (g VARCHAR, n BIGINT) FROM KAFKA (topic = 'orders');
CREATE OPERATOR rows WITH (upsert = orders);
CREATE OPERATOR linear WITH (
    linear = rows, where = 'Doubled(n) > 2', select = (twice = 'doubled(doubled(n))'));
CREATE OPERATOR reduced WITH (
    reduce = rows, by = 'known(g)', aggregates = (s = 'sum(doubled(n))'));
CREATE VIEW view AS
      SELECT g, total(list(doubled(n))) AS s FROM orders
      WHERE doubled(n) > 2 GROUP BY g HAVING doubled(count(*)) > 2;
CREATE SINK linear FROM linear INTO KAFKA (topic = 'linear');
CREATE SINK reduced FROM reduced INTO KAFKA (topic = 'reduced');
CREATE SINK view FROM view INTO KAFKA (topic = 'view');
"""
ORDERS = [
    (1, {"g": "a", "n": 3}, 0),
    (2, {"g": "a", "n": 4}, 0),
    (3, {"g": None, "n": 1}, 0),
    (4, {"g": "b", "n": None}, 0),
    (2, None, 1),
]


def plan_of(text: str, name: str = "functions.yaml") -> ik.Plan:
    return pipeline.parse(text, name, environ={}).plan


@pytest.mark.parametrize(("text", "name"), [(YAML, "f.yaml"), (SQL, "f.sql")])
def test_a_function_is_called_wherever_sql_stands(text: str, name: str) -> None:
    """In linear operators, reductions and views, under any capitals; null gives null."""
    found = ik.evaluate(plan_of(text, name), {"orders": ORDERS})

    assert found["errors"] == []
    assert rows_at(found["linear"], 0) == [{"twice": 12}, {"twice": 16}]
    assert rows_at(found["linear"], 1) == [{"twice": 12}]
    assert rows_at(found["reduced"], 1) == [{"s": 2}, {"s": 6}]
    assert rows_at(found["view"], 0) == [{"g": "a", "s": 14}]
    assert rows_at(found["view"], 1) == []


def test_both_forms_of_a_file_are_one_plan() -> None:
    """With one fingerprint, which is another one where a function is another one."""
    plan = plan_of(YAML)

    assert plan == plan_of(SQL, "f.sql")
    assert plan.fingerprint() == plan_of(SQL, "f.sql").fingerprint()
    other = plan_of(YAML.replace(f"{HERE}:doubled", f"{HERE}:total_of"[:-3]))
    assert plan.fingerprint() != other.fingerprint()


def test_explain_shows_the_names_of_the_file() -> None:
    shown = str(ik.Pipeline.of(plan_of(YAML)).explain())

    assert "doubled(doubled(n))" in shown
    assert "python:" not in shown


def shop_with(function: Any, returns: str = "BIGINT", **more: Any) -> ik.Pipeline:
    shop = ik.Pipeline("shop")
    shop.function("f", function, parameters={"n": "BIGINT"}, returns=returns, **more)
    numbers = shop.topic("numbers", columns=[ik.Column("n", "BIGINT")]).upsert()
    numbers.select(n="n", made="f(n)").named("made").to("made")
    shop.sql("SELECT sum(f(n)) AS s FROM numbers", name="sums").to("sums")
    return shop


def test_what_a_function_raises_is_an_error_record() -> None:
    """For its row alone, under the name of the function; it goes with the row."""
    records = [(1, {"n": 13}, 0), (2, {"n": 4}, 0), (1, {"n": 3}, 1)]

    found = shop_with(doubled).evaluate(numbers=records)

    assert rows_at(found["made"], 0) == [{"made": 8, "n": 4}]
    assert rows_at(found["made"], 1) == [{"made": 6, "n": 3}, {"made": 8, "n": 4}]
    told = [(record["reason"], time, diff) for record, time, diff in found["errors"]]
    reason = f"{HERE}:doubled raised ValueError: no doubles of 13"
    assert len(told) == 4
    assert all(reason in each and "python:" not in each for each, _, _ in told)
    assert sorted((time, diff) for _, time, diff in told) == [(0, 1), (0, 1), (1, -1), (1, -1)]


def leaves(number: int) -> int:
    sys.exit(number)


def interrupts(number: int) -> int:
    raise KeyboardInterrupt


def recurses(number: int) -> int:
    return recurses(number + 1)


def exits(number: int) -> int:
    os._exit(number)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (leaves, f"{HERE}:leaves raised SystemExit: 1"),
        (interrupts, f"{HERE}:interrupts raised KeyboardInterrupt"),
        (recurses, f"{HERE}:recurses raised RecursionError"),
        (exits, f"{HERE}:exits raised ExitRefusedError: 1"),
    ],
)
def test_a_function_does_not_end_the_run(
    function: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises is its own doing; `os._exit` is refused where a run has its calls."""
    monkeypatch.setattr(os, "_exit", calls._exit)

    found = shop_with(function).evaluate(numbers=[(1, {"n": 1}, 0)])

    assert rows_at(found["made"], 0) == []
    assert {record["reason"].endswith(problem) for record, _, _ in found["errors"]} == {True}
    assert len(found["errors"]) == 2


@pytest.mark.parametrize(
    ("function", "returns", "problem"),
    [
        (as_text, "BIGINT", f"{HERE}:as_text gave a str in place of BIGINT"),
        (doubled, "TINYINT", f"{HERE}:doubled gave a int in place of TINYINT"),
        (doubled, "BOOLEAN", f"{HERE}:doubled gave a int in place of BOOLEAN"),
    ],
)
def test_a_result_of_another_type_is_an_error_record(
    function: Any, returns: str, problem: str
) -> None:
    shop = ik.Pipeline("shop")
    f = shop.function("f", function, parameters={"n": "BIGINT"}, returns=returns)
    numbers = shop.topic("numbers", columns=[ik.Column("n", "BIGINT")]).upsert()
    numbers.select(made=f"{f}(n)").to("made")

    found = shop.evaluate(numbers=[(1, {"n": 100}, 0)])

    assert rows_at(found["made"], 0) == []
    ((error, _, diff),) = found["errors"]
    assert diff == 1
    assert problem in error["reason"]


def test_values_of_sql_types_are_those_of_python() -> None:
    shop = ik.Pipeline("shop")
    types = {"when": "TIMESTAMP", "by": "DECIMAL(9,2)"}
    shop.function("later", later, parameters=types, returns="TIMESTAMP")
    columns = [ik.Column("placed", "TIMESTAMP"), ik.Column("days", "DECIMAL(9,2)")]
    rows = shop.topic("rows", columns=columns).upsert()
    rows.select(then="later(placed, days)").to("then")

    found = shop.evaluate(rows=[(1, {"placed": "2024-02-28T12:00:00.5", "days": "1.00"}, 0)])

    assert rows_at(found["then"], 0) == [{"then": "2024-02-29T12:00:00.5"}]


def test_conditions_of_joins_call_functions_by_their_names() -> None:
    """Also in joins that are views; a refusal has the name, too."""
    shop = ik.Pipeline("shop")
    shop.function("f", doubled, parameters={"n": "BIGINT"}, returns="BIGINT")
    rows, others = (shop.topic(t, columns=[ik.Column("n", "BIGINT")]).upsert() for t in "ab")
    rows.anti_join(others, on="f(l.n) = r.n").to("alone")
    rows.outer_join(others, on="f(l.n) = f(r.n)", select={"m": "f(r.n)"}).to("all")
    with pytest.raises(ConfigError, match=r'order: "f\(n\)" must be a column'):
        rows.first(order="f(n)")

    found = shop.evaluate(a=[(1, {"n": 1}, 0), (2, {"n": 2}, 0)], b=[(1, {"n": 2}, 0)])

    assert rows_at(found["alone"], 0) == [{"n": 2}]
    assert rows_at(found["all"], 0) == [{"m": 4}, {"m": None}]


def test_a_function_that_does_not_return_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a Python step is."""
    monkeypatch.setenv(calls.LIMIT_VARIABLE, "0.6")
    calls.arm()

    with pytest.raises(StuckError) as told:
        shop_with(endless).evaluate(numbers=[(1, {"n": 1}, 0)])

    assert "has not returned for 0.6 s" in str(told.value)
    monkeypatch.delenv(calls.LIMIT_VARIABLE)
    calls.arm()


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        (f"{HERE}:doubled", "no_module:f", 'functions.doubled.python: module "no_module" cannot'),
        ("returns: BIGINT", "returns: BIGIN", "functions.doubled.returns: "),
        ("{n: BIGINT}, returns", "{n: BIGIN}, returns", "functions.doubled.parameters.n: "),
        ("  doubled: {", "  doub-led: {", "functions.doub-led: a function's name has letters"),
        ("where: Doubled(n)", "where: Doubled(g)", "operators.linear.where"),
        ("where: Doubled(n)", "where: Doubled(n, n)", "operators.linear.where"),
        ("on_null: call", "on_null: never", "functions.known.on_null: "),
        ("returns: HUGEINT", "result: HUGEINT", "functions.total.result: there is no such"),
    ],
)
def test_a_mistake_is_told_with_its_place(wrong: str, right: str, problem: str) -> None:
    with pytest.raises(ConfigError) as told:
        plan_of(YAML.replace(wrong, right, 1))

    assert problem in str(told.value)
    assert "python:" not in str(told.value).replace("python: module", "")


def test_places_in_a_view_are_those_of_the_file() -> None:
    """Behind a function, too."""
    with pytest.raises(ConfigError) as told:
        plan_of(YAML.replace("total(list(doubled(n))) AS s FROM", "doubled(n) + m AS s FROM"))

    assert "line 1, column 24: " in str(told.value)


def test_a_function_of_a_program_must_be_importable() -> None:
    shop = ik.Pipeline("shop")
    with pytest.raises(ConfigError, match="is no function of a module"):
        shop.function("f", lambda n: n, parameters={"n": "BIGINT"}, returns="BIGINT")
    shop.function("f", doubled, parameters={"n": "BIGINT"}, returns="BIGINT")
    with pytest.raises(ConfigError, match="twice, and they differ"):
        shop.function("f", doubled, parameters={"n": "INTEGER"}, returns="BIGINT")


@pytest.mark.parametrize(
    "function",
    [
        SqlFunction("f", "Shop.Area:Of.It", ("BIGINT", "DECIMAL(9,2)"), "VARCHAR"),
        SqlFunction("f", "m:f", (), 'STRUCT(a BIGINT, "B c" VARCHAR[])', takes_null=True),
        SqlFunction("f", "m:f", ("ENUM('A', 'b')",), "MAP(VARCHAR, BIGINT)"),
    ],
)
def test_a_long_name_says_all(function: SqlFunction) -> None:
    """Also where capitals count."""
    assert function_of(function.long_name) == function
    assert function.long_name == function.long_name.lower()


def test_only_calls_are_named() -> None:
    f = SqlFunction("f", "m:f", ("BIGINT",), "BIGINT")
    text = "f + t.f(1) + 'f(2)' -- f(3)\n + F (a) + \"f\"(b)"

    made = with_long_names(text, {"f": f})

    assert made == f'f + t.f(1) + \'f(2)\' -- f(3)\n + "{f.long_name}" (a) + "{f.long_name}"(b)'
    assert as_written(made) == text.replace("F (", "f (").replace('"f"', "f")
    assert place_as_written(made, made.index("(a)")) == text.index("(a)")


def plus_one(number: int) -> int:
    return number + 1


def test_an_edit_sees_that_a_name_is_another_function() -> None:
    """The operators that call it are made anew, with what they have given before taken back."""

    def with_function(function: Any) -> ik.Pipeline:
        shop = ik.Pipeline("shop")
        shop.function("f", function, parameters={"n": "BIGINT"}, returns="BIGINT")
        numbers = shop.topic("numbers", columns=[ik.Column("n", "BIGINT")]).upsert()
        numbers.reduce(name="sums", by="0", s="sum(f(n))").to("sums")
        return shop

    run = Run(with_function(doubled))
    run.topics.send("numbers", b"1", {"n": 3})
    run.topics.send("numbers", b"2", {"n": 4})
    run.read()
    assert run.collection("sums") == [(0, {"s": 14})]

    run.restart(with_function(plus_one))
    run.topics.send("numbers", b"2", {"n": 5})
    run.read()

    assert run.collection("sums") == [(0, {"s": 10})]
