"""How deep JSON may be nested: one limit, wherever in the program it is read.

Without one, Python's own stack is the limit, and a message that can be decoded in one
place could not be in another that lies a few calls deeper.
"""

import re
from itertools import accumulate

DEEPEST = 200
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


def too_deep(message: bytes) -> bool:
    """Whether a JSON text has more than `DEEPEST` arrays and objects in each other.

    >>> too_deep(b"[" * 200 + b"]" * 200), too_deep(b"[" * 201 + b"]" * 201)
    (False, True)
    >>> too_deep(b'["' + b"[" * 500 + b'"]')
    False
    """
    # Nearly every message has fewer in all.
    if message.count(b"{") + message.count(b"[") <= DEEPEST:
        return False
    steps = map(_STEPS.__getitem__, _BRACKETS.findall(_TEXTS.sub(b"", message)))
    return max(accumulate(steps), default=0) > DEEPEST
