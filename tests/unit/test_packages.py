"""Where installed packages lie."""

import subprocess
import sys
from pathlib import Path

import pyspark

from ikebana.processor.base.machine import folder_of


def test_a_package_is_found_where_it_is_imported_from() -> None:
    """One that is not installed is nowhere."""
    assert folder_of("pyspark") == Path(pyspark.__file__).parent
    assert folder_of("there_is_no_such_package") is None


def test_it_is_not_imported() -> None:
    """That may take a second."""
    script = (
        "import sys; from ikebana.processor.base.machine import folder_of; "
        "folder_of('pyspark'); sys.exit('pyspark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], timeout=300, check=True)
