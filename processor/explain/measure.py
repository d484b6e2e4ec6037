"""Estimate the width of monospaced text without its font, by the number of characters.

The usual monospaced fonts advance by 0.55 to 0.602 of their size.  Characters that they lack come
from other fonts, for which the greatest width is assumed.
"""

import unicodedata
from collections.abc import Iterator

FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_NARROW = 0.61
_FOREIGN = 1.1
_EMOJI = 1.4
# Latin, Greek and Cyrillic, which these fonts have; then punctuation and arrows.
_BLOCKS = (range(0x590), range(0x2010, 0x2028), range(0x2190, 0x2194))
_EMOJI_FROM = 0x1F000
_HANGING = 2


def width(text: str) -> float:
    """Compute the greatest width of a text, in units of the font size."""
    return sum(map(_advance, text))


def wrapped(text: str, most: float) -> Iterator[str]:
    """Break a text into lines of a limited width, at spaces if there are any.

    Further lines are indented a little more than the first.
    """
    indent = " " * (len(text) - len(text.lstrip(" ")))
    if width(indent) > most / 2:
        indent = ""
        text = text.lstrip(" ")
    line, broken = "", False
    for character in text:
        # The text that moves to the next line may leave no more room than before.
        while line.strip() and width(line + character) > most:
            head, space, tail = line.rpartition(" ")
            if character == " " or not space or not head.strip():
                head, tail = line, ""
            yield head.rstrip(" ")
            line, broken = indent + " " * _HANGING + tail.lstrip(" "), True
        if character != " " or line.strip() or not broken:
            line += character
    if line.strip() or not broken:
        yield line.rstrip(" ")


def _advance(character: str) -> float:
    number = ord(character)
    if any(number in block for block in _BLOCKS):
        return _NARROW
    if unicodedata.combining(character):
        return 0.0
    return _EMOJI if number >= _EMOJI_FROM else _FOREIGN
