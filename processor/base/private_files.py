"""Files that nobody but their owner may read, whoever may look into their folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Make new files of this process, and of those that it starts, the owner's alone.

    A folder that was there before may be open to others; our files in it are not.  What the
    process was told to keep from its owner, too, stays so.
    """
    before = os.umask(_OTHERS)
    os.umask(before | _OTHERS)
    try:
        yield
    finally:
        os.umask(before)
