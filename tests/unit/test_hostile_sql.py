"""Expressions that want more than a batch can give, and texts of SQL that were made to do harm."""

import hashlib
import time
from pathlib import Path

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert, steps
from ikebana.errors import ConfigError, IkebanaError, StuckError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.base import calls
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.database import MOST_MEMORY, rows_of

GROWS = [
    "length(repeat('x', n))",
    "len(range(n))",
    "len(generate_series(1, n))",
    "length(printf('%' || n || 'd', 1))",
    "len(list_resize([n], n))",
]


def plan(step: steps.Sql) -> Plan:
    return Plan(
        "p",
        inputs=(Input("n", ("n",), columns=(Column("n", "BIGINT"),)),),
        operators=(Upsert("u", "n"), Linear("l", "u", (step,))),
        outputs=(Output("o", "l", "o"),),
    )


def row(key: int, number: int) -> tuple[bytes, bytes, int]:
    return b"%d" % key, b'{"n":%d}' % number, 1


@pytest.mark.parametrize("expression", GROWS)
def test_a_row_that_wants_too_much_memory_is_an_error_record(expression: str) -> None:
    """R17. Only that row: others of the batch are as they are without it."""
    rows = [row(key, 10) for key in range(5)] + [row(5, 4_000_000_000)]
    found = Evaluation(plan(steps.select(x=expression))).advance({"n": rows}, 10)

    assert [update.data[0] for update in found["o"]] == [0, 1, 2, 3, 4]
    (error,) = found["errors"]
    assert error.data["reason"].startswith("operator l: ")
    assert error.data["key"] == "NQ=="


def test_a_row_that_wanted_too_much_memory_takes_its_error_with_it() -> None:
    """R14. It fails each time: what it may have does not depend on what else there is."""
    evaluation = Evaluation(plan(steps.select(x=GROWS[0])))
    evaluation.advance({"n": [row(1, 4_000_000_000)]}, 2)
    found = evaluation.advance({"n": [(b"1", b'{"n":3}', 2), (b"2", b'{"n":1}', 2)]}, 3)

    assert [(update.time, update.diff) for update in found["errors"]] == [(2, -1)]
    assert [update.data for update in found["o"]] == [(1, {"x": 3}), (2, {"x": 1})]


def test_a_row_that_meets_a_bug_of_the_database_is_an_error_record() -> None:
    """DuckDB calls this number an internal error, and refuses all that it is asked after it."""
    evaluation = Evaluation(plan(steps.select(x="make_timestamp(n)")))
    found = evaluation.advance({"n": [row(1, 1), row(2, -(2**63)), row(3, 3)]}, 2)

    assert [update.data[0] for update in found["o"]] == [1, 3]
    (error,) = found["errors"]
    assert error.data["reason"].startswith("operator l: could not")
    found = evaluation.advance({"n": [(b"2", b'{"n":2}', 2)]}, 3)
    assert [(update.time, update.diff) for update in found["errors"]] == [(2, -1)]
    assert [update.data[0] for update in found["o"]] == [2]


def test_a_flat_map_of_too_many_rows_is_an_error_record() -> None:
    """A number in a message cannot ask for more rows than there is memory for."""
    step = steps.Sql(flat_map=("e", "range(n)"), select=(("e", "e"),))
    found = Evaluation(plan(step)).advance({"n": [row(1, 3), row(2, 4_000_000_000)]}, 10)

    assert [update.data[1]["e"] for update in found["o"]] == [0, 1, 2]
    assert len(found["errors"]) == 1


def test_an_expression_that_does_not_end_is_told_with_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operator, expression and the row's key, by its digest, since it may be secret."""
    monkeypatch.setenv(calls.LIMIT_VARIABLE, "0.3")
    calls.arm()
    # Many vectors, so that it can be stopped between two of them.
    step = steps.Sql(flat_map=("e", "range(n)"), where=("md5(md5(e::VARCHAR)) = 'x'",))

    with pytest.raises(StuckError) as raised:
        Evaluation(plan(step)).advance({"n": [row(1, 3), row(2, 20_000_000)]}, 10)

    digest = hashlib.sha256(b"2").hexdigest()[:16]
    assert "operator l: flat_map range(n); where md5(" in raised.value.message
    assert f"SHA-256 {digest}" in raised.value.message
    assert "run.max_batch" in str(raised.value.hint)


def test_the_database_goes_on_after_a_statement_was_stopped_or_refused() -> None:
    """What the tests before have left is usable."""
    found = Evaluation(plan(steps.select(x="n + 1"))).advance({"n": [row(1, 1)]}, 10)

    assert [update.data for update in found["o"]] == [(1, {"x": 2})]
    assert MOST_MEMORY == 2 << 30


@pytest.mark.parametrize(
    "expression",
    [
        r"regexp_matches(s, '(a+)+$')",
        r"regexp_matches(s, '(a|aa)+$')",
        r"regexp_matches(s, '(.*a){20}$')",
        r"s SIMILAR TO '(a*)*b'",
        r"regexp_replace(s, '(a*)*b', 'x', 'g') = ''",
        r"s LIKE '%a%a%a%a%a%a%a%a%b'",
        r"s GLOB '*a*a*a*a*a*b'",
    ],
)
def test_patterns_take_time_in_proportion_to_the_text(expression: str) -> None:
    """DuckDB's are RE2's: no pattern backtracks, whatever a message has."""

    def took(length: int) -> float:
        begun = time.process_time()
        ((found,),) = rows_of(
            f"SELECT {expression} FROM (SELECT repeat('a', {length}) || '!' AS s)"
        )
        assert found is False
        return time.process_time() - begun

    # Of a pattern that backtracks, 30 characters are too many.
    assert took(20_000) < 1.0


ENORMOUS = {
    "parentheses": "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " AS x FROM n",
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 5_000 + "n" + ")" * 5_000,
    "cases": "SELECT " + "CASE WHEN n > 1 THEN " * 2_000 + "1" + " END" * 2_000 + " AS x FROM n",
    "sums": "SELECT " + " + ".join(["n"] * 10_000) + " AS x FROM n",
    "joins": "SELECT a0.n FROM n a0 "
    + " ".join(f"JOIN n a{i} ON a{i}.n = a{i - 1}.n" for i in range(1, 1_000)),
    "functions": "SELECT " + "abs(" * 10_000 + "n" + ")" * 10_000 + " AS x FROM n",
    "text": "SELECT '" + "x" * 10_000_000 + "' AS x FROM m",
    "brackets": "SELECT " + "[" * 10_000 + "]" * 10_000 + " AS x FROM n",
}
FILE = """
CREATE PIPELINE p WITH (run = (checkpoint = './checkpoint'));
CREATE SOURCE n (n BIGINT) FROM KAFKA (topic = 'n');
CREATE VIEW v AS {};
CREATE SINK v FROM v INTO KAFKA (topic = 'v');
"""


def read(text: str, folder: Path) -> None:
    file = folder / "p.sql"
    file.write_text(FILE.format(text))
    pipeline.read(file, bootstrap_servers="nowhere:1", environ={})


@pytest.mark.parametrize("name", ENORMOUS)
def test_an_enormous_statement_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """Within a bounded time, in words of bounded length, and not by the end of the process."""
    begun = time.process_time()

    with pytest.raises(ConfigError, match=r"nested too deeply|there is no input") as raised:
        read(ENORMOUS[name], tmp_path)

    assert time.process_time() - begun < 20
    assert len(str(raised.value)) < 1_000


def test_a_long_statement_is_not_refused_for_its_length(tmp_path: Path) -> None:
    """Its parts stand beside one another."""
    read(" UNION ALL ".join(["SELECT n FROM n"] * 100), tmp_path)


BOMBS = {
    "aliases": "\n".join(
        ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    ),
    "merges": "\n".join(
        ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}" for i in range(1, 40))]
    ),
    "lists": "[" * 100_000,
    "mappings": "{a: " * 100_000,
    "indents": "\n".join(" " * i + "a:" for i in range(2_000)),
    "values": "[" + "1," * 20_000 + "]",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_stands_for_much_more_than_it_has_is_refused(name: str) -> None:
    """Aliases count as what they stand for, and no nesting ends the process."""
    begun = time.process_time()

    with pytest.raises(IkebanaError, match=r"nested more than|more than 20,000 values"):
        read_yaml(BOMBS[name], "p.yaml", {})

    assert time.process_time() - begun < 10


def test_a_number_of_a_million_digits_in_a_file_is_a_problem_of_its_place() -> None:
    """Python reads numbers of up to 4,300 digits."""
    document = read_yaml("a: " + "9" * 1_000_000, "p.yaml", {})

    assert [path for path, _ in document.problems] == ["a"]
