"""Texts for people: counts with nouns, what a user has probably meant, names made printable."""

import unicodedata
from collections.abc import Collection
from difflib import get_close_matches

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


def counted(count: int, word: str) -> str:
    """Write a count with its noun in singular or plural.

    >>> counted(1, "pass"), counted(2, "batch"), counted(3, "key"), counted(0, "entry")
    ('1 pass', '2 batches', '3 keys', '0 entries')
    """
    if word.endswith(("s", "ch")):
        plural = word + "es"
    elif word.endswith("y") and word[-2] not in "aeiou":
        plural = word[:-1] + "ies"
    else:
        plural = word + "s"
    return f"{count:,} {word if count == 1 else plural}"


def did_you_mean(word: object, choices: Collection[str], cutoff: float = 0.6) -> str | None:
    """Return the choice that `word` probably means, with at least this similarity.

    >>> did_you_mean("pasword", ["user", "password"])
    'password'
    """
    if not isinstance(word, str):
        return None
    # Names that differ only in case are the closest.
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def hint(word: object, choices: Collection[str], shown: str = '"{}"') -> str:
    """Make a question to append to a problem; empty if no choice is close.

    >>> hint("summ", ["sum", "max"], "{}()")
    '; did you mean sum()?'
    """
    close = did_you_mean(word, choices)
    return f"; did you mean {shown.format(close)}?" if close else ""


def instead(word: str, choices: Collection[str]) -> str:
    """Suggest the intended word, or list all choices, to append to a problem."""
    others = f"; there are {', '.join(sorted(choices))}" if choices else ""
    return hint(word, choices) or others
