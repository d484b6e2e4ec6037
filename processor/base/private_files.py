"""Files that only their owner may read, even in a folder that is open to others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Let only the owner access new files of this process and its children.

    An existing folder may be open to others; our files in it are not.  Other restrictions of the
    process's umask stay.
    """
    before = os.umask(_OTHERS)
    os.umask(before | _OTHERS)
    try:
        yield
    finally:
        os.umask(before)
