"""Print words, pictures and reading ease of each page, now and at an earlier commit.

    python docs/measures.py [COMMIT]

Words and reading ease are those of prose, without code and the targets of links; words of tables
are in a column of their own.  Reading ease is Flesch's: 206.8 - 1.015 words a sentence - 84.6
syllables a word; 60 to 70 is plain English, below 30 an academic paper.  Syllables are counted by
groups of vowels.  Pages that only show another one are left out.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("README.md", "docs")
_SHOWS = "```{include}"

_CODE = re.compile(r"^ *(```|~~~)(?s:.*?)^ *\1$|<!--(?s:.*?)-->|^    .*$|^\[[^]]*\]: .*$", re.M)
_PICTURE = re.compile(r"!\[[^]]*\]\(|<img ")
_TABLE = re.compile(r"^\|.*$", re.M)
_LINK = re.compile(r"\]\([^)]*\)|</?\w[^>]*>")
_SENTENCE = re.compile(r"[.:;?!]\**(?=\s|$)|\n\n|\n *[*-] ")
_WORD = re.compile(r"[A-Za-z][\w'-]*")
_VOWELS = re.compile(r"[aeiouy]+")


class Page(NamedTuple):
    """The measures of a page."""

    words: int
    in_tables: int
    pictures: int
    ease: float


def measured(text: str) -> Page:
    """Measure a page of Markdown."""
    pictures = len(_PICTURE.findall(text))
    text = _LINK.sub("", _CODE.sub("", text))
    tables = " ".join(_TABLE.findall(text))
    prose = re.sub(r"`[^`]*`", "code", _TABLE.sub("", text))
    words = _WORD.findall(prose)
    sentences = sum(bool(_WORD.search(part)) for part in _SENTENCE.split(prose))
    ease = 0.0
    if words:
        syllables = sum(map(_syllables, words))
        ease = 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)
    return Page(len(words), len(_WORD.findall(tables)), pictures, ease)


def _syllables(word: str) -> int:
    word = word.lower()
    silent = word.endswith("e") and not word.endswith("le") and len(word) > 2
    return max(1, len(_VOWELS.findall(word)) - silent)


def pages_now() -> dict[str, Page]:
    """The pages of the work tree, by path."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        path.relative_to(ROOT).as_posix(): measured(path.read_text())
        for path in files
        if "reference" not in path.parts and _SHOWS not in path.read_text()
    }


def pages_at(commit: str) -> dict[str, Page]:
    """The pages of a commit, by path."""
    git = ("git", "-C", str(ROOT))
    listed = subprocess.check_output([*git, "ls-tree", "-r", "--name-only", commit, *PLACES])
    texts = {
        path: subprocess.check_output([*git, "show", f"{commit}:{path}"]).decode()
        for path in listed.decode().splitlines()
        if path.endswith(".md")
    }
    return {path: measured(text) for path, text in texts.items() if _SHOWS not in text}


def rows(pages: Mapping[str, Page]) -> list[str]:
    """A line for each page, and one for all."""
    lines = [f"{'page':<34}{'words':>8}{'in tables':>11}{'pictures':>10}{'ease':>6}"]
    for path, page in pages.items():
        name = path.removeprefix("docs/")
        lines.append(
            f"{name:<34}{page.words:>8,}{page.in_tables:>11,}{page.pictures:>10}{page.ease:>6.0f}"
        )
    words = sum(page.words for page in pages.values())
    ease = sum(page.ease * page.words for page in pages.values()) / words
    tables, pictures = (sum(page[at] for page in pages.values()) for at in (1, 2))
    name = f"{len(pages)} pages"
    longest = max(page.words + page.in_tables for page in pages.values())
    without = sum(not page.pictures for page in pages.values())
    return [
        *lines,
        f"{name:<34}{words:>8,}{tables:>11,}{pictures:>10}{ease:>6.0f}",
        f"longest page {longest:,} words; {without} pages without a picture",
    ]


def main() -> None:
    """Print the measures."""
    print(*rows(pages_now()), sep="\n")
    for commit in sys.argv[1:]:
        print("", f"at {commit}:", *rows(pages_at(commit)), sep="\n")


if __name__ == "__main__":
    main()
