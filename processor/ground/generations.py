"""Names of parts of the state: those of users, and which of one name a part is."""

import re

# No name of a user has an @.
_GENERATION = re.compile(r"@\d+")
_LAST = re.compile(r"@(\d+)$")


def shown(name: str) -> str:
    """The name of a part as its user has written it.

    >>> shown("totals@2"), shown("totals"), shown("sold@3/o/0")
    ('totals', 'totals', 'sold/o/0')
    """
    return _GENERATION.sub("", name)


def generation(name: str) -> int:
    """Which one of its name a part is, from 1 on.

    >>> generation("totals@2"), generation("totals")
    (2, 1)
    """
    found = _LAST.search(name)
    return int(found[1]) if found else 1
