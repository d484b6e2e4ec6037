"""Where what is made once is kept: jars of the broker, archives of classes."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder of this user; it need not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ikebana"
