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


def instead(word: str, choices: Collection[str]) -> str:
    """What else may stand in the place of a wrong word, to be said behind the problem."""
    if close := did_you_mean(word, choices):
        return f'; did you mean "{close}"?'
    return f"; there are {', '.join(sorted(choices))}" if choices else ""
