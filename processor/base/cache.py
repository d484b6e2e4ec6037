"""The cache folder, with the jars of the broker and archives of classes."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of this user, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ikebana"
