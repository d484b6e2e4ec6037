"""Names say what a value is, and the name of a type means one type."""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("arrangements", "codecs", "compiled", "delivering", "processor", "serving", "src")
EMPTY = {"found", "told", "made", "own", "given", "taken", "kept", "known", "wanted"}
# No part of a longer name, either.
EMPTY_PARTS = {"found", "told", "made", "given", "taken", "kept", "wanted"}
TERMS = {
    "given_up": "a time that an output gives up, in progress records",
    "kept_bytes": "a field of the answer of `ikebana plan --json`",
    "connection_made": "a method of asyncio's protocols",
    "not_found": "the status of HTTP",
}
# By file and name: why it stays.
EXCUSED = {
    ("codecs/avro_compiler.py", "wanted"): "the compiled decoder reads this field",
}


@functools.cache
def modules() -> dict[str, ast.Module]:
    """The product's modules by their paths; `src` has links to the other folders."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    return {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in paths}


def names(tree: ast.AST) -> Iterator[str]:
    """The names that a module gives to values, parameters, functions, types and imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def public_types(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield name
            case ast.Assign([ast.Name(id=name)], ast.Call(ast.Name(id="TypeVar" | "ParamSpec"))):
                continue
            case ast.Assign([ast.Name(id=name)]) if name[0].isupper() and not name.isupper():
                yield name


def is_empty(name: str) -> bool:
    bare = name.lower().strip("_")
    return bare in EMPTY or (bare not in TERMS and not EMPTY_PARTS.isdisjoint(bare.split("_")))


def test_names_are_found_wherever_python_binds_them() -> None:
    """Each of these lines binds one of the names that say nothing."""
    bound = [
        "found = 1",
        "for told in x: pass",
        "[own for own in x]",
        "def f(*, made): pass",
        "lambda given: 0",
        "self.taken = 1",
        "if (kept := x): pass",
        "def known(): pass",
        "class A:\n    wanted: int",
        "class Found: pass",
        "with x as found: pass",
        "import x as told",
        "try: pass\nexcept E as made: pass",
        "match x:\n    case [own, *_]: pass",
        "def rows_taken_back(): pass",
    ]
    for text in bound:
        assert any(map(is_empty, names(ast.parse(text)))), text
    assert not any(map(is_empty, names(ast.parse("x = found.told(made=own)"))))


def test_no_name_says_only_that_there_is_a_value() -> None:
    """A name is what the value is, and not that it was found, made or given."""
    empty = {
        (path, name) for path, tree in modules().items() for name in names(tree) if is_empty(name)
    }

    assert empty - EXCUSED.keys() == set()


def test_a_public_type_has_one_meaning() -> None:
    """Two modules have no class or alias of the same name; variables of types are no types."""
    types = Counter(name for tree in modules().values() for name in public_types(tree))
    assert {name for name, count in types.items() if count > 1} == set()
