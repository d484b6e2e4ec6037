"""Links of the docs, and imports in texts, lead to what exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.doc_blocks import PAGES, ROOT

ALL_PAGES = (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


def broken(page: Path) -> Iterator[str]:
    """Links of a page to what is not there; the web's are not asked."""
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            yield link


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Also those to a heading of a page."""
    assert list(broken(page)) == []


_NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]*[\w-]+(?:\.(?:py|md|json|yaml|conf)|/))`")


def test_what_architecture_names_is_there() -> None:
    """Files and folders, each by enough of the end of its path."""
    tops = (
        "arrangements",
        "bench",
        "codecs",
        "compiled",
        "delivering",
        "deploy",
        "docs",
        "examples",
        "helm",
        "processor",
        "serving",
        "src",
        "tests",
    )
    paths = [path for top in tops for path in ((ROOT / top), *(ROOT / top).rglob("*"))]
    known = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    pages = ("ARCHITECTURE.md", "CONTRIBUTING.md")
    named = [name for page in pages for name in _NAMED.findall((ROOT / page).read_text())]

    assert "codecs/formats.py" in named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in known)] == []


@pytest.mark.parametrize("link", ["other.md", "other.md#sparks-files", "#here"])
def test_a_link_that_leads_somewhere_is_left_alone(tmp_path: Path, link: str) -> None:
    """To a file, to a heading of it, and to one of the page itself."""
    assert list(broken(_page(tmp_path, link))) == []


@pytest.mark.parametrize("link", ["none.md", "other.md#nowhere", "#sparks-files"])
def test_a_broken_link_is_seen(tmp_path: Path, link: str) -> None:
    """Of a missing file and of a missing heading."""
    assert list(broken(_page(tmp_path, link))) == [link]


def _page(folder: Path, link: str) -> Path:
    """A page with a link, beside another page."""
    (folder / "other.md").write_text("# Spark's files\n")
    (page := folder / "page.md").write_text(f"## Here\n\n[a link]({link})\n")
    return page


_IMPORT = re.compile(r"^\s*from (ikebana(?:\.\w+)*) import (\w+(?:, \w+)*)$", re.MULTILINE)


def programs(path: Path) -> Iterator[str]:
    """The texts in a module of Python: programs that tests and benchmarks run are among them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def has(module: str, name: str) -> bool:
    """Whether a module of ikebana defines or imports a name, or has a submodule of it."""
    path = ROOT.joinpath("src", *module.split("."))
    if path.is_dir():
        if (path / name).is_dir() or (path / f"{name}.py").exists():
            return True
        path /= "__init__"
    source = path.with_suffix(".py")
    return source.exists() and re.search(rf"\b{name}\b", source.read_text()) is not None


def test_programs_in_texts_import_what_is_there() -> None:
    """No other check reads them, and the tests that run them may take minutes."""
    paths = [path for top in ("tests", "bench", "docs") for path in (ROOT / top).rglob("*.py")]
    imports = {
        (path.name, module, name)
        for path in paths
        for text in programs(path)
        for module, names in _IMPORT.findall(text)
        for name in names.split(", ")
    }

    assert ("test_scaled.py", "ikebana.processor.spark.executors", "ask_for") in imports
    assert [each for each in sorted(imports) if not has(*each[1:])] == []


# Names in docstrings that no code of ours has: of others, in statements, in examples.
_OTHERS = {
    "gc.get_freeze_count",
    "ikebana_bad",
    "json_transform",
    "o.custkey",
    "output_primary_key_columns",
}
_TEXT = re.compile(r'"""[\s\S]*?"""|(?m:^\s*#.*$)')
_NAME_IN_TEXT = re.compile(r"`([a-z]\w*(?:\.\w+)*)`")


def test_docstrings_name_what_is_there() -> None:
    """A module or a function that was renamed is renamed in the texts about it as well."""
    folders = ("arrangements", "codecs", "compiled", "delivering", "processor", "serving")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.p*[yxd]")]
    words = {word for page in ALL_PAGES for word in re.findall(r"\w+", page.read_text())}
    named = set()
    for path in paths:
        words |= {
            path.stem,
            path.parent.name,
            *re.findall(r"\w+", _TEXT.sub("", path.read_text())),
        }
        texts = " ".join(_TEXT.findall(path.read_text()))
        named |= {name for name in _NAME_IN_TEXT.findall(texts) if "_" in name or "." in name}

    assert len(named) > 300
    assert {name for name in named if name.rpartition(".")[2] not in words} == _OTHERS
