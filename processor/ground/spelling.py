"""What a word was probably meant to be, among those that may stand."""

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(word: object, choices: Collection[str]) -> str | None:
    """The choice that `word` is probably a misspelling of.

    >>> did_you_mean("pasword", ["user", "password"])
    'password'
    """
    if not isinstance(word, str):
        return None
    # Names that differ in case alone are the closest there can be.
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def hint(word: object, choices: Collection[str], shown: str = '"{}"') -> str:
    """A question to be said behind a problem; empty where nothing is close.

    >>> hint("summ", ["sum", "max"], "{}()")
    '; did you mean sum()?'
    """
    close = did_you_mean(word, choices)
    return f"; did you mean {shown.format(close)}?" if close else ""


def instead(word: str, choices: Collection[str]) -> str:
    """What else may stand in the place of a wrong word, to be said behind the problem."""
    others = f"; there are {', '.join(sorted(choices))}" if choices else ""
    return hint(word, choices) or others
