"""Pages are written for readers in a hurry: no riddles, and lines of 100 columns."""

import re
import runpy
from pathlib import Path

import click
import pytest

from ikebana.processor.cli.main import cli
from support.doc_blocks import PAGES, ROOT

WRAP = runpy.run_path(str(ROOT / "docs" / "wrap.py"))
# What may not be said, and what to say in its place.
PHRASES = {
    r"(?:take|takes|took|taken|taking) back": "retract",
    r"on (?:its|their) way": "pending",
    r"of before": "previous, or old",
    r"(?:all|what) that there (?:is|are)|as there (?:is|are)": "everything",
    r"what is left of": "the rest",
    r"(?:unless|are|is|not) told|told otherwise": "by default; says",
    r"anew": "again",
    r"(?:lie|lies|lay|lain) in": "is in",
    r"(?:stand|stands|stood) (?:still|below|above|beside)": "makes no progress; is below",
    r"(?:is|are) through": "is done",
    r"at the most|at the least": "at most",
    r"(?:that|those) of": "the noun again",
}
_CODE = re.compile(r"^ *(```|~~~).*?^ *\1$|`[^`]*`|^<!-- made by .*?^<!-- end -->", re.M | re.S)


def riddles(text: str) -> list[str]:
    """The phrases of a page that are on the list, outside of code and generated tables."""
    words = re.sub(r"\s+", " ", _CODE.sub("", text))
    return [
        f"{found[0]!r}: say {better!r}"
        for phrase, better in PHRASES.items()
        for found in re.finditer(rf"\b(?:{phrase})\b", words, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_phrase_of_the_list(page: Path) -> None:
    assert riddles(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_of_a_page_are_wrapped(page: Path) -> None:
    """`python docs/wrap.py PAGE` does it; tables, code and links may be longer."""
    assert list(WRAP["long_lines"](page.read_text())) == []


def test_help_texts_have_no_phrase_of_the_list() -> None:
    """Of the commands, and of their options."""
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        texts = [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
        assert riddles("\n\n".join(texts)) == [], name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "A row is taken\nback.", ["'taken back': say 'retract'"], id="over two lines"
        ),
        pytest.param("`taken back` is what an error says.", [], id="in code"),
        pytest.param("```\ntaken back\n```\n", [], id="in a block"),
    ],
)
def test_a_phrase_is_seen(text: str, expected: list[str]) -> None:
    assert riddles(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("word " * 30, "word " * 19 + "word\n" + "word " * 9 + "word\n", id="prose"),
        pytest.param(
            "* " + "word " * 30,
            "* " + "word " * 18 + "word\n  " + "word " * 10 + "word\n",
            id="item",
        ),
        pytest.param("short\nlines\n", "short lines\n", id="joined"),
        pytest.param("    " + "code " * 30, "    " + "code " * 30 + "\n", id="code"),
        pytest.param("| " + "cell " * 30 + "|", "| " + "cell " * 30 + "|\n", id="table"),
        pytest.param(
            "```\n" + "code " * 30 + "\n```", "```\n" + "code " * 30 + "\n```\n", id="block"
        ),
        pytest.param("# " + "head " * 30, "# " + "head " * 30 + "\n", id="heading"),
        pytest.param("word " * 19 + "so - not", "word " * 19 + "so -\nnot\n", id="no list"),
    ],
)
def test_only_paragraphs_are_wrapped(text: str, expected: str) -> None:
    """And what is wrapped stays as it is."""
    wrapped = WRAP["wrapped"](text)

    assert wrapped == expected
    assert WRAP["wrapped"](wrapped) == wrapped
