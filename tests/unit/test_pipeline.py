"""The pipeline file: what it becomes, and that every problem is told at once."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from confluent_kafka import KafkaException, Producer

from ikebana.codecs.formats import FORMATS
from ikebana.errors import ConfigError
from ikebana.processor.authoring.operator_kinds import OperatorSection
from ikebana.processor.authoring.pipeline import ConfiguredPlan, parse, read
from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.settings import (
    KAFKA_NAMES,
    OWNED_KAFKA,
    OWNED_SPARK,
    Settings,
    SettingsError,
    redacted,
)
from ikebana.processor.authoring.values import Section
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.planning.starts import FORMS

ROOT = Path(__file__).resolve().parents[2]

WHOLE = """\
pipeline: whereabouts
inputs:
  flights:
    topic: [flights, more-flights]
    format: {key: bytes, value: json}
    start: latest
operators:
  aircraft:
    upsert: flights
outputs:
  diffs:
    from: aircraft
    topic: whereabouts
    format: diff
    partitions: 4
errors:
  topic: lost
time: offset
kafka:
  bootstrap.servers: localhost:9092
  socket.keepalive.enable: true
  retries: 7
  reconnect.backoff.ms: 500
source: {max_records_per_batch: 1000, kafka: {fetch.min.bytes: 1}}
sink: {kafka: {linger.ms: 5}, topics: {min.insync.replicas: "2"}, replication_factor: 3}
run:
  checkpoint: s3://bucket/x
  shards: 8
  trigger_interval: 500ms
  heartbeat: 0
  local_directory: /tmp/shards
  master: local[2]
  driver_memory: 512m
  retained_batches: 5
  max_batch: 5m
  restarts: 3
spark:
  spark.ui.enabled: false
"""

LEAST = """\
pipeline: p
inputs: {i: {topic: in}}
operators: {o: {upsert: i}}
outputs: {d: {from: o, topic: out}}
kafka: {bootstrap.servers: "b:1"}
run: {checkpoint: c}
"""


def parsed(text: str, environ: Mapping[str, str] | None = None) -> ConfiguredPlan:
    return parse(text, "p.yaml", environ=environ or {})


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parsed(text, environ)
    first, *rest = str(refused.value).split("\n")
    count = "1 problem" if len(rest) == 1 else f"{len(rest)} problems"
    assert first == f"pipeline file p.yaml has {count}:"
    assert all(line.startswith("  ") for line in rest)
    return [line.removeprefix("  ") for line in rest]


def test_every_key_of_a_file_is_in_its_plan_and_settings() -> None:
    """The file says all that a plan and settings hold, and nothing is dropped."""
    assert parsed(WHOLE) == ConfiguredPlan(
        Plan(
            "whereabouts",
            inputs=(Input("flights", ("flights", "more-flights"), "json", "bytes", "latest"),),
            operators=(Upsert("aircraft", "flights"),),
            outputs=(Output("diffs", "aircraft", "whereabouts", "diff", 4),),
            error_topic="lost",
            time="offset",
        ),
        Settings(
            checkpoint="s3://bucket/x",
            kafka={
                "bootstrap.servers": "localhost:9092",
                "socket.keepalive.enable": "true",
                "retries": "7",
                "reconnect.backoff.ms": "500",
            },
            source_kafka={"fetch.min.bytes": "1"},
            sink_kafka={"linger.ms": "5"},
            shards=8,
            max_records_per_batch=1000,
            trigger_interval_s=0.5,
            heartbeat_s=0.0,
            local_directory="/tmp/shards",
            master="local[2]",
            driver_memory="512m",
            spark={"spark.ui.enabled": "false"},
            retained_batches=5,
            max_batch_s=300.0,
            restarts=3,
            topic_settings={"min.insync.replicas": "2"},
            replication_factor=3,
        ),
    )


def test_a_file_has_the_defaults_of_the_python_api() -> None:
    """What a file does not say is what `Plan` and `Settings` take it to be."""
    assert parsed(LEAST) == ConfiguredPlan(
        Plan(
            "p",
            inputs=(Input("i", ("in",)),),
            operators=(Upsert("o", "i"),),
            outputs=(Output("d", "o", "out"),),
        ),
        Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}),
    )


def test_the_example_is_a_pipeline() -> None:
    """The example can be run as it is, and its plan can be written in Python."""
    pipeline = read(ROOT / "examples" / "whereabouts.yaml", environ={})

    assert pipeline.plan == Plan(
        "whereabouts",
        inputs=(Input("flights", ("flights",), "json", "bytes"),),
        operators=(Upsert("aircraft", "flights"),),
        outputs=(Output("diffs", "aircraft", "whereabouts", partitions=4),),
        error_topic="whereabouts.errors",
    )
    assert pipeline.settings == Settings(
        checkpoint="./checkpoint", kafka={"bootstrap.servers": "localhost:9092"}
    )


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        pytest.param("json", "json", "json", id="one word is for both"),
        pytest.param("bytes", "bytes", "bytes", id="bytes"),
        pytest.param("{value: bytes}", "json", "bytes", id="the other is json"),
        pytest.param("", "json", "json", id="a key without a value is not there"),
    ],
)
def test_formats(written: str, key: str, value: str) -> None:
    """A format is one word for key and value, or one for each."""
    inputs = f"inputs:\n  i:\n    topic: in\n    format: {written}"
    text = LEAST.replace("inputs: {i: {topic: in}}", inputs)

    (read_input,) = parsed(text).plan.inputs

    assert (read_input.key_format, read_input.value_format) == (key, value)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        pytest.param("90", 90.0, id="seconds"),
        pytest.param("1.5", 1.5, id="parts of a second"),
        pytest.param("1500ms", 1.5, id="ms"),
        pytest.param("90s", 90.0, id="s"),
        pytest.param("1.5m", 90.0, id="m"),
        pytest.param("2h", 7200.0, id="h"),
        pytest.param("2d", 172_800.0, id="d"),
        pytest.param("${LONG}", 150.0, id="variable"),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    """A duration is a number of seconds, or has a unit."""
    text = LEAST.replace("{checkpoint: c}", f"\n  checkpoint: c\n  max_batch: {written}")
    assert parsed(text, {"LONG": "2.5m"}).settings.max_batch_s == seconds


@pytest.mark.parametrize(
    ("written", "environ", "value"),
    [
        pytest.param("${A}", {"A": "x"}, "x", id="whole value"),
        pytest.param("a-${A}-${B}", {"A": "x", "B": "y"}, "a-x-y", id="within a value"),
        pytest.param("${A}", {"A": ""}, "", id="empty is set"),
        pytest.param("${A:-d}", {}, "d", id="default"),
        pytest.param("${A:-}", {}, "", id="empty default"),
        pytest.param("${A:-d}", {"A": ""}, "d", id="default for empty"),
        pytest.param("${A:-h:1}", {}, "h:1", id="default with a colon"),
        pytest.param("${A}", {"A": "0123"}, "0123", id="never read as a number"),
        pytest.param("${A}", {"A": "${B}"}, "${B}", id="not substituted again"),
        pytest.param("$${A}", {"A": "x"}, "${A}", id="escaped"),
        pytest.param("$A", {"A": "x"}, "$A", id="only with braces"),
        pytest.param("010", {}, "8", id="numbers are YAML's"),
        pytest.param('"010"', {}, "010", id="quoted"),
        pytest.param("2024-05-06", {}, "2024-05-06", id="dates are text"),
    ],
)
def test_values_and_variables(written: str, environ: Mapping[str, str], value: str) -> None:
    """Variables are put into text, once, and what they hold is not read as YAML."""
    text = LEAST + f"spark:\n  spark.x: {written}\n"
    assert parsed(text, environ).settings.spark == {"spark.x": value}


def test_numbers_can_come_from_variables() -> None:
    """A variable is text, and text of digits is a number where one is wanted."""
    text = LEAST.replace("{checkpoint: c}", "{checkpoint: c, shards: '${SHARDS:-16}'}")
    assert parsed(text).settings.shards == 16


def test_keys_are_always_text() -> None:
    """YAML would read the names `no` and `1` as false and one."""
    text = LEAST.replace("{i: {topic: in}}", "{no: {topic: a}, 1: {topic: b}}")
    assert [i.name for i in parsed(text.replace("upsert: i", "upsert: 'no'")).plan.inputs] == [
        "no",
        "1",
    ]


def test_aliases_are_what_they_stand_for() -> None:
    """Two sections can share settings."""
    text = LEAST + "source: {kafka: &tls {ssl.ca.location: ca}}\nsink: {kafka: *tls}\n"
    settings = parsed(text).settings
    assert settings.source_kafka == settings.sink_kafka == {"ssl.ca.location": "ca"}


def test_options_win_over_the_file() -> None:
    """An option replaces what the file says, and what is wrong with that."""
    file = LEAST.replace('"b:1"', '"${BROKERS}"').replace("checkpoint: c", "checkpoint: [c]")

    settings = parse(
        file, "p.yaml", bootstrap_servers="x:2", checkpoint="./here", environ={}
    ).settings

    assert settings.kafka == {"bootstrap.servers": "x:2"}
    assert settings.checkpoint == "./here"


def test_options_can_stand_for_what_the_file_lacks() -> None:
    """A file without brokers and checkpoint is whole with the two options."""
    file = LEAST.replace('kafka: {bootstrap.servers: "b:1"}\nrun: {checkpoint: c}\n', "")

    settings = parse(file, "p", bootstrap_servers="x:2", checkpoint="c", environ={}).settings

    assert settings == Settings(checkpoint="c", kafka={"bootstrap.servers": "x:2"})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            "{topic: in}",
            "{topic: in, format: jsn}",
            [
                f"inputs.i.format: must be one of {', '.join(FORMATS)}, or "
                '{key: …, value: …}; is "jsn"; did you mean "json"? (line 2)'
            ],
            id="choice misspelt",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in, start: newest, format: {key: maxwell, value: [json]}}",
            [
                "inputs.i.format.key: must be one of json, bytes, avro, protobuf; is "
                '"maxwell" (line 2)',
                f"inputs.i.format.value: must be one of {', '.join(FORMATS)}; is a list (line 2)",
                f'inputs.i.start: must be {FORMS}; is "newest" (line 2)',
            ],
            id="choices of other kinds",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in, fromat: json}",
            ['inputs.i.fromat: there is no such setting here; did you mean "format"? (line 2)'],
            id="key misspelt",
        ),
        pytest.param(
            "{topic: in}",
            "{topc: in}",
            ['inputs.i.topc: there is no such setting here; did you mean "topic"? (line 2)'],
            id="needed key misspelt is one problem",
        ),
        pytest.param(
            "kafka:",
            "kafak:",
            ['kafak: there is no such setting here; did you mean "kafka"? (line 5)'],
            id="needed section misspelt is one problem",
        ),
        pytest.param(
            "{checkpoint: c}",
            "{checkpont: c}",
            ['run.checkpont: there is no such setting here; did you mean "checkpoint"? (line 6)'],
            id="needed setting misspelt is one problem",
        ),
        pytest.param(
            "{upsert: i}",
            "{upsert: i, zzz: 1}",
            [
                "operators.o.zzz: there is no such setting here; there are "
                f"{', '.join(OperatorSection.keys())} (line 3)"
            ],
            id="key like no other",
        ),
        pytest.param(
            "{from: o, topic: out}",
            "{}",
            ["outputs.d.from: is missing (line 4)", "outputs.d.topic: is missing (line 4)"],
            id="missing",
        ),
        pytest.param(
            "{i: {topic: in}}", "", ["inputs: is missing (line 2)"], id="section without value"
        ),
        pytest.param(
            "{i: {topic: in}}",
            "[i]",
            ["inputs: must be a mapping; is a list (line 2)"],
            id="section is a list",
        ),
        pytest.param(
            "{i: {topic: in}}",
            "{i: in}",
            ['inputs.i: must be a mapping; is "in" (line 2)'],
            id="a broken input is not missed by its readers",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: [1, 2]}",
            ["inputs.i.topic: must be a topic or a list of one topic or more; is a list (line 2)"],
            id="topics of another type",
        ),
        pytest.param(
            "pipeline: p",
            "pipeline: 7",
            ["pipeline: must be text (put it in quotes); is 7 (line 1)"],
            id="text wanted",
        ),
        pytest.param(
            "topic: out}",
            "topic: out, partitions: true}",
            ["outputs.d.partitions: must be a whole number; is true (line 4)"],
            id="number wanted",
        ),
        pytest.param(
            "topic: out}",
            "topic: out, partitions: 0}",
            ["outputs.d.partitions: must be at least 1 (line 4)"],
            id="plan: range",
        ),
        pytest.param(
            "{upsert: i}",
            "{upsert: j}",
            ["operators.o.upsert: there is no input 'j'; there are i (line 3)"],
            id="plan: reference",
        ),
        pytest.param(
            "{checkpoint: c}",
            "{checkpoint: c, heartbeat: 10x, max_batch: 0, shards: 0, driver_memory: big}",
            [
                "run.heartbeat: must be a number of seconds, or a duration such as 500ms, "
                '10s, 5m or 7d; is "10x" (line 6)',
                "run.shards: must be at least 1; is 0 (line 6)",
                "run.max_batch: must be at least 1 second; is 0.0 (line 6)",
                'run.driver_memory: must be a size such as "512m" or "2g"; is "big" (line 6)',
            ],
            id="settings: ranges",
        ),
        pytest.param(
            "{checkpoint: c}",
            "{checkpoint: c, heartbeat: .inf, trigger_interval: .nan}",
            [
                "run.trigger_interval: must be 0 seconds or more; is nan (line 6)",
                "run.heartbeat: must be 0 seconds or more; is inf (line 6)",
            ],
            id="settings: durations end",
        ),
        pytest.param(
            'kafka: {bootstrap.servers: "b:1"}\nrun: {checkpoint: c}\n',
            "",
            [
                "run.checkpoint: is missing; set it here or with --checkpoint",
                "kafka.bootstrap.servers: is missing; set it here or with --bootstrap-servers",
            ],
            id="brokers and checkpoint missing",
        ),
        pytest.param(
            '"b:1"',
            "",
            ["kafka.bootstrap.servers: must be text, a number, true or false; is empty (line 5)"],
            id="a broken setting is not missing as well",
        ),
        pytest.param(
            '"b:1"}',
            '"b:1", group.id: g, auto.offset.reset: latest}',
            [
                "kafka.group.id: is for ikebana alone to set (line 5)",
                "kafka.auto.offset.reset: is for ikebana alone to set; "
                "use inputs.<name>.start (line 5)",
            ],
            id="settings that we own",
        ),
        pytest.param(
            '"b:1"}',
            '"b:1", sasl.password: "${PASSWORD}-${SALT}"}',
            [
                "kafka.sasl.password: the variable PASSWORD is not set (line 5)",
                "kafka.sasl.password: the variable SALT is not set (line 5)",
            ],
            id="variable not set",
        ),
        pytest.param(
            "topic: out}",
            'topic: "${T}", partitions: "${N}"}',
            [
                "outputs.d.topic: the variable T is not set (line 4)",
                "outputs.d.partitions: the variable N is not set (line 4)",
            ],
            id="variable not set is the only problem of its value",
        ),
        pytest.param(
            "pipeline: p",
            'pipeline: "${not a name}"',
            [
                'pipeline: has a "${" that is not ${NAME}, ${NAME:-default} or ${file:PATH} '
                "(line 1)",
            ],
            id="not a variable",
        ),
        pytest.param(
            "run: {checkpoint: c}",
            "run: {checkpoint: c, checkpoint: e}\nkafka:\n  bootstrap.servers: x",
            [
                "run.checkpoint: must be given once; is given at lines 6 and 6 (line 6)",
                "kafka: must be given once; is given at lines 5 and 7 (line 7)",
            ],
            id="given twice",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in}, i: {topic: other}",
            ["inputs.i: must be given once; is given at lines 2 and 2 (line 2)"],
            id="name given twice",
        ),
        pytest.param(
            "pipeline: p",
            "pipeline: !secret p",
            ['pipeline: has a tag that has no meaning here, "!secret" (line 1)'],
            id="tag",
        ),
        pytest.param(
            "pipeline: p",
            "pipeline: p\ncolour: 0b_",
            [
                'colour: is not a readable "int"; put it in quotes if it is text (line 2)',
                "colour: there is no such setting here; there are pipeline, functions, inputs, "
                "operators, outputs, errors, time, pushdown, kafka, source, sink, registry, run, "
                "spark, deliver "
                "(line 2)",
            ],
            id="unreadable and unwanted",
        ),
        pytest.param(
            "{checkpoint: c}",
            "&r {checkpoint: c, shards: *r}",
            ["run.shards: is an alias of what it stands in (line 6)"],
            id="alias of itself",
        ),
        pytest.param(
            "{checkpoint: c}",
            "{checkpoint: c, [a]: b}",
            ["run: has a key that is not text, at line 6 (line 6)"],
            id="key is a list",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in, event_time: {clock: kafka, idel: 3s}}",
            [
                "inputs.i.event_time.idel: there is no such setting here; "
                'did you mean "idle"? (line 2)'
            ],
            id="misspelt in a section that may be left out",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in, event_time: {clock: kafka, lateness: .inf}}",
            [
                "inputs.i.event_time.lateness: must be a time that ends; is inf (line 2)",
            ],
            id="seconds without end",
        ),
        pytest.param(
            "{topic: in}",
            "{topic: in, event_time: {clock: kafka, idle: -1, ahead: -2}}",
            [
                "inputs.i.event_time.idle: must be 0 seconds or more (line 2)",
                "inputs.i.event_time.ahead: must be 0 seconds or more (line 2)",
            ],
            id="fewer than no seconds",
        ),
    ],
)
def test_problems(old: str, new: str, expected: list[str]) -> None:
    """Each fault of a file is told once, by its path, its fact and its line."""
    assert problems(LEAST.replace(old, new)) == expected


def test_every_problem_is_told_at_once() -> None:
    """Faults of YAML, variables, schema, plan and settings do not hide each other."""
    file = """\
pipeline: orders
inputs:
  flights:
    topic: flights
    fromat: json
    start: newest
operators:
  aircraft:
    upsert: fligths
outputs:
  diffs:
    from: aircraft
    topic: flights
time: ingest
time: offset
kafka:
  group.id: mine
  sasl.password: ${PASSWORD}
run:
  checkpoint: c
  shards: -1
spark:
  spark.speculation: true
"""
    assert problems(file) == [
        'inputs.flights.fromat: there is no such setting here; did you mean "format"? (line 5)',
        f'inputs.flights.start: must be {FORMS}; is "newest" (line 6)',
        "operators.aircraft.upsert: there is no input 'fligths'; did you mean "
        '"flights"? (line 9)',
        "outputs.diffs.topic: topic 'flights' is also read, at inputs.flights.topic (line 13)",
        "time: must be given once; is given at lines 14 and 15 (line 15)",
        "kafka.bootstrap.servers: is missing; set it here or with --bootstrap-servers (line 16)",
        "kafka.group.id: is for ikebana alone to set (line 17)",
        "kafka.sasl.password: the variable PASSWORD is not set (line 18)",
        "run.shards: must be at least 1; is -1 (line 21)",
        "spark.spark.speculation: is for ikebana alone to set (line 23)",
    ]


NEW = "\nHint: `ikebana new FILE` writes a first one, with comments."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", f"it is empty{NEW}", id="empty"),
        pytest.param("# nothing\n", f"it is empty{NEW}", id="comments only"),
        pytest.param("- a\n", f"it is not a mapping of settings{NEW}", id="list"),
        pytest.param(
            "inputs:\n\ta: {}\n",
            "line 2, column 1: while scanning for the next token, found character '\\t' "
            "that cannot start any token\nHint: Indent by spaces: YAML takes no tabs.",
            id="tab",
        ),
        pytest.param(
            "run: {checkpoint: ${FOLDER}}\n",
            "line 1, column 20: while parsing a flow mapping, expected ',' or '}', but got '{'\n"
            "Hint: Put the variable in quotes: within {} and [] a brace begins a mapping.",
            id="variable in flow style",
        ),
        pytest.param(
            "pipeline: p\ninputs: [a\ntime: x\n",
            "line 3, column 5: while parsing a flow sequence, expected ',' or ']', but got ':'",
            id="syntax",
        ),
        pytest.param(
            "a: b\n---\nc: d\n",
            "line 2, column 1: expected a single document in the stream, "
            "but found another document",
            id="two documents",
        ),
        pytest.param(
            "a: b\nc: \x00\n",
            r"line 2, column 4: the character '\x00' cannot be in a YAML file",
            id="character",
        ),
    ],
)
def test_what_is_not_a_yaml_mapping_is_refused(text: str, message: str) -> None:
    """A file that is not YAML is refused with the line and column of the fault."""
    with pytest.raises(ConfigError) as refused:
        parsed(text)
    assert str(refused.value) == f"cannot read pipeline file p.yaml: {message}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("checkpoint: c", 'checkpoint: !!int ""', 'run.checkpoint: is not a readable "int"'),
        ("checkpoint: c", 'checkpoint: !!float "_"', 'run.checkpoint: is not a readable "float"'),
        (
            "checkpoint: c",
            'checkpoint: "${file:\\0x}"',
            "run.checkpoint: '\\x00x' is not the name of a file",
        ),
        (
            "checkpoint: c",
            'checkpoint: "${file:/dev/zero}"',
            "run.checkpoint: the file /dev/zero is longer than a setting may be",
        ),
        (
            "topic: in}",
            'topic: in, format: "\\ud800"}',
            "inputs.i.format: holds half of a character, a surrogate, which no text may",
        ),
        (
            "{upsert: i}",
            '{upsert: i, key: "\\ud800"}',
            "operators.o.key: holds half of a character, a surrogate, which no text may",
        ),
        (
            "{topic: in}",
            '{topic: in, columns: {"\\ud800": BIGINT}}',
            "inputs.i.columns: holds half of a character, a surrogate, which no text may",
        ),
    ],
)
def test_what_no_setting_can_be_has_its_place(old: str, new: str, problem: str) -> None:
    """Whatever YAML lets a value be."""
    assert problems(LEAST.replace(old, new))[0].startswith(problem)


def test_what_files_may_cost_is_bounded() -> None:
    """Neither nesting nor aliases of aliases make a short file a long one."""
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(ConfigError, match="more than 20,000 values, counting what aliases"):
        parsed(laughs)
    for deep in ("a: " + "[" * 5_000, "{a: " * 5_000, "- " * 5_000):
        with pytest.raises(ConfigError, match=r"line 1, column .*nested more than 40 levels deep"):
            parsed(deep)


def test_a_variable_that_is_no_text_has_its_place() -> None:
    """Python keeps bytes of the environment that are not UTF-8 as halves of characters."""
    told = problems(LEAST.replace("checkpoint: c", 'checkpoint: "${X}"'), {"X": "\udcff"})

    assert told == [
        "run.checkpoint: holds half of a character, a surrogate, which no text may (line 6)"
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a directory and a file that is not text are told by their path."""
    not_text = tmp_path / "not-text.yaml"
    not_text.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.yaml", tmp_path, not_text):
        with pytest.raises(ConfigError, match=re.escape(f"read pipeline file {path}: ")):
            read(path, environ={})


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Some editors write one; it is no part of the text."""
    path = tmp_path / "p.yaml"
    path.write_text(LEAST, encoding="utf-8-sig")
    assert read(path, environ={}) == parsed(LEAST)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.password", True),
        ("ssl.key.pem", True),
        ("ssl.keystore.password", True),
        ("sasl.jaas.config", True),
        ("sasl.oauthbearer.config", True),
        ("sasl.oauthbearer.client.secret", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.ssl.keyPassword", True),
        ("sasl.pasword", True),
        ("basic.auth.user.inof", True),
        ("spark.hadoop.fs.s3a.session.token", True),
        ("sasl.username", False),
        ("ssl.ca.location", False),
        ("bootstrap.servers", False),
    ],
)
def test_secrets_are_known_by_their_keys(key: str, *, secret: bool) -> None:
    """A key that names a secret hides its value, any other shows it."""
    assert redacted({key: "value"}) == {key: "***" if secret else "value"}


def test_a_misspelt_kafka_setting_is_refused_without_its_value() -> None:
    """All of them at once, each with its line; the value may be a secret."""
    text = LEAST.replace(
        'kafka: {bootstrap.servers: "b:1"}',
        'kafka:\n  bootstrap.servers: "b:1"\n  sasl.pasword: hunter2\n'
        "source: {kafka: {nothing.like.it: hunter2}}\nsink: {kafka: {lingr.ms: 5}}",
    )

    assert problems(text) == [
        'kafka.sasl.pasword: Kafka\'s client has no such setting; did you mean "sasl.password"? '
        "(line 7)",
        "source.kafka.nothing.like.it: Kafka's client has no such setting (line 8)",
        'sink.kafka.lingr.ms: Kafka\'s client has no such setting; did you mean "linger.ms"? '
        "(line 9)",
    ]


def test_the_kafka_settings_are_those_of_the_library() -> None:
    """Each name is known to the client that is installed."""
    for name in sorted(KAFKA_NAMES):
        try:
            Producer({name: "\x01", "log_level": "0"})
        except TypeError:
            pass  # the binding's own: it wants a truth value or a function
        except KafkaException as error:
            assert "No such configuration property" not in str(error), name  # noqa: PT017
    with pytest.raises(KafkaException, match="No such configuration property"):
        Producer({"sasl.pasword": "x"})


def test_the_repr_of_settings_shows_no_secret() -> None:
    """Settings end up in logs and tracebacks: no mapping and no URI gives a secret away."""
    secrets = {"sasl.password": "hunter2", "client.id": "me"}
    settings = Settings(
        checkpoint="s3://key:hunter2@bucket/x",
        kafka={"bootstrap.servers": "b:1", **secrets},
        source_kafka=secrets,
        sink_kafka=secrets,
        spark={"spark.hadoop.fs.s3a.secret.key": "hunter2"},
    )
    for shown in (
        repr(settings),
        str(settings),
        f"{ConfiguredPlan(parsed(LEAST).plan, settings)}",
    ):
        assert "hunter2" not in shown
        assert "'client.id': 'me'" in shown
        assert "checkpoint='s3://***@bucket/x'" in shown
        assert "shards=4" in shown


def test_problems_show_no_secret() -> None:
    """A value that passes through to a client is never repeated in a message."""
    text = LEAST.replace('"b:1"}', '"b:1", group.id: hunter2, sasl.password: [hunter2]}')
    assert not any("hunter2" in problem for problem in problems(text))


@pytest.mark.parametrize("key", sorted(OWNED_KAFKA))
def test_client_settings_that_we_own_are_refused_everywhere(key: str) -> None:
    """What exactly once rests on cannot be set for any client, in Python either."""
    settings = parsed(LEAST).settings
    with pytest.raises(SettingsError) as refused:
        replace(
            settings,
            kafka={**settings.kafka, key: "x"},
            source_kafka={key: "x"},
            sink_kafka={key: "x"},
        )
    assert [path for path, _ in refused.value.problems] == [
        f"kafka.{key}",
        f"source.kafka.{key}",
        f"sink.kafka.{key}",
    ]


@pytest.mark.parametrize("key", sorted(OWNED_SPARK))
def test_spark_settings_that_we_own_are_refused(key: str) -> None:
    """What state and exactly once rest on cannot be set for Spark."""
    with pytest.raises(SettingsError, match=f"^1 setting needs attention: spark.{key}: "):
        replace(parsed(LEAST).settings, spark={key: "x"})


def documented() -> str:
    return (ROOT / "docs" / "pipeline-file.md").read_text(encoding="utf-8")


def keys_of(section: type[Section], prefix: str = "") -> list[str]:
    keys = []
    for key, annotation in section.keys().items():
        inner: Any = annotation
        path = prefix + key
        if path == "operators.<name>.steps":
            keys.append(path)  # whose keys are those of the operator itself
            continue
        inner = get_args(inner)[0] if get_origin(inner) is Annotated else inner
        # A section that may be left out.
        sections = [a for a in get_args(inner) if isinstance(a, type) and issubclass(a, Section)]
        inner = sections[0] if type(None) in get_args(inner) and sections else inner
        if get_args(inner)[:1] == (str,) and isinstance(get_args(inner)[1], type):
            inner, path = get_args(inner)[1], path + ".<name>"
        if isinstance(inner, type) and issubclass(inner, Section):
            keys += keys_of(inner, path + ".")
        else:
            keys.append(prefix + key)
    return keys


def test_every_key_of_the_schema_is_documented() -> None:
    """The reference has one row for each key, and none for a key that is not there."""
    rows = set(re.findall(r"^\| `([a-z_.<>]+)` \|", documented(), re.MULTILINE))
    sections = {"inputs.<name>.columns", "inputs.<name>.format", "kafka.bootstrap.servers"}
    assert rows == {*keys_of(PipelineFile), *sections, "kafka"}


def test_every_default_is_documented() -> None:
    """The reference gives the defaults that a file has."""
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \|[^|]+\| `([^`]+)` \|", documented(), re.MULTILINE))
    sections: dict[str, dict[str, str]] = {}
    for path, default in rows.items():
        section, _, key = path.rpartition(".")
        if section in ("source", "sink", "run"):
            sections.setdefault(section, {})[key] = default
    written = "".join(
        f"{section}:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )
    file = LEAST.replace("run: {checkpoint: c}\n", written)
    assert "max_batch: 5m" in file
    assert parse(file, "p", checkpoint="c", environ={}) == parsed(LEAST)


def test_every_setting_that_we_own_is_documented() -> None:
    """The reference names what is refused and what to use instead."""
    for key, instead in {**OWNED_KAFKA, **OWNED_SPARK}.items():
        assert f"`{key}`" + (f" (use `{instead}`)" if instead else "") in documented()
