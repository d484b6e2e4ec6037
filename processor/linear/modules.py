"""Import the modules of users' functions, or say why that fails.

They are searched where Python searches, and last in the folder of the pipeline file, so
that no file there hides an installed module.  The folder is in an environment variable, which
Spark passes on to its Python workers.
"""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# The folder of the pipeline file that this process runs.
FOLDER_VARIABLE = "IKEBANA_MODULES"


class ModuleError(Exception):
    """A module cannot be imported; the message says where it was searched, or why."""


def look_in(folder: str) -> None:
    """Look for modules in this folder, too, here and in Spark's workers."""
    os.environ[FOLDER_VARIABLE] = folder


def look_beside_program() -> None:
    """Look for modules beside the program that runs, too, unless another folder is set."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file and not os.environ.get(FOLDER_VARIABLE):
        look_in(str(Path(file).resolve().parent))


def module_named(name: str) -> ModuleType:
    """A module by its name.  Raises: ModuleError."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        with _while(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ModuleError(_raised(error)) from None
        raise ModuleError(f'there is no "{error.name}"{_looked(folder)}') from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is a user's code that runs
        raise ModuleError(_raised(error)) from None


def main_module() -> str | None:
    """The name by which another process can import the running program, if it is a file."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else None


def importing() -> str | None:
    """The module that `module_named` is importing right now; None otherwise."""
    return _importing[-1] if _importing else None


_importing: list[str] = []


@contextlib.contextmanager
def _while(name: str) -> Iterator[None]:
    _importing.append(name)
    try:
        yield
    finally:
        _importing.pop()


def _looked(folder: str | None) -> str:
    path = os.environ.get("PYTHONPATH")
    beside = f" in {folder}, the pipeline file's folder," if folder else ""
    return f"{beside} on PYTHONPATH ({path or 'not set'}) or among what is installed"


def _raised(error: BaseException) -> str:
    """The exception that a module raised while it was imported, and its place."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
        return f"it raised {type(error).__name__}: {error.msg} ({place})"
    frames = traceback.extract_tb(error.__traceback__)
    place = next(
        (
            f" ({frame.filename}, line {frame.lineno})"
            for frame in reversed(frames)
            if not frame.filename.startswith("<frozen")
        ),
        "",
    )
    message = " ".join(str(error).split())
    return f"it raised {type(error).__name__}{': ' * bool(message)}{message}{place}"
