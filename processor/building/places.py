"""The places in a user's code at which the parts of a pipeline were written."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ikebana.errors import PlanError
from ikebana.processor.linear.sql_functions import as_written

# Frames of files in this folder are ours.
_OURS = str(Path(__file__).resolve().parents[1])


class CodePlace(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def here() -> CodePlace:
    """Find the line outside of ikebana from which this was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CodePlace(frame.f_code.co_filename, frame.f_lineno)


def _is_ours(file: str) -> bool:
    # The package is imported through symbolic links.
    return str(Path(file).resolve()).startswith(_OURS)


def placed(error: PlanError, plan: str, places: Mapping[str, CodePlace]) -> PlanError:
    """Add the place of each problem to an error, as far as it is known."""
    problems = [
        (path, f"{as_written(problem)}{_at(path, places)}") for path, problem in error.problems
    ]
    return PlanError(plan, problems)


def _at(path: str, places: Mapping[str, CodePlace]) -> str:
    while path:
        if path in places:
            return f" ({places[path]})"
        path = path.rpartition(".")[0]
    return ""
