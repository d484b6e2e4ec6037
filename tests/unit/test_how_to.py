"""docs/how-to: short pages, each of one form, and each does what it says in a folder of its own.

A block that begins with the name of a file, as in `# shop.yaml`, is that file.  Other blocks of
Python run in order, in the folder with these files; a block of text behind one is what it prints.
With IKEBANA_GOLDEN=write the pages get what is printed.
"""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

import ikebana as ik
from support.doc_blocks import HOW_TO, ROOT

LIMIT = 800
# What they show needs a broker: tests/kafka/test_serve_command.py runs it.
NEED_A_BROKER = {"serve"}

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|--) ([\w-]+\.(?:yaml|sql|py))\n")
# What every page has, in this order; sections of its own may stand between.
_HEADINGS = ["Example", "What you see", "What goes wrong", "Read more"]


def done(page: Path, folder: Path) -> str:
    """The page, with what its blocks print in their place."""
    text = page.read_text()
    found = list(_FENCED.finditer(text))
    for each in found:
        if named := _FILE.match(each[2]):
            (folder / named[1]).write_text(each[2])
    for path in folder.glob("*.sql"):
        assert ik.load(path.name, environ={}).plan().outputs, path.name
    printed: str | None = None
    parts, end = [], 0
    for each in found:
        if each[1] == "text" and printed is not None:
            parts += [text[end : each.start(2)], printed]
            end = each.end(2)
        printed = None
        if each[1] == "python" and not _FILE.match(each[2]):
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(each[2], page.name, "exec"), {"__name__": page.stem})
            printed = said.getvalue()
    return "".join([*parts, text[end:]])


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipelines are pipelines, and its programs print what it shows."""
    if page.stem in NEED_A_BROKER:
        pytest.skip("tests/kafka/test_serve_command.py runs it")
    monkeypatch.chdir(tmp_path)
    told = done(page, tmp_path)
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        page.write_text(told)

    assert told == page.read_text()


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_page_is_short_and_has_the_form_of_all(page: Path) -> None:
    """What you want, an example, what you see, what goes wrong, and where to read more."""
    text = page.read_text()
    headings = re.findall(r"^## (.*)$", _FENCED.sub("", text), re.MULTILINE)

    assert len(text.split()) <= LIMIT
    assert text.split("\n\n")[1].startswith("**You want**")
    assert [each for each in headings if each in _HEADINGS] == _HEADINGS


def test_all_pages_are_in_the_index() -> None:
    """In the list of docs/how-to.md, and in the tree of the site."""
    listed = set(re.findall(r"\]\(how-to/([\w-]+)\.md\)", (ROOT / "docs/how-to.md").read_text()))
    tree = set(re.findall(r"^how-to/([\w-]+)$", (ROOT / "docs/index.md").read_text(), re.M))

    assert listed == tree == {page.stem for page in HOW_TO}
