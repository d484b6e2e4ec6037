"""The limit of nesting in JSON: the same wherever the program reads it.

Without a limit, Python's stack would be one, and a message could be decoded in one place but
not in another that is a few calls deeper.
"""

import re
from collections.abc import Iterable
from itertools import accumulate

try:
    from ikebana.compiled._nesting import any_opens_more
except ImportError:
    any_opens_more = None  # type: ignore[assignment]

DEEPEST = 200
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


def any_too_deep(messages: Iterable[bytes | None]) -> bool:
    """Whether any of many JSON texts is `too_deep`; None is no text."""
    messages = [*messages]
    if any_opens_more is not None and not any_opens_more(messages, DEEPEST):
        return False
    # A text needs a character for each bracket.
    long = [each for each in messages if each is not None and len(each) > DEEPEST]
    return any(map(too_deep, long))


def too_deep(message: bytes) -> bool:
    """Whether a JSON text nests more than `DEEPEST` arrays and objects.

    >>> too_deep(b"[" * 200 + b"]" * 200), too_deep(b"[" * 201 + b"]" * 201)
    (False, True)
    >>> too_deep(b'["' + b"[" * 500 + b'"]')
    False
    """
    # Nearly all messages have fewer bytes, or fewer brackets altogether.
    if len(message) <= DEEPEST or _openings(message) <= DEEPEST:
        return False
    steps = map(_STEPS.__getitem__, _BRACKETS.findall(_TEXTS.sub(b"", message)))
    return max(accumulate(steps), default=0) > DEEPEST


def _openings(message: bytes) -> int:
    # Far quicker than count(): replace() jumps from one bracket to the next.
    return 2 * len(message) - len(message.replace(b"{", b"")) - len(message.replace(b"[", b""))
