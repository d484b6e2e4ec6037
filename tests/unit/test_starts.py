"""Where reading an input begins: at a word, a time or offsets, and what follows from it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ikebana import Column, ConfigError, Input, Linear, Output, Pipeline, Plan, Upsert, steps
from ikebana.errors import SourceError
from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint.inputs import first_offsets
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.explain.graph import input_lines
from ikebana.processor.planning.plan_problems import problems_of
from ikebana.processor.planning.starts import AtOffsets, AtTime, place_of, text_of, words
from ikebana.testing import Run, Topics

NOON = 1_706_702_400_000


@pytest.mark.parametrize(
    ("given", "text", "place"),
    [
        ("earliest", "earliest", "earliest"),
        ("latest", "latest", "latest"),
        ("2024-01-31T12:00:00Z", "2024-01-31T12:00:00Z", AtTime(NOON)),
        ("2024-01-31 13:00+01:00", "2024-01-31T12:00:00Z", AtTime(NOON)),
        ("2024-01-31T12:00", "2024-01-31T12:00:00Z", AtTime(NOON)),
        ("2024-01-31", "2024-01-31T00:00:00Z", AtTime(NOON - 43_200_000)),
        ("2024-01-31T12:00:00.0001Z", "2024-01-31T12:00:00.001Z", AtTime(NOON + 1)),
        (NOON + 5, "2024-01-31T12:00:00.005Z", AtTime(NOON + 5)),
        (datetime(2024, 1, 31, 12, tzinfo=UTC), "2024-01-31T12:00:00Z", AtTime(NOON)),
        (
            datetime(2024, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))),
            "2024-01-31T12:00:00Z",
            AtTime(NOON),
        ),
        (datetime(2024, 1, 31, 12), "2024-01-31T12:00:00Z", AtTime(NOON)),  # noqa: DTZ001
        ({1: 900, 0: 1200}, "0: 1200, 1: 900", AtOffsets({0: 1200, 1: 900})),
        ({"1": "900", "0": 0}, "0: 0, 1: 900", AtOffsets({0: 0, 1: 900})),
        ("0: 1200, 1: 900", "0: 1200, 1: 900", AtOffsets({0: 1200, 1: 900})),
    ],
)
def test_a_start_has_one_text(given: Any, text: str, place: Any) -> None:
    """By which a plan keeps it; a text is what it is made of."""
    assert (text_of(given), text_of(text), place_of(text)) == (text, text, place)


@pytest.mark.parametrize(
    "given",
    ["newest", "", "0:", "0: -1", "2024-02-30", -1, 2**70, True, None, {}, {"a": 1}, {0: -1}, []],
)
def test_what_is_no_start_is_refused(given: Any) -> None:
    """Wherever a start is given, with what it may be."""
    with pytest.raises(ValueError):  # noqa: PT011 -- the callers have the words
        text_of(given)
    with pytest.raises(ConfigError, match="such as 2024-01-31T12:00:00Z"):
        Input("rows", ("rows",), start=given)
    with pytest.raises(ConfigError, match="such as 2024-01-31T12:00:00Z"):
        Pipeline("p").topic("rows", start=given)


FILE = """
pipeline: p
inputs:
  rows: {{topic: rows, start: {}}}
operators:
  current: {{upsert: rows}}
outputs:
  out: {{from: current, topic: out}}
kafka: {{bootstrap.servers: b}}
run: {{checkpoint: c}}
"""
SQL = """
CREATE PIPELINE p WITH (kafka = (bootstrap.servers = 'b'), run = (checkpoint = 'c'));
CREATE SOURCE rows (n BIGINT) FROM KAFKA (topic = 'rows', start = '{}');
CREATE VIEW counted AS SELECT n FROM rows;
CREATE SINK out FROM counted INTO KAFKA (topic = 'out');
"""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("2024-01-31T12:00:00Z", "2024-01-31T12:00:00Z"),
        ("{0: 12, 1: 9}", "0: 12, 1: 9"),
        ("1706702400000", "2024-01-31T12:00:00Z"),
    ],
)
def test_a_file_has_a_time_or_offsets(given: str, text: str) -> None:
    """As YAML writes them, and a file of SQL as text."""
    found = pipeline.parse(FILE.format(given), "p.yaml", environ={})
    of_sql = pipeline.parse(SQL.format(text), "p.sql", environ={})

    assert found.plan.inputs[0].start == of_sql.plan.inputs[0].start == text


COLUMNS = (Column("n", "BIGINT"),)


def plan_of(start: Any, *more: Input) -> Plan:
    """The last values of a topic read from there."""
    source = Input("rows", ("rows",), start=text_of(start), columns=COLUMNS)
    operators = tuple(Upsert(f"{each.name}_now", each.name) for each in (source, *more))
    outputs = tuple(Output(o.name, o.name, f"{o.name}.out") for o in operators)
    return Plan("p", (source, *more), operators, outputs)


def filled() -> Topics:
    """Two partitions, the records of which have the times 10, 20, 30 and 15, 5."""
    topics = Topics()
    topics.create("rows", 2)
    for key, (partition, time) in enumerate([(0, 10), (0, 20), (0, 30), (1, 15), (1, 5)]):
        topics.send("rows", key, {"n": key}, partition=partition, timestamp=time)
    return topics


@pytest.mark.parametrize(
    ("start", "keys"),
    [
        ("earliest", {0, 1, 2, 3, 4}),
        ("latest", set()),
        (11, {1, 2, 3, 4}),
        (20, {1, 2}),
        (16, {1, 2}),
        (31, set()),
        ({0: 2, 1: 0}, {2, 3, 4}),
        ({0: 3, 1: 2}, set()),
    ],
)
def test_each_partition_begins_at_its_first_record_that_is_not_earlier(
    start: Any, keys: set[int]
) -> None:
    """And goes on with all that follow, whatever their times."""
    run = Run(plan_of(start), filled())
    run.read()

    assert {key for key, _ in run.collection("rows_now")} == keys


def test_a_run_goes_on_whatever_is_before_its_start() -> None:
    """Replayed, restarted and edited it never sees what lies before."""
    topics = filled()
    run = Run(plan_of({0: 1, 1: 1}), topics, shards=2)
    run.crash()
    run.restart()
    run.read()
    assert {key for key, _ in run.collection("rows_now")} == {1, 2, 4}

    plan = plan_of("earliest")
    more = Linear("more", "rows_now", (steps.select(m="n + 1"),))
    plan = replace(
        plan,
        operators=(*plan.operators, more),
        outputs=(*plan.outputs, Output("more", "more", "more")),
    )
    run.restart(plan)
    run.read()

    assert dict(run.collection("more")) == {1: {"m": 2}, 2: {"m": 3}, 4: {"m": 5}}


def test_what_an_edit_reads_again_begins_where_reading_began() -> None:
    """A column that nothing has read needs the input again, and no record before its start."""
    topics = Topics()
    for key in range(4):
        topics.send("rows", key, {"n": key, "m": -key}, timestamp=10 * key)
    columns = (*COLUMNS, Column("m", "BIGINT"))
    source = Input("rows", ("rows",), start=text_of(15), columns=columns)
    now, only = Upsert("now", "rows"), Linear("only", "now", (steps.select(n="n"),))
    plan = Plan("p", (source,), (now, only), (Output("only", "only", "only"),))
    run = Run(plan, topics)
    run.read()

    both = Linear("both", "now", (steps.select(n="n", m="m"),))
    run.restart(
        replace(
            plan,
            operators=(now, only, both),
            outputs=(*plan.outputs, Output("both", "both", "both")),
        )
    )
    run.read()

    assert dict(run.collection("both")) == {2: {"n": 2, "m": -2}, 3: {"n": 3, "m": -3}}


@pytest.mark.parametrize(("start", "keys"), [(20, {1, 2}), ({0: 2, 1: 1}, {2, 4})])
def test_an_input_that_an_edit_adds_begins_at_its_start(start: Any, keys: set[int]) -> None:
    """In the middle of its topic."""
    topics = filled()
    first = Input("first", ("first",))
    plan = Plan("p", (first,), (Upsert("f", "first"),), (Output("f", "f", "f"),))
    run = Run(plan, topics)
    run.send("first", 1, 1)
    run.read()

    source = Input("rows", ("rows",), start=start, columns=COLUMNS)
    run.restart(
        replace(
            plan,
            inputs=(first, source),
            operators=(*plan.operators, Upsert("now", "rows")),
            outputs=(*plan.outputs, Output("now", "now", "now")),
        )
    )
    run.read()

    assert {key for key, _ in run.collection("now")} == keys


@pytest.mark.parametrize("start", [16, {0: 1, 1: 2}])
def test_a_lost_checkpoint_is_made_anew_from_the_same_start(start: Any) -> None:
    """By the time or the offsets, which are in the file."""
    run = Run(plan_of(start), filled())
    run.read()
    before = run.collection("rows_now")

    run.recover()
    run.read()

    assert run.collection("rows_now") == before != []


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ({0: 1}, r"none is named for rows\[1\]"),
        ({0: 1, 1: 0, 2: 0}, 'topic "rows" has no partition 2'),
        ({0: 4, 1: 0}, r"rows\[0\] has the offsets from 0 up to 3"),
    ],
)
def test_offsets_that_are_not_there_are_refused(offsets: Any, why: str) -> None:
    """With the partition, and what there is."""
    with pytest.raises(SourceError, match=why):
        Run(plan_of(offsets), filled())


def test_an_offset_that_retention_has_taken_is_refused() -> None:
    """It names what is there."""
    source = Input("rows", ("rows",), start={0: 4})  # type: ignore[arg-type]

    found = first_offsets(source, "rows", {0: 5}, {0: 9}, lambda _: {})

    assert isinstance(found, Refusal)
    assert "rows[0] has the offsets from 5 up to 9" in found.message


def test_offsets_are_those_of_one_topic() -> None:
    """Of several nobody could tell whose they are."""
    plan = plan_of({0: 1})
    source = replace(plan.inputs[0], topics=("rows", "others"))

    assert (
        "inputs.rows.start",
        "offsets are those of one topic: make an input of each topic",
    ) in [*problems_of(replace(plan, inputs=(source,)))]


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("earliest", "its beginning"),
        ("latest", "its end on"),
        ("2024-01-31", "the first record of 2024-01-31T00:00:00Z or later"),
        ("0: 4", "the offsets 0: 4"),
    ],
)
def test_explain_and_plan_say_where_reading_begins(start: str, text: str) -> None:
    """In words."""
    source = Input("rows", ("rows",), start=start)

    assert words(source.start) == text
    assert f"mode: upsert, start: {source.start}" in [*input_lines(source)]
