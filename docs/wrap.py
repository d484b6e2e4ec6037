"""Wrap the paragraphs and lists of Markdown pages at 100 columns; all else stays as it is.

python docs/wrap.py docs/running.md ...

Code, tables, headings, comments and HTML are left alone, so are links and code in a line, and what
programs write between `<!-- made by ... -->` and `<!-- end -->`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WIDTH = 100

_FENCE = re.compile(r" *(`{3,}|~{3,}|:{3,})")
_KEPT = re.compile(r" *(#|\||<|!\[[^]]*\]\([^)]*\)$|\[[^]]+\]: )")
_ITEM = re.compile(r"( *)([-*+]|\d+[.)]|:) +(?=\S)")
_WORD = re.compile(r"(?:`+[^`]+`+|\S)+")
# What would begin a list, a heading or a quotation at the start of a line.
_MARK = re.compile(r"([-+*>|:=]|#+|\d+[.)])$")


class Part(NamedTuple):
    """Lines of a page; prose has what its first line and what its others begin with."""

    lines: list[str]
    first: str | None = None
    others: str = ""


def parts(text: str) -> Iterator[Part]:
    """Take a page apart into paragraphs and what is no paragraph."""
    lines = text.splitlines()
    at, column = 0, 0
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < column:
            column = 0
        end = _end_of_kept(lines, at, code=indent >= column + 4)
        if end > at:
            yield Part(lines[at:end])
            at = end
            continue
        first = line[:indent]
        if item := _ITEM.match(line):
            first, column = item[0], len(item[0])
        end = at + 1
        while end < len(lines) and not _begins(lines, end):
            end += 1
        yield Part(lines[at:end], first, " " * len(first))
        at = end


def _end_of_kept(lines: list[str], at: int, *, code: bool) -> int:
    """Where a part ends that is no paragraph; `at` if one begins here."""
    line = lines[at]
    if fence := _FENCE.match(line):
        closing = (n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1])
        return next(closing, len(lines) - 1) + 1
    if line.lstrip().startswith("<!--"):
        end = "<!-- end -->" if "made by" in line else "-->"
        closing = (n for n in range(at, len(lines)) if end in lines[n])
        return next(closing, len(lines) - 1) + 1
    return at + 1 if not line.strip() or code or _KEPT.match(line) else at


def _begins(lines: list[str], at: int) -> bool:
    """Whether a line ends the paragraph before it."""
    return _end_of_kept(lines, at, code=False) > at or _ITEM.match(lines[at]) is not None


def words(text: str) -> list[str]:
    """The words of a paragraph between which a line may end."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if found and _MARK.match(word):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _filled(part: Part) -> Iterator[str]:
    assert part.first is not None
    text = " ".join(line.strip() for line in part.lines)
    line = part.first
    for word in words(text.removeprefix(part.first.strip())):
        if line.strip() != part.first.strip() and len(line) + 1 + len(word) > WIDTH:
            yield line
            line = part.others
        line += word if line in (part.first, part.others) else f" {word}"
    yield line


def wrapped(text: str) -> str:
    """A page with its paragraphs wrapped."""
    lines: list[str] = []
    for part in parts(text):
        lines += part.lines if part.first is None else _filled(part)
    return "\n".join(lines) + "\n"


def long_lines(text: str) -> Iterator[str]:
    """Lines of paragraphs that are too long, and could be broken."""
    for part in parts(text):
        if part.first is not None:
            yield from (line for line in part.lines if len(line) > WIDTH and len(words(line)) > 1)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(wrapped(page.read_text()))
