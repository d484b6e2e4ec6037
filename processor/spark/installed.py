"""The folder of the Spark within pyspark, and whether a command runs this Python."""

import os
import shutil
import sys
from pathlib import Path

from ikebana.processor.base.machine import folder_of

_folder = folder_of("pyspark")
assert _folder is not None, "pyspark is installed with ikebana"
HOME = _folder
"""The folder of pyspark."""


def is_this_python(command: str) -> bool:
    """Return whether a command runs the same Python as this process, with the same packages.

    An environment has several names for its Python, such as `python` and `python3.11`, and
    shares the interpreter behind these links with other environments.  So the environment's
    folder and the interpreter are compared, not the names.
    """
    path = shutil.which(command)
    if path is None:
        return False
    interpreter = os.path.realpath(path)
    # Python looks for its environment beside the link by which it was called.
    environment = Path(path).absolute().parent.parent
    if not (environment / "pyvenv.cfg").exists():
        environment = Path(interpreter).parent.parent
    return interpreter == os.path.realpath(sys.executable) and (
        os.path.realpath(environment) == os.path.realpath(sys.prefix)
    )
