"""Make texts of users safe to show on a terminal, within a line."""

import unicodedata

# Controls, formats (which reverse text), surrogates, code points without character, line ends.
_UNSEEN = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")


def printable(text: str) -> str:
    r"""Put a text on one line, with invisible characters as their code points.

    >>> printable("a\x1b[31m\tb\n")
    'a\\u001b[31m\\u0009b\\u000a'
    """
    return text if text.isprintable() else "".join(map(_seen, text))


def is_seen(character: str) -> bool:
    """Whether a character can be seen, and leaves the order of the others alone."""
    return unicodedata.category(character) not in _UNSEEN


def _seen(character: str) -> str:
    if is_seen(character):
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
