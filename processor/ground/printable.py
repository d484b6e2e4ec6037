"""Make texts of users safe to show on a terminal, within a line."""

import unicodedata

# Controls, formats (which reverse text), surrogates, code points without character, line ends.
_UNSEEN = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")


def printable(text: str) -> str:
    r"""Put a text on one line, with invisible characters as their code points.

    >>> printable("a\x1b[31m\tb\n")
    'a\\u001b[31m b\\u000a'
    """
    return "".join(map(_seen, text.replace("\t", " ")))


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
