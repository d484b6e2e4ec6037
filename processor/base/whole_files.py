"""Write files atomically: readers see a whole file or none, also with several writers."""

import os
from pathlib import Path


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically, because several processes may write it at once."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
