"""The temporary folder of one run."""

import shutil
import tempfile
from pathlib import Path


class RunFolder:
    """A temporary folder that is created when its path is first read."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """The path of the folder."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="ikebana-run-"))
        return self._path

    def remove(self) -> None:
        """Remove the folder and its content, if it has been created."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
