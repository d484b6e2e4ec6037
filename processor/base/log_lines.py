"""Write log lines as JSON for log collectors, with `IKEBANA_LOG=json`.

Each line on standard error is one object with `time`, `level`, `logger` and `message`, and
`exception` if there is one.  Lines of libraries have the same form.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType

import click

VARIABLE = "IKEBANA_LOG"
_LOGGER = logging.getLogger("ikebana")


class JsonLines(logging.Formatter):
    """Formats a log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as an object on one line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def choose(environ: Mapping[str, str]) -> None:
    """Switch logging to JSON if the environment asks for it."""
    if environ.get(VARIABLE) != "json":
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(capture=True)
    _LOGGER.setLevel(logging.INFO)
    sys.excepthook = _uncaught


def is_json() -> bool:
    """Return whether log lines are JSON."""
    return _LOGGER.level == logging.INFO


def info(message: str, **fields: object) -> None:
    """Log an event, with additional fields."""
    _LOGGER.info(message, extra={"fields": fields})


def warning(message: str, **fields: object) -> None:
    """Log a warning, with additional fields."""
    _LOGGER.warning(message, extra={"fields": fields})


def note(message: str, **fields: object) -> None:
    """Report what a command does, as text or as JSON, which has the fields, too."""
    if is_json():
        info(message, **fields)
    else:
        click.echo(message, err=True)


def error(message: str) -> None:
    """Report the error that ended a command, as text or as JSON."""
    if is_json():
        _LOGGER.error(message)
    else:
        click.echo(message, err=True)


def _uncaught(
    kind: type[BaseException], exception: BaseException, trace: TracebackType | None
) -> None:
    _LOGGER.critical("uncaught", exc_info=(kind, exception, trace))
