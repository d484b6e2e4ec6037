"""What is large is split, or docs/decisions.md says why it is not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("arrangements", "codecs", "processor", "serving", "delivering", "deploy")
LINES, OF_FUNCTION, PARAMETERS, METHODS = 800, 50, 8, 15
_PARTS = (ast.FunctionDef, ast.AsyncFunctionDef)


def large(path: str, text: str) -> Iterator[str]:
    """What is large of a module, as `path` or `path::name`."""
    if text.count("\n") > LINES:
        yield path
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _PARTS) and _is_large(node):
            yield f"{path}::{node.name}"
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, _PARTS)]
            if len(methods) > METHODS:
                yield f"{path}::{node.name}"


def _is_large(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    assert function.end_lineno is not None
    own = function.args
    given = [each.arg for each in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
    parameters = len(given) - (given[:1] in (["self"], ["cls"]))
    return function.end_lineno - function.lineno >= OF_FUNCTION or parameters > PARAMETERS


def excused() -> set[str]:
    """What the section of the decisions lists, with its reason."""
    text = (ROOT / "docs" / "decisions.md").read_text()
    section = text.split("\n## What is large, and why\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \| .+ \|$", section, re.MULTILINE))


def test_what_is_large_has_a_reason() -> None:
    """A file of more than 800 lines, a function of more than 50, and so on."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    found = {
        each for path in paths for each in large(str(path.relative_to(ROOT)), path.read_text())
    }

    # Of what is compiled only the lines are looked at.
    for path in (ROOT / "compiled").glob("*.p?[dx]"):
        if path.read_text().count("\n") > LINES:
            found.add(str(path.relative_to(ROOT)))

    assert found - excused() == set()


def test_what_has_a_reason_is_there() -> None:
    """A part that is gone needs none."""
    for each in excused():
        path, _, name = each.partition("::")
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"\b(def|class) {name}\b", text), each


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\n" * 800, [], id="lines"),
        pytest.param("\n" * 801, ["a.py"], id="more lines"),
        pytest.param("def f():" + "\n    0" * 49, [], id="a function"),
        pytest.param("def f():" + "\n    0" * 50, ["a.py::f"], id="a long function"),
        pytest.param("def f(a, b, c, d, /, e, f, *, g, h): ...", [], id="parameters"),
        pytest.param("def f(a, b, c, d, /, e, f, *, g, h, i): ...", ["a.py::f"], id="more"),
        pytest.param(
            "class A:\n async def f(self, a, b, c, d, e, f, g, h): ...", [], id="of a method"
        ),
        pytest.param("class A:" + "\n def f(self): ..." * 15, [], id="a class"),
        pytest.param("class A:" + "\n def f(self): ..." * 16, ["a.py::A"], id="a large class"),
    ],
)
def test_what_is_large_is_seen(text: str, expected: list[str]) -> None:
    """And what is just not large is not."""
    assert list(large("a.py", text)) == expected
