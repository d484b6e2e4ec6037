"""Repair of texts that a comma splits in YAML's flow style: `{rate: DECIMAL(18, 6)}`."""

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

import yaml


class Whole(NamedTuple):
    """The text that was meant, and how many keys or items after the first belong to it."""

    text: str
    others: int


def whole_value(value: yaml.Node, pairs: list[tuple[yaml.Node, yaml.Node]]) -> Whole | None:
    """Join a value of a mapping with the keys after it, if a comma split one text."""
    cut_off = takewhile(lambda pair: _is_empty(pair[1]), pairs)
    return whole_item(value, (key for key, _ in cut_off))


def whole_item(first: yaml.Node, others: Iterable[yaml.Node]) -> Whole | None:
    """Join an item of a list with the items after it, until its parentheses are closed."""
    if not _is_plain(first) or _opened(first) <= 0:
        return None
    opened = _opened(first)
    for count, other in enumerate(others, 1):
        if not _is_plain(other):
            return None
        opened += _opened(other)
        if opened <= 0:
            start, end = first.start_mark, other.end_mark
            text = (start.buffer or "")[start.pointer : end.pointer]
            return Whole(" ".join(text.split()), count)
    return None


def quoted(text: str) -> str:
    """A text in double quotes, or in single ones if it has only double quotes.

    >>> print(quoted("DECIMAL(18,6)"), quoted('top(3, "at")'))
    "DECIMAL(18,6)" 'top(3, "at")'
    """
    if '"' in text and "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _is_empty(node: yaml.Node) -> bool:
    return _is_plain(node) and node.value == ""


def _opened(node: yaml.Node) -> int:
    return int(node.value.count("(")) - int(node.value.count(")"))
