"""Decisions stand at the code that they explain; `bench/FIGURES.md` names each at its place."""

import re

from support.doc_blocks import ROOT

FOLDERS = ("arrangements", "codecs", "compiled", "delivering", "processor", "serving")
_DECISION = re.compile(r"^# Decision \(([^)]+)\): .*\n(?:# .*\n)*", re.MULTILINE)
_ROW = re.compile(r"^\| ([^|]+) \| `([^`]+\.py)` \| .+ \|$", re.MULTILINE)
DECISIONS = [
    (found[1], str(path.relative_to(ROOT)), found[0])
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    for found in _DECISION.finditer(path.read_text())
]


def test_a_decision_has_three_lines_at_most() -> None:
    """And a name that no other has."""
    assert len({name for name, _, _ in DECISIONS}) == len(DECISIONS) > 50
    assert [name for name, _, text in DECISIONS if text.count("\n") > 3] == []


def test_figures_belong_to_a_decision_at_its_place() -> None:
    text = (ROOT / "bench" / "FIGURES.md").read_text()
    section = text.split("\n## Figures behind decisions\n")[1]
    rows = set(_ROW.findall(section.split("\n## ")[0]))

    assert len(rows) > 30
    assert rows - {(name, path) for name, path, _ in DECISIONS} == set()
