"""What the docs show: fenced blocks, and command lines."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = tuple(sorted((ROOT / "docs" / "how-to").glob("*.md")))
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *HOW_TO)
EXAMPLES = tuple(sorted((ROOT / "examples").glob("*.yaml")))

IN_SQL = tuple(sorted((ROOT / "examples").glob("*.sql")))

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Indented lines of Markdown and of comments, up to a comment of the shell.
_COMMAND = re.compile(r"^(?:    |(?:#|--)   )((?:\w+=\S+ )*ikebana [^\n]*)$", re.MULTILINE)
# Those of other programs.
_OTHER = re.compile(
    r"^ {4,}((?:\w+=\S+ )*(?:make|python3?|pytest|pip|docker|helm|kubectl|curl|psql|git) "
    r"(?:[^\n]*\\\n)*[^\n]*)$",
    re.MULTILINE,
)


class Block(NamedTuple):
    """A fenced block of a page; its name is the page and its number among all blocks there."""

    name: str
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    """All blocks of a language."""
    found = []
    for page in PAGES:
        for number, match in enumerate(_FENCED.finditer(page.read_text()), 1):
            if match[1] == language:
                where = f"how-to/{page.stem}" if page in HOW_TO else page.stem
                found.append(Block(f"{where}-{number}", language, match[2]))
    return found


def named(name: str) -> Block:
    """The block of a name."""
    languages = ("yaml", "python", "json")
    (found,) = [b for language in languages for b in blocks(language) if b.name == name]
    return found


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """The words of each command line of `ikebana`, with the file that shows it."""
    for path in (*PAGES, *EXAMPLES, *IN_SQL):
        for match in _COMMAND.finditer(path.read_text()):
            yield path.name, _words(match[1])


def other_command_lines() -> Iterator[tuple[str, list[str]]]:
    """The words of each command line of another program, with the page that shows it."""
    for path in PAGES:
        for match in _OTHER.finditer(_FENCED.sub("", path.read_text())):
            yield path.name, _words(match[1])


def _words(line: str) -> list[str]:
    """The words of a command line, without comments and the variables before it."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    while "=" in words[0]:
        words = words[1:]
    return words
