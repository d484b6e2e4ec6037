"""Where pyspark lies; to import it takes a quarter of a second."""

from importlib.util import find_spec
from pathlib import Path


def _home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


HOME = _home()
"""The folder of pyspark, with the Spark that comes with it."""
