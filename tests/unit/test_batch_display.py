"""What a run says of its batches."""

import io

import pytest
from rich.console import Console

from ikebana import Input, Output, Plan, Upsert
from ikebana.errors import LostError
from ikebana.processor.base.fast_paths import FastPath
from ikebana.processor.base.notices import Notice
from ikebana.processor.checkpoint.edit_description import EditDescription, FillSource, PartChange
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.watching.reports import BatchDisplay, BatchReport, Filling, RunStart, _Bar

PLAN = Plan(
    "p",
    inputs=(Input("i", ("in",)),),
    operators=(Upsert("o", "i"),),
    outputs=(Output("d", "o", "out"),),
)


def test_what_was_counted_is_summed_up_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Late records are not said to be ignored, for they count."""
    with BatchDisplay(PLAN, once=True) as display:
        for counted in ({"late": 3}, {"late": 4, "heartbeat": 1, "drift": 2, "dropped table": 1}):
            counts = {"d": 5, "errors": 0}
            display.batch(BatchReport(0, 0, 1, 10, 0, counts, counted, 0, 0.1, []))
        display.done(stopped=False)

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "p: caught up after 2 batches, 20 records, 10 updates; 2 old images unlike the state, "
        "1 dropped tables, whose rows stay, "
        "1 heartbeat messages ignored, 7 late records that count at the frontier, frontier 1"
    )


def test_one_error_is_not_several(capsys: pytest.CaptureFixture[str]) -> None:
    """A count stands with its noun in singular or plural, also where some errors have ended."""
    with BatchDisplay(PLAN, once=True) as display:
        for errors, batch, total in ((1, "1 change", "1 change"), (2, "2 changes", "3 changes")):
            counts = {"d": 1, "errors": errors}
            display.batch(BatchReport(0, 0, 1, 1, 0, counts, {}, 0, 0.1, []))
            display.done(stopped=False)
            said = capsys.readouterr().err
            assert f", {batch} of errors on {PLAN.error_topic}\n" in said
            assert f", {total} of errors, frontier 1" in said


def test_owners_that_a_batch_has_missed_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with the other ways; a run that has said that it has none says no more."""
    batch = BatchReport(0, 0, 1, 1, 0, {"d": 1, "errors": 0}, {}, 0, 0.1, [], owned=False)
    for why_not, warnings in (("", 1), ("a session was given", 0)):
        with BatchDisplay(PLAN, once=True) as display:
            paths = (FastPath("owners", why_not), FastPath("forks"))
            display.started(RunStart("c", 1, fast_paths=paths))
            for _ in range(2):
                display.batch(batch)
        said = capsys.readouterr().err
        assert said.count("warning: fast paths: owners no (Spark's Python has found no host") == (
            warnings
        )


def test_a_narrow_terminal_shows_all_that_there_is_to_say() -> None:
    """What is said stands below the bar, in as many lines as it needs."""
    console = Console(width=30, force_terminal=True, file=io.StringIO())
    bar = _Bar(console)
    bar.add_task("whereabouts", total=None)
    bar.tell("batch 7: 1,000 records in 0.5 s, 12 updates so far, frontier 99")

    lines = console.render_lines(bar.get_renderable(), pad=False)
    shown = ["".join(part.text for part in line).strip() for line in lines]

    assert all(len(line) <= 30 for line in shown)
    assert " ".join(shown[1:]) == "batch 7: 1,000 records in 0.5 s, 12 updates so far, frontier 99"


def test_what_an_edit_fills_is_told_with_the_keys_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each batch of it in the beginning, though it reads nothing."""
    counts = {"d": 0, "errors": 0}
    with BatchDisplay(PLAN, once=False) as display:
        for done, keys in ((0, 40_000), (1, 10_000)):
            filling = Filling(done, 2, ("totals", "named")[done], done / 2, keys)
            display.batch(BatchReport(done, 9, 9, 0, 0, counts, {}, 0, 0.1, [], 0, filling))

    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("filling after an edit: part 1 of 2 (totals), 40,000 keys so far")
    assert second.endswith("filling after an edit: part 2 of 2 (named), 50,000 keys so far")


def test_the_bar_is_of_what_is_filled_as_long_as_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then it is of records again."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    counts = {"d": 0, "errors": 0}
    with BatchDisplay(PLAN, once=True) as display:
        (task,) = display._bar.tasks
        filling = Filling(1, 4, "totals", 0.25, 5)
        display.batch(BatchReport(1, 9, 9, 0, 0, counts, {}, 0, 0.1, [], 0, filling))
        assert (task.completed, task.total) == (0.25, 1.0)
        display.batch(BatchReport(2, 9, 12, 3, 7, counts, {}, 0, 0.1, []))
        assert (task.completed, task.total) == (3, 10)


def test_an_edit_is_told_in_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Its gist, as `ikebana plan` has it."""
    parts = (
        PartChange(
            "operator", "totals", "replaced", filled_from=(FillSource("state", "order", 12),)
        ),
        PartChange("output", "t", "replaced", shows="difference", topic="t"),
    )
    with BatchDisplay(PLAN, once=True) as display:
        display.edit(EditDescription("p", "c", edited=True, parts=parts, frontier=7))

    assert capsys.readouterr().err.splitlines() == [
        "p: the plan changes at frontier 7: 2 replaced; 1 output gets the difference",
        "p: replaced operator totals, output t",
        "p: filled from the state of order",
    ]


def test_a_restart_is_told_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """And when the query is started again."""
    with BatchDisplay(PLAN, once=False) as display:
        display.restart(LostError("a Python worker was lost", hint="Look."), 4.0)

    assert capsys.readouterr().err.splitlines() == [
        "p: a Python worker was lost; starting again in 4 s",
        "starting again …",
    ]


def test_a_run_ends_with_what_waits_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """What was read and is not published is not passed over, be it of this run or before."""
    inputs = InputsState(40, {"orders": 90, "customers": 40}, [], ["customers"], ahead=True)
    for batches in (0, 1):
        with BatchDisplay(PLAN, once=True) as display:
            display.started(RunStart("c", 1, inputs=lambda: inputs, waiting=22))
            for _ in range(batches):
                counts = {"d": 0, "errors": 0}
                display.batch(BatchReport(0, 0, 40, 22, 0, counts, {}, 0, 0.1, [], 22))
            display.done(stopped=False)

        lines = capsys.readouterr().err.splitlines()
        assert lines[-1] == (
            "p: 22 records wait for customers to come past 40 "
            "(customers is at 40, orders is at 90)"
        )
        assert all(line.endswith("wait for customers to come past 40") for line in lines[:batches])


def test_a_notice_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With all that there is to say; again only when it is another one."""
    first = Notice("column", "i", "nom", "i: no message of 2 has nom", "; they have name")
    again = Notice("column", "i", "nom", "i: no message of 9 has nom", "; they have name")
    with BatchDisplay(PLAN, once=False) as display:
        display.notice([first])
        display.notice([again])
        display.notice([again, Notice("errors", "i", "i", "i: all are errors")])

    assert capsys.readouterr().err.splitlines() == [
        "p: warning: i: no message of 2 has nom; they have name",
        "p: warning: i: all are errors",
    ]
