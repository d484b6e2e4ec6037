"""The words and signs of SQL text, as DuckDB tells them apart."""

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

import duckdb


class Token(NamedTuple):
    """A word or sign: its kind in DuckDB's words, its text, and where that begins and ends."""

    kind: str
    text: str
    at: int
    end: int


def tokens(text: str) -> list[Token]:
    """All words and signs but comments.  A text or name that does not end is one to the end."""
    # DuckDB counts bytes; here characters are counted.
    bytes_before = list(accumulate((len(each.encode()) for each in text), initial=0))
    found = [(bisect_left(bytes_before, at), kind) for at, kind in duckdb.tokenize(text)]
    made = []
    for number, (at, kind) in enumerate(found):
        after = found[number + 1][0] if number + 1 < len(found) else len(text)
        own = text[at:after].rstrip()
        if kind != duckdb.token_type.comment:
            made.append(Token(str(kind).rpartition(".")[2], own, at, at + len(own)))
    return made
