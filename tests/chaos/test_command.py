"""What the command of the harness leaves out, and how lives are made up."""

from pathlib import Path

from chaos import report
from chaos.__main__ import _Run
from chaos.lives import _ALONE, _OF_PIPELINES, LASTING, ordered
from chaos.plans import UPSERT
from chaos.scenario import Result, scenarios

PAGE = Path(__file__).parents[2] / "docs" / "reliability-table.md"


def names(file: Path, seed: int, *, goes_on: bool) -> set[str]:
    known = scenarios()
    chosen = [known[name] for name in ("kill-all", "edit", "serve-kill")]
    found = _Run(chosen, file, LASTING, UPSERT, goes_on)._left(seed)
    return {one.name for one in found}


def test_what_the_report_has_is_left_out_when_it_goes_on(tmp_path: Path) -> None:
    """Of the same seed and plan, whatever came of it."""
    file = tmp_path / "report.jsonl"
    every = {"kill-all", "edit", "serve-kill"}
    assert names(file, 1, goes_on=True) == every
    report.append(file, Result("kill", "kill-all", 1, "exact", 1.0))
    report.append(file, Result("edit", "edit", 1, "exact", 1.0, plan="joined-edited"))
    report.append(file, Result("serve", "serve-kill", 1, "exact", 1.0, plan="joined"))

    assert names(file, 1, goes_on=True) == {"serve-kill"}
    assert names(file, 2, goes_on=True) == every
    assert names(file, 1, goes_on=False) == every


def test_every_scenario_is_in_a_life() -> None:
    """In one of its kind, or in one of several kinds."""
    every = scenarios().values()
    lives = ordered(every, 1)

    assert {one.name for life in lives for one in life} == {one.name for one in every}
    assert {one.kind for one in every} == {*_OF_PIPELINES, *_ALONE}


def test_the_page_has_the_table_of_the_reports_that_are_kept() -> None:
    """Made by `python -m chaos table --page docs/reliability-table.md`."""
    kept = report.kept()

    assert kept
    assert report.of_page(PAGE) == report.table(scenarios(), report.read(kept))


def test_the_summary_has_the_numbers_of_the_table() -> None:
    """Faults and scenarios, on the page that leads to the table."""
    last = report.of_page(PAGE).splitlines()[-1]

    assert last.partition(", seeds")[0] in (PAGE.parent / "reliability.md").read_text()


def test_a_report_tells_what_was_run_and_a_table_has_it(tmp_path: Path) -> None:
    """Reports of several versions may make up one table, also those that did not tell it."""
    file = tmp_path / "report.jsonl"
    report.append(file, Result("kill", "kill-all", 1, "exact", 1.0))
    report.append(file, Result("kill", "kill-all", 2, "exact", 3.0, version="abcdef0"))
    here, other = report.read([file])

    assert other.version == "abcdef0"
    assert here.version == report.version()
    made = report.table(scenarios(), [other])
    assert made.endswith("1 faults in 1 scenarios, seeds 2, commits `abcdef0`; 0 wrong.")
    here.version = ""
    assert report.table(scenarios(), [here]).endswith("seeds 1; 0 wrong.")
