"""Names of parts of the state: the user's name, and a generation if it is not the first."""

import re

# No name of a user has an @.
_GENERATION = re.compile(r"@\d+")
_LAST = re.compile(r"@(\d+)$")


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
