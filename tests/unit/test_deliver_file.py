"""The section `deliver`: what it becomes, in YAML and in SQL, and what is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikebana as ik
from ikebana.delivering.delivery import DeliveryProbes, DeliveryProgress, SinkPlan, sink_plan
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.deliver_section import ParquetSection
from ikebana.processor.authoring.pipeline import settings_for
from ikebana.processor.cli.main import cli

ALONE = """\
kafka: {bootstrap.servers: "b:1"}
deliver:
  shop:
    postgres: {connection: dbname=shop}
    tables:
      places: {from: whereabouts, key: id, columns: {id: BIGINT, at: {type: JSON, field: place}}}
      moves: {from: whereabouts, mode: changes, columns: {all: {type: BLOB, whole: value}}}
"""
SQL = """\
CREATE PIPELINE p WITH (kafka = (bootstrap.servers = 'b:1'), run = (checkpoint = 'c'));
CREATE SOURCE orders (id BIGINT, amount DECIMAL(9,2)) FROM KAFKA (topic = 'orders');
CREATE VIEW sums AS SELECT id, sum(amount) AS total FROM orders GROUP BY id;
CREATE SINK totals FROM sums INTO KAFKA (topic = 'totals');
CREATE SINK shop FROM totals INTO POSTGRES (
  connection = 'dbname=${DB}', table = 'per_id', mode = history, key = (id));
"""


def in_file(folder: Path, text: str, name: str = "sinks.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def made(path: Path) -> SinkPlan:
    """The sink of a file that has one, with its tables and formats."""
    plan, environ = None, {"DB": "shop"}
    if (alone := pipeline.read_sinks(path, environ)) is not None:
        [(name, part)] = alone.deliver.items()
    else:
        plan, settings = pipeline.read(path, environ=environ)
        [(name, part)] = settings.deliver.items()
    return sink_plan(name, part, plan, lambda topic, _: {topic: "BIGINT"})


def test_a_file_of_sinks_alone(tmp_path: Path) -> None:
    """Two tables of one topic."""
    found = made(in_file(tmp_path, ALONE))

    places, moves = found.tables
    assert found.formats == {"whereabouts": "diff"}
    assert (places.name, places.mode, places.key) == ("places", "current", ("id",))
    assert [(c.name, str(c.kind), c.source) for c in places.columns] == [
        ("id", "BIGINT", "id"),
        ("at", "JSON", "place"),
    ]
    assert (moves.mode, moves.columns[0].whole) == ("changes", "value")


def test_a_flag_of_a_target_may_be_a_variable(tmp_path: Path) -> None:
    """Which is text, as everywhere in the file."""
    text = ALONE.replace(
        "postgres: {connection: dbname=shop}",
        """parquet:
      folder: days
      by_day: ${BY_DAY}""",
    )
    read = pipeline.read_sinks(in_file(tmp_path, text), {"BY_DAY": "true"})

    assert read is not None
    assert read.deliver["shop"].parquet == ParquetSection(folder="days", by_day=True)


def test_a_sink_of_a_file_in_sql(tmp_path: Path) -> None:
    """Its columns are those of the view, with their types."""
    path = in_file(tmp_path, SQL, "p.sql")
    [table] = made(path).tables

    assert (table.name, table.collection, table.mode, table.key) == (
        "per_id",
        "totals",
        "history",
        ("id",),
    )
    assert {c.name: str(c.kind) for c in table.columns} == {
        "id": "BIGINT",
        "total": "DECIMAL(38,2)",
    }
    told = pipeline.read(path, environ={"DB": "shop"}).settings.deliver["shop"]
    assert told.postgres is not None
    assert told.postgres.connection == "dbname=shop"
    assert "dbname" not in repr(pipeline.read(path, environ={"DB": "shop"}).settings)


def test_sinks_in_python_are_those_of_a_file(tmp_path: Path) -> None:
    """What their processes read has topics for outputs, and types for columns."""
    p = ik.Pipeline("p")
    columns = [ik.Column("id", "BIGINT"), ik.Column("amount", "DECIMAL(9,2)")]
    p.topic("orders", columns=columns).upsert()
    sums = p.sql("SELECT id, sum(amount) AS total FROM orders GROUP BY id", name="sums")
    sums.to("totals")
    table = {"from": "totals", "mode": "history", "key": "id"}
    p.deliver("shop", {"per_id": table}, postgres={"connection": "password=${x"})
    sections = p.sections({"kafka": {"bootstrap.servers": "b:1"}, "run": {"checkpoint": "c"}})
    settings = settings_for(sections, p.plan())

    path = in_file(tmp_path, pipeline.text_of_sinks(p.plan(), settings))

    assert made(path).tables == made(in_file(tmp_path, SQL, "p.sql")).tables
    alone = pipeline.read_sinks(path, {})
    assert alone is not None
    assert alone.kafka == {"bootstrap.servers": "b:1"}
    assert alone.deliver["shop"].postgres == settings.deliver["shop"].postgres
    with pytest.raises(ConfigError, match=r'the sink "shop" twice'):
        p.deliver("shop", {"t": table}, delta={"folder": "f"})
    p.deliver("lake", {"t": {"from": "total"}}, delta={"folder": "f"})
    with pytest.raises(ConfigError, match=r'deliver\.lake\.tables\.t\.from: .*"totals"'):
        settings_for(p.sections({}), p.plan(), bootstrap_servers="b:1", checkpoint="c")


def test_without_columns_they_are_those_that_the_topic_tells(tmp_path: Path) -> None:
    """With the types there."""
    text = "deliver: {a: {postgres: {}, tables: {t: {from: told}}}}"

    [table] = made(in_file(tmp_path, text)).tables

    assert [(c.name, str(c.kind)) for c in table.columns] == [("told", "BIGINT")]


@pytest.mark.parametrize(
    ("there", "instead", "reason"),
    [
        ("from: whereabouts, key", "form: whereabouts, key", r"tables\.places\.form: .*line 6"),
        ("mode: changes", "mode: change", r"tables\.moves\.mode: must be one of .*line 7"),
        ("{type: BLOB, whole: value}", "BLUB", "BLUB: it is none of SQL"),
        ("{type: BLOB, whole: value}", "GEOMETRY", 'column "all" cannot be delivered as GEOMETRY'),
        ("key: id", "key: ids", 'key of table "places" has "ids"'),
        ("    postgres: {connection: dbname=shop}\n", "", "has to have one target; it has none"),
        (
            "all: {type: BLOB",
            "ikebana_time: {type: BLOB",
            "that begin with ikebana_ are res",
        ),
        ("all: {type: BLOB", "Ikebana_n: {type: BLOB", 'cannot have a column "Ikebana_n"'),
        ("all: {type: BLOB", f"{'a' * 64}: {{type: BLOB", "moves: PostgreSQL would cut the name"),
        ("changes, ", "changes, format: upsert, ", "has the format upsert, which cannot be"),
        ("changes, ", "changes, format: debezium-avro, ", "format debezium-avro, which cannot"),
        ("changes, ", "changes, format: cdcv2-json, ", "in two formats"),
        ("deliver:", "inputs: {}\ndeliver:", "inputs: there is no such setting"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, there: str, instead: str, reason: str) -> None:
    """By their names, and those of structure with their lines."""
    assert there in ALONE
    path = in_file(tmp_path, ALONE.replace(there, instead, 1))

    with pytest.raises(ConfigError, match=f"(?s){reason}"):
        made(path)


@pytest.mark.parametrize(
    ("there", "instead", "reason"),
    [
        ("FROM totals INTO", "FROM sums INTO", r'deliver\.shop\.tables\.per_id\.from: .*"sums"'),
        ("mode = history", "mode = histories", r"mode: must be one of .*line 6, column 50"),
        ("connection", "conection", r"postgres\.conection: .*connection"),
        ("INTO POSTGRES", "INTO ORACLE", '"KAFKA"'),
    ],
)
def test_mistakes_in_sql_are_refused(
    tmp_path: Path, there: str, instead: str, reason: str
) -> None:
    """With their lines and columns."""
    assert there in SQL
    path = in_file(tmp_path, SQL.replace(there, instead, 1), "p.sql")

    with pytest.raises(ConfigError, match=f"(?s){reason}"):
        made(path)


def test_one_of_several_sinks_is_named(tmp_path: Path) -> None:
    """And a name that is none is refused."""
    table = "tables: {t: {from: u, columns: {a: BIGINT}}}"
    text = f"deliver: {{one: {{postgres: {{}}, {table}}}, two: {{postgres: {{}}, {table}}}}}"
    path = str(in_file(tmp_path, text))

    several = CliRunner().invoke(cli, ["deliver", path])
    other = CliRunner().invoke(cli, ["deliver", path, "tow"])

    assert isinstance(several.exception, ConfigError)
    assert "several sinks: one, two" in str(several.exception)
    assert isinstance(other.exception, ConfigError)
    assert 'no sink "tow"' in str(other.exception)
    assert '"two"' in str(other.exception)


@pytest.mark.parametrize(
    ("progress", "ready", "reason"),
    [
        (DeliveryProgress(None, 0, 0, None, 0, ""), False, "catching up"),
        (DeliveryProgress(7, 3, 1, 2.0, 5, ""), True, "delivering"),
        (DeliveryProgress(7, 3, 1, 99.0, 5, ""), False, "catching up"),
        (DeliveryProgress(7, 3, 1, 2.0, 5, 'sink "s" waits'), False, 'sink "s" waits'),
    ],
)
def test_probes_say_how_a_delivery_stands(
    progress: DeliveryProgress,
    ready: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """Ready is what has everything that is closed, and no target that is away."""
    probes = DeliveryProbes("s", lambda: progress, 60)

    good, body = probes.ready()
    _, text = probes.scrape("")

    assert (good, json.loads(body)["reason"]) == (ready, reason)
    assert probes.live()[0]
    assert f'ikebana_delivered_updates_total{{sink="s"}} {progress.updates}.0'.encode() in text
    waits = 1.0 if progress.waits else 0.0
    assert f'ikebana_delivered_waits{{sink="s"}} {waits}'.encode() in text
