"""A plan that is checked is consistent; one that would not be has every problem named."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ikebana import (
    Evaluation,
    EventTime,
    Input,
    Linear,
    Output,
    Plan,
    PlanError,
    StateMachine,
    Upsert,
    evaluate,
    steps,
)
from ikebana.codecs.canonical import encode
from ikebana.errors import CheckpointError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.building.handle import PipelineRun
from ikebana.processor.checkpoint.checkpoint import metadata_of
from ikebana.processor.checkpoint.recorded_plan import metadata_after
from ikebana.processor.explain.explanation import explained
from ikebana.processor.planning import outputs
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import OnError
from ikebana.processor.topics.source_offset import SourceOffset

NAMES = Input("names", ("names",))
CURRENT = Upsert("current", "names")
DIFFS = Output("diffs", "current", "diffs")
PLAN = Plan("p", (NAMES,), (CURRENT,), (DIFFS,))
NO_NAME = "is not a name (letters, digits, '.', '_', '-')"
NO_TOPIC = "is not a Kafka topic name (letters, digits, '.', '_', '-')"


def test_a_plan_fills_in_its_error_topic() -> None:
    """It is named after the plan unless it has a name, and is published like an output."""
    assert PLAN.error_topic == "p.errors"
    assert [(o.name, o.topic, o.progress_topic) for o in PLAN.published] == [
        ("diffs", "diffs", "diffs.progress"),
        ("errors", "p.errors", "p.errors.progress"),
    ]
    assert [outputs.promise(PLAN, o) for o in PLAN.published] == ["upserts", "collection"]
    assert PLAN.input("names") is NAMES


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        pytest.param({"name": ""}, [("pipeline", f"'' {NO_NAME}")], id="no name"),
        pytest.param({"name": "a b"}, [("pipeline", f"'a b' {NO_NAME}")], id="a space"),
        pytest.param({"name": "a\0"}, [("pipeline", f"'a\\x00' {NO_NAME}")], id="a NUL"),
        pytest.param({"outputs": ()}, [("outputs", "at least one is needed")], id="no output"),
        pytest.param(
            {"operators": (), "outputs": ()},
            [("operators", "at least one is needed"), ("outputs", "at least one is needed")],
            id="no operator",
        ),
        pytest.param(
            {"inputs": (), "operators": (), "outputs": ()},
            [
                ("inputs", "at least one is needed"),
                ("operators", "at least one is needed"),
                ("outputs", "at least one is needed"),
            ],
            id="nothing at all",
        ),
        pytest.param(
            {"inputs": (NAMES, replace(NAMES, topics=("others",)))},
            [("inputs.names", "the name is used 2 times")],
            id="two inputs of one name",
        ),
        pytest.param(
            {"outputs": (DIFFS, replace(DIFFS, topic="others"))},
            [("outputs.diffs", "the name is used 2 times")],
            id="two outputs of one name",
        ),
        pytest.param(
            {"inputs": (replace(NAMES, topics=()),)},
            [("inputs.names.topic", "at least one topic is needed")],
            id="an input without topics",
        ),
        pytest.param(
            {"inputs": (replace(NAMES, topics=("names", "names")),)},
            [("inputs.names.topic", "topic 'names' is listed 2 times")],
            id="a topic twice in one input",
        ),
        pytest.param(
            {"operators": (CURRENT, Upsert("again", "names"))},
            [
                (
                    "operators.again.upsert",
                    "operator 'current' already reads 'names'; use it, outputs may share "
                    "an operator",
                )
            ],
            id="two operators on one input",
        ),
        pytest.param(
            {"operators": (Upsert("current", "nmaes"),)},
            [("operators.current.upsert", "there is no input 'nmaes'; did you mean \"names\"?")],
            id="an input that is not there",
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, source="curent"),)},
            [("outputs.diffs.from", "there is no operator 'curent'; did you mean \"current\"?")],
            id="an operator that is not there",
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, partitions=0),)},
            [("outputs.diffs.partitions", "must be at least 1")],
            id="no partitions",
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, name="errors"),)},
            [("outputs.errors", "the name is taken by the error topic")],
            id="an output named errors",
        ),
        pytest.param(
            {"inputs": (replace(NAMES, topics=("a b",)),)},
            [("inputs.names.topic", f"'a b' {NO_TOPIC}")],
            id="an input topic that cannot be",
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, topic=".."),)},
            [("outputs.diffs.topic", f"'..' {NO_TOPIC}")],
            id="a topic of dots",
        ),
        pytest.param(
            {"error_topic": "é"}, [("errors.topic", f"'é' {NO_TOPIC}")], id="an error topic so"
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, topic="d" * 241),)},
            [
                (
                    "outputs.diffs.topic",
                    f"'{'d' * 241}' is too long to have a topic '<topic>.progress' beside it",
                )
            ],
            id="a topic without room for progress",
        ),
        pytest.param(
            {"outputs": (replace(DIFFS, topic="names"),)},
            [("outputs.diffs.topic", "topic 'names' is also read, at inputs.names.topic")],
            id="reading and writing one topic",
        ),
        pytest.param(
            {"inputs": (replace(NAMES, topics=("diffs.progress",)),)},
            [
                (
                    "outputs.diffs.topic",
                    "topic 'diffs.progress' is also read, at inputs.names.topic",
                )
            ],
            id="reading its own progress",
        ),
        pytest.param(
            {"outputs": (DIFFS, Output("more", "current", "diffs.progress"))},
            [
                (
                    "outputs.more.topic",
                    "topic 'diffs.progress' is also written, at outputs.diffs.topic",
                )
            ],
            id="writing where progress is written",
        ),
        pytest.param(
            {"outputs": (DIFFS, Output("more", "current", "diffs"))},
            [
                ("outputs.more.topic", "topic 'diffs' is also written, at outputs.diffs.topic"),
                (
                    "outputs.more.topic",
                    "topic 'diffs.progress' is also written, at outputs.diffs.topic",
                ),
            ],
            id="two outputs in one topic",
        ),
        pytest.param(
            {"error_topic": "names"},
            [("errors.topic", "topic 'names' is also read, at inputs.names.topic")],
            id="errors where input is read",
        ),
        pytest.param(
            {
                "inputs": (replace(NAMES, name=""),),
                "outputs": (replace(DIFFS, source="x", partitions=-1),),
            },
            [
                ("inputs.", f"'' {NO_NAME}"),
                ("operators.current.upsert", "there is no input 'names'; there are "),
                ("outputs.diffs.from", "there is no operator 'x'; there are current"),
                ("outputs.diffs.partitions", "must be at least 1"),
            ],
            id="many at once",
        ),
    ],
)
def test_every_problem_is_named_by_its_path(
    changes: dict[str, Any], problems: list[tuple[str, str]]
) -> None:
    """All that does not fit is told at once, each with the part that it is about."""
    with pytest.raises(PlanError) as caught:
        checked(replace(PLAN, **changes))

    assert caught.value.problems == problems


def test_a_plan_error_lists_its_problems() -> None:
    """The message names the plan, then each problem with its path."""
    with pytest.raises(PlanError, match=r'^cannot plan "p": outputs: at least one is needed$'):
        checked(replace(PLAN, outputs=()))


@pytest.mark.parametrize(
    "does",
    [
        pytest.param(lambda plan: evaluate(plan, {}), id="evaluate"),
        pytest.param(Evaluation, id="Evaluation"),
        pytest.param(explained, id="explain"),
        pytest.param(
            lambda plan: PipelineRun(
                plan, Settings("/nowhere", {"bootstrap.servers": "nowhere:1"}), once=True
            ),
            id="run",
        ),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_before_anything_runs(
    does: Callable[[Plan], object],
) -> None:
    """It can be made, as any value can; whatever is done with it tells the problems."""
    wrong = replace(PLAN, outputs=())

    with pytest.raises(PlanError, match=r'^cannot plan "p": outputs: at least one is needed$'):
        does(wrong)


def test_a_refusal_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that has the functions may come to be there."""
    monkeypatch.syspath_prepend(tmp_path)
    machine = StateMachine("current", "names", "comes_later:step")
    plan = replace(PLAN, operators=(machine,))
    with pytest.raises(PlanError, match="comes_later"):
        checked(plan)

    (tmp_path / "comes_later.py").write_text("def step(states, event, time): return []\n")
    importlib.invalidate_caches()

    assert checked(plan) is plan


def test_outputs_may_share_an_operator() -> None:
    """A second topic of the same updates costs no state."""
    assert checked(replace(PLAN, outputs=(DIFFS, Output("more", "current", "more")))).outputs[1:]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(PLAN, name="q", error_topic="p.errors"), id="name"),
        pytest.param(replace(PLAN, error_topic="e"), id="error topic"),
        pytest.param(replace(PLAN, time="offset"), id="time domain"),
        pytest.param(replace(PLAN, inputs=(replace(NAMES, topics=("n",)),)), id="topic"),
        pytest.param(
            replace(PLAN, inputs=(replace(NAMES, topics=("names", "n")),)), id="a further topic"
        ),
        pytest.param(
            replace(PLAN, inputs=(replace(NAMES, topics=("n", "names")),)), id="order of topics"
        ),
        pytest.param(replace(PLAN, inputs=(replace(NAMES, value_format="bytes"),)), id="values"),
        pytest.param(replace(PLAN, inputs=(replace(NAMES, key_format="bytes"),)), id="keys"),
        pytest.param(replace(PLAN, inputs=(replace(NAMES, start="latest"),)), id="start"),
        pytest.param(
            replace(
                PLAN, operators=(Upsert("c", "names"),), outputs=(replace(DIFFS, source="c"),)
            ),
            id="operator",
        ),
        pytest.param(replace(PLAN, outputs=(replace(DIFFS, name="d"),)), id="output"),
        pytest.param(replace(PLAN, outputs=(replace(DIFFS, topic="d"),)), id="output topic"),
        pytest.param(replace(PLAN, outputs=(replace(DIFFS, partitions=3),)), id="partitions"),
    ],
)
def test_the_fingerprint_changes_when_the_plan_does(other: Plan) -> None:
    """A replay under another plan is known by it."""
    assert other != PLAN
    assert other.fingerprint() != PLAN.fingerprint()


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(replace(PLAN), id="a copy"),
        pytest.param(replace(PLAN, error_topic=""), id="the error topic left out"),
        pytest.param(replace(PLAN, error_topic="p.errors"), id="and spelt out"),
    ],
)
def test_equal_plans_have_one_fingerprint(same: Plan) -> None:
    """It does not depend on how the plan was written down."""
    assert same == PLAN
    assert same.fingerprint() == PLAN.fingerprint()


WRITING: tuple[OnError, ...] = ("record", "fail")


@pytest.mark.parametrize("before", WRITING)
def test_what_an_error_does_may_change_within_a_batch(before: OnError) -> None:
    """Else a batch that has failed on one could never be finished under another policy."""
    plan = replace(PLAN, on_error=before)
    metadata = metadata_of("here", plan, 1, SourceOffset(-1, 0, 0, {}, plan.fingerprint()))
    of_old = msgspec.structs.replace(metadata, plan={**metadata.plan, "on_error": before})

    for policy in WRITING:
        changed = replace(PLAN, on_error=policy)
        assert changed.fingerprint() == plan.fingerprint()
        assert metadata_after(metadata, changed) == metadata
        assert metadata_after(of_old, changed) == of_old


def test_whether_errors_are_written_is_a_part_of_the_plan() -> None:
    """They are taken back by an edit, which finishes what is on its way under the plan before."""
    written, dropped = PLAN, replace(PLAN, on_error="drop")
    metadata = metadata_of("here", written, 1, SourceOffset(-1, 0, 0, {}, written.fingerprint()))

    after = metadata_after(metadata, dropped)

    assert after.edits == metadata.edits + 1
    assert metadata_after(after, dropped) == after
    assert dropped.fingerprint() != written.fingerprint()
    for policy in WRITING:
        with pytest.raises(CheckpointError, match=r"errors\.policy was drop, is ") as refused:
            metadata_after(after, replace(PLAN, on_error=policy))
        assert "`ikebana recover`" in str(refused.value.hint)


def test_the_fingerprint_is_the_same_in_every_version() -> None:
    """Offset logs hold it: if this changes, running checkpoints are refused."""
    assert PLAN.fingerprint() == "4e844e97b18316f9"


def test_a_plan_that_travels_names_its_functions() -> None:
    """A function of a module goes by its name, and the fingerprint is the same."""
    plan = replace(
        PLAN,
        operators=(*PLAN.operators, Linear("l", PLAN.operators[0].name, (steps.map_(encode),))),
    )

    portable = plan.portable()

    assert portable.operators[-1] == Linear(
        "l",
        PLAN.operators[0].name,
        (steps.map_("ikebana.codecs.canonical:encode"),),
    )
    assert portable.fingerprint() == plan.fingerprint()


def test_a_function_without_a_module_cannot_travel() -> None:
    """It can be evaluated, and is refused by name where other processes would need it."""
    plan = replace(
        PLAN,
        operators=(
            *PLAN.operators,
            Linear("l", PLAN.operators[0].name, (steps.map_(lambda data: data),)),
        ),
    )

    with pytest.raises(
        PlanError, match=r"operators\.l\.map: .*<lambda> is no function of a module"
    ):
        plan.portable()


LSN = replace(NAMES, value_format="debezium-json", event_time=EventTime(clock="lsn"))
STAMPED = Input("stamped", ("stamped",), event_time=EventTime(clock="kafka"))


@pytest.mark.parametrize(
    ("inputs", "time", "problem"),
    [
        pytest.param((NAMES,), "offset", None, id="offsets alone"),
        pytest.param((NAMES, STAMPED), "ingest", None, id="milliseconds"),
        pytest.param((LSN,), "ingest", None, id="positions alone"),
        pytest.param(
            (NAMES, STAMPED),
            "offset",
            ("time", "offset does not go with inputs that have times of their own"),
            id="offsets beside milliseconds",
        ),
        pytest.param(
            (NAMES, Input("diffs", ("d",), "diff", mode="diffs")),
            "offset",
            ("time", "offset does not go with inputs that have times of their own"),
            id="offsets beside updates",
        ),
        pytest.param(
            (LSN, STAMPED),
            "ingest",
            ("inputs", "times in milliseconds and positions in a log are not of one axis"),
            id="milliseconds beside positions",
        ),
    ],
)
def test_a_plan_has_one_axis_of_time(
    inputs: tuple[Input, ...], time: Any, problem: tuple[str, str] | None
) -> None:
    """R8. Times of two kinds cannot be compared."""
    try:
        checked(Plan("p", inputs, (CURRENT,), (DIFFS,), time=time))
        found = []
    except PlanError as error:
        found = error.problems

    assert found == ([] if problem is None else [problem])
