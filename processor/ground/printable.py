"""Texts of users as they may be shown: on a terminal, and within a line."""

import unicodedata

# Controls, formats (which reverse text), surrogates, what is no character, line ends.
_UNSEEN = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")


def printable(text: str) -> str:
    r"""What can be seen of a text in one line; what cannot is written as its number.

    >>> printable("a\x1b[31m\tb\n")
    'a\\u001b[31m b\\u000a'
    """
    return "".join(map(_seen, text.replace("\t", " ")))


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
