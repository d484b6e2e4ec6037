"""Find the folders of installed packages without importing them, which may take a second."""

from importlib.util import find_spec
from pathlib import Path


def folder_of(package: str) -> Path | None:
    """Find the folder of a package without importing it; None if it is not installed."""
    spec = find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None
