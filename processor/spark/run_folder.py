"""The temporary folder of one run."""

import shutil
import tempfile
from pathlib import Path


class RunFolder:
    """A temporary folder that is made when it is first asked for."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="ikebana-run-"))
        return self._path

    def remove(self) -> None:
        """Remove it and all that is in it, if it has been made."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
