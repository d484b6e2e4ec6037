"""What is said of a start of Spark that has failed."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ikebana.errors import IkebanaError, LostError, SparkStartError
from ikebana.processor.spark.jvm import Jvm
from ikebana.processor.spark.session import _not_started

BANNER = 'Setting default log level to "WARN".\nTo adjust logging level use sc.setLogLevel.\n'
REFUSED = ConnectionRefusedError(111, "Connection refused")


class OfStatus(Jvm):
    """A JVM that runs, or has ended with a status, and has written nothing but a banner."""

    def __init__(self, folder: Path) -> None:
        self.ended_with: int | None = None
        self.log = folder / "spark.log"
        self.log.write_text(BANNER)
        self._log: Path | None = self.log

    @property
    def status(self) -> int | None:
        return self.ended_with

    def ends(self, within_s: float) -> bool:
        return self.ended_with is not None


@pytest.fixture
def jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OfStatus:
    """A JVM, in a run whose temporary files lie in a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return OfStatus(tmp_path)


def failed(jvm: OfStatus, status: int | None, cause: Exception) -> tuple[IkebanaError, str]:
    """The error of a start, and what is in the file that its hint names."""
    jvm.ended_with = status
    error = _not_started(jvm, cause)
    named = re.search(r"in (\S+)\.$", error.hint or "")
    return error, "" if named is None else Path(named[1]).read_text()


@pytest.mark.parametrize("cause", [REFUSED, TypeError("'JavaPackage' object is not callable")])
def test_a_jvm_that_was_killed_is_lost(jvm: OfStatus, cause: Any) -> None:
    """Whatever the call that it has cut off says; it is worth another attempt."""
    error, _ = failed(jvm, -9, cause)

    assert type(error) is LostError
    assert error.message == "Spark's JVM was killed by signal 9 while it started"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param("", "", id="nothing said"),
        pytest.param("Error: no such class\n", ": Error: no such class", id="its words"),
        pytest.param("WARNING: old\nbad option\nError\n", ": bad option", id="the first of them"),
    ],
)
def test_a_jvm_that_has_ended_by_itself_is_quoted(jvm: OfStatus, words: str, told: str) -> None:
    """It would end so again: that is no loss."""
    jvm.log.write_text(BANNER + words)

    error, kept = failed(jvm, 1, REFUSED)

    assert type(error) is SparkStartError
    assert error.message == f"could not start Spark: its JVM ended with status 1{told}"
    assert kept.startswith(BANNER + words)


@pytest.mark.parametrize(
    ("cause", "told"),
    [(ValueError("bad master"), "bad master"), (AssertionError(), "AssertionError")],
)
def test_what_fails_in_a_jvm_that_runs_has_a_reason(
    jvm: OfStatus, cause: Exception, told: str
) -> None:
    """Also one without words; the file that is named has all of it, behind the JVM's log."""
    error, kept = failed(jvm, None, cause)

    assert (type(error), error.message) == (SparkStartError, f"could not start Spark: {told}")
    assert kept.startswith(BANNER)
    assert type(cause).__name__ in kept.removeprefix(BANNER)


def test_a_file_is_named_also_where_the_jvm_writes_elsewhere(jvm: OfStatus) -> None:
    """The error is in it."""
    jvm._log = None

    _, kept = failed(jvm, None, ValueError("bad master"))

    assert kept == "ValueError: bad master\n"
