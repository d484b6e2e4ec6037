"""The faults that bench/ puts into the code, one at a time, can still be put there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def benches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of bench/ can be imported within a test."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    yield
    for module in ("edge_faults", "edit_faults", "mutants", "rule_mutants"):
        sys.modules.pop(module, None)


def test_the_text_that_a_fault_replaces_stands_once_in_its_file() -> None:
    """Where the text has changed, `bench/rule_mutants.py` would stop."""
    import edge_faults
    import edit_faults
    import mutants
    import rule_mutants

    of_rules = (rule_mutants.FAULTS | edit_faults.FAULTS | edge_faults.FAULTS).values()
    faults = [(file, text) for _, file, text, _ in of_rules]
    faults += [(mutant.file, mutant.before) for mutant in mutants.MUTANTS]

    assert len(faults) > 100
    assert [fault for fault in faults if (ROOT / fault[0]).read_text().count(fault[1]) != 1] == []


def test_the_tests_of_a_fault_are_there() -> None:
    """A fault names a file of tests, or tests in it by the beginning of their names."""
    import edge_faults
    import edit_faults
    import rule_mutants

    named = {
        tests
        for tests, *_ in (rule_mutants.FAULTS | edit_faults.FAULTS | edge_faults.FAULTS).values()
    }

    for tests in named:
        file, _, name = tests.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / file).read_text(), tests
