"""Pipeline files in SQL: the plans of the YAML files that say the same, and all problems."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ikebana import load
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.pipeline_sql import read_sql
from ikebana.processor.linear.syntax import tokens
from support.doc_blocks import EXAMPLES, IN_SQL, blocks
from support.files_in_sql import in_sql

HEAD = (
    "CREATE PIPELINE p WITH "
    "(kafka = (bootstrap.servers = 'k:9092'), run = (checkpoint = './c'));\n"
)
SOURCE = "CREATE SOURCE t (a BIGINT, b VARCHAR) FROM KAFKA (topic = t);\n"
SINK = "CREATE SINK out FROM v INTO KAFKA (topic = 'out');\n"
VIEW = "CREATE VIEW v AS SELECT a FROM t;\n"


def problems(text: str, folder: Path, **environ: str) -> list[str]:
    """The problems of a file, without its name."""
    path = folder / "shop.sql"
    path.write_text(text)
    try:
        pipeline.read(path, environ=environ)
    except ConfigError as error:
        return error.message.split("\n  ")[1:]
    return []


def value_of(text: str, **environ: str) -> Any:
    """What the statements of a file come to."""
    return read_sql(text, environ).value


@pytest.mark.parametrize("path", IN_SQL, ids=lambda path: path.stem)
def test_an_example_in_sql_is_the_plan_of_its_twin(path: Path) -> None:
    """So a checkpoint of the one goes on with the other; settings are the same as well."""
    found = pipeline.read(path, environ={})
    twin = pipeline.read(path.with_suffix(".yaml"), environ={})

    assert found == twin
    assert found.plan.fingerprint() == twin.plan.fingerprint()
    assert load(path).plan() == twin.plan


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_whatever_a_file_in_yaml_says_can_be_said_in_sql(path: Path, tmp_path: Path) -> None:
    own = yaml.load(path.read_text(), yaml.BaseLoader)
    other = path.parent / f".{path.stem}.sql"
    text = in_sql(own)
    made = pipeline.parse(text, str(other), environ={})

    assert made == pipeline.read(path, environ={})


# The others are queries: tests/unit/test_documented_queries.py.
# The tables of the tutorial into a lake are those of a database.
FILES = [
    each for each in blocks("sql") if "CREATE " in each.text and each.name != "tutorial-lake-1"
]


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.name)
def test_a_documented_file_is_a_pipeline(block: Any, tmp_path: Path) -> None:
    assert problems(block.text, tmp_path) == []


def test_the_documented_problems_are_told(tmp_path: Path) -> None:
    (block,) = (each for each in FILES if each.name.startswith("sql-"))
    (told,) = (b.text for b in blocks("") if "shop.sql has 2 problems" in b.text)
    wrong = block.text.replace("(topic = 'orders'", "(topc = 'orders'")
    wrong = wrong.replace("FROM revenue ORDER", "FROM revenu ORDER")

    assert problems(wrong, tmp_path) == told.strip().split("\n  ")[1:]


def test_a_semicolon_in_a_text_a_name_or_a_comment_ends_no_statement(tmp_path: Path) -> None:
    text = (
        "-- a; b\nCREATE VIEW v /* ; */ AS SELECT 'a;''b' AS \"x;y\", $$;$$ AS z, é.a -- ;\n"
        "FROM t é WHERE b >= ';'\n;;\n"
    )

    found = read_sql(HEAD + SOURCE + text + SINK, {})

    assert found.problems == []
    assert problems(HEAD + SOURCE + text + SINK, tmp_path) == []


def test_tokens_have_their_places_in_characters() -> None:
    found = tokens("é = 'ü' -- ö\n, \"ä\" ")

    assert [(each.text, each.at, each.end) for each in found] == [
        *(("é", 0, 1), ("=", 2, 3), ("'ü'", 4, 7), (",", 13, 14), ('"ä"', 15, 18)),
    ]


def test_values_are_those_of_yaml() -> None:
    options = "a = word, b = 'te''xt', c = -5, d = 1.5, e = TRUE, f = (x, 'y'), g = (), "
    options += "h.i-j = ((k = 1))"

    found = value_of(f"CREATE PIPELINE a-b.c WITH ({options})")

    assert found == {
        "pipeline": "a-b.c",
        **{"a": "word", "b": "te'xt", "c": -5, "d": 1.5, "e": True, "f": ["x", "y"], "g": []},
        "h.i-j": [{"k": 1}],
    }


def test_types_of_columns_are_told_apart_by_their_parentheses() -> None:
    columns = 'a DECIMAL(12, 2) ENCODING decimal, b STRUCT(x BIGINT, "y z" VARCHAR[])[], "c" JSON'

    found = value_of(f"CREATE SOURCE t ({columns}) FROM KAFKA (topic = t)")

    assert found["inputs"]["t"]["columns"] == {
        "a": {"type": "DECIMAL(12, 2)", "encoding": "decimal"},
        "b": 'STRUCT(x BIGINT, "y z" VARCHAR[])[]',
        "c": "JSON",
    }


def test_variables_stand_in_texts_and_queries(tmp_path: Path) -> None:
    text = HEAD + SOURCE + "CREATE VIEW v AS SELECT a FROM t WHERE b = '${B}';\n" + SINK
    secret = (
        "CREATE PIPELINE p WITH (kafka = (sasl.password = '${PASSWORD}', bootstrap.servers = 'k'))"
    )

    assert problems(text, tmp_path, B="x") == []
    assert problems(text, tmp_path) == [
        "operators.v.sql: the variable B is not set (line 3, column 18)"
    ]
    assert value_of(secret, PASSWORD="a'b;")["kafka"]["sasl.password"] == "a'b;"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            SOURCE + VIEW + SINK,
            [
                "pipeline: is missing: write CREATE PIPELINE name",
            ],
            id="no pipeline",
        ),
        pytest.param(
            "CREATE PIPELIN p;" + SOURCE + VIEW + SINK,
            ['statement 1: "PIPELIN" begins no statement of a pipeline'],
            id="a word of CREATE that there is not",
        ),
        pytest.param(
            HEAD
            + "CREATE SOURCE t (a BIGINT PRIMARY KEY, PRIMARY KEY (a)) FROM KAFKA (topic = t);"
            + VIEW
            + SINK,
            [
                "SOURCE t: a source says what its key is as an option: FROM KAFKA (…, key = (…)) "
                "(line 2, column 40)"
            ],
            id="primary key",
        ),
        pytest.param(
            HEAD + SOURCE + VIEW.replace("a FROM", "a,\n z FROM") + SINK,
            ['operators.v.sql: there is no column "z"; there are a, b (line 4, column 2)'],
            id="a place within a query",
        ),
        pytest.param(
            HEAD + SOURCE + "SELECT a FROM t;\n" + SINK,
            [
                "statement 3: SELECT is no statement of a pipeline; write CREATE VIEW name AS "
                "SELECT … (line 3, column 1)"
            ],
            id="a query without a name",
        ),
        pytest.param(
            HEAD + SOURCE + VIEW + VIEW + SINK,
            [
                "operators.v: must be given once; is given again at line 4, column 1 "
                "(line 3, column 1)"
            ],
            id="a view twice",
        ),
        pytest.param(
            HEAD + SOURCE + VIEW + "CREATE SINK out FROM v INTO KAFKA (topic = 'a' topic = b);",
            ['SINK out: must have "," or ")" where "topic" stands there; its form is'],
            id="no comma",
        ),
        pytest.param(
            HEAD + SOURCE + VIEW + "CREATE SINK out INTO KAFKA (topic = 'a');",
            [
                'SINK out: must have "FROM" where "INTO" stands there; its form is CREATE SINK '
                "name FROM view INTO KAFKA (topic = '…', …), or FROM sink INTO POSTGRES "
                "(connection = '…', table = '…', …) (line 4, column 17)"
            ],
            id="a sink of nothing",
        ),
        pytest.param(
            HEAD + SOURCE + VIEW + "CREATE SINK out FROM v INTO KAFKA (topic = 'a);",
            ["SINK out: this text has no end (line 4, column 44)"],
            id="a text without an end",
        ),
        pytest.param(
            HEAD + "CREATE OR REPLACE SOURCE t FROM KAFKA (topic = t)",
            [
                "statement 2: a file says what there is: write CREATE and one of PIPELINE, "
                "SOURCE, VIEW, OPERATOR, FUNCTION, AGGREGATE, SINK (line 2, column 8)"
            ],
            id="or replace",
        ),
        pytest.param(
            HEAD.replace("kafka =", "inputs = (), kafka =") + SOURCE + VIEW + SINK,
            [
                "PIPELINE inputs: is no option of a pipeline; it has statements of its own "
                "(line 1, column 25)"
            ],
            id="sections as options",
        ),
        pytest.param(
            HEAD + SOURCE + "CREATE VIEW v (x) AS SELECT a FROM t;\n" + SINK,
            [
                "VIEW v: a view has the names of its query's columns; write SELECT … AS name "
                "(line 3, column 15)"
            ],
            id="a view with names",
        ),
        pytest.param(
            HEAD.replace("'./c'", "./c")
            + SOURCE.replace("BIGINT", "BIGINTT")
            + VIEW
            + SINK.replace("topic =", "tpic =")
            + "CREATE VIEW w AS SELECT x FROM nothing",
            [
                "PIPELINE p: put the value that begins with . in single quotes (line 1, ",
                'inputs.t.columns.a: "BIGINTT" is not a SQL type; did you mean BIGINT?',
                'outputs.out.tpic: there is no such setting here; did you mean "topic"? '
                "(line 4, column 36)",
                'operators.w.sql: there is no input or operator "nothing"; there are t, v, w '
                "(line 5, column 32)",
            ],
            id="all at once",
        ),
    ],
)
def test_all_problems_are_told_with_line_and_column(
    text: str, told: list[str], tmp_path: Path
) -> None:
    """And nothing that only follows from another."""
    found = problems(text, tmp_path)

    assert [each[: len(said)] for each, said in zip(found, told, strict=True)] == told


def test_a_file_without_statements_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "shop.sql"
    path.write_text("-- nothing\n;\n")

    with pytest.raises(ConfigError, match="it is empty"):
        pipeline.read(path, environ={})


def test_a_second_file_has_settings_over_those_of_the_first(tmp_path: Path) -> None:
    path, over = tmp_path / "shop.sql", tmp_path / "settings.yaml"
    path.write_text(HEAD + SOURCE + VIEW + SINK)
    over.write_text("run: {shards: 7}")

    found = pipeline.read(path, environ={"IKEBANA_SETTINGS": str(over)})

    assert (found.settings.shards, found.settings.checkpoint) == (7, "./c")


IN_YAML = """# A shop.
pipeline: p
inputs: {t: {topic: t}}
operators: {v: {upsert: t}}
outputs: {out: {from: v, topic: out}}
kafka: {bootstrap.servers: k:9092}
run: {checkpoint: ./c}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("shop.sql", IN_YAML),
        ("shop.yaml", HEAD + SOURCE + VIEW + SINK),
        ("shop", "-- A shop.\n/* one */ " + (HEAD + SOURCE + VIEW + SINK).lower()),
    ],
)
def test_the_text_of_a_file_says_what_it_is(name: str, text: str, tmp_path: Path) -> None:
    """Its name does not matter."""
    (tmp_path / name).write_text(text)

    assert load(tmp_path / name).name == "p"


def test_the_file_of_a_module_is_refused(tmp_path: Path) -> None:
    """With the form that a command takes."""
    (tmp_path / "shop.py").write_text('"""A shop."""\n')

    with pytest.raises(ConfigError, match=r"shop\.py: a pipeline in Python is") as refused:
        load(tmp_path / "shop.py")
    assert refused.value.hint == "Name both, such as shop:pipeline."


def test_a_word_of_another_form_within_a_file_is_no_other_form(tmp_path: Path) -> None:
    """Texts and comments may have any words."""
    text = f"{HEAD}{SOURCE}/*\npipeline : CREATE it\n*/\n{VIEW}{SINK}"
    assert problems(text, tmp_path) == []
