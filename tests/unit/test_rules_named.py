"""Every rule of docs/rules.md is named at a test that guards it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# At the beginning of a test's docstring: "R4, R19. Then what it is about."
_NAMED = re.compile(r"((?:R\d+, )*R\d+)\. ")


def named() -> Iterator[tuple[str, str]]:
    """The rules that tests name, with the tests."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found = _NAMED.match(ast.get_docstring(node) or "")
                for rule in found[1].split(", ") if found else ():
                    yield rule, f"{path.name}::{node.name}"


def test_every_rule_is_named_at_a_test() -> None:
    """And no test names one that there is not."""
    rules = re.findall(r"^\* \*\*(R\d+)\.", (ROOT / "docs" / "rules.md").read_text(), flags=re.M)

    assert rules == [f"R{number}" for number in range(1, 21)]
    assert {rule for rule, _ in named()} == {*rules}
