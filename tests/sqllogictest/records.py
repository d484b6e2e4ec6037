"""What a file of sqllogictest has: statements and queries, with loops written out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

# Whose conditions `skipif` and `onlyif` are ours.
ENGINES = {"ikebana", "duckdb"}
# What DuckDB's tests require of a build and any of it has.
_THERE = {"skip_reload", "vector_size", "no_alternative_verify", "noforcestorage", "64bit"}
# Behind these the rest of a file depends on what there is none of here.
_ENDS = {"halt", "load", "restart", "reconnect", "unzip", "include", "require-env", "tags"}
_SORTS = {"nosort", "rowsort", "valuesort", "sort"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that changes tables, or is to fail."""

    sql: str
    place: str
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A query: a letter for the type of each column, how results are sorted, and the results."""

    sql: str
    place: str
    types: str
    sort: str
    lines: tuple[str, ...]


Record = Statement | Query


class FormatError(Exception):
    """A file is not of this format; the message has the place."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines without an empty one between them, and the number of the first."""

    number: int
    lines: tuple[str, ...]


def read(path: Path) -> Iterator[Record]:
    """The records of a file in their order.  Raises: FormatError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: {error}") from None
    yield from records(text, str(path))


def records(text: str, name: str) -> Iterator[Record]:
    """The records of a text in their order; `name` is that of the file.  Raises: FormatError.

    >>> text = '''
    ... loop i 1 3
    ...
    ... query I rowsort
    ... SELECT ${i}
    ... ----
    ... ${i}
    ...
    ... endloop
    ... '''
    >>> [(each.sql, each.lines) for each in records(text, "f")]
    [('SELECT 1', ('1',)), ('SELECT 2', ('2',))]
    """
    blocks = list(_blocks(text))
    yield from _in_order(blocks, name, {}, _Reading())


@dataclass(slots=True)
class _Reading:
    """Whether a file is at its end, and whether records are left out."""

    is_at_end: bool = False
    skips: bool = False


def _blocks(text: str) -> Iterator[_Block]:
    begin, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            if line.startswith("#") and not lines:
                continue
            if not lines:
                begin = number
            lines.append(line.rstrip("\r"))
        elif lines:
            yield _Block(begin, tuple(lines))
            lines = []


def _in_order(
    blocks: Sequence[_Block], name: str, variables: Mapping[str, str], reading: _Reading
) -> Iterator[Record]:
    at = 0
    while at < len(blocks) and not reading.is_at_end:
        block = blocks[at]
        words = _given(block.lines[0], variables).split()
        if words[0] in ("loop", "foreach", "concurrentloop", "concurrentforeach"):
            end = _end_of_loop(blocks, at, name)
            # Lines behind the head of a loop belong to its first record.
            first = [_Block(block.number + 1, block.lines[1:])] if block.lines[1:] else []
            for value in _values(words):
                inner = {**variables, words[1]: value}
                yield from _in_order([*first, *blocks[at + 1 : end]], name, inner, reading)
            at = end + 1
            continue
        found = _record(block, name, variables, reading)
        if found is not None and not reading.skips:
            yield found
        at += 1


def _end_of_loop(blocks: Sequence[_Block], at: int, name: str) -> int:
    depth = 0
    for each in range(at, len(blocks)):
        word = blocks[each].lines[0].split()[0]
        depth += word in ("loop", "foreach", "concurrentloop", "concurrentforeach")
        depth -= word == "endloop"
        if depth == 0:
            return each
    raise FormatError(f"{name}:{blocks[at].number}: there is no endloop")


def _values(words: Sequence[str]) -> list[str]:
    if words[0].endswith("foreach"):
        return [each for word in words[2:] for each in _LISTS.get(word, (word,))]
    return [str(each) for each in range(int(words[2]), int(words[3]))]


_WHOLE = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_UNSIGNED = ("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint")
_LISTS = {
    "<compression>": ("none",),
    "<integral>": _WHOLE,
    "<signed>": _WHOLE,
    "<unsigned>": _UNSIGNED,
    "<numeric>": (*_WHOLE, "float", "double"),
    "<alltypes>": ("bool", "interval", "varchar", *_WHOLE, "float", "double"),
    "<all_types_columns>": (),
}


def _given(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value).replace(f"{{{name}}}", value)
    return text


def _record(
    block: _Block, name: str, variables: Mapping[str, str], reading: _Reading
) -> Record | None:
    """The record of a block; None for one that says something of others, or is of others."""
    numbers = count(block.number)
    lines = [_given(line, variables) for line in block.lines]
    while lines:
        place = f"{name}:{next(numbers)}"
        head, *lines = lines
        words = head.split()
        match words[0]:
            case "skipif" if words[1] in ENGINES:
                return None
            case "onlyif" if words[1] not in ENGINES:
                return None
            case "skipif" | "onlyif" | "endloop":
                continue
            case "statement":
                return _statement(words, lines, place)
            case "query":
                return _query(words, lines, place)
            case "mode":
                reading.skips = words[1] == "skip" or (reading.skips and words[1] != "unskip")
            case "require" if words[1] not in _THERE:
                reading.is_at_end = True
            case word if word in _ENDS:
                reading.is_at_end = True
            case _ if head.startswith("#"):
                continue
        if words[0] not in ("mode", "hash-threshold", "require", "set", "sleep"):
            return None
    return None


def _statement(words: Sequence[str], lines: Sequence[str], place: str) -> Statement:
    sql = list(lines)
    if "----" in sql:
        del sql[sql.index("----") :]
    return Statement(_sql(sql), place, fails=words[1] != "ok")


def _query(words: Sequence[str], lines: Sequence[str], place: str) -> Query | None:
    if words[1] == "error" or "----" not in lines:
        return None
    at = lines.index("----")
    sort = next((word for word in words[2:] if word in _SORTS), "nosort")
    sort = "rowsort" if sort == "sort" else sort
    return Query(_sql(lines[:at]), place, words[1], sort, tuple(lines[at + 1 :]))


def _sql(lines: Sequence[str]) -> str:
    return re.sub(r"[;\s]+$", "", "\n".join(lines))
