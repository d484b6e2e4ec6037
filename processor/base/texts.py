"""Texts for people: counts, times and names, and what a user has probably meant."""

import re
import unicodedata
from collections.abc import Collection
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import pairwise
from time import time_ns

# Milliseconds since 1970 in the years 2001 to 2286; other times are not of a wall clock.
EPOCH_MS = range(10**12, 10**13)

# Parts of the state are named by the user's name, and a generation if it is not the first; no
# name of a user has an @.
_GENERATION = re.compile(r"@\d+")
_LAST = re.compile(r"@(\d+)$")
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def iso(time: int) -> str:
    """Write a time in milliseconds as a date and time of day, and any other as a number.

    >>> iso(1_700_000_000_500), iso(42)
    ('2023-11-14T22:13:20.500Z', '42')
    """
    if time not in EPOCH_MS:
        return str(time)
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def lag_s(frontier: int | None, now_ms: int | None = None) -> float | None:
    """Return by how many seconds a frontier is behind the clock; None if it is of another time.

    The clock is this machine's by default.  A frontier can be slightly ahead of it, because it is
    beyond the newest time.

    >>> now = 1_700_000_001_500
    >>> lag_s(1_700_000_000_000, now), lag_s(now + 1, now), lag_s(42, now), lag_s(None, now)
    (1.5, 0.0, None, None)
    """
    if frontier is None or frontier not in EPOCH_MS:
        return None
    now = time_ns() // 1_000_000 if now_ms is None else now_ms
    return max(0, now - frontier) / 1000


def moment(time: int) -> str:
    """Write a time as a number, and a time in milliseconds also as a date and time of day.

    >>> moment(1_700_000_000_500), moment(42)
    ('1700000000500 (2023-11-14T22:13:20.500Z)', '42')
    """
    return f"{time} ({iso(time)})" if time in EPOCH_MS else str(time)


def span(milliseconds: int) -> str:
    """Write a duration in its two largest units.

    >>> span(740), span(1_500), span(1_241_760), span(7_200_000), span(183_600_000)
    ('740 ms', '1.5 s', '20 min 41 s', '2 h', '2 d 3 h')
    """
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.3g} s"
    for (size, unit), (smaller, lesser) in pairwise(_UNITS):
        if milliseconds >= size:
            whole, rest = divmod(milliseconds, size)
            more = rest // smaller
            return f"{whole} {unit}" + (f" {more} {lesser}" if more else "")
    raise AssertionError(milliseconds)


def parse_moment(text: str) -> int:
    """Read a time: a whole number, or a date with or without a time of day, in UTC by default.

    >>> parse_moment("42"), parse_moment("2013-07-02"), parse_moment("2013-07-02T02:00:00.5+02:00")
    (42, 1372723200000, 1372723200500)

    Raises:
        ValueError: the text is neither.
    """
    try:
        return int(text)
    except ValueError:
        read = datetime.fromisoformat(text)
    zoned = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)


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


def suggestion(word: str, choices: Collection[str]) -> str:
    """Suggest the intended word, or list all choices, to append to a problem."""
    others = f"; there are {', '.join(sorted(choices))}" if choices else ""
    return hint(word, choices) or others


def shown(name: str) -> str:
    """Return the name of a part as the user has written it.

    >>> shown("totals@2"), shown("totals"), shown("sold@3/o/0")
    ('totals', 'totals', 'sold/o/0')
    """
    return _GENERATION.sub("", name)


def generation(name: str) -> int:
    """Return the generation of a part, counted from 1.

    >>> generation("totals@2"), generation("totals")
    (2, 1)
    """
    match = _LAST.search(name)
    return int(match[1]) if match else 1
