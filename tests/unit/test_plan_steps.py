"""Every problem of a plan with operators, steps, columns and formats, by its path."""

from dataclasses import replace

import pytest

import user_functions
from ikebana import Concat, Input, Linear, Output, Plan, PlanError, Upsert
from ikebana.codecs.change import Column
from ikebana.codecs.formats import FORMATS, Format, OutputFormat
from ikebana.processor.linear.steps import (
    Sql,
    Step,
    explode,
    filter_,
    join_function,
    map_,
    negate,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)
from ikebana.processor.planning import outputs
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator

ROWS = Input("rows", ("rows",))
CURRENT = Upsert("current", "rows")
OUT = Output("out", "current", "out")
NEGATED = Linear("negated", "current", (negate(),))

Problems = list[tuple[str, str]]


def problems(
    *operators: Operator,
    inputs: tuple[Input, ...] = (ROWS,),
    outputs: tuple[Output, ...] | None = None,
    time: str = "ingest",
) -> Problems:
    """What is told of a plan of these operators, of which the last one is shown."""
    shown = (replace(OUT, source=operators[-1].name if operators else "rows"),)
    try:
        checked(Plan("p", inputs, operators, shown if outputs is None else outputs, time=time))  # type: ignore[arg-type]
    except PlanError as error:
        return list(error.problems)
    return []


def of_steps(*steps: Step, source: Input = ROWS) -> Problems:
    return problems(CURRENT, Linear("op", "current", steps), inputs=(source,))


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        pytest.param([CURRENT, NEGATED], [], id="none"),
        pytest.param(
            [CURRENT, Linear("op", "current", ()), Concat("one", ("op",))],
            [],
            id="no steps, and a concat of one",
        ),
        pytest.param(
            [CURRENT, Linear("op", "curent", (negate(),))],
            [
                (
                    "operators.op.linear",
                    "there is no operator 'curent'; did you mean \"current\"?",
                )
            ],
            id="a source that is not there",
        ),
        pytest.param(
            [CURRENT, Linear("op", "rows", (negate(),))],
            [
                (
                    "operators.op.linear",
                    "'rows' is an input of upserts, which are no collection: make an operator "
                    "with upsert: rows, and read that",
                )
            ],
            id="an input of upserts as a source",
        ),
        pytest.param(
            [CURRENT, Concat("both", ())],
            [("operators.both.concat", "at least one operator is needed")],
            id="a concat of none",
        ),
        pytest.param(
            [CURRENT, Concat("both", ("current", "x"))],
            [("operators.both.concat", "there is no operator 'x'; there are both, current")],
            id="a concat of what is not there",
        ),
        pytest.param(
            [CURRENT, Linear("op", "op", (negate(),))],
            [("operators.op", "it reads its own results")],
            id="a loop of one",
        ),
        pytest.param(
            [CURRENT, Linear("a", "b", (negate(),)), Concat("b", ("current", "a"))],
            [
                ("operators.a", "it reads its own results"),
                ("operators.b", "it reads its own results"),
            ],
            id="a loop of two",
        ),
        pytest.param(
            [CURRENT, NEGATED, NEGATED],
            [("operators.negated", "the name is used 2 times")],
            id="two of one name",
        ),
        pytest.param(
            [CURRENT, Linear("a b", "current", (negate(),))],
            [
                (
                    "operators.a b",
                    "'a b' is not a name (letters, digits, '.', '_', '-')",
                )
            ],
            id="a name that is none",
        ),
    ],
)
def test_operators(operators: list[Operator], expected: Problems) -> None:
    """Sources, loops, names."""
    assert problems(*operators) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [where("n > 0")],
            (
                "operators.op.where",
                'n > 0: the type of "n" is not known here; declare it under '
                "inputs.rows.columns.n, or cast it, as in n::BIGINT",
            ),
            id="where",
        ),
        pytest.param(
            [where("true"), where("true", "random() < 0.5")],
            (
                "operators.op.steps.1.where.1",
                "random() < 0.5: random() depends on more than the datum",
            ),
            id="the second condition of the second step",
        ),
        pytest.param(
            [select(a="1", b="now()")],
            (
                "operators.op.select.b",
                "now() depends on more than the datum; until when a row counts is its "
                "valid_until, and when it happened its input's event_time",
            ),
            id="select",
        ),
        pytest.param(
            [select(ikebana_a="1")],
            (
                "operators.op.select.ikebana_a",
                'no column can be named "ikebana_a": names with ikebana_ are ikebana\'s own',
            ),
            id="a name that is taken",
        ),
        pytest.param(
            [select(a="1"), select(b="c")],
            (
                "operators.op.steps.1.select.b",
                'c: there is no column "c"; there are a, key, value',
            ),
            id="a column that no select has made",
        ),
        pytest.param(
            [rekey("sum(1)")],
            (
                "operators.op.key",
                "sum(1): sum() is an aggregate, which has no meaning over one datum; what rows "
                "come to is for a reduce operator",
            ),
            id="key",
        ),
        pytest.param(
            [unnest("e", "5")],
            ("operators.op.flat_map", "is of type INTEGER; must be a list"),
            id="flat_map",
        ),
        pytest.param(
            [Sql(diff="'x'")],
            ("operators.op.diff", "is of type VARCHAR; must be a whole number"),
            id="diff",
        ),
        pytest.param(
            [valid_between("true", None)],
            (
                "operators.op.valid_from",
                "is of type BOOLEAN; must be a date, a timestamp or milliseconds",
            ),
            id="valid_from",
        ),
        pytest.param(
            [valid_between(None, "(SELECT 1)")],
            (
                "operators.op.valid_until",
                "(SELECT 1): a subquery has no meaning over one datum; what another collection "
                "has is for a delta_join",
            ),
            id="valid_until",
        ),
        pytest.param(
            [negate(), map_("nothing")],
            (
                "operators.op.steps.1.map",
                '"nothing" is not of the form module:function; write the function in a module, '
                "and name both here",
            ),
            id="map",
        ),
        pytest.param(
            [filter_("user_functions:no")],
            ("operators.op.filter", 'module "user_functions" has no "no"'),
            id="filter",
        ),
        pytest.param(
            [explode("user_functions:NOT_CALLABLE")],
            ("operators.op.explode", '"user_functions:NOT_CALLABLE" is not callable'),
            id="explode",
        ),
        pytest.param(
            [join_function("no.such:f")],
            (
                "operators.op.join_function",
                'module "no.such" cannot be imported: there is no "no" on PYTHONPATH '
                "(/elsewhere) or among what is installed",
            ),
            id="join_function",
        ),
    ],
)
def test_steps(
    steps: list[Step], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the step, if there are several, and the part of it that is at fault."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.delenv("IKEBANA_MODULES", raising=False)
    assert of_steps(*steps) == [expected]


def test_a_step_is_told_once_however_many_read_it() -> None:
    """Of two operators behind one with a problem, neither has one of its own."""
    bad = Linear("bad", "current", (where("x"),))
    behind = [Linear(name, "bad", (negate(),)) for name in ("a", "b")]

    assert problems(CURRENT, bad, *behind) == [
        ("operators.bad.where", "x: is of type JSON; must be true or false")
    ]


def test_a_step_has_to_fit_every_way_to_it() -> None:
    """A concat may have columns on one side that the other one lacks."""
    chosen = Linear("chosen", "current", (select(a="1"),))
    both = Concat("both", ("chosen", "current"))
    sum_of = Linear("op", "both", (where("a > 0"),))

    assert problems(CURRENT, chosen, both, sum_of) == [
        (
            "operators.op.where",
            'a > 0: the type of "a" is not known here; declare it under inputs.rows.columns.a, '
            "or cast it, as in a::BIGINT",
        )
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param([Column("a", "int")], [], id="none"),
        pytest.param(
            [Column("a", "number")],
            [("inputs.rows.columns.a", '"number" is not a SQL type; did you mean NUMERIC?')],
            id="no type",
        ),
        pytest.param(
            [Column("a", "INT); SELECT (1")],
            [("inputs.rows.columns.a", '"INT); SELECT (1" is not a SQL type')],
            id="more than a type",
        ),
        pytest.param(
            [Column("a", "BIT[]"), Column("b", "STRUCT(u UNION(x INT))"), Column("c", "BIGNUM")],
            [
                (
                    "inputs.rows.columns.a",
                    "BIT is not read from JSON; read a text, and cast that, as in x::VARCHAR::BIT",
                ),
                (
                    "inputs.rows.columns.b",
                    "UNION(x INTEGER) is not read from JSON; read JSON, and take it apart, as in "
                    "x->'field'",
                ),
                (
                    "inputs.rows.columns.c",
                    "BIGNUM is not read from JSON; read a text, and cast that, as in "
                    "x::VARCHAR::BIGNUM",
                ),
            ],
            id="types that JSON does not have",
        ),
        pytest.param(
            [Column("Ikebana_a", "int")],
            [
                (
                    "inputs.rows.columns.Ikebana_a",
                    "no column can be named so; leave it out: a field of it is "
                    "ikebana_value->>'Ikebana_a'",
                )
            ],
            id="a name of ours",
        ),
        pytest.param(
            [Column("a", "int"), Column("a", "text")],
            [("inputs.rows.columns.a", "is declared 2 times")],
            id="twice",
        ),
    ],
)
def test_columns(columns: list[Column], expected: Problems) -> None:
    """Names and types of what an input declares."""
    assert problems(CURRENT, inputs=(replace(ROWS, columns=tuple(columns)),)) == expected


def test_bytes_have_no_columns() -> None:
    """Neither declared ones nor any to be named."""
    raw = replace(ROWS, value_format="bytes")

    assert problems(CURRENT, inputs=(replace(raw, columns=(Column("a", "int"),)),)) == [
        ("inputs.rows.columns", "bytes have no columns")
    ]
    assert of_steps(where("a = 1"), source=raw) == [
        ("operators.op.where", 'a = 1: there is no column "a"; there are key, value')
    ]


def test_a_declared_input_has_no_other_columns() -> None:
    """So that a misspelt name is told."""
    declared = replace(ROWS, columns=(Column("amount", "int"),))

    assert of_steps(where("amont > 1"), source=declared) == [
        (
            "operators.op.where",
            'amont > 1: there is no column "amont"; did you mean "amount"?',
        )
    ]
    assert of_steps(where("amount > 1"), source=declared) == []


@pytest.mark.parametrize("value_format", ["json", "bytes", "avro", "debezium-flat-json"])
def test_messages_without_old_images_tell_no_diffs(value_format: Format) -> None:
    """mode: diffs needs them."""
    source = Input("rows", ("rows",), value_format=value_format, mode="diffs")
    rows = (
        '; with "append" each is a row of its own' if FORMATS[value_format].kind == "rows" else ""
    )
    expected = (
        "inputs.rows.mode",
        f'"diffs" needs messages with old images; {value_format} has none{rows}',
    )

    assert problems(inputs=(source,)) == [expected]


DIFFS = Input("rows", ("rows",), value_format="debezium-json", mode="diffs")


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        pytest.param([], [], id="alone"),
        pytest.param([Linear("op", "rows", (negate(),))], [], id="as a source"),
        pytest.param(
            [CURRENT],
            [("operators.current.upsert", "input 'rows' gives updates by itself")],
            id="upserted",
        ),
        pytest.param(
            [Linear("rows", "rows", (negate(),))],
            [
                ("operators.rows", 'an input with mode "diffs" has this name'),
                ("operators.rows", "it reads its own results"),
            ],
            id="an operator of its name",
        ),
    ],
)
def test_an_input_of_changes_is_a_collection(
    operators: list[Operator], expected: Problems
) -> None:
    """By its own name, and without an upsert."""
    assert problems(*operators, inputs=(DIFFS,)) == expected


@pytest.mark.parametrize(
    "step",
    [
        valid_between("1", None),
        valid_between(None, "2"),
        join_function(user_functions.from_its_number),
    ],
)
def test_what_moves_time_needs_milliseconds(step: Step) -> None:
    """Offsets say nothing of when; a join_function that moves none may stand."""
    op = Linear("op", "current", (step,))
    still = Linear(
        "op", "current", (join_function(user_functions.by_its_number, moves_time=False),)
    )

    assert problems(CURRENT, op) == []
    assert problems(CURRENT, op, time="offset") == [
        ("time", "validity in time needs times in milliseconds, not offsets")
    ]
    assert problems(CURRENT, still, time="offset") == []


AT_MOST_ONE = (
    "{} needs at most one value a key, and 'op' changes diffs: reduce it by the key, or write a "
    "diff topic"
)
AS_JSON = "{} needs keys and values that are JSON, not bytes"


@pytest.mark.parametrize(
    ("steps", "output_format", "expected"),
    [
        ([where("true"), select(a="1")], "upsert", []),
        ([where("true"), select(a="1")], "debezium-json", []),
        ([filter_(user_functions.is_even)], "upsert", []),
        ([negate()], "cdcv2-json", []),
        ([negate()], "upsert", [AT_MOST_ONE]),
        ([Sql(diff="2")], "debezium-json", []),
        ([rekey("1")], "cdcv2-json", []),
        ([rekey("1")], "upsert", []),
        ([rekey("1"), negate()], "upsert", [AT_MOST_ONE]),
        ([unnest("e", "[1]")], "debezium-json", []),
        ([map_(user_functions.as_it_is)], "cdcv2-avro", []),
        ([explode(user_functions.by_its_number)], "upsert", []),
        ([explode(user_functions.by_its_number)], "diff", []),
        ([rekey("1"), negate()], "diff", []),
    ],
)
def test_formats_of_outputs(
    steps: list[Step], output_format: OutputFormat, expected: list[str]
) -> None:
    """What a format needs of the collection that it shows."""
    op = Linear("op", "current", tuple(steps))
    output = replace(OUT, source="op", format=output_format)

    assert problems(CURRENT, op, outputs=(output,)) == [
        ("outputs.out.format", text.format(output_format)) for text in expected
    ]


def test_a_concat_may_have_two_values_a_key() -> None:
    """So it is watched for them."""
    both = Concat("both", ("current", "current"))
    for output_format in ("upsert", "debezium-json"):
        output = replace(OUT, source="both", format=output_format)

        assert problems(CURRENT, both, outputs=(output,)) == []
        assert outputs.watches_values(Plan("p", (ROWS,), (CURRENT, both), (output,)), output)


def test_bytes_are_written_as_diffs_alone() -> None:
    """The other formats are JSON."""
    for source in (replace(ROWS, value_format="bytes"), replace(ROWS, key_format="bytes")):
        for output_format in ("upsert", "debezium-json", "cdcv2-json"):
            output = replace(OUT, format=output_format)

            assert problems(CURRENT, inputs=(source,), outputs=(output,)) == [
                ("outputs.out.format", AS_JSON.format(output_format))
            ]
        assert problems(CURRENT, inputs=(source,)) == []


def test_the_problem_of_a_format_is_told_beside_those_of_steps() -> None:
    """What a format needs of steps does not depend on their SQL."""
    op = Linear("op", "current", (negate(), where("x")))
    output = replace(OUT, source="op", format="upsert")

    assert problems(CURRENT, op, outputs=(output,)) == [
        ("operators.op.steps.1.where", "x: is of type JSON; must be true or false"),
        (
            "outputs.out.format",
            "upsert needs at most one value a key, and 'op' changes diffs: reduce it by the key, "
            "or write a diff topic",
        ),
    ]
