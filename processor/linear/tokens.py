"""The tokens of SQL text, as DuckDB divides it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import duckdb


class Token(NamedTuple):
    """A token: its kind in DuckDB's words, its text, and where that begins and ends."""

    kind: str
    text: str
    at: int
    end: int


def tokens(text: str) -> list[Token]:
    """All tokens but comments.  A text or name without an end extends to the end."""
    # DuckDB counts bytes; here characters are counted.
    bytes_before = list(accumulate((len(each.encode()) for each in text), initial=0))
    starts = [(bisect_left(bytes_before, at), kind) for at, kind in duckdb.tokenize(text)]
    result = []
    for number, (at, kind) in enumerate(starts):
        after = starts[number + 1][0] if number + 1 < len(starts) else len(text)
        word = text[at:after].rstrip()
        if kind != duckdb.token_type.comment:
            result.append(Token(str(kind).rpartition(".")[2], word, at, at + len(word)))
    return result


def closing(lexemes: Sequence[Token], begin: int) -> int | None:
    """The index of the token that closes the parenthesis opened at `begin`; None if none does."""
    depth = 0
    for at in range(begin, len(lexemes)):
        depth += (lexemes[at].text == "(") - (lexemes[at].text == ")")
        if not depth:
            return at
    return None


class Part(NamedTuple):
    """A part of a text, and its place."""

    text: str
    at: int


def items(part: Part) -> Iterator[Part]:
    """The parts between commas that are in no parentheses or brackets."""
    depth, begin = 0, 0
    for token in tokens(part.text):
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and not depth:
            yield Part(part.text[begin : token.at], part.at + begin)
            begin = token.end
    yield Part(part.text[begin:], part.at + begin)


def replaced(text: str, begin: int, end: int, by: str = "") -> str:
    """The text with a part replaced by a shorter one and spaces, so that places stay right."""
    rest = text[begin + len(by) : end]
    return text[:begin] + by + "".join("\n" if c == "\n" else " " for c in rest) + text[end:]


def unquoted(token: Token) -> str:
    """The name that a token is."""
    text = token.text
    return text[1:-1].replace('""', '"') if text.startswith('"') else text
