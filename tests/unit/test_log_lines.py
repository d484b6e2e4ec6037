"""Log lines as JSON: every line that a command writes on standard error is an object."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from ikebana.processor.base.log_lines import JsonLines


def test_an_error_is_one_object(tmp_path: Path) -> None:
    """What ends a command is told as JSON when the environment asks for it."""
    command = "from ikebana.processor.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "run", str(tmp_path / "none.yaml")],
        env={**os.environ, "IKEBANA_LOG": "json"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("ERROR", "ikebana")
    assert told["message"].startswith("ikebana: could not read pipeline file")


def test_an_exception_stays_on_its_line() -> None:
    """A stack is a field, so that a line is still one object; so are fields of its own."""
    try:
        raise ValueError("of\ntwo lines")
    except ValueError:
        record = logging.getLogger("a").makeRecord(
            "a",
            logging.WARNING,
            "f",
            1,
            "%s!",
            ("so",),
            sys.exc_info(),
            None,
            {"fields": {"n": 1}},
        )
    line = JsonLines().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["n"]) == ("so!", 1)
    assert "ValueError: of\ntwo lines" in told["exception"]
