"""Suggest the word that a user has probably misspelt."""

from collections.abc import Collection
from difflib import get_close_matches


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
